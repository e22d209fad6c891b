"""Views of arrays (lowering.rules.View) as JAX functions. In: an array and a view. Out: the
elements that the view shows; or, the other way round, an array in which the view holds them.

A view is any strided pattern of memory, which JAX does not have. Nearly all of them are slices,
transpositions, reshapings and broadcasts, which XLA can fuse; the others take elements by number.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.lowering.rules import View, row_major

__all__ = ["numbers_of", "placed", "seen"]


class _Slices(NamedTuple):
    """A view as a slice of each axis of an array; `axes`: which of them each axis of the view is,
    None if it repeats elements.
    """

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    counts: tuple[int, ...]
    axes: tuple[int | None, ...]


def seen(x: Any, view: View) -> Any:
    """Return the elements of a row-major array that a view shows, in the view's shape."""
    if not prod(view.shape):
        return jnp.zeros(view.shape, x.dtype)
    found = _contiguous(x, view)
    if found is not None:
        return found
    slices = _slices(view, x.shape)
    if slices is None:
        return x.reshape(-1)[numbers_of(view)]
    lows, highs, steps, turned = [], [], [], []
    for d, (start, step, count) in enumerate(
        zip(slices.starts, slices.steps, slices.counts, strict=True)
    ):
        last = start + step * (count - 1)
        lows.append(min(start, last))
        highs.append(max(start, last) + 1)
        steps.append(abs(step))
        turned += [d] if step < 0 else []
    part = jax.lax.rev(jax.lax.slice(x, lows, highs, steps), turned)
    taken = [d for d in slices.axes if d is not None]
    rest = [d for d in range(part.ndim) if d not in taken]
    sizes = [1 if d is None else n for d, n in zip(slices.axes, view.shape, strict=True)]
    return jnp.broadcast_to(part.transpose(*taken, *rest).reshape(sizes), view.shape)


def placed(pieces: list[tuple[Any, View]], shape: tuple[int, ...], fill: Any, dtype: Any) -> Any:
    """Return an array of `shape` in which each view holds its piece, and `fill` is elsewhere."""
    padded = [_padded(piece, view, shape, fill) for piece, view in pieces]
    if len(padded) == 1 and padded[0] is not None:
        return padded[0]
    flat = jnp.full(prod(shape), fill, dtype)
    for piece, view in pieces:
        flat = flat.at[numbers_of(view)].set(piece, unique_indices=True)
    return flat.reshape(shape)


def _padded(piece: Any, view: View, shape: tuple[int, ...], fill: Any) -> Any:
    """One piece with padding around it and between its elements; None if it isn't a slice."""
    slices = _slices(view, shape) if prod(view.shape) else None
    if slices is None or None in [d for d, n in zip(slices.axes, view.shape, strict=True) if n > 1]:
        return None
    order = [(d, i) for i, d in enumerate(slices.axes) if d is not None]
    single = [i for i, d in enumerate(slices.axes) if d is None]
    piece = piece.transpose(*single, *(i for _, i in sorted(order))).reshape(slices.counts)
    turned = [d for d, step in enumerate(slices.steps) if step < 0]
    padding = []
    for size, start, step, count in zip(
        shape, slices.starts, slices.steps, slices.counts, strict=True
    ):
        last = start + step * (count - 1)
        low, high = min(start, last), max(start, last)
        padding.append((low, size - 1 - high, abs(step) - 1))
    return jax.lax.pad(jax.lax.rev(piece, turned), jnp.asarray(fill, piece.dtype), padding)


def numbers_of(view: View) -> np.ndarray:
    """The position of each element that a view shows."""
    positions = np.full(view.shape, view.offset, np.int64)
    for d, (count, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        along = [-1 if i == d else 1 for i in range(len(view.shape))]
        positions += (np.arange(count) * stride).reshape(along)
    return positions


def _contiguous(x: Any, view: View) -> Any:
    """The elements as a piece of memory without gaps, transposed and repeated; None if there are
    gaps.
    """
    moving = [d for d, n in enumerate(view.shape) if n > 1 and view.strides[d]]
    order = sorted(moving, key=lambda d: -view.strides[d])
    sizes = [view.shape[d] for d in order]
    if tuple(view.strides[d] for d in order) != row_major(sizes):
        return None
    flat, count = x.reshape(-1), prod(sizes)
    if count != flat.size:
        flat = jax.lax.slice(flat, [view.offset], [view.offset + count])
    places = [order.index(d) for d in moving]
    known = [view.shape[d] if d in moving else 1 for d in range(len(view.shape))]
    return jnp.broadcast_to(flat.reshape(sizes).transpose(places).reshape(known), view.shape)


def _slices(view: View, shape: tuple[int, ...]) -> _Slices | None:
    """A view as slices of the axes of an array of this shape; None if it isn't one."""
    strides = row_major(shape)
    starts, rest = [], view.offset
    for stride in strides:
        starts.append(rest // stride)
        rest %= stride
    steps, counts = [1] * len(shape), [1] * len(shape)
    axes: list[int | None] = []
    for count, stride in zip(view.shape, view.strides, strict=True):
        if count == 1 or not stride:
            axes.append(None)
            continue
        fitting = (d for d, s in enumerate(strides) if shape[d] > 1 and s <= abs(stride))
        d = next(fitting, None)
        if d is None or d in axes or stride % strides[d]:
            return None
        step = stride // strides[d]
        if not 0 <= starts[d] + step * (count - 1) < shape[d]:
            return None
        steps[d], counts[d] = step, count
        axes.append(d)
    return _Slices(tuple(starts), tuple(steps), tuple(counts), tuple(axes))
