"""Layers that convolve in one, two or three spatial dimensions, and their functions."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import as_shape
from headrace._src.layers.activations import get_activation
from headrace._src.layers.input_spec import InputSpec
from headrace._src.layers.layer import Layer
from headrace._src.layers.layer_arguments import (
    ZEROS,
    as_function,
    channels_order,
    data_format_name,
    known_channels,
    padding_name,
    sizes,
)
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.nn.window_arguments import strides_and_rates, with_space_to_batch

__all__ = ["Conv1D", "Conv2D", "Conv3D", "ConvolutionLayer", "conv1d", "conv2d", "conv3d"]


class ConvolutionLayer(Layer):
    """The base class of convolutional layers: the window, the kernel, the bias, the activation.

    `spatial`, which subclasses set, is the number of spatial dimensions.
    """

    spatial: int

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = "channels_last",
        dilation_rate: Any = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = ZEROS,
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable, name, activity_regularizer=activity_regularizer, **kwargs)
        self.filters = int(filters)
        self.kernel_size = sizes(kernel_size, self.spatial, "kernel_size")
        self.strides = sizes(strides, self.spatial, "strides")
        self.dilation_rate = sizes(dilation_rate, self.spatial, "dilation_rate")
        self.padding = padding_name(padding, causal=self.spatial == 1)
        self.data_format = channels_order(data_format)
        self.activation = get_activation(activation)
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer
        self.kernel_regularizer = kernel_regularizer
        self.bias_regularizer = bias_regularizer
        self.kernel_constraint = kernel_constraint
        self.bias_constraint = bias_constraint
        self.input_spec = InputSpec(ndim=self.spatial + 2)

    # -- Variables ---------------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Make `kernel` and `bias`."""
        channels = self._fix_channels(input_shape)
        self.kernel = self._add_kernel([*self.kernel_size, channels, self.filters])
        self.bias = self._add_bias()
        strides_and_rates(self.spatial, self.strides, self.dilation_rate)  # not both above 1
        self._rate = convert_to_tensor(self.dilation_rate, "int32", name="dilation_rate")
        self.built = True

    def _fix_channels(self, input_shape: Any) -> int:
        """Return the number of input channels, which all later calls must have."""
        channels = known_channels(input_shape, self.data_format)
        axis = 1 if self.data_format == "channels_first" else -1
        self.input_spec = InputSpec(ndim=self.spatial + 2, axes={axis: channels})
        return channels

    def _add_kernel(self, shape: list[int]) -> Any:
        return self.add_weight(
            "kernel",
            shape,
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )

    def _add_bias(self) -> Any:
        if not self.use_bias:
            return None
        return self.add_weight(
            "bias",
            [self.filters],
            initializer=self.bias_initializer,
            regularizer=self.bias_regularizer,
            constraint=self.bias_constraint,
        )

    # -- Calling -----------------------------------------------------------------------------------

    def call(self, inputs: Any) -> Any:
        """Return the convolution with the kernel, plus the bias, activated."""
        padding = self.padding
        if padding == "causal":
            inputs, padding = self._padded_before(inputs), "valid"
        outputs = with_space_to_batch(
            inputs,
            self._rate,
            padding.upper(),
            self._convolved,
            filter_shape=self.kernel.shape,
            data_format=data_format_name(self.data_format, self.spatial),
        )
        return self._finished(outputs)

    def _convolved(self, x: Any, _: int, padding: str) -> Any:
        order = data_format_name(self.data_format, self.spatial)
        if self.spatial == 1:
            return b.conv1d(x, self.kernel, self.strides[0], padding, data_format=order)
        first = self.data_format == "channels_first"
        strides = [1, 1, *self.strides] if first else [1, *self.strides, 1]
        build = b.conv2d if self.spatial == 2 else b.conv3d
        return build(x, self.kernel, strides, padding, data_format=order)

    def _padded_before(self, inputs: Any) -> Any:
        """Pad sequences with zeros at the start, so that no output depends on later elements."""
        before = [self.dilation_rate[0] * (self.kernel_size[0] - 1), 0]
        first = self.data_format == "channels_first"
        return b.pad(inputs, [[0, 0], [0, 0], before] if first else [[0, 0], before, [0, 0]])

    def _finished(self, outputs: Any) -> Any:
        if self.bias is not None:
            if self.data_format == "channels_last":
                outputs = b.bias_add(outputs, self.bias)
            elif self.spatial == 1:
                outputs = outputs + b.reshape(self.bias, (1, self.filters, 1))
            else:
                outputs = b.bias_add(outputs, self.bias, data_format="NCHW")
        return self.activation(outputs)

    # -- Configuration -----------------------------------------------------------------------------

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output's shape: `filters` channels, and the spatial sizes after the
        convolution.
        """
        dims = as_shape(input_shape).with_rank(self.spatial + 2)
        first = self.data_format == "channels_first"
        space = dims[2:] if first else dims[1:-1]
        windows = zip(space.as_list(), self.kernel_size, self.strides, self.dilation_rate)
        out = [self._output_size(*window) for window in windows]
        return dims[:1].concatenate([self.filters, *out] if first else [*out, self.filters])

    def _output_size(self, size: int | None, window: int, stride: int, rate: int) -> int | None:
        if size is None:
            return None
        reach = (window - 1) * rate if self.padding == "valid" else 0
        return (size - reach + stride - 1) // stride

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; initializers and similar objects unchanged."""
        return super().get_config() | self._arguments(
            "filters",
            "kernel_size",
            "strides",
            "padding",
            "data_format",
            "dilation_rate",
            "activation",
            "use_bias",
            "kernel_initializer",
            "bias_initializer",
            "kernel_regularizer",
            "bias_regularizer",
            "activity_regularizer",
            "kernel_constraint",
            "bias_constraint",
        )


@export("layers.Conv1D")
class Conv1D(ConvolutionLayer):
    """A convolution of sequences [batch, time, channels]; padding may be 'causal'."""

    spatial = 1


@export("layers.Conv2D")
class Conv2D(ConvolutionLayer):
    """A convolution of images [batch, height, width, channels]."""

    spatial = 2


@export("layers.Conv3D")
class Conv3D(ConvolutionLayer):
    """A convolution of volumes [batch, depth, height, width, channels]."""

    spatial = 3


conv1d = export("layers.conv1d")(as_function(Conv1D, "conv1d"))
conv2d = export("layers.conv2d")(as_function(Conv2D, "conv2d"))
conv3d = export("layers.conv3d")(as_function(Conv3D, "conv3d"))
