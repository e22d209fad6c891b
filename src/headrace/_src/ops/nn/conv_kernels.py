"""Convolutions in NumPy, and by oneDNN. In: arrays, filters and TF attributes. Out: an array of the
input's dtype.

A convolution is one matrix product: `_columns` lays the inputs that each output sees side by side,
and the filter is the other factor. Both gradients are the same product read backwards, with
`_scatter_columns`, the transpose of `_columns`, adding the input's gradient back in place. The
column matrix is as large as the input times the window, so batches are processed in chunks.
Computation is channels-last; other layouts are converted by views.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from headrace._src.core.windows import taps
from headrace._src.devices import onednn
from headrace._src.devices.onednn import Unsupported
from headrace._src.lowering.padded_windows import ConvGeometry, conv_geometry
from headrace._src.ops.math.sum_precision import require_float, widened

_COLUMN_BYTES = 1 << 26  # large enough for an efficient product, small compared to a training step


def conv2d(
    inputs: np.ndarray,
    filters: np.ndarray,
    *,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> np.ndarray:
    """Correlate each image with filters [height, width, in, out]."""
    require_float("conv2d", inputs, filters)
    geometry = _geometry(
        inputs.shape, filters.shape, strides, padding, data_format, dilations, explicit_paddings
    )
    return _forward(inputs, filters, geometry)


def conv2d_backprop_input(
    input_sizes: np.ndarray,
    filters: np.ndarray,
    out_backprop: np.ndarray,
    *,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> np.ndarray:
    """Gradient of conv2d with respect to its input, whose shape is `input_sizes`."""
    require_float("conv2d_backprop_input", filters, out_backprop)
    geometry = _geometry(
        _sizes(input_sizes),
        filters.shape,
        strides,
        padding,
        data_format,
        dilations,
        explicit_paddings,
    )
    return _backward_input(filters, out_backprop, geometry)


def conv2d_backprop_filter(
    inputs: np.ndarray,
    filter_sizes: np.ndarray,
    out_backprop: np.ndarray,
    *,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> np.ndarray:
    """Gradient of conv2d with respect to its filter, whose shape is `filter_sizes`."""
    require_float("conv2d_backprop_filter", inputs, out_backprop)
    geometry = _geometry(
        inputs.shape,
        _sizes(filter_sizes),
        strides,
        padding,
        data_format,
        dilations,
        explicit_paddings,
    )
    return _backward_filter(inputs, out_backprop, geometry)


def conv3d(
    inputs: np.ndarray,
    filters: np.ndarray,
    *,
    strides: Sequence[int],
    padding: str,
    data_format: str = "NDHWC",
    dilations: Sequence[int] = (1, 1, 1, 1, 1),
) -> np.ndarray:
    """Correlate each volume with filters [depth, height, width, in, out]."""
    require_float("conv3d", inputs, filters)
    geometry = _geometry(inputs.shape, filters.shape, strides, padding, data_format, dilations)
    return _forward(inputs, filters, geometry)


def conv3d_backprop_input_v2(
    input_sizes: np.ndarray,
    filters: np.ndarray,
    out_backprop: np.ndarray,
    *,
    strides: Sequence[int],
    padding: str,
    data_format: str = "NDHWC",
    dilations: Sequence[int] = (1, 1, 1, 1, 1),
) -> np.ndarray:
    """Gradient of conv3d with respect to its input, whose shape is `input_sizes`."""
    require_float("conv3d_backprop_input_v2", filters, out_backprop)
    geometry = _geometry(
        _sizes(input_sizes), filters.shape, strides, padding, data_format, dilations
    )
    return _backward_input(filters, out_backprop, geometry)


def conv3d_backprop_filter_v2(
    inputs: np.ndarray,
    filter_sizes: np.ndarray,
    out_backprop: np.ndarray,
    *,
    strides: Sequence[int],
    padding: str,
    data_format: str = "NDHWC",
    dilations: Sequence[int] = (1, 1, 1, 1, 1),
) -> np.ndarray:
    """Gradient of conv3d with respect to its filter, whose shape is `filter_sizes`."""
    require_float("conv3d_backprop_filter_v2", inputs, out_backprop)
    geometry = _geometry(
        inputs.shape, _sizes(filter_sizes), strides, padding, data_format, dilations
    )
    return _backward_filter(inputs, out_backprop, geometry)


def depthwise_conv2d_native(
    inputs: np.ndarray,
    filters: np.ndarray,
    *,
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> np.ndarray:
    """Correlate each channel with its own filters: [height, width, in, multiplier].

    Output channel c * multiplier + m comes from input channel c. TensorFlow's CPU kernel requires
    equal strides and ignores dilations; this kernel supports both.
    """
    require_float("depthwise_conv2d_native", inputs, filters)
    geometry = _geometry(
        inputs.shape, filters.shape, strides, padding, data_format, dilations, depthwise=True
    )
    x, w = _channels_last(widened(inputs), geometry), widened(filters)
    out = np.zeros((len(x), *_outs(geometry), *w.shape[-2:]), w.dtype)
    for position, outs, ins in taps(geometry.axes):
        out[:, *outs] += x[:, *ins, :, None] * w[position]
    return _restored(_merged(out), geometry, inputs.dtype)


def depthwise_conv2d_native_backprop_input(
    input_sizes: np.ndarray,
    filters: np.ndarray,
    out_backprop: np.ndarray,
    *,
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> np.ndarray:
    """Gradient of depthwise_conv2d_native with respect to its input, of shape `input_sizes`."""
    require_float("depthwise_conv2d_native_backprop_input", filters, out_backprop)
    geometry = _geometry(
        _sizes(input_sizes), filters.shape, strides, padding, data_format, dilations, depthwise=True
    )
    w, dy = widened(filters), _gradient_last(out_backprop, geometry)
    dy = dy.reshape(*dy.shape[:-1], *w.shape[-2:])
    dx = np.zeros((len(dy), *_ins(geometry), w.shape[-2]), w.dtype)
    for position, outs, ins in taps(geometry.axes):
        dx[:, *ins] += np.einsum("...cm,cm->...c", dy[:, *outs], w[position])
    return _restored(dx, geometry, out_backprop.dtype)


def depthwise_conv2d_native_backprop_filter(
    inputs: np.ndarray,
    filter_sizes: np.ndarray,
    out_backprop: np.ndarray,
    *,
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> np.ndarray:
    """Gradient of depthwise_conv2d_native with respect to its filter, of shape `filter_sizes`."""
    require_float("depthwise_conv2d_native_backprop_filter", inputs, out_backprop)
    shape = _sizes(filter_sizes)
    geometry = _geometry(
        inputs.shape, shape, strides, padding, data_format, dilations, depthwise=True
    )
    x, dy = _channels_last(widened(inputs), geometry), _gradient_last(out_backprop, geometry)
    channels, multiplier = shape[-2:]
    dy = dy.reshape(*dy.shape[:-1], channels, multiplier)
    dw = np.empty(shape, x.dtype)
    for position, outs, ins in taps(geometry.axes):
        # One product [1, outputs] x [outputs, multiplier] per channel: BLAS sums it accurately.
        seen = _rows(x[:, *ins])
        grads = dy[:, *outs].reshape(len(seen), channels, multiplier)
        dw[position] = (seen.T[:, None] @ grads.transpose(1, 0, 2))[:, 0]
    return dw.astype(inputs.dtype, copy=False)


def _geometry(
    input_shape: Sequence[int],
    filter_shape: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str,
    dilations: Sequence[int],
    explicit_paddings: Sequence[int] | None = None,
    depthwise: bool = False,
) -> ConvGeometry[int]:
    """The sizes of a convolution; without `explicit_paddings`, padding is SAME or VALID only."""
    if explicit_paddings is None and padding not in ("SAME", "VALID"):
        raise ValueError(f"padding must be SAME or VALID, got {padding!r}")
    return conv_geometry(
        input_shape,
        filter_shape,
        strides=strides,
        padding=padding,
        explicit_paddings=explicit_paddings or (),
        data_format=data_format,
        dilations=dilations,
        depthwise=depthwise,
    )


def _forward(inputs: np.ndarray, filters: np.ndarray, geometry: ConvGeometry[int]) -> np.ndarray:
    x, w = _channels_last(widened(inputs), geometry), _matrix(widened(filters))
    out = np.empty((len(x), *_outs(geometry), w.shape[1]), w.dtype)
    for images in _chunks(geometry, w.dtype.itemsize):
        columns = _columns(x[images], geometry)
        out[images] = (columns @ w).reshape(out[images].shape)
    return _restored(out, geometry, inputs.dtype)


def _backward_input(
    filters: np.ndarray, out_backprop: np.ndarray, geometry: ConvGeometry[int]
) -> np.ndarray:
    w, dy = _matrix(widened(filters)), _gradient_last(out_backprop, geometry)
    dx = np.zeros((len(dy), *_ins(geometry), filters.shape[-2]), w.dtype)
    for images in _chunks(geometry, w.dtype.itemsize):
        _scatter_columns(_rows(dy[images]) @ w.T, dx[images], geometry)
    return _restored(dx, geometry, out_backprop.dtype)


def _backward_filter(
    inputs: np.ndarray, out_backprop: np.ndarray, geometry: ConvGeometry[int]
) -> np.ndarray:
    x, dy = _channels_last(widened(inputs), geometry), _gradient_last(out_backprop, geometry)
    shape = (*geometry.kernel, x.shape[-1], dy.shape[-1])
    dw = np.zeros((math.prod(shape[:-1]), shape[-1]), x.dtype)
    for images in _chunks(geometry, x.dtype.itemsize):
        dw += _columns(x[images], geometry).T @ _rows(dy[images])
    return dw.reshape(shape).astype(inputs.dtype, copy=False)


def _columns(x: np.ndarray, geometry: ConvGeometry[int]) -> np.ndarray:
    """One row per output: the inputs that it sees, zero where padded, in the filter's order."""
    kernel = geometry.kernel
    columns = np.zeros((len(x), *_outs(geometry), *kernel, x.shape[-1]), x.dtype)
    for position, outs, ins in taps(geometry.axes):
        columns[:, *outs, *position] = x[:, *ins]
    rows = len(x) * math.prod(_outs(geometry))
    return columns.reshape(rows, math.prod(kernel) * x.shape[-1])


