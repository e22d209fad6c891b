"""The convolution ops: 2-D, 3-D, depthwise, and their gradients for input and filter.

The three ops of a kind are one bilinear map read in three directions, so the gradient of each is
composed of the other two. The public functions that build them are in `conv_functions`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Kind, Sample
from headrace._src.lowering.padded_windows import conv_geometry
from headrace._src.lowering.window_anchors import convolution
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import define
from headrace._src.ops.base.onednn_kernel import onednn_kernel
from headrace._src.ops.base.samples import r
from headrace._src.ops.nn import conv_kernels

__all__ = [
    "conv2d_backprop_filter_op",
    "conv2d_backprop_input_op",
    "conv2d_op",
    "conv3d_backprop_filter_v2",
    "conv3d_backprop_input_v2",
    "conv3d_op",
    "depthwise_conv2d_native",
]


def _sizes(shape: TensorShape, rank: int) -> tuple[int | None, ...]:
    """Return the sizes of a shape that must have `rank` dimensions; None for unknown ones."""
    return shape.with_rank(rank).sizes or (None,) * rank


def forward_infer(depthwise: bool = False) -> Any:
    def rule(c: Any, x: TensorShape, w: TensorShape) -> Any:
        rank = len(c.attrs["data_format"])
        taken = _sizes(w, rank)
        data = _sizes(x, rank)
        geometry = conv_geometry(
            data if depthwise else _grouped(data, taken, c.attrs["data_format"].index("C")),
            taken,
            strides=c.attrs["strides"],
            padding=c.attrs["padding"],
            explicit_paddings=c.attrs.get("explicit_paddings", ()),
            data_format=c.attrs["data_format"],
            dilations=c.attrs["dilations"],
            depthwise=depthwise,
            checked=False,
        )
        return geometry.output_shape

    return rule


def _grouped(
    data: tuple[int | None, ...], taken: tuple[int | None, ...], channel: int
) -> tuple[int | None, ...]:
    """Return the data's sizes with the filter's number of channels, if the data's channels are a
    multiple of it. Kernels reject grouped convolutions; shape rules accept them.
    """
    whole, each = data[channel], taken[-2]
    if not whole or not each or whole == each:
        return data
    if whole % each:
        raise ValueError(
            f"Depth of input ({whole}) is not a multiple of input depth of filter ({each})"
        )
    groups, made = whole // each, taken[-1]
    if made is not None and made % groups:
        raise ValueError(
            f"Depth of output ({made}) is not a multiple of the number of groups ({groups})"
        )
    return (*data[:channel], each, *data[channel + 1 :])


def _backprop_infer(index: int) -> Any:
    """The output shape is the value of the integer input `index`."""

    def rule(c: Any, *shapes: TensorShape) -> Any:
        return c.shape_from(index).with_rank(len(c.attrs["data_format"]))

    return rule


def _options(op: Any) -> dict[str, Any]:
    """The attributes that a convolution shares with its gradients."""
    inferred = op.definition.schema.inferred
    return {k: v for k, v in op._attrs.items() if k not in inferred and not k.startswith("_")}


def _gradients(forward: str, backprop_input: str, backprop_filter: str) -> tuple[Any, Any, Any]:
    """Return the gradients of a convolution, of its input gradient and of its filter gradient; each
    is given by the names of the three builders.
    """

    def of_forward(b: OpBuilder, op: Any, dy: Any) -> Any:
        x, w = op.inputs
        options = _options(op)
        return (
            getattr(b, backprop_input)(b.shape(x), w, dy, **options),
            getattr(b, backprop_filter)(x, b.shape(w), dy, **options),
        )

    def of_backprop_input(b: OpBuilder, op: Any, grad: Any) -> Any:
        _, w, dy = op.inputs
        options = _options(op)
        return (
            None,
            getattr(b, backprop_filter)(grad, b.shape(w), dy, **options),
            getattr(b, forward)(grad, w, **options),
        )

    def of_backprop_filter(b: OpBuilder, op: Any, grad: Any) -> Any:
        x, _, dy = op.inputs
        options = _options(op)
        return (
            getattr(b, backprop_input)(b.shape(x), grad, dy, **options),
            None,
            getattr(b, forward)(x, grad, **options),
        )

    return of_forward, of_backprop_input, of_backprop_filter


# ---- 2-D -----------------------------------------------------------------------------------------

_ATTRIBUTES_2D = (
    "T: {floats}; strides: list(int); use_cudnn_on_gpu: bool = True; "
    "padding: {'SAME'|'VALID'|'EXPLICIT'}; explicit_paddings: list(int) = []; "
    "data_format: {'NHWC'|'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]"
)
_FORWARD_2D, _INPUT_2D, _FILTER_2D = _gradients(
    "conv2d_op", "conv2d_backprop_input_op", "conv2d_backprop_filter_op"
)


def _samples_2d(*build: Any) -> list[Sample]:
    """One sample per way to slide a 3 x 2 window, from `build`'s (input, filter, output) sizes."""
    ways = [
        ((2, 5, 4, 3), (3, 2, 3, 2), (2, 5, 4, 2), {"padding": "SAME"}),
        ((1, 5, 6, 2), (3, 2, 2, 3), (1, 2, 2, 3), {"padding": "VALID", "strides": [1, 2, 3, 1]}),
        ((1, 6, 5, 1), (3, 2, 1, 2), (1, 6, 5, 2), {"padding": "SAME", "dilations": [1, 2, 2, 1]}),
        (
            (1, 2, 4, 3),
            (3, 2, 2, 2),
            (1, 2, 3, 5),
            {
                "padding": "EXPLICIT",
                "explicit_paddings": [0, 0, 0, 0, 1, 0, 2, 1],
                "data_format": "NCHW",
            },
        ),
        ((0, 4, 4, 2), (3, 2, 2, 1), (0, 4, 4, 1), {"padding": "SAME"}),
    ]
    return [
        Sample(*(piece(x, w, y) for piece in build), **{"strides": [1, 1, 1, 1], **options})
        for x, w, y, options in ways
    ]


