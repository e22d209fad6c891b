"""Packing: a matrix copied into panels that tiles of a product read in order.

In: a source and the width of a panel. Out: units of work for a team. A packed panel holds `width`
elements for k = 0, then for k = 1 and so on; panels follow each other. The last panel may have
fewer elements per k in the source; the rest of it is 0 or is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from headrace._src.compile.codegen.cache_lines import prefetch
from headrace._src.compile.codegen.emit import I64, PTR, Function, Module, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import store_value
from headrace._src.compile.codegen.register_transpose import transpose
from headrace._src.compile.kernels.gemm.gemm_memory import (
    MatrixSource,
    accumulator,
    lane_mask,
)

__all__ = ["Packing", "RowStripe", "Stripe", "panel_count", "ranges"]

LINE = 16  # elements, as many as a vector has at most


class Packing:
    """Packs `count` columns (or rows: whichever k is not) of a matrix in panels of `width`.

    `across`: k runs along the source's rows, so that squares of it are transposed; otherwise each k
    is a row of the source, which is read a good part of a row at a time.
    """

    DEPTH = 64  # how many k are one unit of work; a multiple of every vector's length
    SPAN = 2048  # how many elements of a row
    NARROW = 8  # how many panels, if several k share their cache lines

    def __init__(
        self,
        team: Team,
        name: str,
        source: MatrixSource,
        count: int,
        k: int,
        width: int,
        across: bool,
    ) -> None:
        self.f, self.source, self.count, self.k, self.width = team.f, source, count, k, width
        self.type = accumulator(source.dtype)
        self.held = "float64" if self.type.bits == 64 else "float32"
        self.lanes = team.target.lanes(self.held)
        self.panels = panel_count(count, width)
        most = 1 if across else self.NARROW if width % self.lanes else self.SPAN // width
        self.group = max(1, min(self.panels, most))
        self.depth = self.DEPTH * (4 if across else 1)
        self.parts = -(-k // self.depth)
        self.units = self.parts * -(-self.panels // self.group)
        self.function = self._write(f"{team.f.name}_pack_{name}", across)

    def run(self, unit: Operand, to: Reg, pointers: Sequence[Reg]) -> None:
        """Pack one unit of work to the packed matrix at `to`."""
        f = self.f
        part, group = f.rem(unit, self.parts), f.div(unit, self.parts)
        start, first = f.mul(part, self.depth), f.mul(group, self.group)
        stop = f.minimum(f.add(start, self.depth), self.k)
        last = f.minimum(f.add(first, self.group), self.panels)
        f.call_function(self.function, to, start, stop, first, last, *pointers)

    def part(self, first: Operand, last: Operand, to: Reg, pointers: Sequence[Reg]) -> None:
        """Pack the panels first..last, as far as there are so many, in this thread."""
        f = self.f
        last = f.minimum(last, self.panels)
        call = partial(f.call_function, self.function, to, 0, self.k, first, last, *pointers)
        f.when(f.icmp("slt", first, last), call)

    def all(self, to: Reg, pointers: Sequence[Reg]) -> None:
        """Pack the whole matrix in this thread."""
        self.f.loop(0, self.units, lambda unit: self.run(unit, to, pointers))

    def _write(self, name: str, across: bool) -> Function:
        """pack(to, start, stop, first, last, *pointers): panels first..last of k start..stop."""
        parameters = [PTR, I64, I64, I64, I64] + [PTR] * (1 + len(self.source.arguments))
        f = self.f.module.function(name, parameters)
        (self._across if across else self._along)(f)
        return f.finish()

    def _along(self, f: Function) -> None:
        to, start, stop, first, last, *pointers = f.parameters

        def row(k: Operand, exact: bool = True) -> None:
            def panel(p: Operand, valid: int) -> None:
                column = f.mul(p, self.width)
                at = f.add(f.mul(k, self.source.stride), column)
                there = f.add(f.mul(p, self.width * self.k), f.mul(k, self.width))
                for v in range(0, valid, self.lanes):
                    mask = lane_mask(f, valid - v, self.lanes)
                    value = self.source.load(
                        f, pointers, f.add(at, v), f.add(column, v), self.lanes, mask
                    )
                    room = lane_mask(f, self.width - v, self.lanes) if exact else None
                    store_value(f, self.held, value, to, f.add(there, v), mask=room)

            ranges(f, first, last, self.count, self.width, panel)

        if self.width % self.lanes and not f.target.has("avx512vl"):
            # Masked stores take dozens of cycles here. Whole vectors also write to the places of
            # the next k, which come later; behind the last k of a unit, these may be done.
            over = self.lanes - self.width % self.lanes
            exact = f.sub(stop, -(-over // self.width))
            exact = f.sub(f.add(start, exact), f.minimum(start, exact))  # the larger one
            f.loop(start, exact, lambda k: row(k, exact=False))
            f.loop(exact, stop, row)
        else:
            f.loop(start, stop, row)

    def _across(self, f: Function) -> None:
        to, start, stop, first, last, *pointers = f.parameters
        rest = self.k % self.lanes
        whole = f.and_(stop, -self.lanes) if rest else stop

        def panel(p: Operand, valid: int) -> None:
            index = f.mul(p, self.width * self.source.stride)
            there = f.mul(p, self.width * self.k)

            def square(k: Reg, v: Operand, count: int, depth: int) -> None:
                at = f.add(f.add(index, f.mul(v, self.source.stride)), k)
                rows = self._rows(f, pointers, at, k, count, depth)
                room = lane_mask(f, self.width - v, self.lanes) if isinstance(v, int) else None
                for j, value in enumerate(transpose(f, rows)[:depth]):
                    here = f.add(there, f.add(f.mul(f.add(k, j), self.width), v))
                    store_value(f, self.held, value, to, here, mask=room)

            def squares(k: Reg, depth: int) -> None:
                rest = valid % self.lanes
                wide = valid - rest
                f.loop(0, wide, lambda v: square(k, v, self.lanes, depth), step=self.lanes)
                if rest:
                    square(k, wide, rest, depth)

            f.loop(start, whole, lambda k: squares(k, self.lanes), step=self.lanes)
            if rest:
                f.when(f.icmp("slt", whole, stop), lambda: squares(whole, rest))

        ranges(f, first, last, self.count, self.width, panel)

    def _rows(
        self, f: Function, pointers: Sequence[Reg], at: Operand, k: Reg, count: int, depth: int
    ) -> list[Reg]:
        """The first `depth` elements of `count` rows, from element `at`, filled up to a square."""
        mask = lane_mask(f, depth, self.lanes)
        stride = self.source.stride
        rows = [
            self.source.load(f, pointers, f.add(at, r * stride), k, self.lanes, mask)
            for r in range(count)
        ]
        return rows + [f.const(0.0, self.type.of(self.lanes))] * (self.lanes - count)


class Stripe:
    """Copies a stripe of a matrix, `tiles` panels of `width` columns, to a thread's own buffer, as
    they are packed: data which a thread reads repeatedly is contiguous. `function` is

        stripe(number, k, depth, to, *pointers): `depth` rows, from row k on
    """

    ROWS = 8  # that are read together: lines of the source and of the panels stay in L1

    def __init__(
        self,
        team: Team,
        name: str,
        source: MatrixSource,
        columns: int,
        width: int,
        tiles: int,
        depth: int,
    ) -> None:
        self.source, self.columns, self.width, self.tiles = source, columns, width, tiles
        self.panel = self.panel_size(width, depth)
        type = accumulator(source.dtype)
        self.held = "float64" if type.bits == 64 else "float32"
        # A wider store than need be is more often across two cache lines.
        self.lanes = min(team.target.lanes(self.held), 1 << (width - 1).bit_length())
        self.function = self._write(team.f.module, f"{team.f.name}_stripe_{name}")

    @staticmethod
    def panel_size(width: int, depth: int) -> int:
        """Elements from one panel to the next. Vectors are stored whole, also behind the last row;
        and panels whose sizes are powers of two would compete for the same sets of a cache.
        """
        return width * depth + LINE

    def _write(self, module: Module, name: str) -> Function:
        f = module.function(name, [I64] * 3 + [PTR] * (2 + len(self.source.arguments)))
        number, first, depth, to, *pointers = f.parameters
        start = f.mul(number, self.tiles)
        stop = f.minimum(f.add(start, self.tiles), panel_count(self.columns, self.width))

        def rows(k: Reg, count: int) -> None:
            def panel(p: Operand, valid: int) -> None:
                column = f.mul(p, self.width)
                at = f.add(f.mul(f.add(first, k), self.source.stride), column)
                there = f.add(f.mul(f.sub(p, start), self.panel), f.mul(k, self.width))
                for r in range(count):
                    for v in range(0, valid, self.lanes):
                        value = self.source.load(
                            f, pointers, f.add(at, r * self.source.stride + v), f.add(column, v),
                            self.lanes, lane_mask(f, valid - v, self.lanes),
                        )  # fmt: skip
                        store_value(f, self.held, value, to, f.add(there, r * self.width + v))

            ranges(f, start, stop, self.columns, self.width, panel)

        whole = f.and_(depth, -self.ROWS)
        f.loop(0, whole, lambda k: rows(k, self.ROWS), step=self.ROWS)
        f.loop(whole, depth, lambda k: rows(k, 1))
        return f.finish()


class RowStripe:
    """Copies `height` rows of a matrix, some columns of them, to a thread's own buffer, where they
    are `stride` apart. `function` is

        stripe(number, k, depth, to, *pointers): `depth` columns, from column k on
    """

    def __init__(
        self,
        team: Team,
        name: str,
        source: MatrixSource,
        shape: tuple[int, int],
        height: int,
        depth: int,
    ) -> None:
        self.source, self.height, self.depth = source, height, depth
        self.rows, self.columns = shape
        self.held = "float64" if accumulator(source.dtype).bits == 64 else "float32"
        self.lanes = team.target.lanes(self.held)
        self.function = self._write(team.f.module, f"{team.f.name}_stripe_{name}")

    @staticmethod
    def stride(depth: int) -> int:
        """Elements from one row to the next: whole vectors, and no power of two, since such rows
        would compete for the same sets of a cache.
        """
        return -(-depth // LINE) * LINE + LINE

    def _write(self, module: Module, name: str) -> Function:
        f = module.function(name, [I64] * 3 + [PTR] * (2 + len(self.source.arguments)))
        number, k, depth, to, *pointers = f.parameters
        start = f.mul(number, self.height)
        stop = f.minimum(f.add(start, self.height), self.rows)
        rest = self.columns % self.lanes  # of the last columns: all others fill vectors
        whole = f.and_(depth, -self.lanes)
        type = accumulator(self.source.dtype)

        def row(r: Reg) -> None:
            at = f.add(f.mul(r, self.source.stride), k)
            there = f.mul(f.sub(r, start), self.stride(self.depth))

            def vector(i: Reg, mask: Reg | None = None) -> None:
                column, here = f.add(k, i), f.add(at, i)
                # Rows are often pages apart: the processor doesn't foresee the next one.
                below = f.offset(pointers[0], f.add(here, self.source.stride), type)
                prefetch(f, below, next=True)
                value = self.source.load(f, pointers, here, column, self.lanes, mask)
                store_value(f, self.held, value, to, f.add(there, i))

            f.loop(0, whole, vector, step=self.lanes)
            if rest:
                mask = lane_mask(f, rest, self.lanes)
                f.when(f.icmp("slt", whole, depth), lambda: vector(whole, mask))

        f.loop(start, stop, row)
        return f.finish()


def panel_count(count: int, width: int) -> int:
    """How many panels cover `count` columns."""
    return -(-count // width)


def ranges(
    f: Function,
    start: Operand,
    stop: Operand,
    total: int,
    size: int,
    body: Callable[[Operand, int], None],
) -> None:
    """body(i, size) for the units start..stop of `total` elements; the last unit may be short."""
    whole, rest = divmod(total, size)
    if whole:
        f.loop(start, f.minimum(stop, whole), lambda i: body(i, size))
    if rest:
        f.when(f.icmp("sgt", stop, whole), lambda: body(whole, rest))
