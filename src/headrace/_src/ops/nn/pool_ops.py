"""Max and average pooling, 2-D and 3-D, with their gradients to second order.

The public functions that build these ops are in `pool_layers`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Precision, Sample
from headrace._src.lowering.padded_windows import pool_geometry
from headrace._src.lowering.window_anchors import pooling, pooling_3d
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import define
from headrace._src.ops.base.onednn_kernel import onednn_kernel
from headrace._src.ops.base.samples import r
from headrace._src.ops.nn import pool_kernels

__all__ = ["avg_pool3d_op", "avg_pool_op", "max_pool3d_op", "max_pool_op", "max_pool_v2_op"]

_WINDOW_2D = "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME'|'VALID'}"
_WINDOW_3D = "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME'|'VALID'}"
_FORMAT_2D = "data_format: {'NHWC'|'NCHW'} = 'NHWC'"
_FORMAT_3D = "data_format: {'NDHWC'|'NCDHW'} = 'NDHWC'"
_MAX_POOL_TYPES = (
    "{float16|bfloat16|float32|float64|int32|int64|uint8|int16|int8|uint16|qint8} = float32"
)


def _pooled(c: Any, x: TensorShape, ksize: Any, strides: Any) -> Any:
    data_format = c.attrs.get("data_format", "NHWC")
    rank = len(data_format) if data_format != "NCHW_VECT_C" else 5
    sizes = x.with_rank(rank).sizes or (None,) * rank
    return pool_geometry(
        sizes,
        ksize=ksize,
        strides=strides,
        padding=c.attrs["padding"],
        data_format=data_format,
        checked=False,
    ).output_shape


def pool_infer(c: Any, x: TensorShape) -> Any:
    return _pooled(c, x, c.attrs["ksize"], c.attrs["strides"])


def pool_options(op: Any) -> dict[str, Any]:
    """The attributes that a pooling shares with its gradients."""
    names = ("ksize", "strides", "padding", "data_format", "include_batch_in_index")
    return {k: op._attrs[k] for k in names if k in op._attrs}


def _samples(rank: int, *build: Any, depth: bool = True) -> list[Sample]:
    """Return one sample per kind of pooling, from `build`'s (input, output) sizes."""
    if rank == 5:
        ways: list[Any] = [
            ((1, 3, 4, 2, 2), (1, 2, 2, 1, 2), [1, 2, 3, 2, 1], [1, 2, 2, 2, 1], "SAME", None),
            ((1, 3, 2, 3, 1), (1, 2, 1, 2, 1), [1, 2, 2, 2, 1], [1, 1, 1, 1, 1], "VALID", None),
            ((1, 2, 2, 3, 2), (1, 2, 1, 1, 1), [1, 1, 2, 2, 2], [1, 1, 1, 2, 2], "VALID", "NCDHW"),
            ((0, 2, 2, 2, 1), (0, 1, 1, 1, 1), [1, 2, 2, 2, 1], [1, 2, 2, 2, 1], "SAME", None),
        ]
    else:
        ways = [
            ((2, 5, 4, 3), (2, 3, 2, 3), [1, 2, 3, 1], [1, 2, 2, 1], "SAME", None),
            ((1, 4, 5, 2), (1, 3, 3, 2), [1, 2, 3, 1], [1, 1, 1, 1], "VALID", None),
            ((1, 2, 4, 4), (1, 2, 2, 2), [1, 1, 2, 2], [1, 1, 2, 2], "VALID", "NCHW"),
            ((0, 4, 4, 1), (0, 2, 2, 1), [1, 2, 2, 1], [1, 2, 2, 1], "SAME", None),
        ]
        if depth:
            ways.append(((1, 2, 2, 4), (1, 2, 2, 2), [1, 1, 1, 2], [1, 1, 1, 2], "VALID", None))
    return [
        Sample(
            *(piece(x, y) for piece in build),
            ksize=ksize,
            strides=strides,
            padding=padding,
            **({"data_format": data_format} if data_format else {}),
        )
        for x, y, ksize, strides, padding, data_format in ways
    ]


