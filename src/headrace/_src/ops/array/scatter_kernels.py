"""Updating rows of an array. In: a C-contiguous array, indices, updates. Out: the array, changed.

`scatter` takes indices of any shape into the first axis; `scatter_nd` takes rows of coordinates
into the first few axes. Repeated indices are processed in order: the last update wins, sums and
products include all of them. Nothing is written if any index is out of range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import show_shape
from headrace._src.ops.array.group_by_key import update_rows
from headrace._src.ops.array.index_checks import check_indices, row_numbers

__all__ = ["UPDATES", "scatter", "scatter_nd", "truncated_divide"]


def truncated_divide(x: Any, y: Any) -> Any:
    """Return x / y, rounding integers toward zero; ValueError if an integer divisor is zero."""
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    if not y.all():
        raise ValueError("Integer division by zero")
    quotient = np.floor_divide(x, y)
    if x.dtype.kind == "i":
        quotient += ((x % y) != 0) & ((x < 0) != (y < 0))
    return quotient


# How each op combines an old and a new value; None replaces the old one.
UPDATES: dict[str, Callable[..., Any] | None] = {
    "Update": None,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": truncated_divide,
    "Min": np.minimum,
    "Max": np.maximum,
}


def scatter(params: np.ndarray, indices: np.ndarray, updates: np.ndarray, how: str) -> None:
    """Update the rows `indices` of `params`, each with its row of `updates` (or one scalar for
    all).
    """
    indices, updates = np.asarray(indices), np.asarray(updates)
    if not params.ndim:
        raise ValueError("params must be at least 1-D, got shape []")
    if updates.ndim and updates.shape != indices.shape + params.shape[1:]:
        raise ValueError(
            "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got "
            f"updates.shape {show_shape(updates.shape)}, "
            f"indices.shape {show_shape(indices.shape)}, "
            f"params.shape {show_shape(params.shape)}"
        )
    flat = check_indices(indices, params.shape[0]).ravel()
    rows = (
        updates.reshape(flat.shape + params.shape[1:])
        if updates.ndim
        else np.broadcast_to(updates, flat.shape + params.shape[1:])
    )
    _change(params, flat, rows, how)


def scatter_nd(params: np.ndarray, indices: np.ndarray, updates: np.ndarray, how: str) -> None:
    """Update the slices of `params` at the coordinates `indices[..., :]` with those of
    `updates`.
    """
    indices, updates = np.asarray(indices), np.asarray(updates)
    if not indices.ndim:
        raise ValueError("Indices shape must have rank at least one. Found:[]")
    depth = indices.shape[-1]
    batch = indices.shape[:-1]
    if updates.shape[:1] != indices.shape[:1] and batch:
        raise ValueError(
            "The outermost dimension of updates and indices must match. Got indices.shape "
            f"{show_shape(indices.shape)}, updates.shape {show_shape(updates.shape)}"
        )
    if depth > params.ndim or updates.shape != batch + params.shape[depth:]:
        raise ValueError(
            "Must have updates.shape = indices.shape[:batch_dim] + params_shape[slice_dim:], got "
            f"updates.shape: {show_shape(updates.shape)}, "
            f"indices.shape: {show_shape(indices.shape)}, "
            f"params_shape: {show_shape(params.shape)}, slice_dim: {depth}, "
            f"and batch_dim: {len(batch)}"
        )
    rows, count = row_numbers(indices, params.shape, "shape")
    tail = params.shape[depth:]
    _change(params.reshape((count, *tail)), rows, updates.reshape(rows.shape + tail), how)


def _change(params: np.ndarray, rows: np.ndarray, updates: np.ndarray, how: str) -> None:
    function = UPDATES[how]
    if not rows.size:
        return
    if function is None:
        params[rows] = updates
        return
    if function is truncated_divide and params.dtype.kind not in "iu":
        function = np.divide
    update_rows(function, params, rows, updates)
