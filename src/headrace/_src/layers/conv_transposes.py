"""Transposed convolutions, which map a convolution's output to its input: Conv2DTranspose,
Conv3DTranspose, and their functions. Their kernels are [*window, filters, channels].
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.layers.convolutional import ConvolutionLayer
from headrace._src.layers.layer_arguments import ZEROS, as_function, data_format_name
from headrace._src.ops.base.define import b

__all__ = ["Conv2DTranspose", "Conv3DTranspose", "conv2d_transpose", "conv3d_transpose"]


class TransposedConvolution(ConvolutionLayer):
    """The gradient of a convolution, used in the forward pass: `strides` enlarges the spatial
    sizes.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
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
        super().__init__(
            filters,
            kernel_size,
            strides=strides,
            padding=padding,
            data_format=data_format,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            trainable=trainable,
            name=name,
            **kwargs,
        )

    def build(self, input_shape: Any) -> None:
        """Make `kernel` and `bias`."""
        channels = self._fix_channels(input_shape)
        self.kernel = self._add_kernel([*self.kernel_size, self.filters, channels])
        self.bias = self._add_bias()
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Return the transposed convolution, plus the bias, activated."""
        shape = b.shape(inputs)
        first = self.data_format == "channels_first"
        start = 2 if first else 1
        batch, *space = [shape[axis] for axis in (0, *range(start, start + self.spatial))]
        grown = [self._grown(*n) for n in zip(space, self.kernel_size, self.strides, strict=True)]
        # On a CPU TensorFlow moves images' channels last and back.
        moved = first and self.spatial == 2
        last = not first or moved
        outputs = self._transposed(
            b.transpose(inputs, [0, 2, 3, 1]) if moved else inputs,
            b.stack([batch, *grown, self.filters] if last else [batch, self.filters, *grown]),
            [1, *self.strides, 1] if last else [1, 1, *self.strides],
            data_format_name("channels_last" if last else "channels_first", self.spatial),
        )
        if moved:
            outputs = b.transpose(outputs, [0, 3, 1, 2])
        outputs.set_shape(self.compute_output_shape(inputs.shape))
        return self._finished(outputs)

    def _transposed(self, x: Any, shape: Any, strides: list[int], order: str) -> Any:
        build = b.conv3d_transpose
        if self.spatial == 2:
            build = b.conv2d_transpose
            shape[0]  # an unused operation, but it affects TensorFlow's names
        return build(x, self.kernel, shape, strides, self.padding.upper(), data_format=order)

    def _grown(self, size: Any, window: int, stride: int) -> Any:
        """Return a spatial size (a number or a tensor) of the output."""
        size = size * stride
        return size + max(window - stride, 0) if self.padding == "valid" else size

    def _output_size(self, size: int | None, window: int, stride: int, rate: int) -> int | None:
        return None if size is None else self._grown(size, window, stride)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; initializers and similar objects unchanged."""
        config = super().get_config()
        del config["dilation_rate"]
        return config


@export("layers.Conv2DTranspose")
class Conv2DTranspose(TransposedConvolution):
    """A transposed convolution of images [batch, height, width, channels]."""

    spatial = 2


@export("layers.Conv3DTranspose")
class Conv3DTranspose(TransposedConvolution):
    """A transposed convolution of volumes [batch, depth, height, width, channels]."""

    spatial = 3


conv2d_transpose = export("layers.conv2d_transpose")(
    as_function(Conv2DTranspose, "conv2d_transpose")
)
conv3d_transpose = export("layers.conv3d_transpose")(
    as_function(Conv3DTranspose, "conv3d_transpose")
)