@define(
    "Conv2D",
    "input: T, filter: T -> output: T",
    _ATTRIBUTES_2D,
    infer=forward_infer(),
    kernel=conv_kernels.conv2d,
    kernels={"CPU": [onednn_kernel(conv_kernels.onednn_conv2d)]},
    gradient=counted(3, _FORWARD_2D, reads=lambda op: op.inputs),
    kind=Kind.CONTRACTION,
    samples=lambda: _samples_2d(lambda x, w, y: r(*x), lambda x, w, y: r(*w)),
    lower=convolution("forward"),
)
def conv2d_op(
    input,
    filter,
    strides,
    padding,
    use_cudnn_on_gpu=True,
    explicit_paddings=(),
    data_format="NHWC",
    dilations=(1, 1, 1, 1),
    name=None,
):
    """Return the correlation of each image with filters [height, width, in, out]."""


@define(
    "Conv2DBackpropInput",
    "input_sizes: int32, filter: T, out_backprop: T -> output: T",
    _ATTRIBUTES_2D,
    infer=_backprop_infer(0),
    kernel=conv_kernels.conv2d_backprop_input,
    kernels={"CPU": [onednn_kernel(conv_kernels.onednn_conv2d_backprop_input)]},
    gradient=_INPUT_2D,
    kind=Kind.CONTRACTION,
    samples=lambda: _samples_2d(
        lambda x, w, y: list(x), lambda x, w, y: r(*w), lambda x, w, y: r(*y)
    ),
    lower=convolution("input"),
)
def conv2d_backprop_input_op(
    input_sizes,
    filter,
    out_backprop,
    strides,
    padding,
    use_cudnn_on_gpu=True,
    explicit_paddings=(),
    data_format="NHWC",
    dilations=(1, 1, 1, 1),
    name=None,
):
    """Return the gradient of conv2d for its input, whose shape is input_sizes."""


