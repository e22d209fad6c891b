"""The public functions that build poolings, with TensorFlow 1.15's names and arguments."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.nn.argmax_pooling import max_pool_with_argmax_op
from headrace._src.ops.nn.pool_ops import (
    avg_pool3d_op,
    avg_pool_op,
    max_pool3d_op,
    max_pool_op,
)
from headrace._src.ops.nn.window_arguments import (
    channel_axis,
    full_window,
    strides_and_rates,
    with_space_to_batch,
)

__all__ = ["avg_pool", "max_pool", "max_pool_with_argmax", "pool"]


def _built(
    build: Any,
    spatial: int,
    x: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None,
    name: str,
) -> Tensor:
    """Add one pooling op, with its window given per dimension."""
    default = {2: "NHWC", 3: "NDHWC"}[spatial]
    data_format = data_format or default
    axis = channel_axis(data_format, spatial)
    window = full_window(ksize, spatial, axis, "ksize")
    if 0 in window:
        raise ValueError("ksize cannot be zero")
    return build(
        x,
        ksize=window,
        strides=full_window(strides, spatial, axis, "strides"),
        padding=padding,
        data_format=data_format,
        name=name,
    )


def _pooled_1d(
    build: Any, x: Any, ksize: Any, strides: Any, padding: str, data_format: str | None, name: str
) -> Tensor:
    """Pool sequences as images of height 1."""
    first_channels = data_format is not None and data_format.startswith("NC")
    axis = 1 if first_channels else 2
    window = [1, *full_window(ksize, 1, axis, "ksize")]
    steps = [1, *full_window(strides, 1, axis, "strides")]
    spatial = 2 if first_channels else 1
    result = build(
        b.expand_dims(x, spatial),
        ksize=window,
        strides=steps,
        padding=padding,
        data_format="NCHW" if first_channels else "NHWC",
        name=name,
    )
    return b.squeeze(result, [spatial])


# ---- maximum -------------------------------------------------------------------------------------


@composed
@export("nn.max_pool")
def max_pool(
    value: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Tensor:
    """Return the largest element of each window of images.

    ksize and strides: a number, one per spatial dimension, or one per dimension. padding: 'SAME' or
    'VALID'.
    """
    value = renamed_argument("input", input, "value", value)
    with name_scope(name, "MaxPool", [value]) as scope:
        return _built(max_pool_op, 2, value, ksize, strides, padding, data_format, scope)


@composed
@export("nn.max_pool1d")
def max_pool1d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = "NWC",
    name: str | None = None,
) -> Tensor:
    """Return the largest element of each window of sequences.

    input: [batch, width, channels], or [batch, channels, width] for data_format 'NCW'. ksize and
    strides: a number, or one per dimension. padding: 'SAME' or 'VALID'.
    """
    with name_scope(name, "MaxPool1d", [input]) as scope:
        return _pooled_1d(max_pool_op, input, ksize, strides, padding, data_format, scope)


@composed
@export("nn.max_pool2d")
def max_pool2d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = "NHWC",
    name: str | None = None,
) -> Tensor:
    """Return the largest element of each window of images.

    ksize and strides: a number, one per spatial dimension, or one per dimension. padding: 'SAME' or
    'VALID'. data_format: 'NHWC' or 'NCHW'.
    """
    with name_scope(name, "MaxPool2d", [input]) as scope:
        return _built(max_pool_op, 2, input, ksize, strides, padding, data_format, scope)


@composed
@export("nn.max_pool3d")
def max_pool3d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = "NDHWC",
    name: str | None = None,
) -> Tensor:
    """Return the largest element of each window of volumes.

    ksize and strides: a number, one per spatial dimension, or one per dimension. padding: 'SAME' or
    'VALID'. data_format: 'NDHWC' or 'NCDHW'.
    """
    with name_scope(name, "MaxPool3D", [input]) as scope:
        return _built(max_pool3d_op, 3, input, ksize, strides, padding, data_format, scope)


@composed
@export("nn.max_pool_v2")
def max_pool_v2(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the largest element of each window, over as many spatial dimensions as the
    input has.
    """
    functions = {1: max_pool1d, 2: max_pool, 3: max_pool3d}
    return _by_rank(functions, input)(input, ksize, strides, padding, data_format, name)


def _by_rank(functions: dict[int, Any], x: Any) -> Any:
    rank = len(x.shape)
    if rank - 2 not in functions:
        raise ValueError(f"Input tensor must be of rank 3, 4 or 5 but was {rank}.")
    return functions[rank - 2]


