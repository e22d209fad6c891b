"""Convolutions of any window, stride and dilation, on plain or blocked images: what is left where
neither our special kernels nor oneDNN have code. In: two of x, y and w. Out: the third.

The vectors run along the channels of the result, with the sums of one pixel (of a few, in the
forward pass) in registers:

    forward    y[oy, ox, k] = sum over taps and c of  x[iy, ix, c] * w[tap, c, k]
    data      dx[iy, ix, c] = sum over taps and k of  dy[oy, ox, k] * w[tap, c, k]
    filter    dw[tap, c, k] = sum over pixels     of  x[iy, ix, c] * dy[oy, ox, k]

where i = o * stride - pad + tap * dilation. For the second the filter is transposed first. A
depthwise convolution has no sum over channels: k is c, or c * multiplier + m.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace._src.compile.codegen.emit import F32, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.conv.conv_product import registers_of
from headrace._src.compile.kernels.images.conv_epilogue import Fused
from headrace._src.compile.kernels.images.conv_geometry import Geometry

__all__ = ["GeneralConv"]

_ARGUMENTS = {
    "forward": ("x", "w"),
    "backward_data": ("dy", "w"),
    "backward_filter": ("x", "dy"),
}


@dataclass(frozen=True, slots=True)
class GeneralConv:
    """One pass of a convolution, through `epilogue`. Arguments: the two operands, the epilogue's.

    source: the layout of x and dx, result: that of y and dy
    """

    direction: str
    geometry: Geometry
    source: str
    result: str
    epilogue: Epilogue = NOTHING

    counters = 1

    def __post_init__(self) -> None:
        if self.direction not in _ARGUMENTS:
            raise ValueError(f"a convolution's direction is one of {list(_ARGUMENTS)}")
        if self.geometry.depthwise and self.geometry.filters % self.geometry.channels:
            raise ValueError(f"no depthwise convolution has this geometry: {self.geometry}")

    @property
    def arguments(self) -> tuple[str, ...]:
        return (*_ARGUMENTS[self.direction], *self.epilogue.arguments)

    @property
    def meetings(self) -> int:
        return int(self._transposes)

    @property
    def _transposes(self) -> bool:
        return self.direction == "backward_data" and not self.geometry.depthwise

    def scratch(self, threads: int) -> int:
        return 4 * self.geometry.weights if self._transposes else 0

    def emit(self, team: Team) -> None:
        writer = {"forward": _Forward, "backward_data": _Data, "backward_filter": _Filter}
        writer[self.direction](self, team).emit()


@dataclass(frozen=True, slots=True)
class _Image:
    """Where the elements of a batch of images lie; block: 0 if they are plain."""

    height: int
    width: int
    channels: int
    block: int

    @property
    def pitch(self) -> int:
        """Elements between two pixels."""
        return self.block or self.channels

    @property
    def plane(self) -> int:
        """Elements between two blocks of channels."""
        return self.height * self.width * self.block

    @property
    def size(self) -> int:
        """Elements of an image."""
        return self.height * self.width * self.channels

    def at(self, f: Function, y: Operand, x: Operand, c: Operand) -> Operand:
        """The offset of a pixel's channel within an image."""
        pixel = f.mul(f.add(f.mul(y, self.width), x), self.pitch)
        if not self.block:
            return f.add(pixel, c)
        block, within = f.div(c, self.block), f.rem(c, self.block)
        return f.add(f.add(pixel, f.mul(block, self.plane)), within)

    def vectors(
        self, f: Function, image: Reg, pixel: tuple[Operand, Operand], c: Operand, widths: Any
    ) -> list[Reg]:
        """A pixel's channels from `c` on, in vectors that don't cross blocks."""
        starts = [sum(widths[:v]) for v in range(len(widths))]
        return [
            f.load(F32.of(w), image, self.at(f, *pixel, f.add(c, s)))
            for w, s in zip(widths, starts, strict=True)
        ]

    def fold(self, f: Function, pointer: Reg, body: Callable[..., Any], start: Any) -> list[Reg]:
        """body(address of a channel, its number, *carried) for all channels of a pixel."""
        if not self.block:
            return f.loop(0, self.channels, lambda c, *v: body(f.offset(pointer, c), c, *v), start)

        def block(b: Reg, *carried: Reg) -> list[Reg]:
            plane = f.offset(pointer, f.mul(b, self.plane))
            first = f.mul(b, self.block)
            return f.loop(
                0, self.block, lambda c, *v: body(f.offset(plane, c), f.add(first, c), *v), carried
            )

        return f.loop(0, self.channels // self.block, block, start)


def _range(
    f: Function, start: Operand, step: int, count: int, size: int
) -> tuple[Operand, Operand]:
    """The i in [0, count) for which start + i * step is in [0, size): those in [first, end)."""

    def positive(i: Operand) -> Operand:
        return max(i, 0) if isinstance(i, int) else f.select(f.icmp("slt", i, 0), 0, i)

    first = f.div(f.add(positive(f.sub(0, start)), step - 1), step)
    end = f.div(f.add(positive(f.sub(size, start)), step - 1), step)
    return f.minimum(first, count), f.minimum(end, count)


def _loads(f: Function, pointer: Reg, at: Operand, widths: Sequence[int]) -> list[Reg]:
    """Neighbours from an offset on, in vectors of these widths."""
    starts = [sum(widths[:v]) for v in range(len(widths))]
    return [f.load(F32.of(w), pointer, f.add(at, s)) for w, s in zip(widths, starts, strict=True)]


class _Writer:
    """What the three passes have in common."""

    def __init__(self, spec: GeneralConv, team: Team) -> None:
        self.spec, self.team, self.f, self.g = spec, team, team.f, spec.geometry
        g = spec.geometry
        x_block, y_block = (0 if s == "nhwc" else g.block for s in (spec.source, spec.result))
        self.x = _Image(g.height, g.width, g.channels, x_block)
        self.y = _Image(g.out_height, g.out_width, g.filters, y_block)
        self.lanes = team.target.lanes()
        self.registers = registers_of(team.target, self.lanes)
        self.multiplier = g.filters // g.channels if g.depthwise else 0
        self._functions: dict[Any, Function] = {}

    def panels(self, count: int, block: int, most: int, body: Callable[..., None]) -> None:
        """body(first, widths) for `count` channels, `most` vectors at a time."""
        lanes = min(self.lanes, block or self.lanes)
        wide = most * lanes
        whole = count // wide * wide
        self.f.loop(0, whole, lambda c: body(c, (lanes,) * most), step=wide)
        if count > whole:
            rest = count - whole
            body(whole, tuple(min(lanes, rest - s) for s in range(0, rest, lanes)))

    def once(self, key: Any, write: Callable[[str], Function]) -> Function:
        """The helper function of that key; written when it's first needed."""
        if key not in self._functions:
            self._functions[key] = write(f"part{len(self._functions)}")
        return self._functions[key]

    def store(
        self, f: Function, table: Reg, sums: Sequence[Reg], channel: Operand, place: Any
    ) -> None:
        """Take a pixel's sums through the epilogue; place(step): where the vector goes that begins
        `step` channels on.
        """
        step = 0
        for value in sums:
            fused = Fused(f, table, 2, self.spec.epilogue, f.add(channel, step), value.type.lanes)
            fused.store(value, place(step))
            step += value.type.lanes


class _Forward(_Writer):
    """A task is a row of the result. Pixels whose windows lie within the image's width are computed
    together, the others one by one.
    """

    def emit(self) -> None:
        f, g = self.f, self.g
        vectors = max(1, min(4, self.registers // 8))
        self.together = 1 if g.depthwise else (self.registers - vectors - 1) // vectors
        reach = (g.kernel[1] - 1) * g.dilations[1]
        left, step = g.pads[1][0], g.strides[1]
        low = min(-(-left // step), g.out_width)  # the first pixel whose window begins inside
        high = max(low, min((g.width - 1 - reach + left) // step + 1, g.out_width))
        middle = low + (high - low) // self.together * self.together

        def row(i: Reg) -> None:
            image, y = f.div(i, g.out_height), f.rem(i, g.out_height)

            def panel(k: Operand, widths: tuple[int, ...]) -> None:
                def some(x: Operand, pixels: int) -> None:
                    function = self.once(
                        (pixels, widths), lambda n: self._pixels(n, pixels, widths)
                    )
                    f.call_function(function, f.parameters[0], image, y, x, k)

                f.loop(0, low, lambda x: some(x, 1))
                f.loop(low, middle, lambda x: some(x, self.together), step=self.together)
                f.loop(middle, g.out_width, lambda x: some(x, 1))

            self.panels(g.filters, self.y.block, vectors, panel)

        self.team.claim(0, g.batch * g.out_height, row)

    def _pixels(self, name: str, pixels: int, widths: tuple[int, ...]) -> Function:
        """(arguments, image, row, column, filter): neighbours of one row."""
        g = self.g
        f = self.team.helper(name, [PTR, I64, I64, I64, I64])
        table, image, y, x, k = f.parameters
        source = f.offset(f.load(PTR, table, 0), f.mul(image, self.x.size))
        w = f.load(PTR, table, 1)
        top = f.sub(f.mul(y, g.strides[0]), g.pads[0][0])
        left = f.sub(f.mul(x, g.strides[1]), g.pads[1][0])
        tall = _range(f, top, g.dilations[0], g.kernel[0], g.height)
        wide = (0, g.kernel[1])
        if pixels == 1:
            wide = _range(f, left, g.dilations[1], g.kernel[1], g.width)
        apart = g.strides[1] * self.x.pitch

        def tap(i: Reg, j: Reg, *sums: Reg) -> list[Reg]:
            number = f.add(f.mul(i, g.kernel[1]), j)
            row, column = (
                f.add(a, f.mul(t, d)) for a, t, d in zip((top, left), (i, j), g.dilations)
            )
            if g.depthwise:
                values = self.x.vectors(f, source, (row, column), k, widths)
                factors = _loads(f, w, f.add(f.mul(number, g.channels), k), widths)
                return [f.fma(v, u, s) for v, u, s in zip(values, factors, sums, strict=True)]
            weights = f.offset(w, f.add(f.mul(number, g.channels * g.filters), k))

            def channel(at: Reg, c: Reg, *sums: Reg) -> list[Reg]:
                factors = _loads(f, weights, f.mul(c, g.filters), widths)
                total = []
                for p in range(pixels):
                    value = f.load(F32, at, p * apart)
                    own = sums[p * len(widths) : (p + 1) * len(widths)]
                    total += [
                        f.fma(f.splat(value, s.type.lanes), u, s)
                        for u, s in zip(factors, own, strict=True)
                    ]
                return total

            first = f.offset(source, self.x.at(f, row, column, 0))
            return self.x.fold(f, first, channel, sums)

        zeros = [f.const(0.0, F32.of(w)) for _ in range(pixels) for w in widths]
        sums = f.loop(*tall, lambda i, *s: f.loop(*wide, lambda j, *t: tap(i, j, *t), s), zeros)
        start = f.mul(image, self.y.size)
        for p in range(pixels):
            self.store(
                f,
                table,
                sums[p * len(widths) : (p + 1) * len(widths)],
                k,
                lambda step, p=p: f.add(start, self.y.at(f, y, f.add(x, p), f.add(k, step))),
            )
        return f.finish()


class _Data(_Writer):
    """A task is a row of the image. A pixel is seen through some taps by one window each."""

    def emit(self) -> None:
        f, g = self.f, self.g
        if self.spec._transposes:
            self.team.after(0, self._transpose)
        vectors = max(1, self.registers // 4) if self.multiplier <= 1 else 1
        block = self.x.block if self.multiplier <= 1 else 1  # several results: one by one

        def row(i: Reg) -> None:
            image, y = f.div(i, g.height), f.rem(i, g.height)

            def panel(c: Operand, widths: tuple[int, ...]) -> None:
                function = self.once(widths, lambda n: self._pixel(n, widths))
                arguments = (f.parameters[0], self.team.scratch, image, y)
                f.loop(0, g.width, lambda x: f.call_function(function, *arguments, x, c))

            self.panels(g.channels, block, vectors, panel)

        meetings = self.spec.meetings
        self.team.after(meetings, lambda: self.team.claim(0, g.batch * g.height, row))

    def _transpose(self) -> None:
        """The filter as [tap][k][c], in scratch memory."""
        f, g = self.f, self.g
        w = self.team.args[1]
        rows = g.kernel[0] * g.kernel[1] * g.filters

        def row(i: Reg) -> None:
            tap, k = f.div(i, g.filters), f.rem(i, g.filters)
            source = f.offset(w, f.add(f.mul(tap, g.channels * g.filters), k))
            into = f.offset(self.team.scratch, f.mul(i, g.channels))
            f.loop(
                0, g.channels, lambda c: f.store(f.load(F32, source, f.mul(c, g.filters)), into, c)
            )

        f.loop(*self.team.share(rows), row)

    def _pixel(self, name: str, widths: tuple[int, ...]) -> Function:
        """(arguments, filter, image, row, column, channel): one pixel of the image."""
        g = self.g
        f = self.team.helper(name, [PTR, PTR, I64, I64, I64, I64])
        table, turned, image, y, x, c = f.parameters
        source = f.offset(f.load(PTR, table, 0), f.mul(image, self.y.size))
        given = f.load(PTR, table, 1)

        def tap(i: Operand, j: Operand, row: Operand, column: Operand, *sums: Reg) -> list[Reg]:
            number = f.add(f.mul(i, g.kernel[1]), j)
            if not g.depthwise:
                weights = f.offset(turned, f.add(f.mul(number, g.channels * g.filters), c))

                def one(at: Reg, k: Reg, *sums: Reg) -> list[Reg]:
                    factors = _loads(f, weights, f.mul(k, g.channels), widths)
                    value = f.load(F32, at)
                    return [
                        f.fma(f.splat(value, s.type.lanes), u, s)
                        for u, s in zip(factors, sums, strict=True)
                    ]

                return self.y.fold(f, f.offset(source, self.y.at(f, row, column, 0)), one, sums)

            def result(m: Operand, *sums: Reg) -> list[Reg]:
                k = f.add(f.mul(c, self.multiplier), m)
                values = self.y.vectors(f, source, (row, column), k, widths)
                factors = _loads(f, given, f.add(f.mul(number, g.filters), k), widths)
                return [f.fma(v, u, s) for v, u, s in zip(values, factors, sums, strict=True)]

            return f.loop(0, self.multiplier, result, sums)

        def along(
            axis: int, at: Operand, outputs: int, body: Any, sums: Sequence[Reg]
        ) -> list[Reg]:
            """body(tap, output, *sums) for the taps through which a window sees the pixel."""
            stride, dilation, before = g.strides[axis], g.dilations[axis], g.pads[axis][0]

            def one(t: Reg, *sums: Reg) -> list[Reg]:
                distance = f.sub(f.add(at, before), f.mul(t, dilation))
                output = f.div(distance, stride)
                # As an unsigned number, what is negative is beyond all outputs.
                seen = f.icmp("ult", f.reg(distance), outputs * stride)
                if stride > 1:
                    seen = f.and_(seen, f.icmp("eq", f.reg(f.rem(distance, stride)), 0))
                return f.when(seen, lambda: body(t, output, *sums), lambda: list(sums))

            return f.loop(0, g.kernel[axis], one, sums)

        def rows(i: Reg, row: Operand, *sums: Reg) -> list[Reg]:
            return along(1, x, g.out_width, lambda j, column, *s: tap(i, j, row, column, *s), sums)

        zeros = [f.const(0.0, F32.of(w)) for w in widths]
        sums = along(0, y, g.out_height, rows, zeros)
        start = f.mul(image, self.x.size)
        self.store(f, table, sums, c, lambda step: f.add(start, self.x.at(f, y, x, f.add(c, step))))
        return f.finish()


class _Filter(_Writer):
    """A task is some channels of one tap. Sums are taken row by row of pixels first: short sums of
    sums lose less precision.
    """

    def emit(self) -> None:
        f, g = self.f, self.g
        vectors = max(1, min(4, self.registers // 8))
        together = 1 if g.depthwise else max(1, (self.registers // 2 - vectors) // vectors)
        channels = next(d for d in range(min(together, g.channels), 0, -1) if g.channels % d == 0)
        columns = self.multiplier if self.multiplier > 1 else g.filters
        # The results of a channel, where there are several, stand alone.
        parts = g.channels if self.multiplier > 1 else 1 if g.depthwise else g.channels // channels
        blocks = [b for b in (self.y.block, self.x.block if self.multiplier == 1 else 0) if b]

        def task(i: Reg) -> None:
            tap, c = f.div(i, parts), f.mul(f.rem(i, parts), channels)

            def panel(k: Operand, widths: tuple[int, ...]) -> None:
                function = self.once(widths, lambda n: self._sums(n, channels, widths))
                f.call_function(function, f.parameters[0], tap, c, k)

            self.panels(columns, min(blocks, default=0), vectors, panel)

        self.team.claim(0, g.kernel[0] * g.kernel[1] * parts, task)

    def _sums(self, name: str, channels: int, widths: tuple[int, ...]) -> Function:
        """(arguments, tap, channel, filter): `channels` rows of the filter, over all pixels."""
        g = self.g
        f = self.team.helper(name, [PTR, I64, I64, I64])
        table, tap, c, column = f.parameters
        x, dy = (f.load(PTR, table, i) for i in range(2))
        several = self.multiplier > 1
        k = f.add(f.mul(c, self.multiplier), column) if several else column
        row, breadth = f.div(tap, g.kernel[1]), f.rem(tap, g.kernel[1])
        top, left = (
            f.sub(f.mul(t, d), p[0]) for t, d, p in zip((row, breadth), g.dilations, g.pads)
        )
        tall = _range(f, top, g.strides[0], g.out_height, g.height)
        wide = _range(f, left, g.strides[1], g.out_width, g.width)

        def pixel(image: Reg, i: Reg, j: Reg, *sums: Reg) -> list[Reg]:
            seen = f.offset(x, f.mul(image, self.x.size))
            said = f.offset(dy, f.mul(image, self.y.size))
            iy, ix = (f.add(f.mul(o, s), a) for o, s, a in zip((i, j), g.strides, (top, left)))
            gradients = self.y.vectors(f, said, (i, j), k, widths)
            if self.multiplier == 1:
                values = self.x.vectors(f, seen, (iy, ix), k, widths)
                return [f.fma(v, d, s) for v, d, s in zip(values, gradients, sums, strict=True)]
            total = []
            for n in range(channels):
                value = f.load(F32, seen, self.x.at(f, iy, ix, f.add(c, n)))
                own = sums[n * len(widths) : (n + 1) * len(widths)]
                total += [
                    f.fma(f.splat(value, s.type.lanes), d, s)
                    for d, s in zip(gradients, own, strict=True)
                ]
            return total

        def line(image: Reg, i: Reg, *sums: Reg) -> list[Reg]:
            zeros = [f.const(0.0, s.type) for s in sums]
            found = f.loop(*wide, lambda j, *s: pixel(image, i, j, *s), zeros)
            return [f.fadd(s, t) for s, t in zip(sums, found, strict=True)]

        zeros = [f.const(0.0, F32.of(w)) for _ in range(channels) for w in widths]
        sums = f.loop(
            0, g.batch, lambda n, *s: f.loop(*tall, lambda i, *t: line(n, i, *t), s), zeros
        )
        per_tap = g.filters if g.depthwise else g.channels * g.filters
        for n in range(channels):
            start = f.add(f.mul(tap, per_tap), k)
            if not g.depthwise:
                start = f.add(start, f.mul(f.add(c, n), g.filters))
            own = sums[n * len(widths) : (n + 1) * len(widths)]
            self.store(f, table, own, column, lambda step, s=start: f.add(s, step))
        return f.finish()
