"""The public functions that build convolutions, with TensorFlow 1.15's names and arguments.

Each adds one of the ops of `convolution` and brings the data into that op's form: an extra
dimension for 1-D data, space moved to the batch for dilation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.nn.conv_ops import (
    conv2d_backprop_filter_op,
    conv2d_backprop_input_op,
    conv2d_op,
    conv3d_op,
    depthwise_conv2d_native,
)
from headrace._src.ops.nn.window_arguments import (
    channel_axis,
    full_window,
    padding_pairs,
    strides_and_rates,
    with_space_to_batch,
)

__all__ = ["conv1d", "conv2d", "conv3d", "convolution", "depthwise_conv2d", "separable_conv2d"]


# ---- forward -------------------------------------------------------------------------------------


@composed
@export("nn.conv2d")
def conv2d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
    filters: Any = None,
) -> Tensor:
    """Return the correlation of images with filters [height, width, in, out].

    padding: 'SAME', 'VALID', or a (before, after) pair per dimension. strides and dilations: a
    number, one per spatial dimension, or one per dimension. data_format: 'NHWC' or 'NCHW'.
    """
    filter = renamed_argument("filters", filters, "filter", filter)
    padding, explicit = padding_pairs(padding)
    data_format = data_format or "NHWC"
    axis = channel_axis(data_format, 2)
    return conv2d_op(
        input,
        filter,
        strides=full_window(strides, 2, axis, "strides"),
        padding=padding,
        use_cudnn_on_gpu=use_cudnn_on_gpu,
        explicit_paddings=explicit,
        data_format=data_format,
        dilations=full_window(dilations, 2, axis, "dilations"),
        name=name,
    )


@composed
@export("nn.conv1d")
def conv1d(
    value: Any = None,
    filters: Any = None,
    stride: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool | None = None,
    data_format: str | None = None,
    name: str | None = None,
    input: Any = None,
    dilations: Any = None,
) -> Tensor:
    """Return the correlation of sequences with filters [width, in, out].

    value: [batch, width, in], or [batch, in, width] if data_format is 'NCW' (or 'NCHW'). stride and
    dilations: a number, or one per dimension of value. padding: 'SAME' or 'VALID'. input is another
    name of value.
    """
    value = renamed_argument("input", input, "value", value)
    with name_scope(name, "conv1d", [value, filters]) as scope:
        spatial, data_format_2d = as_2d(data_format)
        axis = 2 if spatial == 1 else 1
        result = conv2d_op(
            b.expand_dims(value, spatial),
            b.expand_dims(filters, 0),
            strides=[1, *full_window(stride, 1, axis, "stride")],
            padding=padding,
            use_cudnn_on_gpu=use_cudnn_on_gpu,
            data_format=data_format_2d,
            dilations=[1, *full_window(dilations, 1, axis, "dilations")],
            name=scope,
        )
        return b.squeeze(result, [spatial])


def as_2d(data_format: str | None) -> tuple[int, str]:
    """Return the axis for the second spatial dimension of 1-D data, and the resulting 2-D
    format.
    """
    if data_format in (None, "NHWC", "NWC"):
        return 1, "NHWC"
    if data_format in ("NCHW", "NCW"):
        return 2, "NCHW"
    raise ValueError('data_format must be "NWC" or "NCW".')


@composed
@export("nn.conv3d")
def conv3d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: Any = None,
    data_format: str = "NDHWC",
    dilations: Any = (1, 1, 1, 1, 1),
    name: str | None = None,
    filters: Any = None,
) -> Tensor:
    """Return the correlation of volumes with filters [depth, height, width, in, out].

    strides and dilations: one number per dimension. padding: 'SAME' or 'VALID'. data_format:
    'NDHWC' or 'NCDHW'.
    """
    filter = renamed_argument("filters", filters, "filter", filter)
    return conv3d_op(
        input,
        filter,
        strides=strides,
        padding=padding,
        data_format=data_format,
        dilations=dilations,
        name=name,
    )


@composed
@export("nn.convolution")
def convolution(
    input: Any,
    filter: Any,
    padding: str,
    strides: Any = None,
    dilation_rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    filters: Any = None,
    dilations: Any = None,
) -> Tensor:
    """Return a convolution over 1, 2 or 3 spatial dimensions, strided or dilated.

    strides and dilation_rate: one number per spatial dimension; only one of them may exceed 1. A
    dilated convolution is a plain one on data whose space has been moved to the batch.
    """
    filter = renamed_argument("filters", filters, "filter", filter)
    dilation_rate = renamed_argument("dilations", dilations, "dilation_rate", dilation_rate)
    with name_scope(name, "convolution", [input, filter]) as scope:
        input = input if hasattr(input, "shape") else convert_to_tensor(input, name="input")
        filter = filter if hasattr(filter, "shape") else convert_to_tensor(filter, name="filter")
        filter_shape = as_shape(filter.shape)
        spatial = _spatial_count(as_shape(input.shape), filter_shape)
        stride, rate = strides_and_rates(spatial, strides, dilation_rate)

        def apply(x: Any, _: int, padding: str) -> Tensor:
            return _plain(x, filter, padding, stride, data_format, scope)

        if (rate == 1).all():
            return apply(input, spatial, padding)
        return with_space_to_batch(
            input,
            rate,
            padding,
            apply,
            filter_shape=filter_shape if filter_shape.is_fully_defined() else b.shape(filter),
            data_format=data_format,
        )


def _spatial_count(x: TensorShape, w: TensorShape) -> int:
    rank = w.ndims if w.ndims is not None else x.ndims
    if rank is None:
        raise ValueError("rank of input or filter must be known")
    if x.ndims is not None and x.ndims != rank:
        raise ValueError(f"input must have rank {rank}, as the filter has, not {x.ndims}")
    if not 1 <= rank - 2 <= 3:
        raise ValueError(f"num_spatial_dims must be 1, 2, or 3, not {rank - 2}.")
    return rank - 2


def _plain(
    x: Any,
    w: Any,
    padding: str,
    stride: np.ndarray,
    data_format: str | None,
    name: str,
) -> Tensor:
    """Return the undilated convolution with 1, 2 or 3 spatial dimensions."""
    if len(stride) == 1:
        return conv1d(x, w, int(stride[0]), padding, data_format=data_format or "NWC", name=name)
    formats = {2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}[len(stride)]
    data_format = formats[0] if data_format is None else data_format
    if data_format not in formats:
        raise ValueError(
            f'data_format must be "{formats[0]}" or "{formats[1]}". Have: {data_format}'
        )
    strides = full_window(stride, len(stride), channel_axis(data_format, len(stride)), "strides")
    build = conv2d_op if len(stride) == 2 else conv3d_op
    return build(x, w, strides=strides, padding=padding, data_format=data_format, name=name)


@composed
@export("nn.atrous_conv2d")
def atrous_conv2d(
    value: Any, filters: Any, rate: int, padding: str, name: str | None = None
) -> Tensor:
    """Return a convolution whose filter has `rate - 1` holes between neighbouring elements.

    value: [batch, height, width, in]. filters: [height, width, in, out]. padding: 'SAME' or
    'VALID'.
    """
    return convolution(value, filters, padding, dilation_rate=[rate, rate], name=name)


@composed
@export("nn.depthwise_conv2d")
def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: str,
    rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Tensor:
    """Return each channel's correlation with its own filters: [height, width, in, multiplier].

    strides: one number per dimension of input. rate: the dilation in height and width. padding:
    'SAME', 'VALID' or (before, after) pairs.
    """
    rate = renamed_argument("dilations", dilations, "rate", rate)
    with name_scope(name, "depthwise", [input, filter]) as scope:
        input = convert_to_tensor(input, name="tensor_in")
        filter = convert_to_tensor(filter, name="filter_in")
        return _depthwise(input, filter, strides, padding, rate, data_format, scope)


def _depthwise(
    x: Tensor, w: Tensor, strides: Any, padding: str, rate: Any, data_format: Any, name: str
) -> Tensor:
    def apply(x: Tensor, _: int, padding: str) -> Tensor:
        return depthwise_conv2d_native(
            x, w, strides=strides, padding=padding, data_format=data_format, name=name
        )

    return with_space_to_batch(
        x,
        [1, 1] if rate is None else rate,
        padding,
        apply,
        filter_shape=b.shape(w),
        data_format=data_format,
    )


@composed
@export("nn.separable_conv2d")
def separable_conv2d(
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Any,
    padding: str,
    rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Tensor:
    """Return a depthwise convolution followed by a 1 x 1 convolution that mixes channels.

    depthwise_filter: [height, width, in, multiplier]. pointwise_filter: [1, 1, in * multiplier,
    out]. strides, padding and rate are those of the depthwise convolution.
    """
    rate = renamed_argument("dilations", dilations, "rate", rate)
    with name_scope(name, "separable_conv2d", [input, depthwise_filter, pointwise_filter]) as scope:
        input = convert_to_tensor(input, name="tensor_in")
        depthwise_filter = convert_to_tensor(depthwise_filter, name="depthwise_filter")
        pointwise_filter = convert_to_tensor(pointwise_filter, name="pointwise_filter")
        window = pointwise_filter.shape.with_rank(4)[:2]
        if not window.is_compatible_with([1, 1]):
            raise ValueError(f"pointwise_filter must be [1, 1, in, out], but begins with {window}")
        depthwise = _depthwise(
            input, depthwise_filter, strides, padding, rate, data_format, "depthwise"
        )
        return conv2d_op(
            depthwise,
            pointwise_filter,
            strides=[1, 1, 1, 1],
            padding="VALID",
            data_format=data_format,
            name=scope,
        )


# ---- gradients, as public functions --------------------------------------------------------------


@composed
@export("nn.conv2d_backprop_input")
def conv2d_backprop_input(
    input_sizes: Any,
    filter: Any = None,
    out_backprop: Any = None,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
    filters: Any = None,
) -> Tensor:
    """Return the gradient of conv2d for its input, whose shape was input_sizes.

    out_backprop: the gradient of conv2d's output. The other arguments are conv2d's.
    """
    filter = renamed_argument("filters", filters, "filter", filter)
    padding, explicit = padding_pairs(padding)
    return conv2d_backprop_input_op(
        input_sizes,
        filter,
        out_backprop,
        strides=strides,
        padding=padding,
        use_cudnn_on_gpu=use_cudnn_on_gpu,
        explicit_paddings=explicit,
        data_format=data_format,
        dilations=dilations,
        name=name,
    )


@composed
@export("nn.conv2d_backprop_filter")
def conv2d_backprop_filter(
    input: Any,
    filter_sizes: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Tensor:
    """Return the gradient of conv2d for its filter, whose shape was filter_sizes.

    out_backprop: the gradient of conv2d's output. The other arguments are conv2d's.
    """
    padding, explicit = padding_pairs(padding)
    return conv2d_backprop_filter_op(
        input,
        filter_sizes,
        out_backprop,
        strides=strides,
        padding=padding,
        use_cudnn_on_gpu=use_cudnn_on_gpu,
        explicit_paddings=explicit,
        data_format=data_format,
        dilations=dilations,
        name=name,
    )
