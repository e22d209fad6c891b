"""The native kernels of convolution, pooling and softmax. In: an op's inputs and attributes. Out:
an array, made by oneDNN or, the softmax of large arrays, by generated code.

Each function has the parameters of the NumPy kernel of the same name, works out the window's
geometry once per set of shapes, and calls `devices.onednn`, which raises `Unsupported` for what it
does not do. A geometry that is wrong raises the NumPy kernel's own ValueError.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from headrace._src.core.windows import taps
from headrace._src.devices import onednn
from headrace._src.devices.onednn import Unsupported
from headrace._src.lowering import generated
from headrace._src.lowering.padded_windows import ConvGeometry, conv_geometry, pool_geometry

_Ints = tuple[int, ...]
_GENERATED = ("float32", "float64")


def _geometry(
    input_shape: _Ints,
    filter_shape: _Ints,
    strides: _Ints,
    padding: str,
    explicit_paddings: _Ints,
    data_format: str,
    dilations: _Ints,
    depthwise: bool = False,
) -> tuple[ConvGeometry[int], str, bool]:
    geometry: ConvGeometry[int] = conv_geometry(
        input_shape,
        filter_shape,
        strides=strides,
        padding=padding,
        explicit_paddings=explicit_paddings,
        data_format=data_format,
        dilations=dilations,
        depthwise=depthwise,
    )
    return geometry, data_format, depthwise


@lru_cache(maxsize=1024)
def _conv(*key: Any) -> tuple[Any, ...]:
    """Return the arguments of oneDNN's convolutions after the arrays."""
    geometry, data_format, depthwise = _geometry(*key)
    groups = geometry.in_channels if depthwise else 1
    return geometry.strides, geometry.dilations, geometry.pads, data_format, groups


@lru_cache(maxsize=1024)
def _has_blind_taps(*key: Any) -> bool:
    """Whether some of a filter's taps only ever see padding."""
    geometry, _, _ = _geometry(*key)
    return any(part.start == part.stop for _, outs, _ in taps(geometry.axes) for part in outs)


def _sizes(vector: np.ndarray) -> _Ints:
    return tuple(vector.tolist()) if vector.ndim == 1 else ()


# ---- 2-D -----------------------------------------------------------------------------------------


def conv2d(x, w, *, strides, padding, explicit_paddings, data_format, dilations):
    key = (strides, padding, explicit_paddings, data_format, dilations)
    return onednn.conv(x, w, *_conv(x.shape, w.shape, *key))


def conv2d_backprop_input(
    sizes, w, dy, *, strides, padding, explicit_paddings, data_format, dilations
):
    shape = _sizes(sizes)
    key = (strides, padding, explicit_paddings, data_format, dilations)
    return onednn.conv_backward_input(shape, w, dy, *_conv(shape, w.shape, *key))


def conv2d_backprop_filter(
    x, sizes, dy, *, strides, padding, explicit_paddings, data_format, dilations
):
    shape = _sizes(sizes)
    key = (strides, padding, explicit_paddings, data_format, dilations)
    return onednn.conv_backward_filter(x, shape, dy, *_conv(x.shape, shape, *key))


# ---- depthwise -----------------------------------------------------------------------------------


def depthwise_conv2d_native(x, w, *, strides, padding, data_format, dilations):
    key = (strides, padding, (), data_format, dilations, True)
    return onednn.conv(x, w, *_conv(x.shape, w.shape, *key))


def depthwise_conv2d_native_backprop_input(
    sizes, w, dy, *, strides, padding, data_format, dilations
):
    shape = _sizes(sizes)
    key = (strides, padding, (), data_format, dilations, True)
    return onednn.conv_backward_input(shape, w, dy, *_conv(shape, w.shape, *key))


def depthwise_conv2d_native_backprop_filter(
    x, sizes, dy, *, strides, padding, data_format, dilations
):
    shape = _sizes(sizes)
    key = (strides, padding, (), data_format, dilations, True)
    if _has_blind_taps(x.shape, shape, *key):
        raise Unsupported("oneDNN: the gradient of what sees nothing but padding isn't defined")
    return onednn.conv_backward_filter(x, shape, dy, *_conv(x.shape, shape, *key))


# ---- 3-D -----------------------------------------------------------------------------------------


def conv3d(x, w, *, strides, padding, data_format, dilations):
    return onednn.conv(x, w, *_conv(x.shape, w.shape, strides, padding, (), data_format, dilations))


def conv3d_backprop_input_v2(sizes, w, dy, *, strides, padding, data_format, dilations):
    shape = _sizes(sizes)
    rest = _conv(shape, w.shape, strides, padding, (), data_format, dilations)
    return onednn.conv_backward_input(shape, w, dy, *rest)


def conv3d_backprop_filter_v2(x, sizes, dy, *, strides, padding, data_format, dilations):
    shape = _sizes(sizes)
    rest = _conv(x.shape, shape, strides, padding, (), data_format, dilations)
    return onednn.conv_backward_filter(x, shape, dy, *rest)


# ---- pooling, 2-D and 3-D ------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _pool(
    input_shape: _Ints, ksize: _Ints, strides: _Ints, padding: str, data_format: str
) -> tuple[Any, ...] | str:
    """Return the arguments of oneDNN's poolings after the arrays; raise Unsupported if it can't
    pool.
    """
    geometry = pool_geometry(
        input_shape, ksize=ksize, strides=strides, padding=padding, data_format=data_format
    )
    channel = data_format.index("C")
    if ksize[channel] != 1:
        return "oneDNN does not pool over channels"
    axes = [a for i, a in enumerate(geometry.axes) if i not in (0, channel)]
    return (
        tuple(a.taps for a in axes),
        tuple(a.stride for a in axes),
        tuple((a.before, a.after) for a in axes),
        data_format,
    )


def _pool_arguments(*key: Any) -> tuple[Any, ...]:
    found = _pool(*key)
    if isinstance(found, str):
        raise Unsupported(found)
    return found


def max_pool(x, *, ksize, strides, padding, data_format):
    return onednn.max_pool(x, *_pool_arguments(x.shape, ksize, strides, padding, data_format))


def max_pool_grad(x, y, dy, *, ksize, strides, padding, data_format):
    arguments = _pool_arguments(x.shape, ksize, strides, padding, data_format)
    return onednn.max_pool_backward(x, y, dy, *arguments)


def avg_pool(x, *, ksize, strides, padding, data_format):
    return onednn.avg_pool(x, *_pool_arguments(x.shape, ksize, strides, padding, data_format))


def avg_pool_grad(sizes, dy, *, ksize, strides, padding, data_format):
    shape = _sizes(sizes)
    arguments = _pool_arguments(shape, ksize, strides, padding, data_format)
    return onednn.avg_pool_backward(shape, dy, *arguments)


# ---- softmax -------------------------------------------------------------------------------------


def softmax(logits: np.ndarray) -> np.ndarray:
    if logits.size >= generated.LEAST and logits.dtype.name in _GENERATED:
        run = generated.routine("softmax", logits.dtype.name)
        found = run(np.ascontiguousarray(logits)) if run is not None else None
        if found is not None:
            return found
    # There is no native log_softmax: oneDNN's is off by 4e-6, four times NumPy's error.
    return onednn.softmax(logits)
