"""The sizes of a two-dimensional convolution, and of the tensors around it.

Activations are float32 in a blocked layout, [N][C/block][H][W][block], which oneDNN calls nChw16c,
nChw8c and so on; filters are plain HWIO.
`pads` are what the window may reach over the image's edge: ((top, bottom), (left, right)).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Geometry", "layout_of"]

Pads = tuple[tuple[int, int], tuple[int, int]]


def layout_of(block: int) -> str:
    """The name of the layout of images in blocks of so many channels."""
    return f"nChw{block}c"


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution of `batch` images of height x width x channels with `filters` filters.

    depthwise: each channel makes filters / channels results alone; filters are [height, width,
        channels, filters / channels]
    block: how many channels lie together in the blocked layout: those of a vector register
    """

    batch: int
    height: int
    width: int
    channels: int
    filters: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: Pads = ((0, 0), (0, 0))
    dilations: tuple[int, int] = (1, 1)
    depthwise: bool = False
    block: int = 16

    @property
    def out_height(self) -> int:
        return self._out(0, self.height)

    @property
    def out_width(self) -> int:
        return self._out(1, self.width)

    def _out(self, axis: int, size: int) -> int:
        window = (self.kernel[axis] - 1) * self.dilations[axis] + 1
        return (size + sum(self.pads[axis]) - window) // self.strides[axis] + 1

    @property
    def dense(self) -> bool:
        """Whether the window moves by one and has no holes."""
        return self.strides == (1, 1) and self.dilations == (1, 1)

    @property
    def blocked(self) -> bool:
        """Whether input and output have whole blocks of channels."""
        return self.channels % self.block == 0 and self.filters % self.block == 0

    @property
    def layouts(self) -> tuple[str, str]:
        """How input and output are laid out: in blocks, where these are whole."""
        blocked = layout_of(self.block)
        x, y = ("nhwc" if n % self.block else blocked for n in (self.channels, self.filters))
        return x, y

    @property
    def weights(self) -> int:
        """How many elements the filter has."""
        per_filter = 1 if self.depthwise else self.channels
        return self.kernel[0] * self.kernel[1] * per_filter * self.filters

    @property
    def flops(self) -> int:
        """Multiplications and additions of the direct method, in any of the three directions."""
        return 2 * self.batch * self.out_height * self.out_width * self.weights

    def backward_data(self) -> Geometry:
        """The convolution that turns the output's gradient into the input's: that of the gradient
        with the filters rotated by 180 degrees and their channels exchanged.
        """
        if not self.dense:
            raise ValueError(f"the gradient of a strided or dilated {self} is no convolution")
        (top, bottom), (left, right) = self.pads
        tall, wide = self.kernel[0] - 1, self.kernel[1] - 1
        return Geometry(
            self.batch,
            self.out_height,
            self.out_width,
            self.filters,
            self.channels,
            self.kernel,
            pads=((tall - top, tall - bottom), (wide - left, wide - right)),
            block=self.block,
        )
