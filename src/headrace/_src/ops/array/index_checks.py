"""Checked indices. In: indices or coordinates, and the sizes of the axes they index. Out: positions
in the form that NumPy takes; ValueError names the first that is out of range.

Indices are always checked: NumPy would count negative ones from the end, which in a graph is a
mistake.
"""

from __future__ import annotations

import math

import numpy as np

from headrace._src.core.tensor_shape import show_shape
from headrace._src.devices.allocator import SHARED_FROM
from headrace._src.devices.buffers import empty_aligned

__all__ = ["check_indices", "row_numbers", "take"]


def check_indices(indices: np.ndarray, size: int) -> np.ndarray:
    """Return indices of an axis, all checked to be in [0, size)."""
    found = np.asarray(indices).astype(np.intp, copy=False)
    # As unsigned numbers, negative indices are huge: one comparison checks both bounds.
    if found.size and found.view(np.uintp).max() >= size:
        at = np.unravel_index(np.argmax(found.view(np.uintp) >= size), found.shape)
        raise ValueError(f"indices{_place(at)} = {found[at]} is not in [0, {size})")
    return found


def take(params: np.ndarray, indices: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return slices of an array by checked indices: large results where others can read them."""
    # After the check, clipping does nothing; it only skips NumPy's own check.
    rest = params.shape[:axis] + params.shape[axis + 1 :]
    if indices.size * math.prod(rest) * params.itemsize < SHARED_FROM or params.dtype.hasobject:
        return params.take(indices, axis, mode="clip")
    shape = params.shape[:axis] + indices.shape + params.shape[axis + 1 :]
    return params.take(indices, axis, empty_aligned(shape, params.dtype), mode="clip")


def row_numbers(indices: np.ndarray, shape: tuple[int, ...], what: str) -> tuple[np.ndarray, int]:
    """Return the flat positions of coordinates, the rows of `indices`, in an array whose first axes
    are merged; and the length of the merged axis.

    Each row has as many coordinates as axes are merged. `what` names the shape in messages.
    """
    depth = indices.shape[-1] if indices.ndim else 0
    if not indices.ndim or depth > len(shape):
        raise ValueError(
            f"indices of shape {list(indices.shape)} have more coordinates than {what} "
            f"{list(shape)} has dimensions"
        )
    rows = indices.reshape(math.prod(indices.shape[:-1]), depth)
    places = np.zeros(len(rows), np.intp)
    outside = np.zeros(len(rows), bool)
    for axis, size in enumerate(shape[:depth]):  # rows are short, so iterate over columns
        column = rows[:, axis]
        outside |= (column < 0) | (column >= size)
        places *= size
        places += column
    if outside.any():
        first = int(np.argmax(outside))
        at = np.unravel_index(first, indices.shape[:-1]) if indices.ndim > 1 else ()
        listed = ", ".join(map(str, rows[first].tolist()))
        raise ValueError(
            f"indices{_place(at)} = [{listed}] does not index into {what} {show_shape(shape)}"
        )
    return places, math.prod(shape[:depth])


def _place(at: tuple[np.intp, ...]) -> str:
    return f"[{','.join(map(str, at))}]" if at else ""
