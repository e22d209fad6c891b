"""The ops of ragged tensors. In: flat values and nested row splits, as tensors. Out: the same."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.ragged import ragged_kernels

__all__ = ["ragged_gather_op", "ragged_range_op", "ragged_tensor_to_sparse_op"]


def _at_most_a_vector(shape: TensorShape) -> None:
    if shape.rank is not None and shape.rank > 1:
        raise ValueError(f"Shape must be at most rank 1 but is rank {shape.rank}")


def _range_infer(c: InferenceContext, *bounds: TensorShape) -> list[Any]:
    rows: Any = None
    for shape in bounds:
        _at_most_a_vector(shape)
        if shape.rank == 1 and shape[0].value is not None:
            size = shape[0].value
            if rows is not None and rows != size:
                raise ValueError(f"Dimensions must be equal, but are {size} and {rows}")
            rows = size
    if rows is None and all(shape.rank == 0 for shape in bounds):
        rows = 1
    return [(None if rows is None else rows + 1,), (None,)]


@define(
    "RaggedRange",
    "starts: T, limits: T, deltas: T -> rt_nested_splits: Tsplits, rt_dense_values: T",
    "T: {bfloat16|float32|float64|int32|int64} = int32; Tsplits: {index} = int64",
    infer=_range_infer,
    kernel=ragged_kernels.ragged_range,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample([0, 5, 8], [3, 5, 12], 1),
        Sample(0, [3, 0, 1], [1, 2, 1], Tsplits=dtypes.int32),
        Sample([5, 1], 0, -2),
        Sample(2, 8, 3),
        Sample([], [], 1),
    ],
)
def ragged_range_op(starts, limits, deltas, Tsplits=dtypes.int64, name=None):
    """Return the splits and values of rows `starts[i], starts[i] + deltas[i], ...` up to
    `limits[i]`, which is excluded.
    """


def _gather_infer(c: InferenceContext, splits: Any, values: TensorShape, indices: Any) -> list[Any]:
    for level in splits:
        infer.with_rank(level, 1)
    infer.with_rank_at_least(values, 1)
    depth = c.attrs["OUTPUT_RAGGED_RANK"]
    infer.with_rank(indices, depth - len(splits) + 1)
    return [(None,)] * depth + [TensorShape([None]).concatenate(values[1:])]


def _gather_gradient(b: Any, op: Any, *gradients: Any) -> list[Any]:
    *splits, values, indices = op.inputs
    depth = op.get_attr("OUTPUT_RAGGED_RANK")
    count = b.shape(values, out_type=dtypes.int64)[0]
    found = b.ragged_gather_op(splits, b.range(count), indices, depth)
    given = b.unsorted_segment_sum(gradients[-1], found.output_dense_values, count)
    return [*[None] * len(splits), given, None]


@define(
    "RaggedGather",
    "params_nested_splits: PARAMS_RAGGED_RANK*Tsplits, params_dense_values: Tvalues, "
    "indices: Tindices -> output_nested_splits: OUTPUT_RAGGED_RANK*Tsplits, "
    "output_dense_values: Tvalues",
    "Tvalues: type; Tindices: {index}; Tsplits: {index} = int64; PARAMS_RAGGED_RANK: int >= 1; "
    "OUTPUT_RAGGED_RANK: int >= 0",
    infer=_gather_infer,
    kernel=ragged_kernels.gather,
    gradient=_gather_gradient,
    samples=[
        Sample([[0, 2, 3, 3]], r(3), [2, 0, 0], OUTPUT_RAGGED_RANK=1),
        Sample([[0, 2, 3, 3]], r(3, 2), [[1, 0], [0, 1]], OUTPUT_RAGGED_RANK=2),
        Sample([[0, 2, 3, 3], [0, 1, 1, 2]], r(2, 2), [0, 1], OUTPUT_RAGGED_RANK=2),
        Sample([[0, 2, 3, 3]], r(3), 0, OUTPUT_RAGGED_RANK=0),
        Sample([[0]], r(0), [], OUTPUT_RAGGED_RANK=1),
    ],
)
def ragged_gather_op(
    params_nested_splits, params_dense_values, indices, OUTPUT_RAGGED_RANK, name=None
):
    """Return the nested splits and values of the rows that `indices` select."""


def _to_sparse_infer(c: InferenceContext, splits: Any, values: TensorShape) -> list[Any]:
    for level in splits:
        infer.with_rank(level, 1)
    infer.with_rank_at_least(values, 1)
    count = values.num_elements()
    rank = None if values.rank is None else len(splits) + values.rank
    return [(count, rank), (count,), (rank,)]


@define(
    "RaggedTensorToSparse",
    "rt_nested_splits: RAGGED_RANK*Tsplits, rt_dense_values: T -> "
    "sparse_indices: int64, sparse_values: T, sparse_dense_shape: int64",
    "RAGGED_RANK: int >= 1; T: type; Tsplits: {index} = int64",
    infer=_to_sparse_infer,
    kernel=ragged_kernels.to_sparse,
    gradient=lambda b, op, indices, values, shape: [
        *[None] * (len(op.inputs) - 1),
        b.reshape(values, b.shape(op.inputs[-1])),
    ],
    samples=[
        Sample([[0, 2, 3, 3]], r(3)),
        Sample([[0, 2, 3], [0, 1, 1, 2]], r(2, 2)),
        Sample([[0]], r(0, 3)),
    ],
)
def ragged_tensor_to_sparse_op(rt_nested_splits, rt_dense_values, name=None):
    """Return the indices, values and shape of a sparse tensor with the same rows."""


_PARTITIONS = ("FIRST_DIM_SIZE", "VALUE_ROWIDS", "ROW_LENGTHS", "ROW_SPLITS", "ROW_LIMITS")
_PARTITIONS += ("ROW_STARTS",)


def _partition_depth(types: list[str]) -> int:
    """Return the number of ragged dimensions that a list of partition types describes."""
    for kind in types:
        if kind not in _PARTITIONS:
            raise ValueError(f"Unknown string for partition info type: {kind}")
    for kind in types:
        if kind not in ("FIRST_DIM_SIZE", "VALUE_ROWIDS", "ROW_SPLITS"):
            raise ValueError(f"Unsupported partition type: {kind}")
    if not types:
        raise ValueError("Partition info types should not be empty")
    if types[0] == "VALUE_ROWIDS":
        raise ValueError("VALUE_ROWIDS cannot be first")
    if types[0] == "FIRST_DIM_SIZE":
        if types[1:2] != ["VALUE_ROWIDS"]:
            raise ValueError("FIRST_DIM_SIZE must be followed by VALUE_ROWIDS")
        types = types[1:]
    if "FIRST_DIM_SIZE" in types:
        raise ValueError("FIRST_DIM_SIZE must be first")
    return len(types)


def _to_tensor_infer(
    c: InferenceContext, shape: TensorShape, values: TensorShape, default: Any, tensors: Any
) -> Any:
    names = [t.decode() if isinstance(t, bytes) else t for t in c.attrs["row_partition_types"]]
    depth = _partition_depth(names)
    if len(names) != len(tensors):
        raise ValueError(
            f"{len(names)} row_partition_types don't describe {len(tensors)} row_partition_tensors"
        )
    _at_most_a_vector(shape)
    if shape.rank is None:
        return TensorShape(None)
    if values.rank is None:
        return c.shape_from(0) if shape.rank == 1 else TensorShape(None)
    infer.with_rank_at_least(values, 1)
    known = TensorShape([None] * (depth + 1)).concatenate(values[1:])
    return known.merge_with(c.shape_from(0)) if shape.rank == 1 else known


def _to_tensor_gradient(b: Any, op: Any, grad: Any) -> list[Any]:
    shape, values, default, *partition = op.inputs
    types = op.get_attr("row_partition_types")
    count = b.shape(values)[0]
    depth = _partition_depth([t.decode() if isinstance(t, bytes) else t for t in types])
    outer = shape[: depth + 1] if shape.shape.ndims else shape
    # The number of the value at each place, -1 where the default is; such segments are dropped.
    places = b.ragged_tensor_to_tensor_op(outer, b.range(count), -1, partition, types)
    filled = b.cast(b.greater_equal(places, 0), dtypes.int32)
    rest = b.unsorted_segment_sum(grad, b.negative(filled), 1)[0]
    return [
        None,
        b.unsorted_segment_sum(grad, places, count),
        b.sum_to(rest, default),
        *[None] * len(partition),
    ]


@define(
    "RaggedTensorToTensor",
    "shape: Tshape, values: T, default_value: T, "
    "row_partition_tensors: num_row_partition_tensors*Tindex -> result: T",
    "T: type; Tindex: {int64|int32}; Tshape: {int64|int32}; num_row_partition_tensors: int >= 1; "
    "row_partition_types: list(string)",
    infer=_to_tensor_infer,
    kernel=ragged_kernels.to_tensor,
    gradient=_to_tensor_gradient,
    samples=[
        Sample([-1, -1], r(3), r(), [[0, 2, 3]], row_partition_types=["ROW_SPLITS"]),
        Sample([1, 3], r(3), r(), [[0, 2, 3]], row_partition_types=["ROW_SPLITS"]),
        Sample(-1, r(3, 2), r(2), [[0, 0, 3]], row_partition_types=["ROW_SPLITS"]),
        Sample(
            [-1, -1],
            r(3),
            r(),
            [3, [0, 0, 2]],
            row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS"],
        ),
        Sample(
            [-1, 2, -1],
            r(3),
            r(),
            [[0, 2, 2, 3], [0, 1, 2, 3]],
            row_partition_types=["ROW_SPLITS", "ROW_SPLITS"],
        ),
    ],
)
def ragged_tensor_to_tensor_op(
    shape, values, default_value, row_partition_tensors, row_partition_types, name=None
):
    """Return ragged rows as a dense tensor, filled up with a default value.

    shape: the size of each dimension, -1 for the smallest that holds all. row_partition_types: what
    each of row_partition_tensors is: row splits, row numbers, or the number of rows.
    """


@define(
    "RaggedTensorToVariant",
    "rt_nested_splits: RAGGED_RANK*Tsplits, rt_dense_values: Tvalues -> encoded_ragged: variant",
    "RAGGED_RANK: int >= 1; Tvalues: type; Tsplits: {index}; batched_input: bool",
    infer=lambda c, splits, values: (
        _rows_of(splits[0]) if c.attrs["batched_input"] else TensorShape([])
    ),
    kernel=ragged_kernels.to_variant,
    gradient=NOT_DIFFERENTIABLE,
)
def ragged_tensor_to_variant_op(rt_nested_splits, rt_dense_values, batched_input, name=None):
    """Return a ragged tensor in a variant, or a vector with a variant for each of its rows."""


def _rows_of(splits: TensorShape) -> TensorShape:
    count = infer.with_rank(splits, 1)[0].value
    return TensorShape([None if count is None else max(count - 1, 0)])


def _from_variant_infer(c: InferenceContext, encoded: TensorShape) -> list[Any]:
    depth = c.attrs["output_ragged_rank"]
    if c.attrs["input_ragged_rank"] >= 0:
        infer.with_rank(encoded, depth - c.attrs["input_ragged_rank"])
    return [(None,)] * depth + [TensorShape(None)]


@define(
    "RaggedTensorFromVariant",
    "encoded_ragged: variant -> output_nested_splits: output_ragged_rank*Tsplits, "
    "output_dense_values: Tvalues",
    "input_ragged_rank: int >= -1; output_ragged_rank: int >= 1; Tvalues: type; Tsplits: {index}",
    infer=_from_variant_infer,
    kernel=ragged_kernels.from_variant,
    gradient=NOT_DIFFERENTIABLE,
)
def ragged_tensor_from_variant_op(
    encoded_ragged,
    input_ragged_rank,
    output_ragged_rank,
    Tvalues,
    Tsplits=dtypes.int64,
    name=None,
):
    """Return the nested splits and values of the ragged tensors in an array of variants, whose
    dimensions become the outermost ones.
    """
