"""Convolutions of 1 x 1 on blocked images: matrix products of pixels and filters.

The filter [C, K] is first packed into `Panels` by all threads. A task is a run
of pixels of one image; it goes through the panels, and for each through the pixels, a few at once
in registers. The filter's gradient needs no packing: the blocked images of both sides are the
panels that it wants.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import F32, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.conv.conv_product import (
    Panels,
    channels_at_once,
    emit_product,
    outer_function,
    outer_width,
    padded,
)
from headrace._src.compile.kernels.conv.conv_transpose import transpose_function
from headrace._src.compile.kernels.images.conv_epilogue import Fused
from headrace._src.compile.kernels.images.conv_geometry import Geometry

__all__ = ["Conv1x1", "Conv1x1BackwardFilter"]

_RUN = 112  # pixels of a task, about
_DEEP = 200  # pixels that are added up in registers: as many as the first-level cache holds
_SLICE = 256  # channels and filters whose sums a core's second-level cache holds


def _check(g: Geometry) -> None:
    if g.kernel != (1, 1) or not g.dense or not g.blocked or g.pads != ((0, 0), (0, 0)):
        raise ValueError(f"not a convolution of 1 x 1 on blocked images: {g}")


@dataclass(frozen=True, slots=True)
class Conv1x1:
    """y = epilogue(x w), pixel by pixel. Arguments: x, w, the epilogue's.

    `transposed`: w is [filters, channels] instead of [channels, filters]; so the same kernel gives
    the input's gradient, for the geometry's `backward_data()`.
    """

    geometry: Geometry
    epilogue: Epilogue = NOTHING
    transposed: bool = False

    counters = 1
    meetings = 1

    def __post_init__(self) -> None:
        _check(self.geometry)

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", "w", *self.epilogue.arguments)

    def scratch(self, threads: int) -> int:
        return 4 * self.geometry.channels * self.geometry.filters

    @property
    def _pixels(self) -> int:
        """Pixels of an image."""
        return self.geometry.height * self.geometry.width

    def emit(self, team: Team) -> None:
        _Product(self, team).emit()


class _Product:
    """Writes `Conv1x1`."""

    def __init__(self, spec: Conv1x1, team: Team) -> None:
        self.spec, self.team, self.f = spec, team, team.f
        g = spec.geometry
        self.channels, self.filters, self.pixels = g.channels, g.filters, spec._pixels
        self.lanes = g.block
        self.panels = Panels.on(team.target, g.channels, g.filters, g.block)
        self.together = _group(self.pixels, self.panels.pixels)
        groups = -(-self.pixels // self.together)
        runs = max(1, round(self.pixels / _RUN))
        self.run = -(-groups // runs) * self.together  # pixels of a task
        self.runs = -(-self.pixels // self.run)

    def emit(self) -> None:
        team, f = self.team, self.f
        team.after(0, self._pack)
        whole, width = self.panels.whole, self.panels.width
        panels = self._panel_functions("panel", width) if whole else ()
        tail = self._panel_functions("tail", self.panels.tail) if self.panels.tail else ()

        def task(i: Reg) -> None:
            image, first = f.div(i, self.runs), f.mul(f.rem(i, self.runs), self.run)
            x = f.mul(image, self.channels // self.lanes * self.pixels)
            y = f.mul(image, self.filters // self.lanes * self.pixels)
            f.loop(0, whole, lambda k: self._panel(panels, x, y, first, k), step=width)
            if tail:
                self._panel(tail, x, y, first, whole)

        team.after(1, lambda: team.claim(0, self.spec.geometry.batch * self.runs, task))

    def _panel(
        self, functions: tuple[Function, ...], x: Operand, y: Operand, first: Operand, k: Operand
    ) -> None:
        """The pixels of a run from `first` on; those of the image's first channels are x and y."""
        f = self.f

        def call(function: Function, pixel: Operand) -> None:
            offsets = (f.mul(f.add(start, pixel), self.lanes) for start in (x, y))
            f.call_function(function, f.parameters[0], self.team.scratch, *offsets, k)

        end = f.minimum(f.add(first, self.run), self.pixels)
        whole = f.sub(end, self.together - 1)
        f.loop(first, whole, lambda p: call(functions[0], p), step=self.together)
        if len(functions) > 1:
            rest = self.pixels - self.pixels % self.together
            f.when(f.icmp("eq", end, self.pixels), lambda: call(functions[1], rest))

    def _panel_functions(self, name: str, width: int) -> tuple[Function, ...]:
        """The product with a panel for a group of pixels and, if needed, for what is left."""
        rest = self.pixels % self.together
        functions = [self._function(name, self.together, width)]
        return (*functions, *([self._function(f"{name}_rest", rest, width)] if rest else []))

    def _function(self, name: str, pixels: int, width: int) -> Function:
        """(arguments, panels, offset in x, offset in y, filter): a few pixels times a panel."""
        f = self.team.helper(name, [PTR, PTR, I64, I64, I64])
        table, w, x, y, k = f.parameters
        vectors, plane = width // self.lanes, self.pixels * self.lanes
        base = f.add(y, f.mul(f.div(k, self.lanes), plane))
        planes = [f.add(base, v * plane) for v in range(vectors)]
        fused = [
            Fused(f, table, 2, self.spec.epilogue, f.add(k, v * self.lanes), self.lanes)
            for v in range(vectors)
        ]
        for v in range(vectors):
            fused[v].prefetch(planes[v], pixels * self.lanes)
        sums = emit_product(
            f,
            f.offset(f.load(PTR, table), x),
            f.offset(w, f.mul(k, self.channels)),
            pixels=pixels,
            vectors=vectors,
            lanes=self.lanes,
            blocks=self.channels // self.lanes,
            a_block=plane,
            b_row=width,
        )
        for v in range(vectors):
            for p in range(pixels):
                fused[v].store(sums[p * vectors + v], f.add(planes[v], p * self.lanes))
        return f.finish()

    def _pack(self) -> None:
        """The filter in panels. Both ways read it along its rows, which may be pages apart."""
        if self.spec.transposed:
            self._pack_transposed()
            return
        f, w = self.f, self.team.args[1]

        def rows(c: Reg) -> None:
            def columns(k: Reg) -> None:
                into = f.offset(self.team.scratch, self.panels.place(f, c, k))
                pitch = self.panels.pitch(f, k)
                source = f.offset(w, f.add(f.mul(c, self.filters), k))
                for i in range(self.lanes):
                    row = f.load(F32.of(self.lanes), source, i * self.filters)
                    f.store(row, into, f.mul(pitch, i))

            f.loop(0, self.filters, columns, step=self.lanes)

        f.loop(*self.team.share(self.channels, self.lanes), rows, step=self.lanes)

    def _pack_transposed(self) -> None:
        f, w = self.f, self.team.args[1]
        turn = transpose_function(self.team, self.channels, self.lanes)

        def columns(k: Reg) -> None:
            pitch = self.panels.pitch(f, k)

            def rows(c: Reg) -> None:
                into = f.offset(self.team.scratch, self.panels.place(f, c, k))
                f.call_function(turn, f.offset(w, f.add(f.mul(k, self.channels), c)), into, pitch)

            f.loop(0, self.channels, rows, step=self.lanes)

        f.loop(*self.team.share(self.filters, self.lanes), columns, step=self.lanes)