def _x(x: Any, y: Any) -> Any:
    return r(*x)


def _y(x: Any, y: Any) -> Any:
    return r(*y)


def _x_shape(x: Any, y: Any) -> Any:
    return list(x)


def _with_maxima(samples: list[Sample], pool: Any) -> list[Sample]:
    """Return the samples of a maximum's gradient, from those of the maximum itself: with real
    inputs and outputs, because second-order ops find a maximum by comparing the two.
    """
    rng = np.random.default_rng(5)
    result = []
    for sample in samples:
        x = rng.permutation(math.prod(sample.inputs[0].shape)).reshape(sample.inputs[0].shape) / 8
        y = pool(x, **sample.attrs)
        result.append(Sample(x, y, r(*y.shape), **sample.attrs))
    return result


# ---- 2-D maximum ---------------------------------------------------------------------------------


@define(
    "MaxPool",
    "input: T -> output: T",
    f"T: {_MAX_POOL_TYPES}; {_WINDOW_2D}; data_format: {{'NHWC'|'NCHW'|'NCHW_VECT_C'}} = 'NHWC'",
    infer=pool_infer,
    kernel=pool_kernels.max_pool,
    kernels={"CPU": [onednn_kernel(pool_kernels.onednn_max_pool)]},
    fresh=True,
    gradient=lambda b, op, dy: b.max_pool_grad(op.inputs[0], op.outputs[0], dy, **pool_options(op)),
    samples=lambda: _samples(4, _x),
    lower=pooling("max", "forward"),
    precision=Precision.EITHER,
)
def max_pool_op(input, ksize, strides, padding, data_format="NHWC", name=None):
    """Return the largest element of each window."""


def _grad_infer(c: Any, x: TensorShape, y: TensorShape, dy: TensorShape, *_: Any) -> Any:
    return x.with_rank(len(c.attrs["data_format"]))


def _grad_grad_infer(c: Any, x: TensorShape, y: TensorShape, dy: TensorShape, *_: Any) -> Any:
    x.merge_with(dy)
    pooled = pool_infer(c, x) if "ksize" in c.attrs else _max_pool_v2_infer(c, x, *_, first=3)
    TensorShape(pooled).merge_with(y)
    return pooled


def _undone_by(name: str) -> Any:
    """Return the gradient of an op that sends gradients to maxima, or reads them there: the builder
    `name` does the reverse. The pooled values only determine where the maxima are.
    """

    @counted(7)
    def gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
        x, y, _, *window = op.inputs
        back = getattr(b, name)(x, y, grad, *window, **pool_options(op))
        return b.zeros_like(x), b.zeros_like(y), back, *[None] * len(window)

    return gradient


@define(
    "MaxPoolGrad",
    "orig_input: T, orig_output: T, grad: T -> output: T",
    f"{_WINDOW_2D}; {_FORMAT_2D}; T: {{reals}} = float32",
    infer=_grad_infer,
    kernel=pool_kernels.max_pool_grad,
    kernels={"CPU": [onednn_kernel(pool_kernels.onednn_max_pool_grad)]},
    gradient=_undone_by("max_pool_grad_grad"),
    samples=lambda: _with_maxima(_samples(4, _x), pool_kernels.max_pool),
    lower=pooling("max", "gradient"),
    precision=Precision.EITHER,
)
def max_pool_grad(
    orig_input, orig_output, grad, ksize, strides, padding, data_format="NHWC", name=None
):
    """Return zeros of orig_input's shape with each window's grad added at its first maximum."""


# The true maxima of these inputs: the second-order op finds them by comparing with orig_output.
_PLANE = (np.arange(16.0) * 7 % 16 / 4).reshape(1, 4, 4, 1)
_PLANE_MAXIMA = _PLANE.reshape(1, 2, 2, 2, 2, 1).max(axis=(2, 4))
_TILES = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}


