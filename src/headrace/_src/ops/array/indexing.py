"""Reading by index: gather, gather_nd and related functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.definition import Kind, RowPart, Sample
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering import row_anchors
from headrace._src.lowering.rules import Anchor
from headrace._src.ops.array.index_checks import check_indices, row_numbers, take
from headrace._src.ops.array.undividing import gathered_positions
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["batch_gather", "gather", "gather_nd"]


# -- Gather ----------------------------------------------------------------------------------------


def _gather_shape(
    params: TensorShape,
    indices: TensorShape,
    axis: int | None,
    batch_dims: int,
    settled: bool = False,
) -> Any:
    params.with_rank_at_least(1)
    if params.sizes is None or indices.sizes is None:
        return None
    rank = len(params.sizes)
    batch = batch_dims + len(indices.sizes) if batch_dims < 0 else batch_dims
    if axis is None:  # TensorFlow ignores the batch dimensions here
        return (None,) * (rank - 1 + len(indices.sizes) - (batch if settled else 0))
    at = _gather_axis(rank, axis, batch)
    return params.sizes[:at] + indices.sizes[batch:] + params.sizes[at + 1 :]


def _gather_axis(rank: int, axis: int, batch: int) -> int:
    if not -rank <= axis < rank:
        least = axis + 1 if axis >= 0 else -axis
        raise ValueError(f"Shape must be at least rank {least} but is rank {rank}")
    at = axis % rank
    if not 0 <= batch <= at:
        raise ValueError(f"batch_dims ({batch}) must be in [0, axis ({at})]")
    return at


def _gather_infer(c: Any, params: TensorShape, indices: TensorShape, axis: TensorShape) -> Any:
    axis.with_rank(0)
    at = c.value(2)
    at = None if at is None else int(at)
    return _gather_shape(params, indices, at, c.attrs["batch_dims"], c.settled)


def _gather_kernel(
    params: np.ndarray, indices: np.ndarray, axis: np.ndarray, *, batch_dims: int
) -> np.ndarray:
    if np.ndim(axis):
        raise ValueError("axis must be scalar")
    if not np.ndim(params):
        raise ValueError("params must be at least 1 dimensional")
    batch = batch_dims + np.ndim(indices) if batch_dims < 0 else batch_dims
    at = _gather_axis(params.ndim, int(axis), batch)
    if batch > np.ndim(indices):
        raise ValueError(f"batch_dims ({batch}) is more than indices have: {np.ndim(indices)}")
    found = check_indices(indices, params.shape[at])
    if not batch:
        return np.asarray(take(params, found, at), params.dtype)
    return _gather_batch(params, found, at, batch)


def _gather_batch(params: np.ndarray, indices: np.ndarray, at: int, batch: int) -> np.ndarray:
    front = params.shape[:batch]
    if front != indices.shape[:batch]:
        raise ValueError(
            f"params.shape{list(params.shape)} and indices.shape{list(indices.shape)} differ in "
            f"their first {batch} dimensions"
        )
    count, outer = math.prod(front), math.prod(params.shape[batch:at])
    table = params.reshape(count, outer, params.shape[at], *params.shape[at + 1 :])
    rows = np.arange(count)[:, None, None], np.arange(outer)[:, None]
    result = table[(*rows, indices.reshape(count, 1, -1))]
    return result.reshape(
        front + params.shape[batch:at] + indices.shape[batch:] + params.shape[at + 1 :]
    )


def _gather_nodes(op: Operation, dy: Any) -> int:
    if op._attrs["batch_dims"]:
        return 96
    at = constant_value(op.inputs[2])
    return 13 if at is not None and int(at) == 0 else 55


@counted(_gather_nodes)
def _gather_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    params, indices, axis = op.inputs
    at = constant_value(axis)
    if at is not None and int(at) == 0 and not op._attrs["batch_dims"]:
        return _rows_gradient(b, params, indices, dy), None, None
    dparams = _dense_gather_gradient(b, params, indices, axis, op._attrs["batch_dims"], dy)
    return dparams, None, None


def _rows_gradient(b: OpBuilder, params: Tensor, indices: Tensor, dy: Any) -> IndexedSlices:
    """The gradient for some rows: only those rows, however large the tensor."""
    with params.graph.colocate_with(params.op):
        shape = b.shape(params)
    count = b.expand_dims(b.size(indices), 0)
    rows = b.reshape(dy, b.concat([count, shape[1:]], 0))
    return IndexedSlices(rows, b.reshape(indices, count), shape)


def _dense_gather_gradient(
    b: OpBuilder, params: Tensor, indices: Tensor, axis: Any, batch_dims: int, dy: Any
) -> Tensor:
    """Sum the gradients of each element: number all rows that were gathered from, then sum by
    number.
    """
    shape, places = b.shape(params), b.shape(indices)
    batch = batch_dims if batch_dims >= 0 else b.add(b.rank(indices), batch_dims)
    rank = b.rank(params)
    at = b.floormod(b.cast(axis, "int32"), rank)
    size = shape[at]
    count = b.reduce_prod(shape[:batch])
    outer = b.reduce_prod(shape[batch:at])
    each = b.reduce_prod(places[batch:])
    inner = shape[at + 1 :]
    starts = b.reshape(b.range(0, b.multiply(count, outer)), b.stack([count, outer, 1]))
    within = b.reshape(b.cast(indices, "int32"), b.stack([count, 1, each]))
    rows = b.reshape(b.add(b.multiply(starts, size), within), [-1])
    pieces = b.reshape(
        dy, b.concat([b.stack([b.multiply(count, b.multiply(outer, each))]), inner], 0)
    )
    total = b.multiply(b.multiply(count, outer), size)
    return b.reshape(b.unsorted_segment_sum(pieces, rows, total), shape)


@define(
    "GatherV2",
    "params: Tparams, indices: Tindices, axis: Taxis -> output: Tparams",
    "batch_dims: int = 0; Tparams: type; Tindices: {index}; Taxis: {index}",
    infer=_gather_infer,
    kernel=_gather_kernel,
    fresh=True,
    gradient=_gather_gradient,
    kind=Kind.MOVEMENT,
    samples=[
        Sample(r(4, 3), [1, 0, 1], 0),
        Sample(r(4, 3), 2, 0),
        Sample(r(2, 3, 2), [[2, 0], [1, 1]], 1),
        Sample(r(2, 3), [[1], [2]], -1, batch_dims=1),
        Sample(r(2, 2, 3), [[1, 0], [2, 2]], 2, batch_dims=1),
        Sample(r(4, 3), np.zeros(0), 0),
    ],
    lower=Anchor("gather", row_anchors.gather),
    rows=RowPart.TAKES,
    simplify=gathered_positions,
)
def gather_v2(params, indices, axis, batch_dims=None, name=None):
    """Take slices of `params` along an axis, in the order of `indices`."""


def _gather_old_kernel(params: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return _gather_kernel(params, indices, np.array(0), batch_dims=0)


@counted(13)
def _gather_old_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    params, indices = op.inputs
    return _rows_gradient(b, params, indices, dy), None


@define(
    "Gather",
    "params: Tparams, indices: Tindices -> output: Tparams",
    "validate_indices: bool = True; Tparams: type; Tindices: {index}",
    infer=lambda c, params, indices: _gather_shape(params, indices, 0, 0),
    kernel=_gather_old_kernel,
    fresh=True,
    gradient=_gather_old_gradient,
    kind=Kind.MOVEMENT,
    samples=[Sample(r(4, 3), [1, 0, 1]), Sample(r(4), [[2], [3]], validate_indices=False)],
    lower=Anchor("gather", row_anchors.gather_rows),
    rows=RowPart.TAKES,
)
def gather_old(params, indices, validate_indices=None, name=None):
    """Take rows of `params`, in the order of `indices`."""


@composed
@dispatched
@export("gather")
def gather(
    params: Any,
    indices: Any,
    validate_indices: bool | None = None,
    name: str | None = None,
    axis: Any = None,
    batch_dims: int = 0,
) -> Tensor:
    """Take slices of `params` along `axis` (by default the first that is not a batch dimension).

    validate_indices has no effect: indices are always checked. batch_dims: the number of leading
    dimensions that params and indices share.
    """
    if axis is None:
        axis = batch_dims
    static = constant_value(axis) if isinstance(axis, Tensor) else axis
    if hasattr(params, "handle") and static is not None and int(static) == 0 and not batch_dims:
        return params.sparse_read(indices, name=name)  # a resource variable
    return gather_v2(params, indices, axis, batch_dims=batch_dims, name=name)


@composed
@dispatched
@export("batch_gather")
def batch_gather(params: Any, indices: Any, name: str | None = None) -> Tensor:
    """Gather along the last axis of `indices`, separately for each row of the axes before it."""
    with name_scope(name, "BatchGather", [params, indices]):
        indices = convert_to_tensor(indices, name="indices")
        params = convert_to_tensor(params, name="params")
        rank = indices.shape.rank
        if rank is None:
            raise ValueError("batch_gather does not allow indices with unknown shape.")
        return _batch_gather(params, indices, rank)


def _batch_gather(params: Tensor, indices: Tensor, rank: int) -> Tensor:
    """Gather from the flattened `params`, with each row's offset added to its indices."""
    places = b.shape(indices)
    sizes = b.shape(params)
    dtype = indices.dtype
    stride = b.ones([], dtype)
    sizes_cast = b.cast_op(sizes, DstT=dtype)
    flat = indices
    for axis in range(rank - 1, 0, -1):
        length = sizes_cast[axis - 1]
        stride = b.multiply(stride, sizes_cast[axis], name="mul")
        starts = b.multiply(
            b.range_op(b.zeros([], dtype), length, b.ones([], dtype)), stride, name="mul"
        )
        shape = b.stack([1] * (axis - 1) + [length] + [1] * (rank - axis))
        flat = b.add_v2(flat, b.reshape(starts, shape), name="add")
    flat = b.reshape(flat, [-1])
    rest = sizes[rank:]
    rows = b.reshape(params, b.concat([[b.reduce_prod(sizes[:rank], [0])], rest], 0))
    result = b.reshape(gather(rows, flat), b.concat([places, rest], 0))
    known = indices.shape[:rank].merge_with(params.shape[: rank - 1].concatenate([None]))
    result.set_shape(known.concatenate(params.shape[rank:]))
    return result


