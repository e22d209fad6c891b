"""Blocks of a matrix product. In: the places of A, B and the results. Out: code that multiplies.

A block is some tiles down and some panels across. For one stretch of k after the other it is swept
panel by panel, and each panel tile by tile: a panel of B stays in the first-level cache, the
block's part of A and its sums in the second. Meanwhile the next panel of B is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace._src.compile.codegen.emit import Function, Operand, Reg, Type
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.gemm.gemm_memory import Sink
from headrace._src.compile.kernels.gemm.gemm_pack import panel_count, ranges
from headrace._src.compile.kernels.gemm.gemm_tile import Tile, TileWriter

__all__ = ["Ahead", "Blocking", "Left", "Right", "Sweep"]

TOGETHER = 8  # panels that are packed when the first of them is needed: rows come in whole lines


@dataclass(frozen=True)
class Blocking:
    """Sizes of a product and of its parts: the register tile is `rows` x `columns`, a stretch of k
    is `depth`, a block has `tiles` down and `panels` across.
    """

    m: int
    n: int
    k: int
    rows: int
    columns: int
    depth: int
    tiles: int
    panels: int

    @property
    def split(self) -> bool:
        """Whether k has several stretches."""
        return self.k > self.depth

    @property
    def down(self) -> int:
        """How many blocks there are down."""
        return -(-panel_count(self.m, self.rows) // self.tiles)

    @property
    def across(self) -> int:
        return -(-panel_count(self.n, self.columns) // self.panels)

    @property
    def packed_a(self) -> int:
        """Elements of a packed A."""
        return panel_count(self.m, self.rows) * self.rows * self.k

    @property
    def packed_b(self) -> int:
        return panel_count(self.n, self.columns) * self.columns * self.k

    @property
    def sums(self) -> int:
        """Elements of the sums that a thread keeps."""
        count = self.tiles * self.panels if self.split else 1
        return count * self.rows * self.columns


@dataclass(frozen=True)
class Left:
    """A: packed (`stride` 0), or stored in rows `stride` apart, possibly transposed.

    `copy(down, k, depth)` brings a block's stretch to `pointer` before it's multiplied, if that has
    room for no more; its tiles are `tile` elements apart.
    """

    pointer: Reg
    stride: int = 0
    transposed: bool = False
    copy: Callable[[Operand, Reg, Operand], None] | None = None
    tile: int = 0

    def steps(self, size: Blocking) -> tuple[int, int]:
        """Elements from one k to the next, and from one row to the next."""
        if not self.stride:
            return size.rows, 1
        return (self.stride, 1) if self.transposed else (1, self.stride)

    def at(
        self, f: Function, type: Type, size: Blocking, t: Operand, k: Operand, t0: Operand
    ) -> Reg:
        """Where tile t begins for k, in a block that begins with tile t0."""
        step, row = self.steps(size)
        if self.copy is not None:
            return f.offset(self.pointer, f.mul(f.sub(t, t0), self.tile), type)
        tile = size.rows * (row if self.stride else size.k)
        return f.offset(self.pointer, f.add(f.mul(t, tile), f.mul(k, step)), type)


@dataclass(frozen=True)
class Right:
    """B: packed (`stride` 0), or stored in rows `stride` apart, prefetched `look` ahead and passed
    through a prologue.

    `copy(k, depth, column, columns)` brings a stretch of a panel to `pointer` before it's
    multiplied, if that has room for no more. `pack(first, last, k, depth)` packs a stretch of some
    panels, before the first blocks read them.
    """

    pointer: Reg
    stride: int = 0
    look: int = 0
    prologue: Epilogue | None = None
    copy: Callable[[Operand, Operand, Operand, int], None] | None = None
    pack: Callable[[Operand, Operand, Operand, Operand], None] | None = None

    def at(self, f: Function, type: Type, size: Blocking, p: Operand, k: Operand) -> Reg:
        """Where panel p begins for k."""
        if self.copy is not None:
            return self.pointer
        panel = size.columns if self.stride else size.columns * size.k
        step = self.stride or size.columns
        return f.offset(self.pointer, f.add(f.mul(p, panel), f.mul(k, step)), type)


@dataclass(frozen=True)
class Ahead:
    """What is read after a block's stretch of k, and prefetched while it's multiplied: so many rows
    of a matrix. `fetch(down, k, row)` is for one of them, where the stretch ends at `k`.
    """

    rows: int
    fetch: Callable[[Operand, Operand, Operand], None]


class Sweep:
    """Writes the code of a product's blocks into a function."""

    def __init__(self, f: Function, type: Type, size: Blocking, sink: Sink) -> None:
        self.f, self.type, self.size, self.sink = f, type, size, sink
        self.writer = TileWriter(f.module, f.name, sink)

    def block(
        self,
        left: Left,
        right: Right,
        results: Sequence[Reg],
        sums: Reg,
        down: Operand,
        across: Operand,
        ahead: Ahead | None = None,
    ) -> None:
        """Multiply one block; `sums` is room for a thread's sums, `results` are the sink's."""
        f, size = self.f, self.size
        t0, p0 = f.mul(down, size.tiles), f.mul(across, size.panels)
        t1 = f.minimum(f.add(t0, size.tiles), panel_count(size.m, size.rows))
        p1 = f.minimum(f.add(p0, size.panels), panel_count(size.n, size.columns))
        in_place = right.stride or right.copy is not None
        rate = 0 if in_place else -(-size.columns // size.tiles)

        def stretch(k: Reg) -> None:
            depth = f.minimum(f.sub(size.k, k), size.depth)
            first = f.icmp("eq", k, 0)
            last = f.icmp("sge", f.add(k, size.depth), size.k)
            if left.copy is not None:
                left.copy(down, k, depth)

            def sweep(p: Operand, columns: int) -> None:
                column = f.mul(p, size.columns)
                if right.copy is not None:
                    right.copy(k, depth, column, columns)
                if right.pack is not None:
                    self._pack(right.pack, down, p, p0, p1, k, depth)
                b = right.at(f, self.type, size, p, k)
                following = self._after(right, p, p0, p1, k)

                def tile(t: Operand, rows: int) -> None:
                    done = f.sub(t, t0)
                    count = f.add(f.mul(f.sub(p, p0), size.tiles), done)
                    held = f.mul(count, size.rows * size.columns) if size.split else 0
                    index = f.add(f.mul(t, size.rows * self.sink.stride), column)
                    panel = f.mul(f.mul(done, rate), depth)
                    if ahead is not None:
                        self._fetch(ahead, count, down, f.add(k, size.depth))
                    f.call_function(
                        self._tile(left, right, rows, columns, rate),
                        left.at(f, self.type, size, t, k, t0), b, depth,
                        f.offset(sums, held, self.type), first, last, index, column,
                        f.offset(following, panel, self.type), *results,
                    )  # fmt: skip

                ranges(f, t0, t1, size.m, size.rows, tile)

            ranges(f, p0, p1, size.n, size.columns, sweep)

        f.loop(0, size.k, stretch, step=size.depth)

    def _pack(
        self,
        pack: Callable[[Operand, Operand, Operand, Operand], None],
        down: Operand,
        p: Operand,
        p0: Operand,
        p1: Operand,
        k: Operand,
        depth: Operand,
    ) -> None:
        """In the first of the blocks below each other, pack the next few panels."""
        f = self.f
        is_first = f.icmp("eq", f.or_(down, f.rem(f.sub(p, p0), TOGETHER)), 0)
        last = f.minimum(f.add(p, TOGETHER), p1)
        f.when(is_first, lambda: pack(p, last, k, depth))

    def _fetch(self, ahead: Ahead, count: Operand, down: Operand, k: Operand) -> None:
        """Before tile number `count` of a stretch, prefetch its share of the rows."""
        f, size = self.f, self.size
        share = -(-ahead.rows // (size.tiles * size.panels))
        first = f.mul(count, share)

        def fetch() -> None:
            for r in range(share):
                ahead.fetch(down, k, f.add(first, r))

        f.when(f.icmp("slt", first, ahead.rows), fetch)

    def _after(self, right: Right, p: Operand, p0: Operand, p1: Operand, k: Reg) -> Reg:
        """The panel of B that is swept after panel p: in the next stretch of k after the last."""
        f = self.f
        after = f.add(p, 1)
        more = f.icmp("slt", after, p1)
        onward = f.select(more, k, f.add(k, self.size.depth))
        return right.at(f, self.type, self.size, f.select(more, after, p0), onward)

    def _tile(self, left: Left, right: Right, rows: int, columns: int, rate: int) -> Function:
        """The function of a tile; rows and columns may be a remainder."""
        size = self.size
        a, a_row = left.steps(size)
        tile = Tile(
            self.type, rows, columns, a, a_row, right.stride or size.columns,
            b_padded=not right.stride, split=size.split, ahead=rate, look=right.look,
            prologue=right.prologue,
        )  # fmt: skip
        return self.writer.tile(tile)
