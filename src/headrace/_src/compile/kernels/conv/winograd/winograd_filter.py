"""The filter's transform for Winograd convolutions. In: HWIO. Out: U = G W G^T, in panels.

U is, for each of the points, a filter in `Panels`. There are m + r - 1 points in a direction in
which tiles have m results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace._src.compile.codegen.emit import F32, PTR, Function, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.conv.conv_product import Panels
from headrace._src.compile.kernels.conv.conv_transpose import transpose_function
from headrace._src.compile.kernels.conv.winograd.winograd_transform import (
    Tile,
    matrices,
    sides,
    two_sided,
)

__all__ = ["FilterLayout", "WinogradFilter"]

SKEW = 16  # elements between the planes of the points, so that they don't share cache sets


@dataclass(frozen=True, slots=True)
class FilterLayout:
    """Where the transformed filter's elements lie."""

    channels: int
    filters: int
    points: int

    @property
    def plane(self) -> int:
        return self.channels * self.filters + SKEW

    @property
    def size(self) -> int:
        """Elements of the whole."""
        return self.points * self.plane


@dataclass(frozen=True, slots=True)
class WinogradFilter:
    """Transform a filter [r, r, channels, filters] for tiles of `m` results.

    `backward`: for the convolution that computes the input's gradient, whose channels are this
    one's filters and whose filters are its channels, rotated by 180 degrees. `block`: the channels
    of a block of the images.
    """

    channels: int
    filters: int
    m: Tile
    r: int
    accurate: bool = False
    backward: bool = False
    block: int = 16

    arguments = ("w", "out:u")
    counters = 0

    @property
    def layout(self) -> FilterLayout:
        points = math.prod(m + self.r - 1 for m in sides(self.m))
        if self.backward:
            return FilterLayout(self.filters, self.channels, points)
        return FilterLayout(self.channels, self.filters, points)

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        if self.backward:
            self._emit_backward(team)
        else:
            self._emit_forward(team)

    def _emit_forward(self, team: Team) -> None:
        f = team.f
        w, u = team.args
        panels = Panels.on(team.target, self.layout.channels, self.layout.filters, self.block)
        tap = self.channels * self.filters
        transform = self._transform_function(team, tap)
        start, stop = team.share(self.channels)

        def channel(c: Reg) -> None:
            def vector(k: Reg) -> None:
                source = f.offset(w, f.add(f.mul(c, self.filters), k))
                f.call_function(transform, source, f.offset(u, panels.place(f, c, k)))

            f.loop(0, self.filters, vector, step=self.block)

        f.loop(start, stop, channel)

    def _emit_backward(self, team: Team) -> None:
        """Square blocks are transposed into a buffer, tap by tap in reverse, on the way."""
        f = team.f
        w, u = team.args
        panels = Panels.on(team.target, self.layout.channels, self.layout.filters, self.block)
        square, taps = self.block * self.block, self.r * self.r
        turned = f.local(F32, taps * square)
        transpose = transpose_function(team, self.filters, self.block)
        transform = self._transform_function(team, square)
        start, stop = team.share(self.channels // self.block)

        def block(cb: Reg) -> None:
            c = f.mul(cb, self.block)

            def column(k: Reg) -> None:
                corner = f.offset(w, f.add(f.mul(c, self.filters), k))

                def tap(t: Reg) -> None:
                    source = f.offset(corner, f.mul(t, self.channels * self.filters))
                    target = f.offset(turned, f.mul(f.sub(taps - 1, t), square))
                    f.call_function(transpose, source, target, self.block)

                def row(i: Reg) -> None:
                    target = f.offset(u, panels.place(f, f.add(k, i), c))
                    f.call_function(transform, f.offset(turned, f.mul(i, self.block)), target)

                f.loop(0, taps, tap)
                f.loop(0, self.block, row)

            f.loop(0, self.filters, column, step=self.block)

        f.loop(start, stop, block)

    def _transform_function(self, team: Team, tap: int) -> Function:
        """(source, target): transform one vector of filters whose taps are `tap` apart."""
        f = team.helper("transform", [PTR, PTR])
        source, target = f.parameters
        down, across = (matrices(m, self.r, self.accurate).filter for m in sides(self.m))

        def store(i: int, values: list[Reg]) -> None:
            for j, value in enumerate(values):
                f.store(value, target, (i * across.outputs + j) * self.layout.plane)

        def load(i: int, j: int) -> Reg:
            return f.load(F32.of(self.block), source, (i * self.r + j) * tap)

        two_sided(f, down, across, load, store, self.block, precise=self.accurate)
        return f.finish()