@define(
    "MaxPoolGradGrad",
    "orig_input: T, orig_output: T, grad: T -> output: T",
    f"{_WINDOW_2D}; {_FORMAT_2D}; T: {{reals}}",
    infer=_grad_grad_infer,
    kernel=pool_kernels.max_pool_grad_grad,
    gradient=_undone_by("max_pool_grad"),
    samples=[Sample(_PLANE, _PLANE_MAXIMA, r(1, 4, 4, 1), **_TILES)],
)
def max_pool_grad_grad(
    orig_input, orig_output, grad, ksize, strides, padding, data_format="NHWC", name=None
):
    """Return, for each window, grad at the position of its maximum."""


# ---- 2-D maximum, windows given as tensors -------------------------------------------------------


def _vector(values: np.ndarray) -> tuple[int, ...]:
    if values.ndim != 1 or len(values) != 4:
        raise ValueError(f"ksize and strides must have 4 elements, got {values.tolist()}")
    return tuple(values.tolist())


def _windows_as_inputs(kernel: Any) -> Any:
    """Wrap a pooling kernel to take ksize and strides as its last two inputs."""

    def run(*inputs: np.ndarray, padding: str, data_format: str) -> np.ndarray:
        *data, ksize, strides = inputs
        window = {"ksize": _vector(ksize), "strides": _vector(strides), "padding": padding}
        return kernel(*data, **window, data_format=data_format)

    return run


def _max_pool_v2_infer(
    c: Any, x: TensorShape, k: TensorShape, s: TensorShape, first: int = 1
) -> Any:
    """first: the index of the input with the window's sizes; the next input is its strides."""
    x.with_rank(4)
    k.merge_with((4,))
    s.merge_with((4,))
    ksize, strides = c.value(first), c.value(first + 1)
    if ksize is None or strides is None:
        return None
    return _pooled(c, x, _vector(ksize), _vector(strides))


def _samples_v2(samples: list[Sample]) -> list[Sample]:
    """Return the samples with ksize and strides as inputs."""
    moved = []
    for sample in samples:
        attrs = dict(sample.attrs)
        windows = attrs.pop("ksize"), attrs.pop("strides")
        moved.append(Sample(*sample.inputs, *windows, **attrs))
    return moved


@define(
    "MaxPoolV2",
    "input: T, ksize: int32, strides: int32 -> output: T",
    f"T: {_MAX_POOL_TYPES}; padding: {{'SAME'|'VALID'}}; "
    "data_format: {'NHWC'|'NCHW'|'NCHW_VECT_C'} = 'NHWC'",
    infer=_max_pool_v2_infer,
    kernel=_windows_as_inputs(pool_kernels.max_pool),
    kernels={"CPU": [onednn_kernel(_windows_as_inputs(pool_kernels.onednn_max_pool))]},
    gradient=lambda b, op, dy: (
        b.max_pool_grad_v2(
            op.inputs[0], op.outputs[0], dy, op.inputs[1], op.inputs[2], **pool_options(op)
        ),
        None,
        None,
    ),
    samples=lambda: _samples_v2(_samples(4, _x)),
    lower=pooling("max", "forward"),
    precision=Precision.EITHER,
)
def max_pool_v2_op(input, ksize, strides, padding, data_format="NHWC", name=None):
    """Return the largest element of each window, whose size is given by tensors."""


