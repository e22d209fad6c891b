"""Sets in the last dimension of dense or sparse tensors, and edit distances between sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import SparseTensor, SparseTensorValue
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.sparse import set_kernels
from headrace._src.ops.sparse.sparse_ops import check_sparse

__all__ = [
    "edit_distance",
    "set_difference",
    "set_intersection",
    "set_size",
    "set_union",
]

_TYPES = "T: {int8|int16|int32|int64|uint8|uint16|string}"
_RESULT = "-> result_indices: int64, result_values: T, result_shape: int64"
_SET = ([[0, 0], [0, 1], [1, 0]], r(3, low=0, high=4), [2, 2])
_NOTHING = (np.zeros((0, 2), np.int64), r(0), [2, 2])


def _operation_infer(c: InferenceContext, *shapes: TensorShape) -> list[Any]:
    """The result has as many dimensions as each of the two sets, dense or sparse."""
    rank = TensorShape((None,))
    groups = TensorShape(None)  # all dimensions of dense sets except the last
    for position, argument in enumerate(c.op.definition.schema.inputs):
        if argument.name.endswith("_values"):
            check_sparse(*shapes[position - 1 : position + 2])
            rank = rank.merge_with(shapes[position + 1])
        elif argument.name in ("set1", "set2"):
            dense = shapes[position].with_rank_at_least(2)
            if dense.sizes is not None:
                groups = groups.merge_with(dense[:-1])
                rank = rank.merge_with((dense.rank,))
    (count,) = rank.as_list()
    if count is not None and count < 2:
        raise ValueError(f"Input 0, expected rank >= 2, got {count}.")
    return [(None, count), (None,), (count,)]


_OPERATIONS = ("a-b", "b-a", "intersection", "union")


@define(
    "DenseToDenseSetOperation",
    "set1: T, set2: T " + _RESULT,
    "set_operation: string; validate_indices: bool = True; " + _TYPES,
    infer=_operation_infer,
    kernel=set_kernels.dense_to_dense_set_operation,
    samples=[
        Sample(r(2, 4, low=0, high=5), r(2, 3, low=0, high=5), set_operation=o) for o in _OPERATIONS
    ]
    + [Sample(r(2, 1, 0), r(2, 1, 2), set_operation="union")],
)
def dense_to_dense_set_operation(set1, set2, set_operation, validate_indices=True, name=None):
    """Combine the sets in the rows of two dense tensors."""


@define(
    "DenseToSparseSetOperation",
    "set1: T, set2_indices: int64, set2_values: T, set2_shape: int64 " + _RESULT,
    "set_operation: string; validate_indices: bool = True; " + _TYPES,
    infer=_operation_infer,
    kernel=set_kernels.dense_to_sparse_set_operation,
    samples=[Sample(r(2, 3, low=0, high=4), *_SET, set_operation=o) for o in _OPERATIONS],
)
def dense_to_sparse_set_operation(
    set1, set2_indices, set2_values, set2_shape, set_operation, validate_indices=True, name=None
):
    """Combine the sets in the rows of a dense and a sparse tensor."""


@define(
    "SparseToSparseSetOperation",
    "set1_indices: int64, set1_values: T, set1_shape: int64, "
    "set2_indices: int64, set2_values: T, set2_shape: int64 " + _RESULT,
    "set_operation: string; validate_indices: bool = True; " + _TYPES,
    infer=_operation_infer,
    kernel=set_kernels.sparse_to_sparse_set_operation,
    samples=[Sample(*_SET, *_SET, set_operation=o) for o in _OPERATIONS]
    + [Sample(*_NOTHING, *_SET, set_operation="union", validate_indices=False)],
)
def sparse_to_sparse_set_operation(
    set1_indices,
    set1_values,
    set1_shape,
    set2_indices,
    set2_values,
    set2_shape,
    set_operation,
    validate_indices=True,
    name=None,
):
    """Combine the sets in the rows of two sparse tensors."""


def _size_infer(
    c: InferenceContext, indices: TensorShape, values: TensorShape, shape: TensorShape
) -> Any:
    sizes = c.shape_from(2).sizes if c.settled else None
    return None if sizes is None else sizes[:-1]


@define(
    "SetSize",
    "set_indices: int64, set_values: T, set_shape: int64 -> size: int32",
    "validate_indices: bool = True; " + _TYPES,
    infer=_size_infer,
    kernel=set_kernels.set_size,
    samples=[Sample(*_SET), Sample(*_NOTHING)],
)
def set_size_op(set_indices, set_values, set_shape, validate_indices=True, name=None):
    """Count the distinct values of each set."""


_VALID = (
    dtypes.int8,
    dtypes.int16,
    dtypes.int32,
    dtypes.int64,
    dtypes.uint8,
    dtypes.uint16,
    dtypes.string,
)


def _operands(first: Any, second: Any) -> tuple[Any, Any, bool]:
    """Return both operands as tensors, the dense one first, and whether they were swapped."""
    a = b.convert_to_tensor_or_sparse_tensor(first, name="a")
    if a.dtype.base_dtype not in _VALID:
        raise TypeError(f"'a' dtype {a.dtype!r} invalid.")
    c = b.convert_to_tensor_or_sparse_tensor(second, name="b")
    if c.dtype.base_dtype is not a.dtype.base_dtype:
        raise TypeError(f"Types don't match, {a.dtype!r} vs {c.dtype!r}.")
    if isinstance(a, SparseTensor) and not isinstance(c, SparseTensor):
        return c, a, True
    return a, c, False


def _operate(a: Any, c: Any, operation: str, validate: bool) -> SparseTensor:
    if isinstance(a, SparseTensor):
        result = sparse_to_sparse_set_operation(
            *a.components(), *c.components(), operation, validate
        )
    elif isinstance(c, SparseTensor):
        result = dense_to_sparse_set_operation(a, *c.components(), operation, validate)
    else:
        result = dense_to_dense_set_operation(a, c, operation, validate)
    return SparseTensor(*result)


@composed
@export("sets.intersection", "sets.set_intersection", "contrib.metrics.set_intersection")
def set_intersection(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """Return, for each row, the values that are in both `a` and `b`."""
    first, second, _ = _operands(a, b)
    return _operate(first, second, "intersection", validate_indices)


@composed
@export("sets.difference", "sets.set_difference", "contrib.metrics.set_difference")
def set_difference(
    a: Any, b: Any, aminusb: bool = True, validate_indices: bool = True
) -> SparseTensor:
    """Return, for each row, the values of `a` that aren't in `b`; the reverse if not `aminusb`."""
    first, second, swapped = _operands(a, b)
    operation = "a-b" if aminusb != swapped else "b-a"
    return _operate(first, second, operation, validate_indices)