@define(
    "Conv2DBackpropFilter",
    "input: T, filter_sizes: int32, out_backprop: T -> output: T",
    _ATTRIBUTES_2D,
    infer=_backprop_infer(1),
    kernel=conv_kernels.conv2d_backprop_filter,
    kernels={"CPU": [onednn_kernel(conv_kernels.onednn_conv2d_backprop_filter)]},
    gradient=_FILTER_2D,
    kind=Kind.CONTRACTION,
    samples=lambda: _samples_2d(
        lambda x, w, y: r(*x), lambda x, w, y: list(w), lambda x, w, y: r(*y)
    ),
    lower=convolution("filter"),
)
def conv2d_backprop_filter_op(
    input,
    filter_sizes,
    out_backprop,
    strides,
    padding,
    use_cudnn_on_gpu=True,
    explicit_paddings=(),
    data_format="NHWC",
    dilations=(1, 1, 1, 1),
    name=None,
):
    """Return the gradient of conv2d for its filter, whose shape is filter_sizes."""


# ---- 2-D, depthwise ------------------------------------------------------------------------------

_ATTRIBUTES_DEPTHWISE = (
    "T: {floats}; strides: list(int); padding: {'SAME'|'VALID'}; "
    "data_format: {'NHWC'|'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]"
)
_FORWARD_DEPTHWISE, _INPUT_DEPTHWISE, _FILTER_DEPTHWISE = _gradients(
    "depthwise_conv2d_native",
    "depthwise_conv2d_native_backprop_input",
    "depthwise_conv2d_native_backprop_filter",
)


def _samples_depthwise(*build: Any) -> list[Sample]:
    ways = [
        ((2, 5, 4, 3), (3, 2, 3, 2), (2, 5, 4, 6), {"padding": "SAME"}),
        ((1, 5, 6, 2), (3, 2, 2, 1), (1, 2, 3, 2), {"padding": "VALID", "strides": [1, 2, 2, 1]}),
        ((1, 2, 4, 3), (3, 2, 2, 2), (1, 4, 2, 2), {"padding": "VALID", "data_format": "NCHW"}),
        ((0, 4, 4, 2), (3, 2, 2, 1), (0, 4, 4, 2), {"padding": "SAME"}),
    ]
    return [
        Sample(*(piece(x, w, y) for piece in build), **{"strides": [1, 1, 1, 1], **options})
        for x, w, y, options in ways
    ]


@export("nn.depthwise_conv2d_native")
@define(
    "DepthwiseConv2dNative",
    "input: T, filter: T -> output: T",
    _ATTRIBUTES_DEPTHWISE,
    infer=forward_infer(depthwise=True),
    kernel=conv_kernels.depthwise_conv2d_native,
    kernels={"CPU": [onednn_kernel(conv_kernels.onednn_depthwise_conv2d_native)]},
    gradient=_FORWARD_DEPTHWISE,
    kind=Kind.CONTRACTION,
    samples=lambda: _samples_depthwise(lambda x, w, y: r(*x), lambda x, w, y: r(*w)),
    lower=convolution("forward", depthwise=True),
)
def depthwise_conv2d_native(
    input,
    filter,
    strides,
    padding,
    data_format="NHWC",
    dilations=(1, 1, 1, 1),
    name=None,
):
    """Return each channel's correlation with its own filters: [height, width, in, multiplier]."""


@export("nn.depthwise_conv2d_native_backprop_input", "nn.depthwise_conv2d_backprop_input")
@define(
    "DepthwiseConv2dNativeBackpropInput",
    "input_sizes: int32, filter: T, out_backprop: T -> output: T",
    _ATTRIBUTES_DEPTHWISE,
    infer=_backprop_infer(0),
    kernel=conv_kernels.depthwise_conv2d_native_backprop_input,
    kernels={"CPU": [onednn_kernel(conv_kernels.onednn_depthwise_conv2d_native_backprop_input)]},
    gradient=_INPUT_DEPTHWISE,
    kind=Kind.CONTRACTION,
    samples=lambda: _samples_depthwise(
        lambda x, w, y: list(x), lambda x, w, y: r(*w), lambda x, w, y: r(*y)
    ),
    lower=convolution("input", depthwise=True),
)
def depthwise_conv2d_native_backprop_input(
    input_sizes,
    filter,
    out_backprop,
    strides,
    padding,
    data_format="NHWC",
    dilations=(1, 1, 1, 1),
    name=None,
):
    """Return the gradient of depthwise_conv2d_native for its input."""


