"""Windows that slide over each channel separately: pooling and depthwise convolution in the plain
layout NHWC, for any window and any vectors. They complement the convolution of kernels/direct.

Windows are clipped to the image: elements beyond its edge don't count. As in TensorFlow, the
maximum starts from the lowest finite number and takes greater elements, so that a NaN never wins,
and the average is that of the elements inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headrace._src.compile.codegen.emit import F32, Function, Operand, Reg
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.gemm.gemm_memory import Sink
from headrace._src.compile.kernels.images.conv_geometry import Geometry

__all__ = ["DirectDepthwise", "DirectPool"]

_LOWEST = float(np.finfo(np.float32).min)
_VECTORS = 4  # of channels that go through a window together


@dataclass(frozen=True)
class DirectPool:
    """y = epilogue(pool(x)), how: "max" or "average". Arguments: x, the epilogue's.

    `geometry.filters` equals its channels.
    """

    geometry: Geometry
    how: str
    epilogue: Epilogue

    counters = 1

    def __post_init__(self) -> None:
        if self.how not in ("max", "average"):
            raise ValueError(f"pooling takes the max or the average, not {self.how!r}")
        if self.geometry.filters != self.geometry.channels:
            raise ValueError(f"no pooling has this geometry: {self.geometry}")

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", *self.epilogue.arguments)

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        windows = _Windows(team, self.geometry)
        f = team.f
        x, *rest = team.args
        sink = Sink(self.epilogue, self.geometry.filters)

        def channels(pixel: _Pixel, c: Operand, widths: Sequence[int]) -> None:
            def tap(_: Operand, at: Operand, found: list[Reg]) -> list[Reg]:
                values = windows.vectors(x, f.add(at, c), widths)
                if self.how == "average":
                    return [f.fadd(a, v) for a, v in zip(found, values, strict=True)]
                return [
                    f.select(f.fcmp("ogt", v, a), v, a) for a, v in zip(found, values, strict=True)
                ]

            start = 0.0 if self.how == "average" else _LOWEST
            results = windows.fold(pixel, start, widths, tap)
            if self.how == "average":
                count = f.convert("sitofp", f.reg(pixel.count(f)), F32)
                results = [f.fdiv(r, f.splat(count, r.type.lanes)) for r in results]
            windows.store(sink, rest, results, f.add(pixel.out, c), c)

        windows.each(self.geometry.channels, channels)


@dataclass(frozen=True)
class DirectDepthwise:
    """y = epilogue(depthwise convolution). Arguments: x, filters, the epilogue's.

    Channel c makes the outputs c * multiplier + i with filters [height, width, channels,
    multiplier]; `geometry.filters` is channels * multiplier.
    """

    geometry: Geometry
    epilogue: Epilogue

    counters = 1

    def __post_init__(self) -> None:
        if self.geometry.filters % self.geometry.channels:
            raise ValueError(f"no depthwise convolution has this geometry: {self.geometry}")

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", "filters", *self.epilogue.arguments)

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        windows = _Windows(team, self.geometry)
        f, g = team.f, self.geometry
        x, filters, *rest = team.args
        sink = Sink(self.epilogue, g.filters)
        multiplier = g.filters // g.channels

        def channels(pixel: _Pixel, c: Operand, widths: Sequence[int], source: Operand) -> None:
            def tap(t: Operand, at: Operand, found: list[Reg]) -> list[Reg]:
                factors = windows.vectors(filters, f.add(f.mul(t, g.filters), c), widths)
                at = f.add(at, source)
                if multiplier == 1:
                    values = windows.vectors(x, at, widths)
                else:
                    one = f.load(F32, x, at)
                    values = [f.splat(one, w) for w in widths]
                triples = zip(values, factors, found, strict=True)
                return [f.fma(v, w, a) for v, w, a in triples]

            results = windows.fold(pixel, 0.0, widths, tap)
            windows.store(sink, rest, results, f.add(pixel.out, c), c)

        if multiplier == 1:
            windows.each(g.channels, lambda p, c, widths: channels(p, c, widths, c))
            return

        def spread(pixel: _Pixel, i: Operand, widths: Sequence[int]) -> None:
            """Outputs from the i-th on of every channel."""

            def one(c: Reg) -> None:
                channels(pixel, f.add(f.mul(c, multiplier), i), widths, c)

            f.loop(0, g.channels, one)

        windows.each(multiplier, spread)


@dataclass(frozen=True)
class _Pixel:
    """Where the work is: taps [first, end) of the window in each direction, the input's element
    under tap 0 (it may be outside), the output's first element.
    """

    tall: tuple[Operand, Operand]
    wide: tuple[Operand, Operand]
    x: Operand
    out: Operand

    def count(self, f: Function) -> Operand:
        """How many taps there are."""
        return f.mul(f.sub(self.tall[1], self.tall[0]), f.sub(self.wide[1], self.wide[0]))


class _Windows:
    """The loops around all windows of an image, and within one."""

    def __init__(self, team: Team, geometry: Geometry) -> None:
        self.team, self.f, self.g = team, team.f, geometry
        self.lanes = team.target.lanes()

    def each(self, channels: int, body: Callable[[_Pixel, Operand, Sequence[int]], None]) -> None:
        """body(pixel, first channel, widths of its vectors) for all pixels and `channels`."""
        f, g = self.f, self.g
        chunk = _VECTORS * self.lanes

        def pixel(row: Operand, tall: tuple[Operand, Operand], y: Operand, x: Reg) -> None:
            wide = self._taps(x, 1, g.width)
            left = f.sub(f.mul(x, g.strides[1]), g.pads[1][0])
            at = f.mul(f.add(f.mul(y, g.width), left), g.channels)
            here = _Pixel(tall, wide, at, f.mul(f.add(row, x), g.filters))
            f.loop(
                0,
                channels // chunk * chunk,
                lambda c: body(here, c, [self.lanes] * _VECTORS),
                step=chunk,
            )
            rest = channels % chunk
            if rest:
                widths = [min(self.lanes, rest - s) for s in range(0, rest, self.lanes)]
                body(here, channels - rest, widths)

        def line(i: Reg) -> None:
            image, y = f.div(i, g.out_height), f.rem(i, g.out_height)
            top = f.sub(f.mul(y, g.strides[0]), g.pads[0][0])
            tall = self._taps(y, 0, g.height)
            first = f.add(f.mul(image, g.height), top)
            row = f.mul(i, g.out_width)
            f.loop(0, g.out_width, lambda x: pixel(row, tall, first, x))

        self.team.claim(0, g.batch * g.out_height, line)

    def _taps(self, i: Operand, axis: int, size: int) -> tuple[Operand, Operand]:
        """The taps [first, end) of window `i` that are inside the image."""
        f, g = self.f, self.g
        dilation = g.dilations[axis]
        start = f.sub(f.mul(i, g.strides[axis]), g.pads[axis][0])
        before = self._positive(f.sub(0, start))
        inside = self._positive(f.sub(size, start))
        first = f.div(f.add(before, dilation - 1), dilation)
        end = f.div(f.add(inside, dilation - 1), dilation)
        return first, f.minimum(end, g.kernel[axis])

    def _positive(self, i: Operand) -> Operand:
        return self.f.select(self.f.icmp("slt", i, 0), 0, i)

    def fold(
        self,
        pixel: _Pixel,
        start: float,
        widths: Sequence[int],
        tap: Callable[[Operand, Operand, list[Reg]], list[Reg]],
    ) -> list[Reg]:
        """Combine the taps of one window: found = tap(its number, its element in x, found)."""
        f, g = self.f, self.g

        def along(i: Reg, *found: Reg) -> list[Reg]:
            row = f.add(pixel.x, f.mul(i, g.dilations[0] * g.width * g.channels))
            number = f.mul(i, g.kernel[1])

            def one(j: Reg, *found: Reg) -> list[Reg]:
                at = f.add(row, f.mul(j, g.dilations[1] * g.channels))
                return tap(f.add(number, j), at, list(found))

            return f.loop(*pixel.wide, one, found)

        return f.loop(*pixel.tall, along, [f.const(start, F32.of(w)) for w in widths])

    def vectors(self, pointer: Reg, index: Operand, widths: Sequence[int]) -> list[Reg]:
        """Neighbours from element `index` on, in vectors of these widths."""
        first = self.f.offset(pointer, index)
        return [
            self.f.load(F32.of(w), self.f.offset(first, i * self.lanes))
            for i, w in enumerate(widths)
        ]

    def store(
        self, sink: Sink, rest: Sequence[Reg], values: Sequence[Reg], at: Operand, c: Operand
    ) -> None:
        """Take vectors through the epilogue to the output's elements from `at` on."""
        for i, value in enumerate(values):
            step = i * self.lanes
            sink.store(self.f, rest, value, self.f.add(at, step), self.f.add(c, step), None)
