"""Fractional pooling (Graham 2014) in NumPy. In: NHWC arrays and cut points. Out: same dtype.

A pooling sequence holds the cut points of an axis, from 0 to its size; window i extends from cut i
to cut i + 1, both included when windows overlap. `pooling_sequence` draws one; the kernels take
sequences as arguments, so that a gradient can use those of its forward op.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from headrace._src.devices.room import check_room
from headrace._src.ops.math.sum_precision import lowest, widened
from headrace._src.ops.random.distributions import shuffle
from headrace._src.ops.random.philox import PhiloxState, uniform_from_words, words


def fractional_size(size: int, ratio: float) -> int:
    """Return the number of windows that an axis of `size` elements is cut into."""
    if ratio < 1:
        raise ValueError(f"pooling_ratio must be at least 1, got {ratio}")
    if size < ratio:
        raise ValueError(f"an axis of {size} elements is too short for pooling_ratio {ratio}")
    return math.floor(size / ratio)


def pooling_sequence(
    size: int, count: int, state: PhiloxState, *, pseudo_random: bool = False
) -> np.ndarray:
    """Cut `size` elements into `count` windows whose lengths differ by at most one.

    The lengths are in random order or, if `pseudo_random`, follow the evenly spread cuts ceil(ratio
    * (i + u)) for one random offset u.
    """
    if not 1 <= count <= size:
        raise ValueError(f"cannot cut {size} elements into {count} windows")
    if pseudo_random:
        return _spread_cuts(size, count, state)
    short, longer = divmod(size, count)
    lengths = np.full(count, short, np.int64)
    lengths[:longer] += 1
    return np.concatenate([[0], np.cumsum(shuffle(state, lengths))])


def fractional_max_pool(
    value: np.ndarray,
    row_pooling_sequence: np.ndarray,
    col_pooling_sequence: np.ndarray,
    *,
    overlapping: bool = False,
) -> np.ndarray:
    """Return the maximum of each window, ignoring NaN."""
    rows, cols = _axes(value.shape, row_pooling_sequence, col_pooling_sequence, overlapping)
    best = np.full(_pooled(value.shape, rows, cols), lowest(value.dtype), value.dtype)
    for h, w, inside in _taps(rows, cols):
        np.fmax(best, value[:, h, w], out=best, where=inside)
    return best


def fractional_max_pool_grad(
    orig_input: np.ndarray,
    orig_output: np.ndarray,
    out_backprop: np.ndarray,
    row_pooling_sequence: np.ndarray,
    col_pooling_sequence: np.ndarray,
    *,
    overlapping: bool = False,
) -> np.ndarray:
    """Send each window's gradient to its first maximum."""
    rows, cols = _axes(orig_input.shape, row_pooling_sequence, col_pooling_sequence, overlapping)
    pooled = _pooled(orig_input.shape, rows, cols)
    _check_shape("orig_output", orig_output, pooled)
    _check_shape("out_backprop", out_backprop, pooled)
    best = np.zeros(pooled, orig_input.dtype)
    winner = np.full(pooled, -1, np.int32)
    for tap, (h, w, inside) in enumerate(_taps(rows, cols)):
        candidate = orig_input[:, h, w]
        wins = inside & ((winner < 0) | (candidate > best))
        winner[wins] = tap
        np.copyto(best, candidate, where=wins)
    dx = np.zeros(orig_input.shape, widened(out_backprop).dtype)
    for tap, (h, w, _) in enumerate(_taps(rows, cols)):
        _scatter(dx, h, w, np.where(winner == tap, out_backprop, 0))
    return dx.astype(out_backprop.dtype, copy=False)