# -- Gather and scatter by coordinates -------------------------------------------------------------


def _gather_nd_infer(c: Any, params: TensorShape, indices: TensorShape) -> Any:
    if indices.sizes is None:
        return None
    if not indices.sizes:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    depth = indices.sizes[-1]
    if depth is None or params.sizes is None:
        return None
    if depth > len(params.sizes):
        raise ValueError(
            f"indices.shape[-1] must be <= params.rank, but saw indices shape: "
            f"{list(indices.sizes)} and params shape: {list(params.sizes)}"
        )
    return indices.sizes[:-1] + params.sizes[depth:]


def _gather_nd_kernel(params: np.ndarray, indices: np.ndarray) -> np.ndarray:
    indices = np.asarray(indices)
    shape = np.shape(params)
    rows, count = row_numbers(indices, shape, "param shape")
    inner = shape[indices.shape[-1] :]
    return np.reshape(params, (count, *inner))[rows].reshape(indices.shape[:-1] + inner)


def _gather_nd_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    params, indices = op.inputs
    shape = b.shape(params, out_type=indices.dtype)
    if indices.shape.rank == 2 and indices.shape[-1].value == 1:
        return IndexedSlices(dy, b.squeeze(indices, -1), shape), None
    return b.scatter_nd(indices, dy, shape), None