@composed
@export("sets.set_union", "sets.union", "contrib.metrics.set_union")
def set_union(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """Return, for each row, the values that are in `a` or in `b`."""
    first, second, _ = _operands(a, b)
    return _operate(first, second, "union", validate_indices)


@composed
@export("sets.set_size", "sets.size", "contrib.metrics.set_size")
def set_size(a: Any, validate_indices: bool = True) -> Tensor:
    """Return the number of distinct values in each row of a sparse tensor."""
    sets = b.convert_to_tensor_or_sparse_tensor(a, name="a")
    if not isinstance(sets, SparseTensor):
        raise TypeError(f"Expected `SparseTensor`, got {sets}.")
    if sets.values.dtype.base_dtype not in _VALID:
        raise TypeError(f"Invalid dtype {sets.values.dtype!r}.")
    return set_size_op(*sets.components(), validate_indices)


# -- Sequences


def _distance_infer(c: InferenceContext, *shapes: TensorShape) -> Any:
    check_sparse(*shapes[:3])
    check_sparse(*shapes[3:])
    given, truth = c.shape_from(2).sizes, c.shape_from(5).sizes
    if given is None or truth is None or c.value(2) is None or c.value(5) is None:
        return None
    if len(given) != len(truth):
        raise ValueError(f"Ranks of hypothesis and truth differ: {len(given)} and {len(truth)}")
    pairs = zip(given[:-1], truth[:-1], strict=True)
    return tuple(None if m is None or n is None else max(m, n) for m, n in pairs)


@define(
    "EditDistance",
    "hypothesis_indices: int64, hypothesis_values: T, hypothesis_shape: int64, "
    "truth_indices: int64, truth_values: T, truth_shape: int64 -> output: float32",
    "normalize: bool = True; T: type",
    infer=_distance_infer,
    kernel=set_kernels.edit_distance,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(*_SET, [[0, 0], [1, 0], [1, 1]], r(3, low=0, high=4), [2, 3], normalize=normalize)
        for normalize in (True, False)
    ],
)
def edit_distance_op(
    hypothesis_indices,
    hypothesis_values,
    hypothesis_shape,
    truth_indices,
    truth_values,
    truth_shape,
    normalize=True,
    name=None,
):
    """Return the Levenshtein distance between the rows of two sparse tensors."""


@composed
@export("edit_distance")
def edit_distance(
    hypothesis: Any, truth: Any, normalize: bool = True, name: str = "edit_distance"
) -> Tensor:
    """Return the edit distance of each hypothesis to its truth, relative to the truth's length.

    normalize: divide by the truth's length; otherwise return the number of edits.
    """
    for role, value in (("Hypothesis", hypothesis), ("Truth", truth)):
        if not isinstance(value, SparseTensor | SparseTensorValue):
            raise TypeError(f"{role} must be a SparseTensor.")
    given, right = SparseTensor.from_value(hypothesis), SparseTensor.from_value(truth)
    return edit_distance_op(
        *given.components(), *right.components(), normalize=normalize, name=name
    )
