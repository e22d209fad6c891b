"""Convolutions of tf.contrib.layers (and tf.contrib.slim): of sequences, images and volumes,
transposed and separable ones. The code shared with other layers is in contrib_layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace._src.core.export import export_value
from headrace._src.graph.operation import Tensor
from headrace._src.layers.arg_scope import Function, add_arg_scope
from headrace._src.layers.contrib_layers import (
    applied,
    channels_order,
    collect_variables,
    finished,
    scope_of,
)
from headrace._src.layers.conv_transposes import Conv2DTranspose, Conv3DTranspose
from headrace._src.layers.convolutional import Conv1D, Conv2D, Conv3D
from headrace._src.layers.fan_initializers import xavier_initializer
from headrace._src.layers.layer import Layer
from headrace._src.layers.named_outputs import two_element_tuple
from headrace._src.layers.separable import SeparableConv2D
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.variables.initializers import Zeros
from headrace._src.variables.lookup import get_variable

__all__ = ["conv1d", "conv2d", "conv2d_transpose", "conv3d", "convolution", "separable_conv2d"]

_GLOROT = xavier_initializer()
_ZEROS = Zeros()
_CONVOLUTIONS: dict[int, Callable[..., Layer]] = {1: Conv1D, 2: Conv2D, 3: Conv3D}


def _publish(attribute: str, *names: str) -> None:
    for name in names:
        export_value(__name__, attribute, f"contrib.layers.{name}", f"contrib.slim.{name}")


def _named(function: Function, name: str) -> Function:
    """Give a factory's function its own name, which arg_scope uses as its key."""
    described: Any = function
    described.__name__ = described.__qualname__ = name
    return add_arg_scope(function)


# These two have no return annotation, so that type checkers infer the signature.
def _convolution(name: str, dims: int | None):
    def convolution(
        inputs: Any,
        num_outputs: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: str = "SAME",
        data_format: str | None = None,
        rate: Any = 1,
        activation_fn: Callable[..., Any] | None = b.relu,
        normalizer_fn: Callable[..., Any] | None = None,
        normalizer_params: Mapping[str, Any] | None = None,
        weights_initializer: Any = _GLOROT,
        weights_regularizer: Any = None,
        biases_initializer: Any = _ZEROS,
        biases_regularizer: Any = None,
        reuse: Any = None,
        variables_collections: Any = None,
        outputs_collections: Any = None,
        trainable: bool = True,
        scope: Any = None,
        *,
        conv_dims: int | None = None,
    ) -> Tensor:
        """Return the convolution of sequences, images or volumes, by the rank of the inputs; `rate`
        is the dilation. conv_dims: the number of spatial dimensions that the inputs must have.
        """
        spatial = dims or conv_dims
        with scope_of(scope, "Conv", inputs, reuse) as opened:
            inputs = convert_to_tensor(inputs)
            rank = inputs.shape.ndims
            if rank is None or rank - 2 not in _CONVOLUTIONS or rank - 2 != (spatial or rank - 2):
                expected = spatial + 2 if spatial else "3, 4 or 5"
                raise ValueError(
                    f"Convolution expects input with rank {expected}, got {rank}: {inputs.name}"
                )
            layer = _CONVOLUTIONS[rank - 2](
                num_outputs,
                kernel_size,
                strides=stride,
                padding=padding,
                data_format=channels_order(data_format, rank - 2),
                dilation_rate=rate,
                use_bias=normalizer_fn is None and biases_initializer is not None,
                kernel_initializer=weights_initializer,
                bias_initializer=biases_initializer,
                kernel_regularizer=weights_regularizer,
                bias_regularizer=biases_regularizer,
                trainable=trainable,
                name=opened.name,
                _scope=opened,
                _reuse=reuse,
            )
            after = normalizer_fn, normalizer_params, activation_fn
            collections = variables_collections, outputs_collections
            return applied(layer, inputs, *after, *collections, opened.name)

    return _named(convolution, name)


convolution = _convolution("convolution", None)
conv1d = _convolution("conv1d", 1)
conv2d = _convolution("conv2d", 2)
conv3d = _convolution("conv3d", 3)
_publish("convolution", "convolution")
_publish("conv1d", "conv1d", "convolution1d")
_publish("conv2d", "conv2d", "convolution2d")
_publish("conv3d", "conv3d", "convolution3d")