@define(
    "MaxPoolGradV2",
    "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32 -> output: T",
    f"padding: {{'SAME'|'VALID'}}; {_FORMAT_2D}; T: {{reals}} = float32",
    infer=_grad_infer,
    kernel=_windows_as_inputs(pool_kernels.max_pool_grad),
    kernels={"CPU": [onednn_kernel(_windows_as_inputs(pool_kernels.onednn_max_pool_grad))]},
    gradient=_undone_by("max_pool_grad_grad_v2"),
    samples=lambda: _samples_v2(_with_maxima(_samples(4, _x), pool_kernels.max_pool)),
    lower=pooling("max", "gradient"),
    precision=Precision.EITHER,
)
def max_pool_grad_v2(
    orig_input, orig_output, grad, ksize, strides, padding, data_format="NHWC", name=None
):
    """As MaxPoolGrad, with the window's size given by tensors."""


@define(
    "MaxPoolGradGradV2",
    "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32 -> output: T",
    f"padding: {{'SAME'|'VALID'}}; {_FORMAT_2D}; T: {{reals}}",
    infer=_grad_grad_infer,
    kernel=_windows_as_inputs(pool_kernels.max_pool_grad_grad),
    gradient=_undone_by("max_pool_grad_v2"),
    samples=[
        Sample(_PLANE, _PLANE_MAXIMA, r(1, 4, 4, 1), [1, 2, 2, 1], [1, 2, 2, 1], padding="VALID")
    ],
)
def max_pool_grad_grad_v2(
    orig_input, orig_output, grad, ksize, strides, padding, data_format="NHWC", name=None
):
    """As MaxPoolGradGrad, with the window's size given by tensors."""


# ---- 3-D maximum ---------------------------------------------------------------------------------


@define(
    "MaxPool3D",
    "input: T -> output: T",
    f"{_WINDOW_3D}; {_FORMAT_3D}; T: {{float16|bfloat16|float32}}",
    infer=pool_infer,
    kernel=pool_kernels.max_pool3d,
    kernels={"CPU": [onednn_kernel(pool_kernels.onednn_max_pool)]},
    gradient=lambda b, op, dy: b.max_pool3d_grad(
        op.inputs[0], op.outputs[0], dy, **pool_options(op)
    ),
    lower=pooling_3d("max"),
    samples=lambda: _samples(5, _x),
    precision=Precision.EITHER,
)
def max_pool3d_op(input, ksize, strides, padding, data_format="NDHWC", name=None):
    """Return the largest element of each window."""


@define(
    "MaxPool3DGrad",
    "orig_input: TInput, orig_output: TInput, grad: T -> output: T",
    f"{_WINDOW_3D}; {_FORMAT_3D}; T: {{float16|bfloat16|float32}} = float32; "
    "TInput: {float16|bfloat16|float32} = float32",
    infer=_grad_infer,
    kernel=pool_kernels.max_pool3d_grad,
    gradient=_undone_by("max_pool3d_grad_grad"),
    samples=lambda: _with_maxima(_samples(5, _x), pool_kernels.max_pool3d),
    precision=Precision.EITHER,
)
def max_pool3d_grad(
    orig_input, orig_output, grad, ksize, strides, padding, data_format="NDHWC", name=None
):
    """Return zeros of orig_input's shape with each window's grad added at its maxima."""


@define(
    "MaxPool3DGradGrad",
    "orig_input: T, orig_output: T, grad: T -> output: T",
    f"{_WINDOW_3D}; {_FORMAT_3D}; T: {{reals}}",
    infer=_grad_grad_infer,
    kernel=pool_kernels.max_pool3d_grad_grad,
    gradient=_undone_by("max_pool3d_grad"),
    samples=[
        Sample(
            _PLANE[:, None],
            _PLANE_MAXIMA[:, None],
            r(1, 1, 4, 4, 1),
            ksize=[1, 1, 2, 2, 1],
            strides=[1, 1, 2, 2, 1],
            padding="VALID",
            T=dtype,
        )
        for dtype in ("float32", "bfloat16", "int32", "uint8")
    ],
)
def max_pool3d_grad_grad(
    orig_input, orig_output, grad, ksize, strides, padding, data_format="NDHWC", name=None
):
    """Return, for each window, grad at the position of its first maximum."""