def _scatter_columns(columns: np.ndarray, dx: np.ndarray, geometry: ConvGeometry[int]) -> None:
    """Add each row to the inputs of its output: the transpose of `_columns`."""
    kernel = geometry.kernel
    columns = columns.reshape(len(dx), *_outs(geometry), *kernel, dx.shape[-1])
    for position, outs, ins in taps(geometry.axes):
        dx[:, *ins] += columns[:, *outs, *position]


def _chunks(geometry: ConvGeometry[int], itemsize: int) -> Iterator[slice]:
    """Return slices of the batch whose columns stay within the budget (one image at least)."""
    sizes = (*_outs(geometry), *geometry.kernel, geometry.in_channels)
    per_image = math.prod(sizes) * itemsize
    step = max(_COLUMN_BYTES // max(per_image, 1), 1)
    for start in range(0, geometry.batch, step):
        yield slice(start, start + step)


def _channels_last(x: np.ndarray, geometry: ConvGeometry[int]) -> np.ndarray:
    return np.moveaxis(x, geometry.channel_axis, -1)


def _gradient_last(out_backprop: np.ndarray, geometry: ConvGeometry[int]) -> np.ndarray:
    if out_backprop.shape != geometry.output_shape:
        raise ValueError(
            f"out_backprop has shape {out_backprop.shape}, "
            f"but the convolution's output is {geometry.output_shape}"
        )
    return _channels_last(widened(out_backprop), geometry)


def _restored(x: np.ndarray, geometry: ConvGeometry[int], dtype: np.dtype) -> np.ndarray:
    """Convert from the channels-last working form back to the data's layout and dtype."""
    return np.ascontiguousarray(np.moveaxis(x, -1, geometry.channel_axis), dtype)


def _matrix(filters: np.ndarray) -> np.ndarray:
    return filters.reshape(math.prod(filters.shape[:-1]), filters.shape[-1])


def _rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _merged(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _outs(geometry: ConvGeometry[int]) -> tuple[int, ...]:
    return tuple(axis.out for axis in geometry.axes)


def _ins(geometry: ConvGeometry[int]) -> tuple[int, ...]:
    return tuple(axis.size for axis in geometry.axes)


def _sizes(sizes: np.ndarray) -> tuple[int, ...]:
    sizes = np.asarray(sizes)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 0).any():
        raise ValueError(
            f"a shape must be a vector of integers of at least 0, got {sizes.tolist()}"
        )
    return tuple(sizes.tolist())


# ---- oneDNN --------------------------------------------------------------------------------------
# The kernels of the same names by oneDNN, which raises `Unsupported` for what it does not do. The
# geometry is worked out once per set of shapes; a wrong one raises the NumPy kernel's ValueError.


@lru_cache(maxsize=1024)
def _arguments(
    input_shape: tuple[int, ...],
    filter_shape: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    data_format: str,
    dilations: tuple[int, ...],
    explicit_paddings: tuple[int, ...] | None = None,
    depthwise: bool = False,
) -> tuple[Any, ...]:
    """Return the arguments of oneDNN's convolutions after the arrays."""
    geometry = _geometry(
        input_shape,
        filter_shape,
        strides,
        padding,
        data_format,
        dilations,
        explicit_paddings,
        depthwise,
    )
    groups = geometry.in_channels if depthwise else 1
    return geometry.strides, geometry.dilations, geometry.pads, data_format, groups


@lru_cache(maxsize=1024)
def _has_blind_taps(*key: Any) -> bool:
    """Whether some of a filter's taps only ever see padding."""
    axes = _geometry(*key).axes
    return any(part.start == part.stop for _, outs, _ in taps(axes) for part in outs)


def _given_sizes(vector: np.ndarray) -> tuple[int, ...]:
    return tuple(vector.tolist()) if vector.ndim == 1 else ()


def onednn_conv2d(x, w, *, strides, padding, explicit_paddings, data_format, dilations):
    key = (strides, padding, data_format, dilations, explicit_paddings)
    return onednn.conv(x, w, *_arguments(x.shape, w.shape, *key))


def onednn_conv2d_backprop_input(
    sizes, w, dy, *, strides, padding, explicit_paddings, data_format, dilations
):
    shape = _given_sizes(sizes)
    key = (strides, padding, data_format, dilations, explicit_paddings)
    return onednn.conv_backward_input(shape, w, dy, *_arguments(shape, w.shape, *key))


def onednn_conv2d_backprop_filter(
    x, sizes, dy, *, strides, padding, explicit_paddings, data_format, dilations
):
    shape = _given_sizes(sizes)
    key = (strides, padding, data_format, dilations, explicit_paddings)
    return onednn.conv_backward_filter(x, shape, dy, *_arguments(x.shape, shape, *key))


def onednn_depthwise_conv2d_native(x, w, *, strides, padding, data_format, dilations):
    key = (strides, padding, data_format, dilations, None, True)
    return onednn.conv(x, w, *_arguments(x.shape, w.shape, *key))


def onednn_depthwise_conv2d_native_backprop_input(
    sizes, w, dy, *, strides, padding, data_format, dilations
):
    shape = _given_sizes(sizes)
    key = (strides, padding, data_format, dilations, None, True)
    return onednn.conv_backward_input(shape, w, dy, *_arguments(shape, w.shape, *key))


def onednn_depthwise_conv2d_native_backprop_filter(
    x, sizes, dy, *, strides, padding, data_format, dilations
):
    shape = _given_sizes(sizes)
    key = (strides, padding, data_format, dilations, None, True)
    if _has_blind_taps(x.shape, shape, *key):
        raise Unsupported("oneDNN: the gradient of what sees nothing but padding isn't defined")
    return onednn.conv_backward_filter(x, shape, dy, *_arguments(x.shape, shape, *key))


def onednn_conv3d(x, w, *, strides, padding, data_format, dilations):
    return onednn.conv(
        x, w, *_arguments(x.shape, w.shape, strides, padding, data_format, dilations)
    )


def onednn_conv3d_backprop_input_v2(sizes, w, dy, *, strides, padding, data_format, dilations):
    shape = _given_sizes(sizes)
    rest = _arguments(shape, w.shape, strides, padding, data_format, dilations)
    return onednn.conv_backward_input(shape, w, dy, *rest)


def onednn_conv3d_backprop_filter_v2(x, sizes, dy, *, strides, padding, data_format, dilations):
    shape = _given_sizes(sizes)
    rest = _arguments(x.shape, shape, strides, padding, data_format, dilations)
    return onednn.conv_backward_filter(x, shape, dy, *rest)