@export("nn.depthwise_conv2d_native_backprop_filter", "nn.depthwise_conv2d_backprop_filter")
@define(
    "DepthwiseConv2dNativeBackpropFilter",
    "input: T, filter_sizes: int32, out_backprop: T -> output: T",
    _ATTRIBUTES_DEPTHWISE,
    infer=_backprop_infer(1),
    kernel=conv_kernels.depthwise_conv2d_native_backprop_filter,
    kernels={"CPU": [onednn_kernel(conv_kernels.onednn_depthwise_conv2d_native_backprop_filter)]},
    gradient=_FILTER_DEPTHWISE,
    kind=Kind.CONTRACTION,
    samples=lambda: _samples_depthwise(
        lambda x, w, y: r(*x), lambda x, w, y: list(w), lambda x, w, y: r(*y)
    ),
    lower=convolution("filter", depthwise=True),
)
def depthwise_conv2d_native_backprop_filter(
    input,
    filter_sizes,
    out_backprop,
    strides,
    padding,
    data_format="NHWC",
    dilations=(1, 1, 1, 1),
    name=None,
):
    """Return the gradient of depthwise_conv2d_native for its filter."""


# ---- 3-D -----------------------------------------------------------------------------------------

_WINDOW_3D = "strides: list(int) >= 5; padding: {'SAME'|'VALID'}"
_FORMAT_3D = "data_format: {'NDHWC'|'NCDHW'} = 'NDHWC'; dilations: list(int) = [1, 1, 1, 1, 1]"
_ATTRIBUTES_3D = f"T: {{floats}}; {_WINDOW_3D}; {_FORMAT_3D}"
_ATTRIBUTES_3D_V1 = (
    f"T: {{float16|float32|float64}}; {_WINDOW_3D}; dilations: list(int) = [1, 1, 1, 1, 1]"
)
_FORWARD_3D, _INPUT_3D, _FILTER_3D = _gradients(
    "conv3d_op", "conv3d_backprop_input_v2", "conv3d_backprop_filter_v2"
)


def _samples_3d(*build: Any, formats: bool = True) -> list[Sample]:
    ways: list[Any] = [
        ((1, 3, 4, 2, 2), (2, 2, 1, 2, 2), (1, 3, 4, 2, 2), {"padding": "SAME"}),
        (
            (1, 4, 3, 3, 1),
            (2, 2, 2, 1, 2),
            (1, 2, 1, 1, 2),
            {"padding": "VALID", "strides": [1, 2, 2, 2, 1]},
        ),
        ((0, 2, 2, 2, 1), (2, 2, 1, 1, 1), (0, 2, 2, 2, 1), {"padding": "SAME"}),
    ]
    if formats:
        options = {"padding": "VALID", "data_format": "NCDHW"}
        ways.append(((1, 2, 3, 2, 2), (2, 1, 2, 2, 1), (1, 1, 2, 2, 1), options))
    return [
        Sample(*(piece(x, w, y) for piece in build), **{"strides": [1, 1, 1, 1, 1], **options})
        for x, w, y, options in ways
    ]


@define(
    "Conv3D",
    "input: T, filter: T -> output: T",
    _ATTRIBUTES_3D,
    infer=forward_infer(),
    kernel=conv_kernels.conv3d,
    kernels={"CPU": [onednn_kernel(conv_kernels.onednn_conv3d)]},
    gradient=_FORWARD_3D,
    kind=Kind.CONTRACTION,
    samples=lambda: _samples_3d(lambda x, w, y: r(*x), lambda x, w, y: r(*w)),
)
def conv3d_op(
    input,
    filter,
    strides,
    padding,
    data_format="NDHWC",
    dilations=(1, 1, 1, 1, 1),
    name=None,
):
    """Return the correlation of each volume with filters [depth, height, width, in, out]."""


