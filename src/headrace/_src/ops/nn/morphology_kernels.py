"""Grey-scale dilation in NumPy. In: NHWC images, filters [height, width, depth]. Out: same dtype.

A dilation is a convolution in which sums are maxima and products are sums. Among equal candidates
the first in scan order wins, and NaN never does, in the value and in both gradients alike: all
three use the same scan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace._src.core.windows import taps
from headrace._src.lowering.padded_windows import ConvGeometry, conv_geometry
from headrace._src.ops.math.sum_precision import lowest, widened


def dilation2d(
    inputs: np.ndarray,
    filters: np.ndarray,
    *,
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
) -> np.ndarray:
    """Return the maximum over each window of input plus filter; padding is ignored."""
    best, _ = _scan(inputs, filters, _geometry(inputs, filters, strides, rates, padding))
    return best


def dilation2d_backprop_input(
    inputs: np.ndarray,
    filters: np.ndarray,
    out_backprop: np.ndarray,
    *,
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
) -> np.ndarray:
    """Send each output's gradient to the input that won its window."""
    geometry = _geometry(inputs, filters, strides, rates, padding)
    dy = _gradient(out_backprop, geometry)
    _, winner = _scan(inputs, filters, geometry)
    dx = np.zeros(inputs.shape, dy.dtype)
    for tap, (_, outs, ins) in enumerate(taps(geometry.axes)):
        dx[:, *ins] += np.where(winner[:, *outs] == tap, dy[:, *outs], 0)
    return dx.astype(inputs.dtype, copy=False)


def dilation2d_backprop_filter(
    inputs: np.ndarray,
    filters: np.ndarray,
    out_backprop: np.ndarray,
    *,
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
) -> np.ndarray:
    """Send each output's gradient to the filter element that won its window."""
    geometry = _geometry(inputs, filters, strides, rates, padding)
    dy = _gradient(out_backprop, geometry)
    _, winner = _scan(inputs, filters, geometry)
    dw = np.zeros(filters.shape, dy.dtype)
    for tap, (position, outs, _) in enumerate(taps(geometry.axes)):
        won = winner[:, *outs] == tap
        dw[position] = np.where(won, dy[:, *outs], 0).sum(axis=(0, 1, 2), dtype=dy.dtype)
    return dw.astype(filters.dtype, copy=False)


def _geometry(
    inputs: np.ndarray,
    filters: np.ndarray,
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
) -> ConvGeometry[int]:
    if inputs.dtype != filters.dtype:
        raise TypeError(f"dilation2d: input is {inputs.dtype.name}, filter is {filters.dtype.name}")
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"padding must be SAME or VALID, got {padding!r}")
    if filters.ndim != 3:
        raise ValueError(f"filter must be [height, width, depth], got shape {filters.shape}")
    return conv_geometry(
        inputs.shape,
        (*filters.shape, 1),
        strides=strides,
        padding=padding,
        dilations=rates,
        depthwise=True,
    )


def _gradient(out_backprop: np.ndarray, geometry: ConvGeometry[int]) -> np.ndarray:
    if out_backprop.shape != geometry.output_shape:
        raise ValueError(
            f"out_backprop has shape {out_backprop.shape}, "
            f"but the dilation's output is {geometry.output_shape}"
        )
    return widened(out_backprop)


def _scan(
    inputs: np.ndarray, filters: np.ndarray, geometry: ConvGeometry[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the maximum of each window and the winning tap (the first real one if all are NaN)."""
    shape = tuple(size or 0 for size in geometry.output_shape)
    best = np.full(shape, lowest(inputs.dtype), inputs.dtype)
    winner = np.full(shape, -1, np.int32)
    for tap, (position, outs, ins) in enumerate(taps(geometry.axes)):
        candidate = inputs[:, *ins] + filters[position]
        seen, held = best[:, *outs], winner[:, *outs]
        wins = candidate > seen
        held[wins | (held < 0)] = tap
        np.copyto(seen, candidate, where=wins)
    return best, winner
