"""The sizes of a two-dimensional convolution, and of the tensors around it.

Activations are float32 in a blocked layout, [N][C/block][H][W][block], which oneDNN calls nChw16c,
nChw8c and so on; filters are plain HWIO.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.core.windows import Window
from headrace._src.lowering.window_anchors import Convolution, Pooling

__all__ = ["Geometry", "geometry_of", "layout_of"]

Pads = tuple[tuple[int, int], tuple[int, int]]


def layout_of(block: int) -> str:
    """The name of the layout of images in blocks of so many channels."""
    return f"nChw{block}c"


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution of `batch` images of height x width x channels with `filters` filters.

    h, w: the windows along height and width, tight ones
    depthwise: each channel makes filters / channels results alone; filters are [height, width,
        channels, filters / channels]
    block: how many channels lie together in the blocked layout: those of a vector register
    """

    batch: int
    channels: int
    filters: int
    h: Window[int]
    w: Window[int]
    depthwise: bool = False
    block: int = 16

    @staticmethod
    def of(
        batch: int,
        height: int,
        width: int,
        channels: int,
        filters: int,
        kernel: tuple[int, int],
        strides: tuple[int, int] = (1, 1),
        pads: Pads = ((0, 0), (0, 0)),
        dilations: tuple[int, int] = (1, 1),
        depthwise: bool = False,
        block: int = 16,
    ) -> Geometry:
        """The geometry with as many windows as fit between the pads."""
        axes = zip((height, width), kernel, strides, dilations, pads, strict=True)
        h, w = (Window.padded(n, k, s, d, *pad).tight() for n, k, s, d, pad in axes)
        return Geometry(batch, channels, filters, h, w, depthwise, block)

    @property
    def height(self) -> int:
        return self.h.size

    @property
    def width(self) -> int:
        return self.w.size

    @property
    def out_height(self) -> int:
        return self.h.out

    @property
    def out_width(self) -> int:
        return self.w.out

    @property
    def kernel(self) -> tuple[int, int]:
        return self.h.taps, self.w.taps

    @property
    def strides(self) -> tuple[int, int]:
        return self.h.stride, self.w.stride

    @property
    def dilations(self) -> tuple[int, int]:
        return self.h.dilation, self.w.dilation

    @property
    def pads(self) -> Pads:
        """How far windows reach over the image's edges: ((top, bottom), (left, right))."""
        return (self.h.before, max(0, self.h.after)), (self.w.before, max(0, self.w.after))

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
        return Geometry.of(
            self.batch,
            self.out_height,
            self.out_width,
            self.filters,
            self.channels,
            self.kernel,
            pads=((tall - top, tall - bottom), (wide - left, wide - right)),
            block=self.block,
        )


def geometry_of(g: Convolution | Pooling, block: int = 16) -> Geometry:
    """Return an anchor's geometry for kernels; for gradients, that of the forward pass. A pool has
    as many filters as channels.
    """
    if isinstance(g, Pooling):
        return Geometry(g.n, g.c, g.c, g.h, g.w, False, block)
    return Geometry(g.n, g.c, g.k, g.h, g.w, g.depthwise, block)