@define(
    "Conv3DBackpropInputV2",
    "input_sizes: Tshape, filter: T, out_backprop: T -> output: T",
    f"{_ATTRIBUTES_3D}; Tshape: {{index}} = int32",
    infer=_backprop_infer(0),
    kernel=conv_kernels.conv3d_backprop_input_v2,
    kernels={"CPU": [onednn_kernel(conv_kernels.onednn_conv3d_backprop_input_v2)]},
    gradient=_INPUT_3D,
    kind=Kind.CONTRACTION,
    samples=lambda: _samples_3d(
        lambda x, w, y: list(x), lambda x, w, y: r(*w), lambda x, w, y: r(*y)
    ),
)
def conv3d_backprop_input_v2(
    input_sizes,
    filter,
    out_backprop,
    strides,
    padding,
    data_format="NDHWC",
    dilations=(1, 1, 1, 1, 1),
    name=None,
):
    """Return the gradient of conv3d for its input, whose shape is input_sizes."""


@export("nn.conv3d_backprop_filter", "nn.conv3d_backprop_filter_v2")
@define(
    "Conv3DBackpropFilterV2",
    "input: T, filter_sizes: int32, out_backprop: T -> output: T",
    _ATTRIBUTES_3D,
    infer=_backprop_infer(1),
    kernel=conv_kernels.conv3d_backprop_filter_v2,
    kernels={"CPU": [onednn_kernel(conv_kernels.onednn_conv3d_backprop_filter_v2)]},
    gradient=_FILTER_3D,
    kind=Kind.CONTRACTION,
    samples=lambda: _samples_3d(
        lambda x, w, y: r(*x), lambda x, w, y: list(w), lambda x, w, y: r(*y)
    ),
)
def conv3d_backprop_filter_v2(
    input,
    filter_sizes,
    out_backprop,
    strides,
    padding,
    data_format="NDHWC",
    dilations=(1, 1, 1, 1, 1),
    name=None,
):
    """Return the gradient of conv3d for its filter, whose shape is filter_sizes."""


def _conv3d_backprop_input(x, w, dy, *, strides, padding, dilations):
    return conv_kernels.conv3d_backprop_input_v2(
        np.array(x.shape), w, dy, strides=strides, padding=padding, dilations=dilations
    )


@define(
    "Conv3DBackpropInput",
    "input: T, filter: T, out_backprop: T -> output: T",
    _ATTRIBUTES_3D_V1,
    infer=lambda c, x, w, dy: x.with_rank(5),
    kernel=_conv3d_backprop_input,
    gradient=_INPUT_3D,
    kind=Kind.CONTRACTION,
    samples=lambda: _samples_3d(
        lambda x, w, y: r(*x), lambda x, w, y: r(*w), lambda x, w, y: r(*y), formats=False
    ),
)
def conv3d_backprop_input(
    input,
    filter,
    out_backprop,
    strides,
    padding,
    dilations=(1, 1, 1, 1, 1),
    name=None,
):
    """Return the gradient of conv3d for its input; only the input's shape is used."""


def _conv3d_backprop_filter(x, w, dy, *, strides, padding, dilations):
    return conv_kernels.conv3d_backprop_filter_v2(
        x, np.array(w.shape), dy, strides=strides, padding=padding, dilations=dilations
    )


@define(
    "Conv3DBackpropFilter",
    "input: T, filter: T, out_backprop: T -> output: T",
    _ATTRIBUTES_3D_V1,
    infer=lambda c, x, w, dy: w.with_rank(5),
    kernel=_conv3d_backprop_filter,
    gradient=_FILTER_3D,
    kind=Kind.CONTRACTION,
    samples=lambda: _samples_3d(
        lambda x, w, y: r(*x), lambda x, w, y: r(*w), lambda x, w, y: r(*y), formats=False
    ),
)
def conv3d_backprop_filter(
    input,
    filter,
    out_backprop,
    strides,
    padding,
    dilations=(1, 1, 1, 1, 1),
    name=None,
):
    """Return the gradient of conv3d for its filter; only the filter's shape is used."""