def fractional_avg_pool(
    value: np.ndarray,
    row_pooling_sequence: np.ndarray,
    col_pooling_sequence: np.ndarray,
    *,
    overlapping: bool = False,
) -> np.ndarray:
    """Return the mean of each window; integers are divided towards zero."""
    rows, cols = _axes(value.shape, row_pooling_sequence, col_pooling_sequence, overlapping)
    total = np.zeros(_pooled(value.shape, rows, cols), widened(value).dtype)
    for h, w, inside in _taps(rows, cols):
        total += np.where(inside, value[:, h, w], 0)
    counts = _counts(rows, cols)
    if total.dtype.kind in "iu":
        return (np.sign(total) * (np.abs(total) // counts)).astype(value.dtype)
    return (total / counts).astype(value.dtype)


def fractional_avg_pool_grad(
    orig_input_tensor_shape: np.ndarray,
    out_backprop: np.ndarray,
    row_pooling_sequence: np.ndarray,
    col_pooling_sequence: np.ndarray,
    *,
    overlapping: bool = False,
) -> np.ndarray:
    """Spread each window's gradient evenly over its elements; integers are truncated
    after summing.
    """
    shape = tuple(np.asarray(orig_input_tensor_shape).tolist())
    rows, cols = _axes(shape, row_pooling_sequence, col_pooling_sequence, overlapping)
    _check_shape("out_backprop", out_backprop, _pooled(shape, rows, cols))
    check_room(shape, out_backprop.dtype, "orig_input_tensor_shape")
    share = widened(out_backprop) / _counts(rows, cols)
    dx = np.zeros(shape, share.dtype)
    for h, w, inside in _taps(rows, cols):
        _scatter(dx, h, w, np.where(inside, share, 0))
    return dx.astype(out_backprop.dtype, copy=False)


# An axis as the kernels see it: the first element of each window, and how many it has.
_Windows = tuple[np.ndarray, np.ndarray]


def _axes(
    shape: tuple[int, ...], row_cuts: np.ndarray, col_cuts: np.ndarray, overlapping: bool
) -> tuple[_Windows, _Windows]:
    if len(shape) != 4:
        raise ValueError(f"fractional pooling takes NHWC data, got shape {shape}")
    return (
        _windows("row", shape[1], np.asarray(row_cuts), overlapping),
        _windows("col", shape[2], np.asarray(col_cuts), overlapping),
    )


def _windows(name: str, size: int, cuts: np.ndarray, overlapping: bool) -> _Windows:
    lengths = np.diff(cuts) if cuts.ndim == 1 else np.zeros(0)
    if not lengths.size or cuts[0] < 0 or cuts[-1] > size or lengths.min() < 1:
        raise ValueError(
            f"{name}_pooling_sequence must rise within 0 to {size}, got {cuts.tolist()}"
        )
    # The last window's closing cut is past the end, where there is no element to share.
    ends = np.minimum(cuts[1:] + 1, size) if overlapping else cuts[1:]
    return cuts[:-1], ends - cuts[:-1]


def _pooled(shape: tuple[int, ...], rows: _Windows, cols: _Windows) -> tuple[int, ...]:
    return shape[0], len(rows[0]), len(cols[0]), shape[3]


def _taps(rows: _Windows, cols: _Windows) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Visit all windows at once, tap by tap: (row index, column index, whether the tap is inside).

    The indices select [rows, cols]; where a short window lacks the tap, they repeat its last
    element.
    """
    (tops, heights), (lefts, widths) = rows, cols
    for i in range(int(heights.max())):
        for j in range(int(widths.max())):
            h = (tops + np.minimum(i, heights - 1))[:, None]
            w = (lefts + np.minimum(j, widths - 1))[None, :]
            inside = (i < heights)[:, None] & (j < widths)[None, :]
            yield h, w, inside[None, :, :, None]


def _scatter(dx: np.ndarray, h: np.ndarray, w: np.ndarray, values: np.ndarray) -> None:
    """Add values [batch, rows, cols, depth] at [:, h, w]; overlapping windows may share
    elements.
    """
    np.add.at(dx.transpose(1, 2, 0, 3), (h, w), values.transpose(1, 2, 0, 3))


def _counts(rows: _Windows, cols: _Windows) -> np.ndarray:
    """Return how many elements each window has, shaped to broadcast over NHWC."""
    return np.multiply.outer(rows[1], cols[1])[None, :, :, None]


def _spread_cuts(size: int, count: int, state: PhiloxState) -> np.ndarray:
    ratio = size / count
    short = math.floor(ratio)
    # The largest offsets for which neither the first nor the last window leaves {short, short + 1}.
    largest = min((short + 2) / ratio - 1, (size + 1 - short) / ratio - (count - 1))
    drawn = uniform_from_words(words(state.reserve(1), 1), np.dtype(np.float64))
    offset = float(drawn[0, 0]) * largest
    cuts = np.ceil(ratio * (np.arange(count + 1) + offset)).astype(np.int64) - 1
    cuts[0], cuts[-1] = 0, size
    return cuts


def _check_shape(what: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{what} has shape {array.shape}, but the pooling needs {shape}")
