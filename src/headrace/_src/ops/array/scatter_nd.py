"""Writing by coordinates: scatter_nd, and copies of a tensor with some elements changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, show_shape, words_of_op
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import Sample
from headrace._src.graph.operation import Operation
from headrace._src.ops.array.filling import zero_array
from headrace._src.ops.array.group_by_key import update_rows
from headrace._src.ops.array.index_checks import row_numbers
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.math.sum_precision import widened

__all__ = ["scatter_nd", "tensor_scatter_add", "tensor_scatter_sub"]


def _scatter(
    base: np.ndarray, indices: np.ndarray, updates: np.ndarray, ufunc: Any | None
) -> np.ndarray:
    """Return `base` with updates at coordinates: replacing its elements, or combined by `ufunc`."""
    indices = np.asarray(indices)
    shape = base.shape
    places, count = row_numbers(indices, shape, "shape")
    depth = indices.shape[-1]
    wanted = indices.shape[:-1] + shape[depth:]
    if np.shape(updates) != wanted:
        raise ValueError(
            f"Must have updates.shape = indices.shape[:-1] + shape[{depth}:], got updates.shape: "
            f"{list(np.shape(updates))}, indices.shape: {list(indices.shape)}, shape: {list(shape)}"
        )
    flat = (count, *shape[depth:])
    pieces = np.reshape(updates, (len(places), *shape[depth:]))
    if ufunc is None:
        result = np.array(base).reshape(flat)
        result[places] = pieces
        return result.reshape(shape)
    wide = widened(base)
    result = (np.array(wide) if wide is base else wide).reshape(flat)
    update_rows(ufunc, result, places, widened(pieces))
    return result.reshape(shape).astype(base.dtype, copy=False)


def _checked_updates(shape: TensorShape, indices: TensorShape, updates: TensorShape) -> None:
    # TensorFlow requires updates of rank 1 or more, and so rejects the gradient of a single
    # element.
    indices.with_rank_at_least(1)
    if shape.sizes is None or indices.sizes is None or updates.sizes is None:
        return
    given = (indices.num_elements(), updates.num_elements())
    if shape.num_elements() == 0 and all(given):
        raise ValueError("Indices and updates specified for empty output shape")
    depth, rank, outer = indices.sizes[-1], len(shape.sizes), len(indices.sizes) - 1
    parts = [("outer", outer, ("indices", indices, indices[:-1]), updates[:outer])]
    if depth is not None and depth <= rank:
        parts += [("inner", rank - depth, ("output", shape, shape[depth:]), updates[outer:])]
    for which, count, wanted, found in parts:
        name, whole, part = wanted
        try:
            part.merge_with(found)
        except ValueError as error:
            raise ValueError(
                f"The {which} {count} dimensions of {name}.shape={show_shape(whole)} must match "
                f"the {which} {len(found)} dimensions of updates.shape={show_shape(updates)}: "
                f"{words_of_op(error)}"
            ) from None


def _scatter_nd_infer(
    c: Any, indices: TensorShape, updates: TensorShape, _: TensorShape
) -> TensorShape:
    shape = c.shape_from(2)
    _checked_updates(shape, indices, updates)
    return shape


def _scatter_nd_kernel(indices: np.ndarray, updates: np.ndarray, shape: np.ndarray) -> np.ndarray:
    sizes = np.asarray(shape).tolist()
    if np.ndim(shape) != 1 or min(sizes, default=0) < 0:
        raise ValueError(f"shape must be a vector of sizes, not {sizes}")
    check_room(sizes, updates.dtype, "shape")
    return _scatter(zero_array(sizes, updates.dtype), indices, updates, np.add)


def _scatter_nd_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    return None, b.gather_nd(dy, op.inputs[0]), None


@export("scatter_nd", "manip.scatter_nd")
@define(
    "ScatterNd",
    "indices: Tindices, updates: T, shape: Tindices -> output: T",
    "T: type; Tindices: {index}",
    infer=_scatter_nd_infer,
    kernel=_scatter_nd_kernel,
    gradient=_scatter_nd_gradient,
    samples=[
        Sample([[1], [3], [1]], r(3), [5]),
        Sample([[0, 1], [1, 0], [0, 1]], r(3, 2), [2, 2, 2]),
        Sample([[1], [0]], r(2, 2), [3, 2]),
        Sample(np.zeros((0, 1)), r(0), [3]),
    ],
)
def scatter_nd(indices, updates, shape, name=None):
    """Return zeros of `shape` with the updates added at their coordinates."""


def _tensor_infer(c: Any, x: TensorShape, indices: TensorShape, updates: TensorShape) -> Any:
    _checked_updates(x, indices, updates)
    return x


_TENSOR_SAMPLES = [
    Sample(r(4), [[1], [3]], r(2)),
    Sample(r(4, 2), [[2], [0]], r(2, 2)),
    Sample(r(2, 2), [[0, 1]], r(1)),
    Sample(r(3), np.zeros((0, 1)), r(0)),
]


def _update_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    _, indices, updates = op.inputs
    dx = b.tensor_scatter_update(b.identity(dy), indices, b.zeros_like(updates))
    return dx, None, b.gather_nd(dy, indices)


@export("tensor_scatter_update", "tensor_scatter_nd_update")
@define(
    "TensorScatterUpdate",
    "tensor: T, indices: Tindices, updates: T -> output: T",
    "T: type; Tindices: {index}",
    infer=_tensor_infer,
    kernel=lambda x, indices, updates: _scatter(x, indices, updates, None),
    gradient=_update_gradient,
    samples=_TENSOR_SAMPLES,
)
def tensor_scatter_update(tensor, indices, updates, name=None):
    """Return a copy of a tensor with the updates at their coordinates."""


def _add_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    return dy, None, b.gather_nd(dy, op.inputs[1])


@export("tensor_scatter_add", "tensor_scatter_nd_add")
@define(
    "TensorScatterAdd",
    "tensor: T, indices: Tindices, updates: T -> output: T",
    "T: type; Tindices: {index}",
    infer=_tensor_infer,
    kernel=lambda x, indices, updates: _scatter(x, indices, updates, np.add),
    gradient=counted(2, _add_gradient),
    samples=[*_TENSOR_SAMPLES, Sample(r(4, 2), [[2], [2]], r(2, 2))],
)
def tensor_scatter_add(tensor, indices, updates, name=None):
    """Return a copy of a tensor with the updates added at their coordinates."""


@counted(3)
def _sub_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    return dy, None, b.negative(b.gather_nd(dy, op.inputs[1]))


@export("tensor_scatter_sub", "tensor_scatter_nd_sub")
@define(
    "TensorScatterSub",
    "tensor: T, indices: Tindices, updates: T -> output: T",
    "T: type; Tindices: {index}",
    infer=_tensor_infer,
    kernel=lambda x, indices, updates: _scatter(x, indices, updates, np.subtract),
    gradient=_sub_gradient,
    samples=[
        Sample(*s.inputs, T=t) for s in _TENSOR_SAMPLES for t in ("float64", "int32", "float16")
    ],
)
def tensor_scatter_sub(tensor, indices, updates, name=None):
    """Return a copy of a tensor with the updates subtracted at their coordinates."""


@define(
    "ScatterNdNonAliasingAdd",
    "input: T, indices: Tindices, updates: T -> output: T",
    "T: {numbers|bool}; Tindices: {index}",
    infer=_tensor_infer,
    kernel=lambda x, indices, updates: _scatter(x, indices, updates, np.add),
    gradient=_add_gradient,
    samples=[*_TENSOR_SAMPLES, Sample(r(4, 2), [[2], [2]], r(2, 2))],
)
def scatter_nd_non_aliasing_add(input, indices, updates, name=None):
    """Return a copy of the input with the updates added at their coordinates."""