# ---- averages ------------------------------------------------------------------------------------


def _avg_gradient(name: str) -> Any:
    def gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
        return getattr(b, name)(b.shape(op.inputs[0]), dy, **pool_options(op))

    return gradient


def _avg_grad_gradient(name: str) -> Any:
    @counted(2)
    def gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
        return None, getattr(b, name)(grad, **pool_options(op))

    return gradient


def _avg_infer(c: Any, x: TensorShape) -> Any:
    """Means are never taken over depth, whatever the window says."""
    channel = c.attrs["data_format"].index("C")
    ksize, strides = ([*c.attrs[name]] for name in ("ksize", "strides"))
    ksize[channel] = strides[channel] = 1
    return _pooled(c, x, ksize, strides)


def _avg_grad_infer(c: Any, sizes: TensorShape, grad: TensorShape) -> Any:
    return c.shape_from(0).with_rank(len(c.attrs["data_format"]))


@define(
    "AvgPool",
    "value: T -> output: T",
    f"{_WINDOW_2D}; {_FORMAT_2D}; T: {{floats}}",
    infer=_avg_infer,
    kernel=pool_kernels.avg_pool,
    kernels={"CPU": [onednn_kernel(pool_kernels.onednn_avg_pool)]},
    fresh=True,
    gradient=_avg_gradient("avg_pool_grad"),
    samples=lambda: _samples(4, _x, depth=False),
    lower=pooling("mean", "forward"),
    precision=Precision.EITHER,
)
def avg_pool_op(value, ksize, strides, padding, data_format="NHWC", name=None):
    """Return the mean of each window's elements; padding is not counted."""


@define(
    "AvgPoolGrad",
    "orig_input_shape: int32, grad: T -> output: T",
    f"{_WINDOW_2D}; {_FORMAT_2D}; T: {{floats}}",
    infer=_avg_grad_infer,
    kernel=pool_kernels.avg_pool_grad,
    kernels={"CPU": [onednn_kernel(pool_kernels.onednn_avg_pool_grad)]},
    gradient=_avg_grad_gradient("avg_pool_op"),
    samples=lambda: _samples(4, _x_shape, _y, depth=False),
    lower=pooling("mean", "gradient"),
    precision=Precision.EITHER,
)
def avg_pool_grad(orig_input_shape, grad, ksize, strides, padding, data_format="NHWC", name=None):
    """Return each window's grad, spread evenly over its elements."""


@define(
    "AvgPool3D",
    "input: T -> output: T",
    f"{_WINDOW_3D}; {_FORMAT_3D}; T: {{floats}}",
    infer=_avg_infer,
    kernel=pool_kernels.avg_pool3d,
    kernels={"CPU": [onednn_kernel(pool_kernels.onednn_avg_pool)]},
    gradient=_avg_gradient("avg_pool3d_grad"),
    lower=pooling_3d("mean"),
    samples=lambda: _samples(5, _x),
    precision=Precision.EITHER,
)
def avg_pool3d_op(input, ksize, strides, padding, data_format="NDHWC", name=None):
    """Return the mean of each window's elements; padding is not counted."""


@define(
    "AvgPool3DGrad",
    "orig_input_shape: int32, grad: T -> output: T",
    f"{_WINDOW_3D}; {_FORMAT_3D}; T: {{floats}}",
    infer=_avg_grad_infer,
    kernel=pool_kernels.avg_pool3d_grad,
    kernels={"CPU": [onednn_kernel(pool_kernels.onednn_avg_pool_grad)]},
    gradient=_avg_grad_gradient("avg_pool3d_op"),
    samples=lambda: _samples(5, _x_shape, _y),
    precision=Precision.EITHER,
)
def avg_pool3d_grad(
    orig_input_shape, grad, ksize, strides, padding, data_format="NDHWC", name=None
):
    """Return each window's grad, spread evenly over its elements."""