def _transpose(name: str, kind: Callable[..., Layer], default_scope: str, default_format: str):
    def transpose(
        inputs: Any,
        num_outputs: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: str = "SAME",
        data_format: str | None = default_format,
        activation_fn: Callable[..., Any] | None = b.relu,
        normalizer_fn: Callable[..., Any] | None = None,
        normalizer_params: Mapping[str, Any] | None = None,
        weights_initializer: Any = _GLOROT,
        weights_regularizer: Any = None,
        biases_initializer: Any = _ZEROS,
        biases_regularizer: Any = None,
        reuse: Any = None,
        variables_collections: Any = None,
        outputs_collections: Any = None,
        trainable: bool = True,
        scope: Any = None,
    ) -> Tensor:
        """Return the transposed convolution of images or volumes, enlarged by `stride`."""
        order = channels_order(data_format, len(default_format) - 2)
        with scope_of(scope, default_scope, inputs, reuse) as opened:
            layer = kind(
                num_outputs,
                kernel_size,
                strides=stride,
                padding=padding,
                data_format=order,
                use_bias=normalizer_fn is None and biases_initializer is not None,
                kernel_initializer=weights_initializer,
                bias_initializer=biases_initializer,
                kernel_regularizer=weights_regularizer,
                bias_regularizer=biases_regularizer,
                trainable=trainable,
                name=opened.name,
                _scope=opened,
                _reuse=reuse,
            )
            after = normalizer_fn, normalizer_params, activation_fn
            collections = variables_collections, outputs_collections
            inputs = convert_to_tensor(inputs)
            return applied(layer, inputs, *after, *collections, opened.name)

    return _named(transpose, name)


conv2d_transpose = _transpose("conv2d_transpose", Conv2DTranspose, "Conv2d_transpose", "NHWC")
conv3d_transpose = _transpose("conv3d_transpose", Conv3DTranspose, "Conv3d_transpose", "NDHWC")
_publish("conv2d_transpose", "conv2d_transpose", "convolution2d_transpose")
_publish("conv3d_transpose", "conv3d_transpose", "convolution3d_transpose")


@add_arg_scope
def separable_conv2d(
    inputs: Any,
    num_outputs: int | None,
    kernel_size: Any,
    depth_multiplier: int = 1,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = "NHWC",
    rate: Any = 1,
    activation_fn: Callable[..., Any] | None = b.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _GLOROT,
    pointwise_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Tensor:
    """Return images convolved channel by channel, with `depth_multiplier` filters each, and then,
    unless num_outputs is None, mixed into num_outputs channels.
    """
    order = channels_order(data_format)
    with scope_of(scope, "SeparableConv2d", inputs, reuse) as opened:
        inputs = convert_to_tensor(inputs)
        after = normalizer_fn, normalizer_params, activation_fn
        with_biases = normalizer_fn is None and biases_initializer is not None
        if num_outputs is not None:
            layer = SeparableConv2D(
                num_outputs,
                kernel_size,
                strides=stride,
                padding=padding,
                data_format=order,
                dilation_rate=two_element_tuple(rate),
                depth_multiplier=depth_multiplier,
                use_bias=with_biases,
                depthwise_initializer=weights_initializer,
                pointwise_initializer=pointwise_initializer or weights_initializer,
                bias_initializer=biases_initializer,
                depthwise_regularizer=weights_regularizer,
                pointwise_regularizer=weights_regularizer,
                bias_regularizer=biases_regularizer,
                trainable=trainable,
                name=opened.name,
                _scope=opened,
                _reuse=reuse,
            )
            collections = variables_collections, outputs_collections
            return applied(layer, inputs, *after, *collections, opened.name)

        first = order == "channels_first"
        channels = inputs.shape[1 if first else -1].value
        if channels is None:
            raise ValueError(f"Inputs {inputs.name} has undefined channels dimension.")
        settings = {"dtype": inputs.dtype.base_dtype, "trainable": trainable}
        weights = get_variable(
            "depthwise_weights",
            [*two_element_tuple(kernel_size), channels, depth_multiplier],
            initializer=weights_initializer,
            regularizer=weights_regularizer,
            **settings,
        )
        collect_variables([weights], variables_collections)
        strides = two_element_tuple(stride)
        outputs = b.depthwise_conv2d(
            inputs,
            weights,
            [1, 1, *strides] if first else [1, *strides, 1],
            padding,
            rate=two_element_tuple(rate),
            data_format=data_format,
        )
        if with_biases:
            biases = get_variable(
                "biases",
                [channels * depth_multiplier],
                initializer=biases_initializer,
                regularizer=biases_regularizer,
                **settings,
            )
            collect_variables([biases], variables_collections)
            outputs = b.bias_add(outputs, biases, data_format=data_format)
        return finished(outputs, *after, outputs_collections, opened.name)


_publish("separable_conv2d", "separable_conv2d", "separable_convolution2d")