def _group(count: int, limit: int) -> int:
    """A group size up to `limit` for `count` pixels: each group costs a little on top of its own
    pixels, the smaller one at the end as well.
    """
    return min(range(1, min(limit, count) + 1), key=lambda size: count + 1.5 * -(-count // size))


# -- The filter's gradient -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conv1x1BackwardFilter:
    """dw = epilogue(x^T dy), summed over all pixels, [channels, filters]."""

    geometry: Geometry
    epilogue: Epilogue = NOTHING

    counters = 1

    def __post_init__(self) -> None:
        _check(self.geometry)

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", "dy", *self.epilogue.arguments)

    def scratch(self, threads: int) -> int:
        return 4 * self.geometry.channels * padded(self.geometry.filters, self.geometry.block)

    def emit(self, team: Team) -> None:
        _FilterGradient(self, team).emit()


class _FilterGradient:
    """Writes `Conv1x1BackwardFilter`. A task is a slice of the result: it stays in the second-level
    cache while all pixels, a few at a time, are added to it.
    """

    def __init__(self, spec: Conv1x1BackwardFilter, team: Team) -> None:
        self.spec, self.team, self.f = spec, team, team.f
        g = spec.geometry
        self.channels, self.filters = g.channels, g.filters
        self.lanes, self.outer = g.block, outer_width(g.block)
        self.plane = g.height * g.width * g.block
        self.together = channels_at_once(team.target, g.block)
        self.slice = _slices(self.channels, self.filters, g.block)

    def emit(self) -> None:
        f, team = self.f, self.team
        layout = (self.lanes, self.plane, self._jumps())
        rest = self.filters % self.outer // self.lanes
        self.product = outer_function(
            team, "product", self.lanes, self.outer // self.lanes, *layout
        )
        self.tail = outer_function(team, "tail", self.lanes, rest, *layout) if rest else None
        tall, wide = self.slice
        columns = -(-self.filters // wide)

        def task(i: Reg) -> None:
            c, k = f.mul(f.div(i, columns), tall), f.mul(f.rem(i, columns), wide)
            end_c = f.minimum(f.add(c, tall), self.channels)
            end_k = f.minimum(f.add(k, wide), self.filters)
            self._sum((c, end_c, k, end_k))
            self._store((c, end_c, k, end_k))

        team.claim(0, -(-self.channels // tall) * columns, task)

    def _sum(self, part: tuple[Operand, ...]) -> None:
        """Add up a slice over all pixels, as many at once as the first-level cache holds."""
        f, g = self.f, self.spec.geometry
        pixels = g.height * g.width
        piece = -(-pixels // -(-pixels // _DEEP))
        images = max(1, _DEEP // pixels)
        jumps = self._jumps()

        def some(n: Reg) -> None:
            count = f.minimum(f.sub(g.batch, n), images)
            arrays = [f.offset(a, f.mul(n, j)) for a, j in zip(self.team.args, jumps, strict=False)]

            def deep(p: Reg) -> None:
                first = f.and_(f.icmp("eq", n, 0), f.icmp("eq", p, 0))
                x, dy = (f.offset(a, f.mul(p, self.lanes)) for a in arrays)
                sizes = (count, f.minimum(f.sub(pixels, p), piece))
                self._products(x, dy, part, (*sizes, f.convert("zext", first, I64)))

            f.loop(0, pixels, deep, step=piece)

        f.loop(0, g.batch, some, step=images)

    def _jumps(self) -> tuple[int, int]:
        """Elements between images of x and dy."""
        return self.channels // self.lanes * self.plane, self.filters // self.lanes * self.plane

    def _products(
        self, x: Reg, dy: Reg, part: tuple[Operand, ...], sizes: tuple[Operand, ...]
    ) -> None:
        """Add the products of some pixels to a part of the sums."""
        f, (c, end_c, k, end_k) = self.f, part

        def panel(k: Operand, product: Function) -> None:
            column = f.offset(dy, f.mul(f.div(k, self.lanes), self.plane))
            sums = f.offset(self.team.scratch, f.mul(k, self.channels))

            def channels(c: Reg) -> None:
                row = f.add(f.mul(f.div(c, self.lanes), self.plane), f.rem(c, self.lanes))
                into = f.offset(sums, f.mul(c, self.outer))
                f.call_function(product, f.offset(x, row), column, into, *sizes)

            f.loop(c, end_c, channels, step=self.together)

        whole = self.filters // self.outer * self.outer
        tail = self.tail
        if tail is None:
            f.loop(k, end_k, lambda k: panel(k, self.product), step=self.outer)
            return
        f.loop(k, f.minimum(end_k, whole), lambda k: panel(k, self.product), step=self.outer)
        f.when(f.icmp("eq", f.reg(end_k), self.filters), lambda: panel(whole, tail))

    def _store(self, part: tuple[Operand, ...]) -> None:
        f, (c, end_c, k, end_k) = self.f, part

        def column(k: Reg) -> None:
            fused = Fused(f, f.parameters[0], 2, self.spec.epilogue, k, self.lanes)
            panel = f.mul(f.div(k, self.outer), self.channels * self.outer)
            sums = f.offset(self.team.scratch, f.add(panel, f.rem(k, self.outer)))

            def row(c: Reg) -> None:
                total = f.load(F32.of(self.lanes), sums, f.mul(c, self.outer))
                fused.store(total, f.add(f.mul(c, self.filters), k))

            f.loop(c, end_c, row)

        f.loop(k, end_k, column, step=self.lanes)


def _slices(channels: int, filters: int, lanes: int) -> tuple[int, int]:
    """Channels and filters of a task: what the cache holds, but four tasks where that can be."""
    outer = outer_width(lanes)
    tall, wide = min(_SLICE, channels), min(_SLICE // outer * outer, padded(filters, lanes))
    while -(-channels // tall) * -(-filters // wide) < 4 and max(tall, wide) > outer:
        if tall >= wide:
            tall = -(-tall // 2 // lanes) * lanes
        else:
            wide = -(-wide // 2 // outer) * outer
    return tall, wide
