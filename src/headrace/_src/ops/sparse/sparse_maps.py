"""Sparse tensors that pass through a queue as handles: AddSparseToTensorsMap and related ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.sparse_map import Sparse, SparseMap
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define

__all__: list[str] = []

_PLACE = "container: string = ''; shared_name: string = ''"


def _map(ctx: Any, container: str, name: str) -> SparseMap:
    return ctx.find_or_make(container, name, SparseMap, lambda: SparseMap(name))


def _checked(indices: Any, values: Any, shape: Any) -> None:
    for what, value, rank in (("indices", indices, 2), ("values", values, 1), ("shape", shape, 1)):
        if np.ndim(value) != rank:
            kind = "matrix" if rank == 2 else "vector"
            raise InvalidArgumentError(
                None,
                None,
                f"Input {what} should be a {kind} but received shape {show_shape(np.shape(value))}",
            )
    if len(indices) != len(values):
        raise InvalidArgumentError(
            None,
            None,
            f"Number of values must match first dimension of indices. Got {len(values)} values, "
            f"indices shape: {show_shape(np.shape(indices))}",
        )
    if indices.shape[1] != len(shape):
        raise InvalidArgumentError(
            None,
            None,
            f"Number of dimensions must match second dimension of indices. Got {len(shape)} "
            f"dimensions, indices shape: {show_shape(np.shape(indices))}",
        )


def _add_kernel(indices, values, shape, *, ctx, container, shared_name):
    _checked(indices, values, shape)
    kept = Sparse(indices.copy(), values.copy(), tuple(shape.tolist()))
    (number,) = _map(ctx, container, shared_name or ctx.name).add([kept])
    return np.int64(number)


def _add_infer(c: Any, indices: TensorShape, values: TensorShape, shape: TensorShape) -> Any:
    infer.with_rank(indices, 2)
    infer.with_rank(values, 1)
    infer.with_rank(shape, 1)
    return ()


@define(
    "AddSparseToTensorsMap",
    "sparse_indices: int64, sparse_values: T, sparse_shape: int64 -> sparse_handle: int64",
    f"T: type; {_PLACE}",
    infer=_add_infer,
    kernel=_add_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def add_sparse_to_tensors_map(
    sparse_indices, sparse_values, sparse_shape, container="", shared_name="", name=None
):
    """Store a sparse tensor and return its handle."""


def _add_many_kernel(indices, values, shape, *, ctx, container, shared_name):
    _checked(indices, values, shape)
    if len(shape) < 2:
        raise InvalidArgumentError(
            None,
            None,
            f"Rank of input SparseTensor should be > 1, but saw rank: {len(shape)}",
        )
    count, rows = int(shape[0]), indices[:, 0]
    if len(rows) and (rows[0] < 0 or rows[-1] >= count or (np.diff(rows) < 0).any()):
        raise InvalidArgumentError(
            None, None, f"indices must be in order, and rows within [0, {count})"
        )
    starts = np.searchsorted(rows, np.arange(count + 1))
    inner, rest = indices[:, 1:].copy(), tuple(shape[1:].tolist())
    values = values.copy()
    pieces = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    kept = [Sparse(inner[a:b], values[a:b], rest) for a, b in pieces]
    return np.array(_map(ctx, container, shared_name or ctx.name).add(kept), np.int64)


def _add_many_infer(c: Any, indices: TensorShape, values: TensorShape, shape: TensorShape) -> Any:
    _add_infer(c, indices, values, shape)
    return (None,)


@define(
    "AddManySparseToTensorsMap",
    "sparse_indices: int64, sparse_values: T, sparse_shape: int64 -> sparse_handles: int64",
    f"T: type; {_PLACE}",
    infer=_add_many_infer,
    kernel=_add_many_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def add_many_sparse_to_tensors_map(
    sparse_indices, sparse_values, sparse_shape, container="", shared_name="", name=None
):
    """Store the rows of a sparse tensor, each as a sparse tensor, and return their handles."""


def _take_kernel(handles, *, ctx, dtype, container, shared_name):
    if np.ndim(handles) != 1:
        raise InvalidArgumentError(
            None,
            None,
            f"sparse_handles should be a vector but received shape {show_shape(np.shape(handles))}",
        )
    if not shared_name:
        raise InvalidArgumentError(
            None, None, "shared_name must be the name of the op that stored the tensors"
        )
    if not len(handles):
        raise InvalidArgumentError(None, None, "Must have at least 1 handle")
    taken = _map(ctx, container, shared_name).take(handles.tolist())
    rank = len(taken[0].shape)
    for tensor in taken:
        if len(tensor.shape) != rank:
            raise InvalidArgumentError(
                None,
                None,
                f"Inconsistent rank across SparseTensors: rank prior to SparseTensor was: {rank} "
                f"but rank of SparseTensor is: {len(tensor.shape)}",
            )
        if tensor.values.dtype != dtype.numpy:
            raise InvalidArgumentError(
                None, None, f"dtype of a SparseTensor is {tensor.values.dtype}, not {dtype.name}"
            )
    rows = np.repeat(np.arange(len(taken)), [len(t.values) for t in taken])
    inner = np.concatenate([t.indices for t in taken])
    largest = np.max([t.shape for t in taken], axis=0) if rank else np.zeros(0)
    return (
        np.concatenate([rows[:, None], inner], axis=1).astype(np.int64),
        np.concatenate([t.values for t in taken]),
        np.array([len(taken), *largest], np.int64),
    )


def _take_infer(c: Any, handles: TensorShape) -> Any:
    infer.with_rank(handles, 1)
    return [(None, None), (None,), (None,)]


@define(
    "TakeManySparseFromTensorsMap",
    "sparse_handles: int64 -> sparse_indices: int64, sparse_values: dtype, sparse_shape: int64",
    f"dtype: type; {_PLACE}",
    infer=_take_infer,
    kernel=_take_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def take_many_sparse_from_tensors_map(
    sparse_handles, dtype, container="", shared_name="", name=None
):
    """Remove stored sparse tensors and return them as one, with a new first dimension."""
