"""Running sums and products along an axis."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from headrace._src.compile.codegen.combine import combine_of, state_dtype
from headrace._src.compile.codegen.iteration_spaces import lanes_for
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.loop_code import generate_loops
from headrace._src.compile.codegen.loop_programs import (
    Accumulate,
    Body,
    For,
    Load,
    Rest,
    Split,
    Statement,
    Store,
    Take,
    Total,
    affine,
)
from headrace._src.devices.target import Target

__all__ = ["ScanKernel"]


@dataclass(frozen=True)
class ScanKernel:
    """The running "sum" or "prod" along the middle axis of [outer, length, inner].

    `exclusive`: without an element's own value; `reverse`: from the end. 16-bit floats are
    accumulated in float32, and each result is rounded.
    """

    combine: str
    outer: int
    length: int
    inner: int
    exclusive: bool
    reverse: bool
    dtype: str

    arguments = ("x", "out:y")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        x, y = team.args
        generate_loops(team, self.loops(team.target), {"x": x, "y": y})

    def loops(self, target: Target) -> Body:
        """The lanes are along the inner dimension; every lane goes along the axis by itself."""
        lanes = lanes_for(target, [combine_of(self.combine, state_dtype(self.dtype)).merge])
        unroll = max(1, min(4, self.inner // lanes))
        panel = lanes * unroll
        if self.inner == 1:
            return (For("o", self.outer, self._along_axis(0), "parallel"),)
        rest = Rest(panel, self.inner, affine({"panel": panel}))
        inside = For("i", rest, self._along_axis(panel), "vector", lanes=lanes, unroll=unroll)
        panels = ceil(self.inner / panel)
        split = Split(affine({"unit": 1}), ("o", "panel"), (self.outer, panels))
        return (For("unit", self.outer * panels, (split, inside), "parallel"),)

    def _along_axis(self, panel: int) -> Body:
        terms = {"o": self.length * self.inner, "t": self.inner}
        start = 0
        if self.reverse:
            terms["t"], start = -self.inner, (self.length - 1) * self.inner
        if panel:
            terms |= {"i": 1, "panel": panel}
        index = affine(terms, start)
        load = Load("v", self.dtype, "x", index)
        feed: Statement = Accumulate("running", "v")
        give: list[Statement] = [Take(("r",), "running"), Store("r", self.dtype, "y", index)]
        body = [load, *give, feed] if self.exclusive else [load, feed, *give]
        total = Total("running", self.combine, state_dtype(self.dtype))
        return (total, For("t", self.length, tuple(body)))
