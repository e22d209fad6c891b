"""Ordering: sort, top_k, searchsorted.

Equal elements keep their order: the one with the lower index comes first, ascending or not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Sample
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering import generated
from headrace._src.lowering.anchors import largest
from headrace._src.lowering.rules import COMPILED, Anchor
from headrace._src.ops.base import to_tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math.sum_precision import widened

__all__ = ["argsort", "in_top_k", "searchsorted", "sort", "top_k"]

# From this many elements on, packing pays off; this many are packed at a time, to stay in L2.
_LARGE = 1 << 10
_BLOCK = 1 << 15
_FEW = 32  # the largest k for which generated code is fast: it inserts one by one
_PACKABLE = tuple(np.dtype(t) for t in ("float32", "int32", "int16", "int8", "uint16", "uint8"))

# -- The largest elements --------------------------------------------------------------------------


def _top_k_shape(x: TensorShape, k: int | None) -> Any:
    if x.sizes is None:
        return [None, None]
    if not x.sizes:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    if k is not None:
        if k < 0:
            raise ValueError(f"Need k >= 0, got {k}")
        if x.sizes[-1] is not None and x.sizes[-1] < k:
            raise ValueError(f"input must have last dimension >= k = {k} but is {x.sizes[-1]}")
    return [(*x.sizes[:-1], k)] * 2


def _top_k_infer(c: Any, x: TensorShape, k: TensorShape) -> Any:
    count = c.value(1)
    return _top_k_shape(x, None if count is None or count.ndim else int(count))


def _largest(x: np.ndarray, k: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest of each row, in descending order, and their indices."""
    if not np.ndim(x) or np.ndim(k):
        raise ValueError("input must be >= 1-D and k a scalar")
    count = int(k)
    if count < 0:
        raise ValueError(f"Need k >= 0, got {count}")
    if x.shape[-1] < count:
        raise ValueError(f"input must have at least k columns. Had {x.shape[-1]}, needed {count}")
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    shape = (*x.shape[:-1], count)
    if 0 < count <= _FEW and rows.size >= generated.LEAST and rows.dtype.name in COMPILED:
        find = generated.largest(rows.dtype.name)
        if find is not None:
            values, places = np.empty(shape, x.dtype), np.empty(shape, np.int32)
            find(np.ascontiguousarray(rows), values.reshape(-1, count), places.reshape(-1, count))
            return values, places
    found = _places(widened(rows), count)
    return _taken(rows, found).reshape(shape), found.astype(np.int32, copy=False).reshape(shape)