@composed
@export("nn.max_pool_with_argmax")
def max_pool_with_argmax(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NHWC",
    Targmax: Any = None,
    name: str | None = None,
    output_dtype: Any = None,
    include_batch_in_index: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the largest element of each window, and its flat index in its image (or in the batch
    if `include_batch_in_index`).
    """
    if data_format != "NHWC":
        raise ValueError(f"max_pool_with_argmax takes data_format 'NHWC', not {data_format!r}")
    index_type = renamed_argument("output_dtype", output_dtype, "Targmax", Targmax)
    return max_pool_with_argmax_op(
        input,
        ksize=ksize,
        strides=strides,
        padding=padding,
        Targmax=index_type,
        include_batch_in_index=include_batch_in_index,
        name=name,
    )


# ---- average -------------------------------------------------------------------------------------


@composed
@export("nn.avg_pool", "nn.avg_pool2d")
def avg_pool(
    value: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Tensor:
    """Return the mean of each window of images; padding is not counted.

    ksize and strides: a number, one per spatial dimension, or one per dimension. padding: 'SAME' or
    'VALID'.
    """
    value = renamed_argument("input", input, "value", value)
    with name_scope(name, "AvgPool", [value]) as scope:
        return _built(avg_pool_op, 2, value, ksize, strides, padding, data_format, scope)


@composed
@export("nn.avg_pool1d")
def avg_pool1d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = "NWC",
    name: str | None = None,
) -> Tensor:
    """Return the mean of each window of sequences; padding is not counted.

    input: [batch, width, channels], or [batch, channels, width] for data_format 'NCW'. ksize and
    strides: a number, or one per dimension. padding: 'SAME' or 'VALID'.
    """
    with name_scope(name, "AvgPool1D", [input]) as scope:
        return _pooled_1d(avg_pool_op, input, ksize, strides, padding, data_format, scope)


@composed
@export("nn.avg_pool3d")
def avg_pool3d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = "NDHWC",
    name: str | None = None,
) -> Tensor:
    """Return the mean of each window of volumes; padding is not counted.

    ksize and strides: a number, one per spatial dimension, or one per dimension. padding: 'SAME' or
    'VALID'. data_format: 'NDHWC' or 'NCDHW'.
    """
    with name_scope(name, "AvgPool3D", [input]) as scope:
        return _built(avg_pool3d_op, 3, input, ksize, strides, padding, data_format, scope)


@composed
@export("nn.avg_pool_v2")
def avg_pool_v2(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the mean of each window, over as many spatial dimensions as the input has."""
    functions = {1: avg_pool1d, 2: avg_pool, 3: avg_pool3d}
    return _by_rank(functions, input)(input, ksize, strides, padding, data_format, name)


# ---- either --------------------------------------------------------------------------------------


@composed
@export("nn.pool")
def pool(
    input: Any,
    window_shape: Any,
    pooling_type: str,
    padding: str,
    dilation_rate: Any = None,
    strides: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Tensor:
    """Return a pooling ('MAX' or 'AVG') over 1, 2 or 3 spatial dimensions, strided or dilated.

    window_shape, dilation_rate and strides: one number per spatial dimension; strides or
    dilation_rate must be 1. padding: 'SAME' or 'VALID'. data_format: a format that starts with 'NC'
    has channels first. dilations: another name of dilation_rate.
    """
    dilation_rate = renamed_argument("dilations", dilations, "dilation_rate", dilation_rate)
    with name_scope(name, f"{pooling_type.lower()}_pool", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        spatial = len(window_shape)
        if not 1 <= spatial <= 3:
            raise ValueError("It is required that 1 <= num_spatial_dims <= 3.")
        stride, rate = strides_and_rates(spatial, strides, dilation_rate)
        if padding == "SAME" and (rate > 1).any():
            raise ValueError("pooling with SAME padding is not implemented for dilation_rate > 1")
        if (stride > window_shape).any():
            raise ValueError(
                "strides > window_shape not supported due to inconsistency between CPU and GPU "
                "implementations"
            )
        build = _builder(pooling_type, spatial)

        def apply(x: Tensor, _: int, padding: str) -> Tensor:
            window = (list(window_shape), stride.tolist(), padding, data_format, scope)
            if spatial == 1:
                return _pooled_1d(build, x, *window)
            return _built(build, spatial, x, *window)

        return with_space_to_batch(input, rate, padding, apply, data_format=data_format)


def _builder(pooling_type: str, spatial: int) -> Any:
    builders = {"MAX": (max_pool_op, max_pool3d_op), "AVG": (avg_pool_op, avg_pool3d_op)}
    if pooling_type not in builders:
        raise ValueError(
            f"{spatial}-D {pooling_type} pooling is not supported. Use 'MAX' or 'AVG'."
        )
    return builders[pooling_type][spatial == 3]
