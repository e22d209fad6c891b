"""The public functions that build transposed convolutions, from the shape of a convolution's output
to that of its input.

A transposed convolution is the gradient of a convolution with respect to its input, used as a
forward op; its filter is [*window, out, in].
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.nn.conv_functions import as_2d
from headrace._src.ops.nn.conv_ops import conv2d_backprop_input_op, conv3d_backprop_input_v2
from headrace._src.ops.nn.window_arguments import channel_axis, full_window

__all__ = ["conv1d_transpose", "conv2d_transpose", "conv3d_transpose", "conv_transpose"]


def _transposed(
    build: Any,
    spatial: int,
    output_shape: Any,
    filter: Any,
    value: Any,
    strides: Any,
    padding: str,
    data_format: str,
    dilations: Any,
    name: str,
) -> Tensor:
    """Add one op, with its window given per dimension."""
    axis = channel_axis(data_format, spatial)
    return build(
        output_shape,
        filter,
        value,
        strides=full_window(strides, spatial, axis, "strides"),
        padding=padding,
        data_format=data_format,
        dilations=full_window(dilations, spatial, axis, "dilations"),
        name=name,
    )


@composed
@export("nn.conv2d_transpose")
def conv2d_transpose(
    value: Any = None,
    filter: Any = None,
    output_shape: Any = None,
    strides: Any = None,
    padding: str = "SAME",
    data_format: str | None = "NHWC",
    name: str | None = None,
    input: Any = None,
    filters: Any = None,
    dilations: Any = None,
) -> Tensor:
    """Return the transpose of conv2d: from its output's shape to its input's, `output_shape`.

    The filter is [height, width, out, in], as for the convolution that is transposed.

    strides and dilations: a number, one per spatial dimension, or one per dimension. padding:
    'SAME' or 'VALID'. data_format: 'NHWC' or 'NCHW'.
    """
    value = renamed_argument("input", input, "value", value)
    filter = renamed_argument("filters", filters, "filter", filter)
    with name_scope(name, "conv2d_transpose", [value, filter, output_shape]) as scope:
        window = (strides, padding, data_format or "NHWC", dilations)
        return _transposed(conv2d_backprop_input_op, 2, output_shape, filter, value, *window, scope)


@composed
@export("nn.conv1d_transpose")
def conv1d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: str = "SAME",
    data_format: str | None = "NWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return the transpose of conv1d, with filters [width, out, in].

    output_shape: the shape of the result. strides and dilations: a number, or one per dimension.
    padding: 'SAME' or 'VALID'. data_format: 'NWC' or 'NCW'.
    """
    with name_scope(name, "conv1d_transpose", [input, filters, output_shape]) as scope:
        spatial, data_format_2d = as_2d(data_format)
        axis = 2 if spatial == 1 else 1
        strides = [1, *full_window(strides, 1, axis, "strides")]
        dilations = [1, *full_window(dilations, 1, axis, "dilations")]
        input = b.expand_dims(input, spatial)
        filters = b.expand_dims(filters, 0)
        if not isinstance(output_shape, Tensor):
            output_shape = list(output_shape)
        shape = b.concat([output_shape[:spatial], [1], output_shape[spatial:]], 0)
        result = conv2d_backprop_input_op(
            shape,
            filters,
            input,
            strides=strides,
            padding=padding,
            data_format=data_format_2d,
            dilations=dilations,
            name=scope,
        )
        return b.squeeze(result, [spatial])


@composed
@export("nn.conv3d_transpose")
def conv3d_transpose(
    value: Any,
    filter: Any = None,
    output_shape: Any = None,
    strides: Any = None,
    padding: str = "SAME",
    data_format: str | None = "NDHWC",
    name: str | None = None,
    input: Any = None,
    filters: Any = None,
    dilations: Any = None,
) -> Tensor:
    """Return the transpose of conv3d, with a filter [depth, height, width, out, in].

    output_shape: the shape of the result. strides and dilations: a number, one per spatial
    dimension, or one per dimension. padding: 'SAME' or 'VALID'. data_format: 'NDHWC' or 'NCDHW'.
    """
    value = renamed_argument("input", input, "value", value)
    filter = renamed_argument("filters", filters, "filter", filter)
    with name_scope(name, "conv3d_transpose", [value, filter, output_shape]) as scope:
        window = (strides, padding, data_format or "NDHWC", dilations)
        return _transposed(conv3d_backprop_input_v2, 3, output_shape, filter, value, *window, scope)


