"""Separable convolutions, which convolve each channel separately and then mix channels:
SeparableConv1D, SeparableConv2D, and their functions.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.layers.convolutional import ConvolutionLayer
from headrace._src.layers.layer_arguments import ZEROS, as_function
from headrace._src.ops.base.define import b

__all__ = ["SeparableConv1D", "SeparableConv2D", "separable_conv1d", "separable_conv2d"]


class SeparableConvolution(ConvolutionLayer):
    """A depthwise convolution, with depth_multiplier filters per channel, and a pointwise one."""

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: Any = 1,
        depth_multiplier: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = None,
        pointwise_initializer: Any = None,
        bias_initializer: Any = ZEROS,
        depthwise_regularizer: Any = None,
        pointwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        pointwise_constraint: Any = None,
        bias_constraint: Any = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            filters,
            kernel_size,
            strides=strides,
            padding=padding,
            data_format=data_format,
            dilation_rate=dilation_rate,
            activation=activation,
            use_bias=use_bias,
            bias_initializer=bias_initializer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            bias_constraint=bias_constraint,
            trainable=trainable,
            name=name,
            **kwargs,
        )
        self.depth_multiplier = depth_multiplier
        self.depthwise_initializer = depthwise_initializer
        self.pointwise_initializer = pointwise_initializer
        self.depthwise_regularizer = depthwise_regularizer
        self.pointwise_regularizer = pointwise_regularizer
        self.depthwise_constraint = depthwise_constraint
        self.pointwise_constraint = pointwise_constraint

    def build(self, input_shape: Any) -> None:
        """Make `depthwise_kernel`, `pointwise_kernel` and `bias`."""
        channels = self._fix_channels(input_shape)
        self.depthwise_kernel = self.add_weight(
            "depthwise_kernel",
            [*self.kernel_size, channels, self.depth_multiplier],
            initializer=self.depthwise_initializer,
            regularizer=self.depthwise_regularizer,
            constraint=self.depthwise_constraint,
        )
        self.pointwise_kernel = self.add_weight(
            "pointwise_kernel",
            [1] * self.spatial + [self.depth_multiplier * channels, self.filters],
            initializer=self.pointwise_initializer,
            regularizer=self.pointwise_regularizer,
            constraint=self.pointwise_constraint,
        )
        self.bias = self._add_bias()
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Return both convolutions, one after the other, plus the bias, activated."""
        if self.spatial == 2:
            kernels = self.depthwise_kernel, self.pointwise_kernel
            outputs = self._separable(inputs, *kernels, self.strides, self.dilation_rate)
            return self.activation(self._with_bias(outputs))
        # Sequences are images of height 1. TensorFlow strides both dimensions of those alike.
        if self.padding == "causal":
            inputs = self._padded_before(inputs)
        axis = 2 if self.data_format == "channels_first" else 1
        outputs = self._separable(
            b.expand_dims(inputs, axis),
            b.expand_dims(self.depthwise_kernel, 0),
            b.expand_dims(self.pointwise_kernel, 0),
            self.strides * 2,
            (1, *self.dilation_rate),
        )
        return self.activation(b.squeeze(self._with_bias(outputs), [axis]))

    def _separable(
        self,
        x: Any,
        depthwise: Any,
        pointwise: Any,
        strides: tuple[int, ...],
        rate: tuple[int, ...],
    ) -> Any:
        first = self.data_format == "channels_first"
        return b.separable_conv2d(
            x,
            depthwise,
            pointwise,
            strides=[1, 1, *strides] if first else [1, *strides, 1],
            padding="SAME" if self.padding == "same" else "VALID",
            rate=rate,
            data_format="NCHW" if first else "NHWC",
        )

    def _with_bias(self, outputs: Any) -> Any:
        if self.bias is None:
            return outputs
        order = "NCHW" if self.data_format == "channels_first" else "NHWC"
        return b.bias_add(outputs, self.bias, data_format=order)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; initializers and similar objects unchanged."""
        config = super().get_config()
        kept = {
            k: v for k, v in config.items() if not k.startswith("kernel_") or k == "kernel_size"
        }
        return kept | self._arguments(
            "depth_multiplier",
            "depthwise_initializer",
            "pointwise_initializer",
            "depthwise_regularizer",
            "pointwise_regularizer",
            "depthwise_constraint",
            "pointwise_constraint",
        )


@export("layers.SeparableConv1D")
class SeparableConv1D(SeparableConvolution):
    """A separable convolution of sequences [batch, time, channels]; padding may be 'causal'."""

    spatial = 1


@export("layers.SeparableConv2D")
class SeparableConv2D(SeparableConvolution):
    """A separable convolution of images [batch, height, width, channels]."""

    spatial = 2


separable_conv1d = export("layers.separable_conv1d")(
    as_function(SeparableConv1D, "separable_conv1d")
)
separable_conv2d = export("layers.separable_conv2d")(
    as_function(SeparableConv2D, "separable_conv2d")
)
