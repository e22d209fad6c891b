"""Pooling on the plain layout NHWC: any window, any vectors. The pooling beside kernels/direct.

What a window reaches over the image's edge doesn't count, neither for the maximum nor for the
average. As in TensorFlow, the maximum starts from the lowest finite number and takes what is
greater: a NaN never wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.compile.emit import F32, Function, Operand, Reg
from headrace.compile.epilogue import Epilogue
from headrace.compile.kernel import Team
from headrace.compile.kernels.conv_geometry import Geometry
from headrace.compile.kernels.gemm_memory import Sink

__all__ = ["DirectPool"]


@dataclass(frozen=True)
class DirectPool:
    """y = epilogue(pool(x)), how: "max" or "average". Arguments: x, the epilogue's.

    `geometry.filters` equals its channels; its window has no holes.
    """

    geometry: Geometry
    how: str
    epilogue: Epilogue

    counters = 1

    def __post_init__(self) -> None:
        if self.how not in ("max", "average"):
            raise ValueError(f"pooling takes the max or the average, not {self.how!r}")
        g = self.geometry
        if g.filters != g.channels or g.dilations != (1, 1):
            raise ValueError(f"no pooling has this geometry: {g}")

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", *self.epilogue.arguments)

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, g = team.f, self.geometry
        rows = g.batch * g.out_height

        def row(i: Reg) -> None:
            image, y = f.div(i, g.out_height), f.rem(i, g.out_height)
            tall = _span(f, y, g.strides[0], g.pads[0][0], g.kernel[0], g.height)
            picture = f.mul(image, g.height)
            tall = f.add(picture, tall[0]), f.add(picture, tall[1])
            f.loop(0, g.out_width, lambda x: self._pixel(team, tall, x, f.mul(i, g.out_width)))

        team.claim(0, rows, row)

    def _pixel(self, team: Team, tall: tuple[Operand, Operand], x: Reg, before: Operand) -> None:
        """All channels of one pixel; `tall`: the rows of its window, `before`: earlier pixels."""
        f, g = team.f, self.geometry
        wide = _span(f, x, g.strides[1], g.pads[1][0], g.kernel[1], g.width)
        count = f.mul(f.sub(tall[1], tall[0]), f.sub(wide[1], wide[0]))
        count = f.convert("sitofp", f.reg(count), F32)
        at = f.mul(f.add(before, x), g.channels)
        source, *rest = team.args
        sink = Sink(self.epilogue, g.channels)

        def channels(c: Operand, lanes: int) -> None:
            vector = F32.of(lanes)

            def tap(i: Reg, j: Reg, best: Reg) -> Reg:
                index = f.mul(f.add(f.mul(i, g.width), j), g.channels)
                value = f.load(vector, source, f.add(index, c))
                if self.how == "average":
                    return f.fadd(best, value)
                return f.select(f.fcmp("ogt", value, best), value, best)

            def along(i: Reg, best: Reg) -> list[Reg]:
                return f.loop(*wide, lambda j, b: tap(i, j, b), [best])

            start = 0.0 if self.how == "average" else float(np.finfo(np.float32).min)
            (value,) = f.loop(*tall, along, [f.const(start, vector)])
            if self.how == "average":
                value = f.fdiv(value, f.splat(count, lanes))
            sink.store(f, rest, value, f.add(at, c), c, None)

        lanes = team.target.lanes()
        whole = g.channels // lanes * lanes
        f.loop(0, whole, lambda c: channels(c, lanes), step=lanes)
        if g.channels % lanes:
            channels(whole, g.channels % lanes)


def _span(
    f: Function, i: Operand, stride: int, pad: int, window: int, size: int
) -> tuple[Operand, Operand]:
    """The part [first, end) of window `i` that is inside the image."""
    start = f.sub(f.mul(i, stride), pad)
    first = f.select(f.icmp("slt", start, 0), 0, start) if pad else start
    return first, f.minimum(f.add(start, window), size)