def _taken(rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """np.take_along_axis(rows, places, 1), in blocks and with flat indices: twice as fast."""
    values = np.empty(places.shape, rows.dtype)
    size = rows.shape[1]
    step = max(_BLOCK // max(size, 1), 1)
    starts = np.arange(min(step, len(rows)))[:, None] * size
    for start in range(0, len(rows), step):
        block = places[start : start + step]
        values[start : start + step] = rows[start : start + step].take(block + starts[: len(block)])
    return values


def _places(rows: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k largest of each row, in descending order, equal ones left to
    right.
    """
    size = rows.shape[1]
    if k == 1 and rows.size:
        return rows.argmax(1)[:, None]
    if 0 < k < size // 4 and rows.size:
        return _places_by_partition(rows, k)
    return _places_by_sorting(rows)[:, :k]


def _places_by_sorting(rows: np.ndarray) -> np.ndarray:
    if _packs(rows):
        return _places_by_packing(rows)
    # A stable sort of the reversed row, read backwards: descending, ties by ascending index.
    backwards = np.argsort(rows[:, ::-1], axis=1, kind="stable")
    return rows.shape[1] - 1 - backwards[:, ::-1]


def _packs(rows: np.ndarray) -> bool:
    """Whether elements can be ordered as int32, and are enough to make it worthwhile."""
    if rows.size < _LARGE or rows.dtype not in _PACKABLE:
        return False
    return rows.dtype != np.float32 or not np.isnan(rows).any()


def _places_by_packing(rows: np.ndarray) -> np.ndarray:
    """Sort (element, index) pairs, packed in int64, which NumPy does with vector instructions.

    1000 rows of 1000 floats: 9 ms; a stable argsort takes 55.
    """
    size = rows.shape[1]
    places = np.empty(rows.shape, np.int32)
    step = max(_BLOCK // size, 1)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        if block.dtype == np.float32:
            # The bits of floats order as integers, except for negative ones, whose order is
            # reversed.
            bits = (block + np.float32(0)).view(np.int32)  # -0 + 0 is 0
            bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
        else:
            bits = block.astype(np.int32)
        pairs = np.invert(bits, out=bits).astype(np.int64)  # reverses the order
        pairs <<= 32
        pairs |= np.arange(size)
        pairs.sort(axis=1)
        places[start : start + step] = pairs  # keeps the lower half
    return places


def _places_by_partition(rows: np.ndarray, k: int) -> np.ndarray:
    """As `_places`, but only the k largest are sorted."""
    least = np.partition(rows, rows.shape[1] - k, axis=1)[:, -k, None]
    chosen = ~(rows < least)  # NaN counts as the largest
    unclear = np.count_nonzero(chosen, axis=1) != k  # more elements equal the least one
    chosen[unclear] = False
    found = np.flatnonzero(chosen).reshape(-1, k)
    order = _places_by_sorting(rows.take(found))
    places = np.empty((len(rows), k), np.intp)
    places[~unclear] = _taken(found % rows.shape[1], order)
    if unclear.any():
        places[unclear] = _places_by_sorting(rows[unclear])[:, :k]
    return places


@counted(43)
def _top_k_gradient(b: OpBuilder, op: Operation, dvalues: Any, _: Any) -> Any:
    x, found = op.inputs[0], op.outputs[1]
    shape = b.shape(x)
    size, k = shape[-1], b.shape(found)[-1]
    count = b.size(x)
    starts = b.expand_dims(b.range(0, count, b.maximum(size, 1)), -1)
    places = b.add(b.reshape(found, b.stack([b.size(starts), k])), starts)
    flat = b.scatter_nd(
        b.reshape(places, [-1, 1]), b.reshape(dvalues, [-1]), b.expand_dims(count, 0)
    )
    return (b.reshape(flat, shape), *[None] * (len(op.inputs) - 1))


@export("nn.top_k", "math.top_k")
@define(
    "TopKV2",
    "input: T, k: int32 -> values: T, indices: int32",
    "sorted: bool = True; T: {reals}",
    infer=_top_k_infer,
    kernel=_largest,
    fresh=True,
    gradient=_top_k_gradient,
    lower=Anchor("largest", largest),
    samples=[
        Sample(r(2, 5), 2),
        Sample(r(4), 1),
        Sample(r(2, 2, 3), 3, sorted=False),
        Sample(r(3, 20), 3),
        Sample(r(2, 3), 0),
    ],
)
def top_k(input, k=1, sorted=True, name=None):
    """Return the k largest elements of each row, in descending order, and their indices.

    sorted: whether the results must be in descending order; here they always are.
    """


@define(
    "TopK",
    "input: T -> values: T, indices: int32",
    "k: int >= 0; sorted: bool = True; T: {reals}",
    infer=lambda c, x: _top_k_shape(x, c.attrs["k"]),
    kernel=lambda x, *, k: _largest(x, k),
    fresh=True,
    gradient=_top_k_gradient,
    lower=Anchor("largest", largest),
    samples=[Sample(r(2, 5), k=2), Sample(r(4), k=4)],
)
def top_k_old(input, k, sorted=None, name=None):
    """Return the k largest elements of each row; an old form of TopKV2."""


def _in_top_k_kernel(predictions: np.ndarray, targets: np.ndarray, k: Any) -> np.ndarray:
    if np.ndim(predictions) == 2 and np.ndim(targets) == 1 and len(targets) != len(predictions):
        raise ValueError(
            f"First dimension of predictions {len(predictions)} must match length of targets "
            f"{len(targets)}"
        )
    if np.ndim(predictions) != 2 or np.shape(targets) != (len(predictions),) or np.ndim(k):
        raise ValueError(
            "predictions must be a matrix, targets a vector with an entry per row and k a scalar, "
            f"not of shapes {np.shape(predictions)}, {np.shape(targets)} and {np.shape(k)}"
        )
    classes = predictions.shape[1]
    inside = (targets >= 0) & (targets < classes)
    if not classes:
        return np.zeros(len(targets), bool)
    own = np.take_along_axis(predictions, np.where(inside, targets, 0)[:, None], 1)
    ahead = (predictions > own).sum(1)
    return inside & np.isfinite(predictions).all(1) & (ahead < int(k))


def _in_top_k_infer(c: Any, predictions: TensorShape, targets: TensorShape, *k: Any) -> Any:
    rows = predictions.with_rank(2)[:1]
    return rows.merge_with(targets.with_rank(1))


@define(
    "InTopKV2",
    "predictions: float32, targets: T, k: T -> precision: bool",
    "T: {index} = int32",
    infer=_in_top_k_infer,
    kernel=_in_top_k_kernel,
    samples=[Sample(r(2, 4), [1, 3], 2), Sample(r(2, 4), [0, 9], 1), Sample(r(0, 3), [], 1)],
)
def in_top_k_v2(predictions, targets, k, name=None):
    """Return, for each row, whether fewer than k predictions are higher than the target's."""


@composed
@export("nn.in_top_k", "math.in_top_k")
def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> Tensor:
    """Return, for each row, whether fewer than k predictions are higher than the target's."""
    with name_scope(name, "in_top_k"):
        return in_top_k_v2(predictions, targets, k, name=name)


@define(
    "InTopK",
    "predictions: float32, targets: T -> precision: bool",
    "k: int; T: {index} = int32",
    infer=_in_top_k_infer,
    kernel=lambda predictions, targets, *, k: _in_top_k_kernel(predictions, targets, k),
    samples=[Sample(r(2, 4), [1, 3], k=2)],
)
def in_top_k_old(predictions, targets, k, name=None):
    """Return, for each row, whether the target is among the top k; an old form of InTopKV2."""


def _nth_infer(c: Any, x: TensorShape, n: TensorShape) -> Any:
    n.with_rank(0)
    if x.sizes is None:
        return None
    if not x.sizes:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    at = c.value(1)
    if at is not None:
        _check_nth(int(at), x.sizes[-1])
    return x.sizes[:-1]


def _check_nth(n: int, size: int | None) -> None:
    if n < 0:
        raise ValueError(f"Need n >= 0, got {n}")
    if size is not None and n >= size:
        raise ValueError(f"Input must have last dimension > n = {n} but is {size}")


def _nth_kernel(x: np.ndarray, n: np.ndarray, *, reverse: bool) -> np.ndarray:
    if not np.ndim(x) or np.ndim(n):
        raise ValueError("input must be >= 1-D and n a scalar")
    at = int(n)
    _check_nth(at, x.shape[-1])
    at = x.shape[-1] - 1 - at if reverse else at
    return np.partition(widened(x), at, axis=-1)[..., at].astype(x.dtype)


def _nth_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    x, y = op.inputs[0], op.outputs[0]
    equal = b.cast(b.equal(b.expand_dims(y, -1), x), dy.dtype)
    count = b.expand_dims(b.reduce_sum(equal, -1), -1)
    return b.multiply(b.realdiv(equal, count), b.expand_dims(dy, -1)), None


@define(
    "NthElement",
    "input: T, n: int32 -> values: T",
    "reverse: bool = False; T: {reals}",
    infer=_nth_infer,
    kernel=_nth_kernel,
    gradient=_nth_gradient,
    samples=[Sample(r(2, 5), 1), Sample(r(5), 0, reverse=True)],
)
def nth_element(input, n, reverse=None, name=None):
    """Return the n-th smallest element of each row, or the n-th largest with `reverse`."""


# -- Sort ------------------------------------------------------------------------------------------


@composed
@export("sort", "contrib.framework.sort")
def sort(
    values: Any, axis: Any = -1, direction: str = "ASCENDING", name: str | None = None
) -> Tensor:
    """Return the elements of each row along `axis` in order.

    direction: 'ASCENDING' or 'DESCENDING'.
    """
    with name_scope(name, "sort"):
        return _sorted(values, axis, direction, 0)


@composed
@export("argsort", "contrib.framework.argsort")
def argsort(
    values: Any,
    axis: Any = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the indices that sort each row along `axis`; equal elements keep their order.

    direction: 'ASCENDING' or 'DESCENDING'. stable has no effect: the sort always is stable.
    """
    with name_scope(name, "argsort"):
        return _sorted(values, axis, direction, 1)


def _sorted(values: Any, axis: Any, direction: str, output: int) -> Tensor:
    """Sort by TopK, negating the values for ascending order; output 0: values, 1: indices."""
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"{direction} should be one of ASCENDING, DESCENDING")
    at = axis if isinstance(axis, int) else constant_value(convert_to_tensor(axis))
    if at is None or np.ndim(at):
        raise ValueError("axis must be a constant scalar")
    at = int(at)
    convert_to_tensor(at, dtypes.int32, name="axis")
    values = convert_to_tensor(values, name="values")
    ascending = direction == "ASCENDING"
    keys = b.negative(values) if ascending else values
    count = b.shape(keys)[at]
    rank = b.rank(keys)
    order = _last_axis_order(at, keys.shape.rank, rank)
    if order is not None:
        keys = b.transpose(keys, order)
    result = top_k(keys, count)[output]
    if order is not None:
        result = b.transpose(result, order)
    return b.negative(result) if ascending and not output else result


def _last_axis_order(axis: int, rank: int | None, dynamic_rank: Tensor) -> Any:
    """Return the permutation (its own inverse) that swaps `axis` with the last; None if it is the
    last.
    """
    if axis == -1 or (rank is not None and axis + 1 == rank):
        return None
    if rank is not None:
        order = np.arange(rank)
        order[[axis, -1]] = order[[-1, axis]]
        return to_tensor.constant(order, name="transposition")
    at: Any = axis if axis >= 0 else b.add_v2(axis, dynamic_rank, name="add")
    front = b.range(at)
    last = b.subtract(dynamic_rank, 1, name="sub")
    after = at + 1
    between = b.range(after, b.subtract(dynamic_rank, 1, name="sub"))
    return b.concat([front, [last], between, [at]], 0)


# -- Searching in sorted rows ----------------------------------------------------------------------


def _bound_infer(c: Any, rows: TensorShape, values: TensorShape) -> TensorShape:
    rows.with_rank(2)
    values.with_rank(2)
    return values


def _bounds(rows: np.ndarray, values: np.ndarray, side: Any, dtype: Any) -> np.ndarray:
    """Return, for every value, the number of elements of its row that come before it."""
    if np.ndim(rows) != 2 or np.ndim(values) != 2 or len(rows) != len(values):
        raise ValueError(
            "sorted_inputs and values must be matrices with the same number of rows, not of shapes "
            f"{list(np.shape(rows))} and {list(np.shape(values))}"
        )
    if len(rows) == 1:
        return np.searchsorted(rows[0], values[0], side)[None].astype(dtype.numpy)
    # One bisection for all values of all rows.
    low = np.zeros(values.shape, np.intp)
    high = np.full(values.shape, rows.shape[1], np.intp)
    at_row = np.arange(len(rows))[:, None]
    for _ in range(int(rows.shape[1]).bit_length()):
        middle = (low + high) // 2
        element = rows[at_row, np.minimum(middle, max(rows.shape[1] - 1, 0))]
        before = (element < values) if side == "left" else (element <= values)
        before &= low < high
        low = np.where(before, middle + 1, low)
        high = np.where(before, high, middle)
    return low.astype(dtype.numpy)


_BOUND_SAMPLES = [
    Sample([[0, 3, 9, 9, 10], [1, 2, 3, 4, 5]], [[2, 4, 9], [0, 2, 6]]),
    Sample([[1, 2, 2]], [[2, 0]]),
    Sample(np.zeros((2, 0)), [[1], [2]]),
]


@define(
    "LowerBound",
    "sorted_inputs: T, values: T -> output: out_type",
    "T: type; out_type: {index} = int32",
    infer=_bound_infer,
    kernel=lambda rows, values, *, out_type: _bounds(rows, values, "left", out_type),
    samples=[Sample(*s.inputs, T=t) for s in _BOUND_SAMPLES for t in ("float32", "int64")],
)
def lower_bound(sorted_inputs, values, out_type=None, name=None):
    """Return the first index in its sorted row at which each value could be inserted."""


@define(
    "UpperBound",
    "sorted_inputs: T, values: T -> output: out_type",
    "T: type; out_type: {index} = int32",
    infer=_bound_infer,
    kernel=lambda rows, values, *, out_type: _bounds(rows, values, "right", out_type),
    samples=[Sample(*s.inputs, T=t) for s in _BOUND_SAMPLES for t in ("float32", "int64")],
)
def upper_bound(sorted_inputs, values, out_type=None, name=None):
    """Return the last index in its sorted row at which each value could be inserted."""


@composed
@export("searchsorted")
def searchsorted(
    sorted_sequence: Any,
    values: Any,
    side: str = "left",
    out_type: Any = dtypes.int32,
    name: str | None = None,
) -> Tensor:
    """Return the indices at which to insert values into the sorted last axis of `sorted_sequence`.

    side: 'left' for the first such index, 'right' for the last. Leading dimensions must be equal.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side must be either 'right' or 'left'.  Saw: {side}.")
    length = b.shape(sorted_sequence)[-1]
    count = b.shape(values)[-1]
    rows = b.reshape(sorted_sequence, [-1, length])
    wanted = b.reshape(values, [-1, count])
    build = upper_bound if side == "right" else lower_bound
    return b.reshape(build(rows, wanted, out_type=out_type, name=name), b.shape(values))
