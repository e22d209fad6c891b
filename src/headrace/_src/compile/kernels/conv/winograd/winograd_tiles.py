"""Tiles of blocked images: where they lie, and code that transforms a run of them.

An image is cut into tiles of `step` results each (rows and columns); a tile reads a piece of the
size `window` that begins `top` rows above and `left` columns left of them and may reach over the
edges (where zeros are read). Tiles are numbered through the batch, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace._src.compile.codegen.emit import F32, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.conv.winograd.winograd_transform import LinearMap, two_sided

__all__ = ["Tiling", "TileTransform"]


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a batch of blocked images is cut into tiles."""

    batch: int
    blocks: int  # blocks of channels
    height: int
    width: int
    rows: int  # of tiles in an image
    columns: int
    step: tuple[int, int]
    window: tuple[int, int]
    top: int
    left: int
    block: int  # channels of a block

    @property
    def count(self) -> int:
        return self.batch * self.rows * self.columns

    @property
    def plane(self) -> int:
        """Elements of one block of channels of one image."""
        return self.height * self.width * self.block

    @property
    def edges(self) -> bool:
        """Whether some window reaches over an edge."""
        below = (self.rows - 1) * self.step[0] - self.top + self.window[0]
        right = (self.columns - 1) * self.step[1] - self.left + self.window[1]
        return self.top > 0 or self.left > 0 or below > self.height or right > self.width

    def locate(self, f: Function, tile: Operand) -> tuple[Any, Any, Any]:
        """A tile's image, and the row and column of its first result."""
        image = f.div(tile, self.rows * self.columns)
        within = f.rem(tile, self.rows * self.columns)
        row, column = f.div(within, self.columns), f.rem(within, self.columns)
        return image, f.mul(row, self.step[0]), f.mul(column, self.step[1])

    def start(self, f: Function, image: Operand, top: Operand, left: Operand) -> Any:
        """The offset of a pixel in the image's first block of channels."""
        pixel = f.add(f.mul(top, self.width), left)
        return f.add(f.mul(image, self.blocks * self.plane), f.mul(pixel, self.block))

    def inside(self, f: Function, top: Reg, left: Reg) -> Reg:
        """Whether the window at (top, left) lies within the image."""
        last_row, last_column = self.height - self.window[0], self.width - self.window[1]
        if last_row < 0 or last_column < 0:
            return f.icmp("ne", f.const(0, I64), 0)
        # Negative numbers are large as unsigned ones.
        return f.and_(f.icmp("ule", top, last_row), f.icmp("ule", left, last_column))


class TileTransform:
    """L X R^T of every tile of a run, for all blocks of channels, `maps` being L and R.

    Element (i, j) of a tile's result is stored at (i * n + j) * `spread`, n the rows of R. A run
    has at most `most` tiles.
    """

    def __init__(
        self,
        team: Team,
        name: str,
        tiling: Tiling,
        maps: tuple[LinearMap, LinearMap],
        spread: int,
        most: int,
    ) -> None:
        self.team, self.tiling = team, tiling
        self._one = _tile_function(team, name, maps, spread, tiling.block)
        f = team.f
        # Of each tile of the run: its offset, its window's top and left, where its result goes.
        self._places = [f.local(I64, most) for _ in range(4)]
        if tiling.edges:
            self._gather = _gather_function(team, f"{name}_gather", tiling)
            self._edge = f.local(F32, math.prod(tiling.window) * tiling.block)

    def run(
        self,
        source: Reg,
        first: Operand,
        count: Operand,
        target: Reg,
        tile_place: Callable[[Reg], Any],
        block_place: Callable[[Reg], Any],
    ) -> None:
        """Transform tiles first … first + count; tile t of channel block b goes to target +
        tile_place(t) + block_place(b).
        """
        f, tiling = self.team.f, self.tiling
        self._prepare(first, count, tile_place)

        def block(b: Reg) -> None:
            plane = f.offset(source, f.mul(b, tiling.plane))
            into = f.offset(target, block_place(b))
            f.loop(0, count, lambda t: self._tile(t, plane, into))

        f.loop(0, tiling.blocks, block)

    def _prepare(self, first: Operand, count: Operand, tile_place: Callable[[Reg], Any]) -> None:
        f, tiling = self.team.f, self.tiling

        def note(t: Reg) -> None:
            image, top, left = tiling.locate(f, f.add(first, t))
            top, left = f.sub(top, tiling.top), f.sub(left, tiling.left)
            start = tiling.start(f, image, top, left)
            noted = (start, top, left, tile_place(t))
            for value, table in zip(noted, self._places, strict=True):
                f.store(f.reg(value), table, t)

        f.loop(0, count, note)

    def _tile(self, t: Reg, plane: Reg, into: Reg) -> None:
        f, tiling = self.team.f, self.tiling
        start, top, left, place = (f.load(I64, table, t) for table in self._places)
        source, target = f.offset(plane, start), f.offset(into, place)
        pitch = tiling.width * tiling.block

        def direct() -> None:
            f.call_function(self._one, source, pitch, target)

        def gathered() -> None:
            f.call_function(self._gather, source, top, left, self._edge)
            f.call_function(self._one, self._edge, tiling.window[1] * tiling.block, target)

        if tiling.edges:
            f.when(tiling.inside(f, top, left), direct, gathered)
        else:
            direct()


def _tile_function(
    team: Team, name: str, maps: tuple[LinearMap, LinearMap], spread: int, lanes: int
) -> Function:
    """(source, elements between its rows, target): transform one tile."""
    f = team.helper(name, [PTR, I64, PTR])
    source, pitch, target = f.parameters
    left, right = maps
    rows = [f.offset(source, f.mul(pitch, i)) for i in range(left.inputs)]

    def load(i: int, j: int) -> Reg:
        return f.load(F32.of(lanes), rows[i], j * lanes)

    def store(i: int, values: list[Reg]) -> None:
        for j, value in enumerate(values):
            f.store(value, target, (i * right.outputs + j) * spread)

    two_sided(f, left, right, load, store, lanes)
    return f.finish()


def _gather_function(team: Team, name: str, tiling: Tiling) -> Function:
    """(source, top, left, target): copy a window, with zeros where it leaves the image."""
    f = team.helper(name, [PTR, I64, I64, PTR])
    source, top, left, target = f.parameters
    (rows, columns), lanes = tiling.window, tiling.block
    zeros = f.module.data(f"{f.name}_zeros", [0.0] * lanes, F32)
    present = [f.icmp("ult", f.add(left, j), tiling.width) for j in range(columns)]

    def row(i: Reg) -> None:
        visible = f.icmp("ult", f.add(top, i), tiling.height)
        line = f.offset(source, f.mul(i, tiling.width * lanes))
        into = f.offset(target, f.mul(i, columns * lanes))
        for j in range(columns):
            pixel = f.offset(line, j * lanes)
            at = f.select(f.and_(visible, present[j]), pixel, zeros)
            f.store(f.load(F32.of(lanes), at), into, j * lanes)

    f.loop(0, rows, row)
    return f.finish()
