"""Convolutions by oneDNN as foreign calls of a plan: any channels, strides and dilations.

Images are blocked ("nChw16c") or plain "nhwc" (where channels don't fill blocks). Filters are plain
HWIO, and the call itself brings them to the layout that oneDNN prefers: that costs little, while
with plain ones it falls back to slow code.

All arrays are float32. With `precision` "bfloat16" the call converts its inputs first, and then
multiplies bfloat16 and adds in float32: for processors that are faster at that.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.kernels.images.conv_geometry import Geometry, layout_of
from headrace._src.compile.kernels.onednn_calls import Chain
from headrace._src.devices.onednn import library as c
from headrace._src.devices.onednn.primitive_chains import (
    PlanBuilder,
    PrimitiveChain,
    Shape,
    Slot,
    cached,
    int64s,
)

__all__ = ["OneDnnConvolution"]

_ARGUMENTS = {
    "forward": ("x", "w", "bias", "out:y"),
    "backward_data": ("dy", "w", "out:dx"),
    "backward_filter": ("x", "dy", "out:dw"),
}
_BLOCKS = (8, 16)  # channels that lie together in layouts for which oneDNN has code
_PRECISIONS = {"float32": c.F32, "bfloat16": c.BF16}


@dataclass(frozen=True)
class OneDnnConvolution(Chain):
    """One pass of a convolution: "forward", "backward_data" or "backward_filter".

    source: the layout of x and dx, result: that of y and dy
    bias: forward, that a bias is added
    relu: forward, that max(., 0) is taken of the result
    precision: the type that is multiplied in
    """

    direction: str
    geometry: Geometry
    source: str
    result: str
    bias: bool = False
    relu: bool = False
    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.direction not in _ARGUMENTS:
            raise ValueError(f"a convolution's direction is one of {list(_ARGUMENTS)}")
        layouts = ("nhwc", layout_of(self.geometry.block))
        if {self.source, self.result} - set(layouts):
            raise ValueError(f"images are laid out as one of {layouts}")
        if (self.bias or self.relu) and self.direction != "forward":
            raise ValueError("gradients have no fused bias or relu")
        if self.precision not in _PRECISIONS:
            raise ValueError(f"oneDNN multiplies {list(_PRECISIONS)}, not {self.precision}")

    @property
    def arguments(self) -> tuple[str, ...]:
        names = _ARGUMENTS[self.direction]
        return names if self.bias else tuple(n for n in names if "bias" not in n)

    def plan(self) -> PrimitiveChain:
        return _plan(self)[0]


@cached
def _plan(spec: OneDnnConvolution) -> tuple[PrimitiveChain, Shape]:
    """The primitive, with reorders of the filter, and the shape of its result, NCHW or OIHW."""
    g = spec.geometry
    shape = {
        "forward": (g.batch, g.filters, g.out_height, g.out_width),
        "backward_data": (g.batch, g.channels, g.height, g.width),
        "backward_filter": (g.filters, g.channels, *g.kernel),
    }
    return _Convolution(spec).finish(), shape[spec.direction]


class _Convolution:
    """The descriptors of one convolution; gradients take its forward pass as a hint."""

    def __init__(self, spec: OneDnnConvolution) -> None:
        g = spec.geometry
        self.spec = spec
        self.builder = b = PlanBuilder(estimate_ns=g.flops / 100)  # of a core's operations per ns
        x_dims = (g.batch, g.channels, g.height, g.width)
        y_dims = (g.batch, g.filters, g.out_height, g.out_width)
        w_dims, w_order = (g.filters, g.channels, *g.kernel), (2, 3, 1, 0)
        if g.depthwise:  # as many groups as channels
            w_dims = (g.channels, g.filters // g.channels, 1, *g.kernel)
            w_order = (3, 4, 0, 1, 2)
        self.x, self.y = self._image(x_dims, spec.source), self._image(y_dims, spec.result)
        self.w = b.dense(w_dims, w_order, c.F32)
        self.bias = b.dense((g.filters,), (0,), c.F32) if spec.bias else None
        # A few channels, as photographs have, are best taken in a layout of their own; so is what
        # is converted anyway, a plain image beside a blocked one, and blocks of 4: for these there
        # is only reference code, a thousand times slower.
        few = spec.source == "nhwc" and g.channels < g.block and not g.depthwise
        mixed = spec.source != spec.result
        dtype, converts = _PRECISIONS[spec.precision], spec.precision != "float32"
        odd_x, odd_y = (
            mixed if layout == "nhwc" else g.block not in _BLOCKS
            for layout in (spec.source, spec.result)
        )
        self.x_in = b.any_layout(x_dims, dtype) if few or converts or odd_x else self.x
        self.y_in = b.any_layout(y_dims, dtype) if converts or odd_y else self.y
        self.w_in = b.any_layout(w_dims, dtype)
        self.x_out = b.any_layout(x_dims, c.F32) if few or odd_x else self.x
        self.y_out = b.any_layout(y_dims, c.F32) if odd_y else self.y
        self.w_out = b.any_layout(w_dims, c.F32)
        before, after = zip(*g.pads, strict=True)
        self.window = (
            int64s(g.strides),
            int64s([d - 1 for d in g.dilations]),
            int64s(before),
            int64s(after),
        )
        self.forward = b.primitive_desc(
            "convolution_forward",
            c.FORWARD_TRAINING,
            c.CONVOLUTION_DIRECT,
            self.x_in,
            self.w_in,
            self.bias,
            self.y_out if spec.direction == "forward" else self.y_in,
            *self.window,
            attr=b.with_relu() if spec.relu else None,
        )

    def _image(self, dims: tuple[int, ...], layout: str) -> int:
        if layout == "nhwc":
            return self.builder.dense(dims, (0, 2, 3, 1), c.F32)
        return self.builder.blocked(dims, self.spec.geometry.block, c.F32)

    def finish(self) -> PrimitiveChain:
        {
            "forward": self._forward,
            "backward_data": self._backward_data,
            "backward_filter": self._backward_filter,
        }[self.spec.direction]()
        return self.builder.finish()

    def _forward(self) -> None:
        b = self.builder
        x, w = b.array(self.x), b.array(self.w)
        arguments = {
            c.ARG_SRC: b.as_input(x, b.query(self.forward, c.QUERY_SRC)),
            c.ARG_WEIGHTS: b.as_input(w, b.query(self.forward, c.QUERY_WEIGHTS)),
        }
        if self.bias is not None:
            arguments[c.ARG_BIAS] = b.array(self.bias)
        self._execute(self.forward, arguments, {c.ARG_DST: (self.y, c.QUERY_DST)})

    def _backward_data(self) -> None:
        b = self.builder
        desc = b.primitive_desc(
            "convolution_backward_data",
            c.CONVOLUTION_DIRECT,
            self.x_out,
            self.w_in,
            self.y_in,
            *self.window,
            self.forward,
        )
        dy, w = b.array(self.y), b.array(self.w)
        arguments = {
            c.ARG_DIFF_DST: b.as_input(dy, b.query(desc, c.QUERY_DIFF_DST)),
            c.ARG_WEIGHTS: b.as_input(w, b.query(desc, c.QUERY_WEIGHTS)),
        }
        self._execute(desc, arguments, {c.ARG_DIFF_SRC: (self.x, c.QUERY_DIFF_SRC)})

    def _backward_filter(self) -> None:
        b = self.builder
        desc = b.primitive_desc(
            "convolution_backward_weights",
            c.CONVOLUTION_DIRECT,
            self.x_in,
            self.w_out,
            None,
            self.y_in,
            *self.window,
            self.forward,
        )
        x, dy = b.array(self.x), b.array(self.y)
        arguments = {
            c.ARG_SRC: b.as_input(x, b.query(desc, c.QUERY_SRC)),
            c.ARG_DIFF_DST: b.as_input(dy, b.query(desc, c.QUERY_DIFF_DST)),
        }
        results = {c.ARG_DIFF_WEIGHTS: (self.w, c.QUERY_DIFF_WEIGHTS)}
        self._execute(desc, arguments, results)

    def _execute(
        self, desc: int, arguments: dict[int, Slot], results: dict[int, tuple[int, int]]
    ) -> None:
        """Append the primitive; `results`: the layouts in which its results are wanted, and the
        queries for those in which they come.
        """
        b = self.builder
        wanted = {number: b.array(layout) for number, (layout, _) in results.items()}
        for number, (_, query) in results.items():
            arguments[number] = b.as_output(wanted[number], b.query(desc, query))
        b.execute(desc, arguments)
        for number, slot in wanted.items():
            b.deliver(arguments[number], slot)
