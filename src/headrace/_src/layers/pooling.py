"""Layers that pool in one, two or three spatial dimensions, and their functions.

On data with channels first, one- and three-dimensional windows are pooled with the channels moved
last and back, as TensorFlow does on a CPU.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import as_shape
from headrace._src.layers.input_spec import InputSpec
from headrace._src.layers.layer import Layer
from headrace._src.layers.layer_arguments import (
    as_function,
    channels_order,
    data_format_name,
    padding_name,
    sizes,
)
from headrace._src.ops.base.define import b

__all__ = [
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
]


class PoolingLayer(Layer):
    """Reduces each window to one number. Subclasses set `spatial` and `maximum`."""

    spatial: int
    maximum: bool

    def __init__(
        self,
        pool_size: Any,
        strides: Any,
        padding: str = "valid",
        data_format: str = "channels_last",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.pool_size = sizes(pool_size, self.spatial, "pool_size")
        self.strides = sizes(pool_size if strides is None else strides, self.spatial, "strides")
        self.padding = padding_name(padding)
        self.data_format = channels_order(data_format)
        self.input_spec = InputSpec(ndim=self.spatial + 2)

    def call(self, inputs: Any) -> Any:
        """Return the largest element, or the mean, of each window."""
        first = self.data_format == "channels_first"
        if self.spatial == 1:  # the second spatial dimension follows time
            axis = 3 if first else 2
            image = b.expand_dims(inputs, axis)
            return b.squeeze(self._pooled(image, (*self.pool_size, 1), (*self.strides, 1)), [axis])
        return self._pooled(inputs, self.pool_size, self.strides)

    def _pooled(self, x: Any, window: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        rank = len(window)
        first = self.data_format == "channels_first"
        moved = first and self.spatial != 2
        if moved:
            x = b.transpose(x, [0, *range(2, rank + 2), 1])
        order = data_format_name("channels_last" if moved else self.data_format, rank)
        ksize, steps = (
            [1, 1, *n] if first and not moved else [1, *n, 1] for n in (window, strides)
        )
        pooled = self._build(rank)(x, ksize, steps, self.padding.upper(), data_format=order)
        return b.transpose(pooled, [0, rank + 1, *range(1, rank + 1)]) if moved else pooled

    def _build(self, rank: int) -> Any:
        if rank == 3:
            return b.max_pool3d if self.maximum else b.avg_pool3d
        return b.max_pool if self.maximum else b.avg_pool

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output's shape for an input shape."""
        dims = as_shape(input_shape).with_rank(self.spatial + 2)
        first = self.data_format == "channels_first"
        space = (dims[2:] if first else dims[1:-1]).as_list()
        out = [
            None if n is None else (n - (w - 1 if self.padding == "valid" else 0) + s - 1) // s
            for n, w, s in zip(space, self.pool_size, self.strides, strict=True)
        ]
        if first:
            return dims[:2].concatenate(out)
        return dims[:1].concatenate(out).concatenate(dims[-1:])

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return super().get_config() | self._arguments(
            "pool_size", "strides", "padding", "data_format"
        )


@export("layers.MaxPooling1D")
class MaxPooling1D(PoolingLayer):
    """The largest element of each window of sequences."""

    spatial, maximum = 1, True


@export("layers.MaxPooling2D")
class MaxPooling2D(PoolingLayer):
    """The largest element of each window of images."""

    spatial, maximum = 2, True


@export("layers.MaxPooling3D")
class MaxPooling3D(PoolingLayer):
    """The largest element of each window of volumes."""

    spatial, maximum = 3, True


@export("layers.AveragePooling1D")
class AveragePooling1D(PoolingLayer):
    """The mean of each window of sequences."""

    spatial, maximum = 1, False


@export("layers.AveragePooling2D")
class AveragePooling2D(PoolingLayer):
    """The mean of each window of images."""

    spatial, maximum = 2, False


@export("layers.AveragePooling3D")
class AveragePooling3D(PoolingLayer):
    """The mean of each window of volumes."""

    spatial, maximum = 3, False


max_pooling1d = export("layers.max_pooling1d")(as_function(MaxPooling1D, "max_pooling1d", False))
max_pooling2d = export("layers.max_pooling2d")(as_function(MaxPooling2D, "max_pooling2d", False))
max_pooling3d = export("layers.max_pooling3d")(as_function(MaxPooling3D, "max_pooling3d", False))
average_pooling1d = export("layers.average_pooling1d")(
    as_function(AveragePooling1D, "average_pooling1d", False)
)
average_pooling2d = export("layers.average_pooling2d")(
    as_function(AveragePooling2D, "average_pooling2d", False)
)
average_pooling3d = export("layers.average_pooling3d")(
    as_function(AveragePooling3D, "average_pooling3d", False)
)
