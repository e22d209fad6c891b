"""The filter's gradient by Winograd's algorithm. In: blocked images and gradients. Out: HWIO.

    dW = G^T [sum over tiles of (B^T X B) * (A dY A^T)] G

All threads first transform a chunk of tiles into shared scratch memory, V of X and Z of dY; then
each takes points of the a*a and adds V^T Z to its part of dU; and so on, chunk by chunk. At last
dU is transformed back and goes through the epilogue, which may update the filter in place. Every
sum is taken in one order, whichever thread does it.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import F32, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.conv.conv_product import (
    channels_at_once,
    outer_function,
    outer_width,
    padded,
)
from headrace._src.compile.kernels.conv.winograd.winograd_filter import SKEW
from headrace._src.compile.kernels.conv.winograd.winograd_forward import input_tiling
from headrace._src.compile.kernels.conv.winograd.winograd_tiles import TileTransform, Tiling
from headrace._src.compile.kernels.conv.winograd.winograd_transform import matrices, two_sided
from headrace._src.compile.kernels.images.conv_epilogue import Fused
from headrace._src.compile.kernels.images.conv_geometry import Geometry

__all__ = ["WinogradBackwardFilter"]

_RUN = 28  # tiles that a thread transforms at a time
_DEEP = 160  # tiles that are added up in registers: as many as the first-level cache holds
_ACCURATE_DEEP = 8, 32  # the same in accurate sums: at least, at most
_SHARE = 32  # direct convolution's sums are at least so many times as long as accurate ones
_PANELS = 6  # panels of a task of the product
_CHUNK = 12 << 20, 64 << 20  # bytes of V and Z: what caches may hold, what memory may cost


@dataclass(frozen=True, slots=True)
class WinogradBackwardFilter:
    """The gradient of a convolution's filter, through `epilogue`; its shape is the filter's."""

    geometry: Geometry
    m: int
    accurate: bool = False
    epilogue: Epilogue = NOTHING

    def __post_init__(self) -> None:
        input_tiling(self.geometry, self.m)

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", "dy", *self.epilogue.arguments)

    @property
    def counters(self) -> int:
        return 2 * self._chunks

    @property
    def meetings(self) -> int:
        """After each chunk's transforms, and after its products."""
        return 2 * self._chunks

    @property
    def _tiles(self) -> int:
        return input_tiling(self.geometry, self.m).count

    @property
    def _runs(self) -> int:
        """Runs of tiles in all."""
        return -(-self._tiles // _RUN)

    @property
    def _chunk_runs(self) -> int:
        """Runs of a chunk. Reading and writing dU for each chunk costs as much as the chunk's own
        memory: chunks are somewhat larger than dU, or of a size that caches hold.
        """
        g = self.geometry
        run = 4 * self._points * (g.channels + g.filters) * _RUN
        cached, most = _CHUNK
        size = min(max(cached, 6 * self._points * g.channels * g.filters), most)
        chunks = max(1, round(self._runs * run / size))
        return -(-self._runs // chunks)

    @property
    def _chunks(self) -> int:
        return -(-self._runs // self._chunk_runs)

    @property
    def _points(self) -> int:
        return (self.m + self.geometry.kernel[0] - 1) ** 2

    @property
    def _depth(self) -> int:
        """Tiles of a chunk."""
        return self._chunk_runs * _RUN

    @property
    def _deep(self) -> int:
        """Tiles that are added up in registers. Rounding errors grow with a sum's length, those of
        direct convolution too, which takes one sum over all places of all images.
        """
        if not self.accurate:
            return _DEEP
        least, most = _ACCURATE_DEEP
        return max(least, min(most, self._tiles * self.m**2 // _SHARE))

    @property
    def _planes(self) -> tuple[int, int, int]:
        """Elements of V, Z and dU for one point."""
        g = self.geometry
        return (
            g.channels * self._depth + SKEW,
            padded(g.filters, g.block) * self._depth + SKEW,
            g.channels * padded(g.filters, g.block) + SKEW,
        )

    def scratch(self, threads: int) -> int:
        return 4 * self._points * sum(self._planes)

    def emit(self, team: Team) -> None:
        _Emitter(self, team).emit()


def _gradient_tiling(geometry: Geometry, m: int) -> Tiling:
    """The tiles of the output's gradient."""
    tiles = input_tiling(geometry, m)
    return Tiling(
        geometry.batch,
        geometry.filters // geometry.block,
        geometry.out_height,
        geometry.out_width,
        tiles.rows,
        tiles.columns,
        (m, m),
        (m, m),
        0,
        0,
        geometry.block,
    )


class _Emitter:
    """Writes the kernel; holds the parts that its phases share."""

    def __init__(self, spec: WinogradBackwardFilter, team: Team) -> None:
        self.spec, self.team, self.f = spec, team, team.f
        self.matrices = matrices(spec.m, spec.geometry.kernel[0], spec.accurate)
        self.lanes, self.outer = spec.geometry.block, outer_width(spec.geometry.block)
        self.together = channels_at_once(team.target, self.lanes)
        f, points = self.f, spec._points
        self.v_plane, self.z_plane, self.u_plane = spec._planes
        self.v = team.scratch
        self.z = f.offset(self.v, points * self.v_plane)
        self.u = f.offset(self.z, points * self.z_plane)

    def emit(self) -> None:
        spec, team, f = self.spec, self.team, self.f
        g, m = spec.geometry, spec.m
        of_x, of_dy = self.matrices.input, self.matrices.output.transposed
        self.of_x = TileTransform(
            team, "input", input_tiling(g, m), (of_x, of_x), self.v_plane, _RUN
        )
        self.of_dy = TileTransform(
            team,
            "gradient",
            _gradient_tiling(g, m),
            (of_dy, of_dy),
            self.z_plane,
            _RUN,
        )
        vectors, rest = self.outer // self.lanes, g.filters % self.outer // self.lanes
        self.product = outer_function(
            team, "product", self.lanes, vectors, self.outer, self.lanes, (0, 0)
        )
        self.tail = (
            outer_function(team, "tail", self.lanes, rest, self.outer, self.lanes, (0, 0))
            if rest
            else None
        )

        def chunk(c: Reg) -> None:
            team.after(f.mul(c, 2), lambda: self._transform_chunk(c))
            team.after(f.add(f.mul(c, 2), 1), lambda: self._multiply_chunk(c))

        f.loop(0, spec._chunks, chunk)
        team.after(spec.meetings, self._finish)

    def _transform_chunk(self, chunk: Reg) -> None:
        f, spec = self.f, self.spec
        depth = spec._depth

        def run(r: Reg) -> None:
            first = f.mul(f.add(f.mul(chunk, spec._chunk_runs), r), _RUN)
            count = f.minimum(f.sub(spec._tiles, first), _RUN)
            start = f.mul(r, _RUN)
            self.of_x.run(
                self.team.args[0],
                first,
                count,
                self.v,
                lambda t: f.mul(f.add(start, t), self.lanes),
                lambda b: f.mul(b, depth * self.lanes),
            )
            self.of_dy.run(
                self.team.args[1],
                first,
                count,
                self.z,
                lambda t: f.mul(f.add(start, t), self.outer),
                lambda b: self._panel_place(f.mul(b, self.lanes), depth),
            )

        last = f.sub(spec._runs, f.mul(chunk, spec._chunk_runs))
        self.team.claim(f.mul(chunk, 2), f.minimum(last, spec._chunk_runs), run)

    def _panel_place(self, k: Operand, rows: int) -> Operand:
        """Where filter k begins in an array of panels with `rows` rows each."""
        f = self.f
        return f.add(f.mul(f.div(k, self.outer), rows * self.outer), f.rem(k, self.outer))

    def _multiply_chunk(self, chunk: Reg) -> None:
        """dU += V^T Z. A task is some panels of one point."""
        f, spec = self.f, self.spec
        panels = padded(spec.geometry.filters, self.lanes) // self.outer
        parts = -(-panels // _PANELS)
        tiles = f.minimum(f.sub(spec._tiles, f.mul(chunk, spec._depth)), spec._depth)

        def task(unit: Reg) -> None:
            point = f.div(unit, parts)
            first = f.mul(f.rem(unit, parts), _PANELS)
            last = f.minimum(f.add(first, _PANELS), panels)
            v = f.offset(self.v, f.mul(point, self.v_plane))
            z = f.offset(self.z, f.mul(point, self.z_plane))
            u = f.offset(self.u, f.mul(point, self.u_plane))

            def deep(t: Reg) -> None:
                count = f.minimum(f.sub(tiles, t), spec._deep)
                fresh = f.and_(f.icmp("eq", chunk, 0), f.icmp("eq", t, 0))
                vt, zt = f.offset(v, f.mul(t, self.lanes)), f.offset(z, f.mul(t, self.outer))
                f.loop(first, last, lambda p: self._multiply_panel(p, vt, zt, u, count, fresh))

            f.loop(0, tiles, deep, step=spec._deep)

        self.team.claim(f.add(f.mul(chunk, 2), 1), spec._points * parts, task)

    def _multiply_panel(self, p: Reg, v: Reg, z: Reg, u: Reg, count: Operand, fresh: Reg) -> None:
        f, g, depth = self.f, self.spec.geometry, self.spec._depth
        zp = f.offset(z, f.mul(p, depth * self.outer))
        up = f.offset(u, f.mul(p, g.channels * self.outer))
        new = f.convert("zext", fresh, I64)

        def multiply(product: Function) -> None:
            def channels(c: Reg) -> None:
                place = f.mul(f.div(c, self.lanes), depth * self.lanes)
                vc = f.offset(v, f.add(place, f.rem(c, self.lanes)))
                f.call_function(product, vc, zp, f.offset(up, f.mul(c, self.outer)), 1, count, new)

            f.loop(0, g.channels, channels, step=self.together)

        if self.tail is None:
            multiply(self.product)
            return
        whole, tail = f.icmp("slt", p, g.filters // self.outer), self.tail
        f.when(whole, lambda: multiply(self.product), lambda: multiply(tail))

    def _finish(self) -> None:
        """dW = G^T dU G, and the epilogue."""
        f, g = self.f, self.spec.geometry
        back = self._back_function()
        start, stop = self.team.share(g.channels)

        def channel(c: Reg) -> None:
            def vector(k: Reg) -> None:
                place = f.add(self._panel_place(k, g.channels), f.mul(c, self.outer))
                at = f.add(f.mul(c, g.filters), k)
                f.call_function(back, f.parameters[0], f.offset(self.u, place), at, k)

            f.loop(0, g.filters, vector, step=self.lanes)

        f.loop(start, stop, channel)

    def _back_function(self) -> Function:
        """(arguments, dU, offset, filter): a vector of filters of one channel, all taps."""
        f, g = self.team.helper("back", [PTR, PTR, I64, I64]), self.spec.geometry
        table, u, at, k = f.parameters
        fused = Fused(f, table, 2, self.spec.epilogue, k, self.lanes)
        matrix = self.matrices.filter.transposed
        tap = g.channels * g.filters

        def store(i: int, values: list[Reg]) -> None:
            for j, value in enumerate(values):
                fused.store(value, f.add(at, (i * matrix.outputs + j) * tap))

        def load(i: int, j: int) -> Reg:
            return f.load(F32.of(self.lanes), u, (i * matrix.inputs + j) * self.u_plane)

        two_sided(f, matrix, matrix, load, store, self.lanes, precise=self.spec.accurate)
        return f.finish()
