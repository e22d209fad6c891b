"""Winograd convolution F(m x n, r x r). In: blocked images, a transformed filter. Out: the same.

A task is a run of tiles. Its thread transforms their windows into scratch memory (V), multiplies
them with a block of output channels for each of the points (M), and transforms that back,
through the epilogue, into the result; then it goes on to the next block of channels. With the
filter turned by `WinogradFilter(backward=True)` the same kernel computes the input's gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headrace._src.compile.codegen.emit import F32, I8, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.conv.conv_product import Panels, emit_product, emit_short_sums
from headrace._src.compile.kernels.conv.winograd.winograd_filter import SKEW, FilterLayout
from headrace._src.compile.kernels.conv.winograd.winograd_tiles import TileTransform, Tiling
from headrace._src.compile.kernels.conv.winograd.winograd_transform import (
    Tile,
    matrices,
    sides,
    two_sided,
)
from headrace._src.compile.kernels.images.conv_epilogue import Fused
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.kernels.images.pooling_loops import maximum

__all__ = ["WinogradForward", "input_tiling"]


def input_tiling(geometry: Geometry, m: Tile) -> Tiling:
    """The tiles of a convolution's input."""
    (r, s), ((top, _), (left, _)) = geometry.kernel, geometry.pads
    if r != s or not geometry.dense or not geometry.blocked:
        raise ValueError(f"not a convolution for Winograd's algorithm: {geometry}")
    down, across = sides(m)
    return Tiling(
        geometry.batch,
        geometry.channels // geometry.block,
        geometry.height,
        geometry.width,
        -(-geometry.out_height // down),
        -(-geometry.out_width // across),
        (down, across),
        (down + r - 1, across + s - 1),
        top,
        left,
        geometry.block,
    )


def output_block(geometry: Geometry) -> int:
    """How many output channels are computed in one pass over V: the more input channels, the more
    it costs to read V again.
    """
    most = 64 if geometry.channels <= 128 else 128
    return min(most, -(-geometry.filters // 64) * 64)


def run_length(tiles: int, points: int, channels: int, block: int, cache: int) -> int:
    """How many tiles a task has, by a model of what one costs that was fitted to measurements; a
    core's second-level cache holds `cache` bytes of V and M.
    """

    def cost(run: int) -> float:
        tasks = -(-tiles // run)
        if tasks < 16:
            tasks += tasks % 2  # two threads would wait for the last task
        filter_ = 1 + channels / 32 / run  # the whole filter is read once in a task
        fits = 4 * points * (channels + block) * run <= cache
        return tasks * run * filter_ * (1.0 if fits else 1.1)

    return min(range(12, 133, 6), key=cost)  # registers hold the sums of 6 tiles


@dataclass(frozen=True, slots=True)
class WinogradForward:
    """A convolution by Winograd's algorithm, with its epilogue. `m`: the results of a tile.

    `accurate`: at points and in sums that lose less precision, which takes a little longer.
    `pool`: a max-pool of 2 x 2 with stride 2 follows the epilogue, which then has one output and no
    full operand; a last argument receives the position of each maximum in its window (a byte, 0 to
    3 in row-major order), as `pooling.MaxPool` does. `cache`: the bytes of a core's own cache.
    """

    geometry: Geometry
    m: Tile
    accurate: bool = False
    epilogue: Epilogue = NOTHING
    pool: bool = False
    cache: int = 1 << 20

    counters = 1

    def __post_init__(self) -> None:
        if self.pool and (self.geometry.out_height % 2 or self.geometry.out_width % 2):
            raise ValueError(f"a fused max-pool needs an even height and width: {self.geometry}")
        if self.pool and any(m % 2 for m in sides(self.m)):
            raise ValueError(f"a fused max-pool needs tiles of even sides, not {self.m}")
        outputs = self.epilogue.program.output_dtypes
        if self.pool and (outputs != ("float32",) or "full" in self.epilogue.operands):
            raise ValueError("a fused max-pool needs one float32 output and no full operand")
        input_tiling(self.geometry, self.m)

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", "u", *self.epilogue.arguments, *(("out:argmax",) if self.pool else ()))

    @property
    def filter_layout(self) -> FilterLayout:
        """What `u` must look like."""
        return FilterLayout(self.geometry.channels, self.geometry.filters, self._points)

    @property
    def _points(self) -> int:
        return math.prod(m + self.geometry.kernel[0] - 1 for m in sides(self.m))

    @property
    def _run(self) -> int:
        tiles = input_tiling(self.geometry, self.m).count
        return run_length(tiles, self._points, self.geometry.channels, self._block, self.cache)

    @property
    def _block(self) -> int:
        """Output channels that are computed between two passes over V."""
        return output_block(self.geometry)

    @property
    def _v_plane(self) -> int:
        return self.geometry.channels * self._run + SKEW

    @property
    def _m_plane(self) -> int:
        return self._block * self._run + SKEW

    @property
    def _scratch_elements(self) -> int:
        return self._points * (self._v_plane + self._m_plane)

    def scratch(self, threads: int) -> int:
        return 4 * threads * self._scratch_elements

    def emit(self, team: Team) -> None:
        _Emitter(self, team).emit()


class _Emitter:
    """Writes the kernel; holds the parts that its pieces share."""

    def __init__(self, spec: WinogradForward, team: Team) -> None:
        self.spec, self.team, self.f = spec, team, team.f
        self.tiling = input_tiling(spec.geometry, spec.m)
        taps = spec.geometry.kernel[0]
        self.matrices = [matrices(m, taps, spec.accurate) for m in sides(spec.m)]
        self.run, self.block = spec._run, spec._block
        g = spec.geometry
        self.lanes = g.block
        self.panels = Panels.on(team.target, g.channels, g.filters, g.block)
        self.pixels = max(d for d in range(1, self.panels.pixels + 1) if self.run % d == 0)
        f = self.f
        self.v = f.offset(team.scratch, f.mul(team.thread, spec._scratch_elements))
        self.m = f.offset(self.v, spec._points * spec._v_plane)

    def emit(self) -> None:
        spec, team, f = self.spec, self.team, self.f
        down, across = (each.input for each in self.matrices)
        self.transform = TileTransform(
            team, "input", self.tiling, (down, across), spec._v_plane, self.run
        )
        whole, tail = self.panels.whole, self.panels.tail
        self.product = self._product_function("product", self.panels.width) if whole else None
        self.tail = self._product_function("tail", tail) if tail else None
        self.finish = self._finish_function()
        tiles = self.tiling.count

        def task(k: Reg) -> None:
            first = f.mul(k, self.run)
            self._task(first, f.minimum(f.sub(tiles, first), self.run))

        team.claim(0, -(-tiles // self.run), task)

    def _task(self, first: Operand, count: Operand) -> None:
        f, pixels = self.f, self.pixels
        group = self.spec.geometry.channels * pixels
        self.transform.run(
            self.team.args[0],
            first,
            count,
            self.v,
            lambda t: f.add(f.mul(f.div(t, pixels), group), f.mul(f.rem(t, pixels), self.lanes)),
            lambda b: f.mul(b, pixels * self.lanes),
        )
        filters = self.spec.geometry.filters

        def block(k: Reg) -> None:
            width = f.minimum(f.sub(filters, k), self.block) if filters % self.block else self.block
            self._multiply(k, width, count)
            self._store(k, width, first, count)

        f.loop(0, filters, block, step=self.block)

    def _multiply(self, k: Reg, width: Operand, count: Operand) -> None:
        """M = V U for the block of channels from k on, at every point."""
        f, spec, wide = self.f, self.spec, self.panels.width
        u = f.offset(self.team.args[1], f.mul(k, spec.geometry.channels))
        groups = f.div(f.add(count, self.pixels - 1), self.pixels)

        def point(x: Reg) -> None:
            v = f.offset(self.v, f.mul(x, spec._v_plane))
            ux = f.offset(u, f.mul(x, spec.filter_layout.plane))
            mx = f.offset(self.m, f.mul(x, spec._m_plane))

            def group(g: Reg) -> None:
                vg = f.offset(v, f.mul(g, spec.geometry.channels * self.pixels))
                mg = f.offset(mx, f.mul(g, self.pixels * wide))

                def panel(p: Operand, product: Function) -> None:
                    up = f.offset(ux, f.mul(p, spec.geometry.channels * wide))
                    mp = f.offset(mg, f.mul(p, self.run * wide))
                    f.call_function(product, vg, up, mp)

                whole, product, tail = f.div(width, wide), self.product, self.tail
                if product is not None:
                    f.loop(0, whole, lambda p: panel(p, product))
                if tail is not None:
                    ragged = f.icmp("ne", f.reg(f.rem(width, wide)), 0)
                    f.when(ragged, lambda: panel(whole, tail))

            f.loop(0, groups, group)

        f.loop(0, spec._points, point)

    def _product_function(self, name: str, width: int) -> Function:
        """(V, U, M): a few tiles times a panel."""
        f = self.team.helper(name, [PTR, PTR, PTR])
        v, u, m = f.parameters
        vectors, group = width // self.lanes, self.pixels * self.lanes
        places = [
            p * self.panels.width + n * self.lanes
            for p in range(self.pixels)
            for n in range(vectors)
        ]
        sizes = {"pixels": self.pixels, "vectors": vectors, "lanes": self.lanes}
        if self.spec.accurate:
            channels = self.spec.geometry.channels
            emit_short_sums(
                f, v, u, m, places, **sizes, channels=channels, a_block=group, b_row=width
            )
            return f.finish()
        sums = emit_product(f, v, u, **sizes, blocks=self.tiling.blocks, a_block=group, b_row=width)
        for value, place in zip(sums, places, strict=True):
            f.store(value, m, place)
        return f.finish()

    def _store(self, k: Reg, width: Operand, first: Operand, count: Operand) -> None:
        """Transform the tiles of M back, one block of channels after the other."""
        f, spec, wide = self.f, self.spec, self.panels.width
        shrink = 2 if spec.pool else 1
        height, breadth = spec.geometry.out_height // shrink, spec.geometry.out_width // shrink
        plane = height * breadth * self.lanes

        def channels(q: Reg) -> None:
            place = f.mul(f.div(q, wide), self.run * wide)
            m = f.offset(self.m, f.add(place, f.rem(q, wide)))
            channel = f.add(k, q)
            base = f.mul(f.div(channel, self.lanes), plane)

            def tile(t: Reg) -> None:
                image, top, left = self.tiling.locate(f, f.add(first, t))
                row, column = f.div(top, shrink), f.div(left, shrink)
                pixel = f.mul(f.add(f.mul(row, breadth), column), self.lanes)
                start = f.mul(image, spec.geometry.filters // self.lanes * plane)
                at = f.add(f.add(start, base), pixel)
                rows = f.sub(spec.geometry.out_height, top)
                columns = f.sub(spec.geometry.out_width, left)
                source = f.offset(m, f.mul(t, wide))
                table = f.parameters[0]
                f.call_function(self.finish, table, source, at, channel, rows, columns)

            f.loop(0, count, tile)

        f.loop(0, width, channels, step=self.lanes)

    def _finish_function(self) -> Function:
        """(arguments, M, offset, channel, rows, columns): one tile's result, through the epilogue;
        only what lies within the image, which has `rows` and `columns` from the tile on.
        """
        spec = self.spec
        f = self.team.helper("finish", [PTR, PTR, I64, I64, I64, I64])
        table, m, at, channel, rows, columns = f.parameters
        g = spec.geometry
        large = 4 * g.batch * g.filters * g.out_height * g.out_width >= f.target.streamed
        fused = Fused(f, table, 2, spec.epilogue, channel, self.lanes, nontemporal=large)
        down, across = (each.output for each in self.matrices)
        cut = _Cut(f, rows, columns, spec)
        store: Any = (
            _PooledRows(f, fused, f.load(PTR, table, len(spec.arguments) - 1), at, cut)
            if spec.pool
            else _Rows(f, fused, at, cut)
        )

        def load(i: int, j: int) -> Reg:
            return f.load(F32.of(self.lanes), m, (i * across.inputs + j) * spec._m_plane)

        two_sided(f, down, across, load, store, self.lanes, pairs=True)
        return f.finish()


class _Cut:
    """What of a tile lies within the result, where tiles may reach over its edge."""

    def __init__(self, f: Function, rows: Reg, columns: Reg, spec: WinogradForward) -> None:
        self._f, self._rows, self._columns = f, rows, columns
        self.width, self.lanes = spec.geometry.out_width, spec.geometry.block
        down, across = sides(spec.m)
        self._tall = spec.geometry.out_height % down != 0
        self._wide = self.width % across != 0

    def row(self, i: int, body: Any) -> None:
        """Do `body` if the tile's row i is within."""
        self._when(self._tall and i > 0, i, self._rows, body)

    def column(self, j: int, body: Any) -> None:
        self._when(self._wide and j > 0, j, self._columns, body)

    def _when(self, asked: bool, i: int, limit: Reg, body: Any) -> None:
        if asked:
            self._f.when(self._f.icmp("slt", self._f.const(i, I64), limit), body)
        else:
            body()


class _Rows:
    """Stores rows of a tile."""

    def __init__(self, f: Function, fused: Fused, at: Reg, cut: _Cut) -> None:
        self._f, self._fused, self._at, self._cut = f, fused, at, cut

    def __call__(self, i: int, values: list[Reg]) -> None:
        def row() -> None:
            at = self._f.add(self._at, i * self._cut.width * self._cut.lanes)
            for j, value in enumerate(values):
                here = self._f.add(at, j * self._cut.lanes)
                self._cut.column(j, lambda v=value, h=here: self._fused.store(v, h))

        self._cut.row(i, row)


class _PooledRows:
    """Stores the maxima of 2 x 2 results and where they were; takes rows two by two."""

    def __init__(self, f: Function, fused: Fused, argmax: Reg, at: Reg, cut: _Cut) -> None:
        self._f, self._fused, self._argmax, self._at, self._cut = f, fused, argmax, at, cut
        self._upper: list[Reg] = []

    def __call__(self, i: int, values: list[Reg]) -> None:
        if i % 2 == 0:
            self._upper = values
            return
        self._cut.row(i - 1, lambda: self._row(i // 2, self._upper, values))

    def _row(self, i: int, upper: list[Reg], lower: list[Reg]) -> None:
        at = self._f.add(self._at, i * (self._cut.width // 2) * self._cut.lanes)
        for j in range(0, len(upper), 2):
            window = [*upper[j : j + 2], *lower[j : j + 2]]
            here = self._f.add(at, j // 2 * self._cut.lanes)
            self._cut.column(j, lambda w=window, h=here: self._window(w, h))

    def _window(self, window: list[Reg], at: Operand) -> None:
        f = self._f
        best, where = maximum(f, [self._fused.apply(v, at)[0] for v in window])
        self._fused.store_outputs([best], at)
        f.store(where, f.offset(self._argmax, at, I8))