@define(
    "GatherNd",
    "params: Tparams, indices: Tindices -> output: Tparams",
    "Tparams: type; Tindices: {index}",
    infer=_gather_nd_infer,
    kernel=_gather_nd_kernel,
    fresh=True,
    gradient=_gather_nd_gradient,
    lower=Anchor("gather_points", row_anchors.gather_points),
    samples=[
        Sample(r(4, 3), [[0, 1], [3, 2], [0, 1]]),
        Sample(r(4, 3), [[2], [0]]),
        Sample(r(4, 3), [1, 2]),
        Sample(r(2), np.zeros((3, 0))),
        Sample(r(2, 3), np.zeros((0, 2))),
    ],
)
def gather_nd_op(params, indices, name=None):
    """Take the slices of `params` at the coordinates in the rows of `indices`."""


@composed
@dispatched
@export("gather_nd", "manip.gather_nd")
def gather_nd(params: Any, indices: Any, name: str | None = None, batch_dims: int = 0) -> Tensor:
    """Take the slices of `params` at coordinates; the first `batch_dims` axes are shared."""
    static = constant_value(batch_dims) if isinstance(batch_dims, Tensor) else batch_dims
    if static is None:
        raise ValueError("tf.gather_nd needs to know batch_dims when the graph is built")
    if int(static):
        return _batch_gather_nd(params, indices, int(static), name)
    if hasattr(params, "handle"):  # a resource variable
        return params.gather_nd(indices, name=name)
    return gather_nd_op(params, indices, name=name)


def _batch_gather_nd(params: Any, indices: Any, batch: int, name: str | None) -> Tensor:
    """Gather with the batch's coordinates prepended to each row of indices."""
    with name_scope(name, "BatchGatherND", [params, indices]):
        indices = convert_to_tensor(indices, name="indices")
        params = convert_to_tensor(params, name="params")
        rank = indices.shape.rank
        if rank is None:
            raise ValueError("tf.gather_nd does not allow indices of unknown rank with batch_dims")
        if not 0 <= batch < rank:
            raise ValueError(f"batch_dims = {batch} must be less than rank(indices) = {rank}")
        if params.shape.rank is not None and batch >= params.shape.rank:
            raise ValueError(f"batch_dims = {batch} must be less than rank(params)")
        sizes, places = b.shape(params), b.shape(indices)
        front = sizes[:batch]
        count = b.reduce_prod(front, [0])
        between = b.subtract(b.subtract(b.rank(indices), batch, name="sub"), 1, name="sub")
        middle = places[batch:-1]
        ranges = [
            b.cast_op(b.range_op(0, n, 1), DstT=indices.dtype) for n in b.unstack(front, num=batch)
        ]
        grids = [b.reshape(grid, [-1]) for grid in b.meshgrid(*ranges, indexing="ij")]
        rows = b.transpose(b.stack(grids))
        shape = b.shape(rows)
        rows = b.reshape(rows, b.concat([shape[:1], b.ones(between, "int32"), shape[1:]], 0))
        rows = b.tile(rows, b.concat([[1], middle, [1]], 0))
        flat = b.reshape(indices, b.concat([[count], places[batch:]], 0))
        found = gather_nd_op(params, b.concat([rows, flat], -1))
        return b.reshape(found, b.concat([front, b.shape(found)[1:]], 0))