@composed
@export("nn.conv_transpose")
def conv_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: str = "SAME",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return the transpose of a convolution over 1, 2 or 3 spatial dimensions.

    filters: [*window, out, in]. output_shape: the shape of the result, which gives the number of
    spatial dimensions. The other arguments are those of conv2d_transpose.
    """
    with name_scope(name, "conv_transpose", [input, filters, output_shape]) as scope:
        if isinstance(output_shape, Tensor):
            length = output_shape.shape.with_rank(1).as_list()[0]
            if length is None:
                raise ValueError("the length of output_shape must be known")
            spatial = length - 2
        elif isinstance(output_shape, Sized):
            spatial = len(output_shape) - 2
        else:
            raise ValueError("output_shape must be a tensor or sized collection.")
        if not 1 <= spatial <= 3:
            raise ValueError(f"output_shape must be of length 3, 4 or 5 but was {spatial + 2}.")
        options = {"data_format": data_format, "dilations": dilations, "name": scope}
        if spatial == 1:
            return conv1d_transpose(input, filters, output_shape, strides, padding, **options)
        transpose = conv2d_transpose if spatial == 2 else conv3d_transpose
        return transpose(input, filters, output_shape, strides, padding, **options)


@composed
@export("nn.atrous_conv2d_transpose")
def atrous_conv2d_transpose(
    value: Any,
    filters: Any,
    output_shape: Any,
    rate: int,
    padding: str,
    name: str | None = None,
) -> Tensor:
    """Return the transpose of atrous_conv2d, with filters [height, width, out, in].

    output_shape: the shape of the result. rate: the dilation. padding: 'SAME' or 'VALID'.
    """
    with name_scope(name, "atrous_conv2d_transpose", [value, filters, output_shape]):
        value = convert_to_tensor(value, name="value")
        filters = convert_to_tensor(filters, name="filters")
        if rate < 1:
            raise ValueError(f"rate {rate} cannot be less than one")
        if rate == 1:
            return conv2d_transpose(value, filters, output_shape, [1, 1, 1, 1], padding, "NHWC")
        sizes_tensor = convert_to_tensor(output_shape, name="output_shape")
        if not sizes_tensor.shape.is_compatible_with([4]):
            raise ValueError(f"output_shape must have shape (4,), got {sizes_tensor.shape}")
        sizes = list(output_shape) if isinstance(output_shape, Sequence) else sizes_tensor
        pads = _dilated_pads(filters, rate, padding)
        inner = [sizes[i + 1] + sum(pads[i]) for i in range(2)]
        extra = [(rate - inner[i] % rate) % rate for i in range(2)]
        dealt = b.space_to_batch_nd(
            value, block_shape=[rate, rate], paddings=[[0, extra[0]], [0, extra[1]]]
        )
        result = conv2d_backprop_input_op(
            [
                rate * rate * sizes[0],
                (inner[0] + extra[0]) // rate,
                (inner[1] + extra[1]) // rate,
                sizes[3],
            ],
            filters,
            dealt,
            strides=[1, 1, 1, 1],
            padding="VALID",
        )
        crops = [[pads[i][0], pads[i][1] + extra[i]] for i in range(2)]
        return b.batch_to_space_nd(result, block_shape=[rate, rate], crops=crops)


def _dilated_pads(filters: Tensor, rate: int, padding: str) -> list[tuple[Any, Any]]:
    """(before, after) for height and width of a dilated window."""
    if padding == "VALID":
        return [(0, 0), (0, 0)]
    if padding != "SAME":
        raise ValueError("padding must be either VALID or SAME")
    sizes = filters.shape.with_rank(4).as_list()
    window: list[Any] = [b.shape(filters)[i] if sizes[i] is None else sizes[i] for i in range(2)]
    totals = [(n - 1) * rate for n in window]
    return [(total // 2, total - total // 2) for total in totals]
