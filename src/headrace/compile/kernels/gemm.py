"""Matrix products: C = epilogue(op(A) op(B)) for row-major matrices of any size.

A and B are packed into panels (shared by all threads), then blocks of the product are claimed. A
block is swept panel by panel and tile by tile, for one stretch of the common dimension after the
other; its sums stay in the core's own cache in between. What need not be packed is read in place
(`a` or `b` = "direct"), and B may come packed already ("packed", by `PackB`), so that a matrix that
serves many products is packed once.

`rows` x `columns` is the register tile, `depth` the stretch of k, `tiles` and `panels` are how many
tiles a block has down and across: `gemm` chooses them. `look` is how far ahead rows of a B that is
read in place are prefetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.compile.emit import Function, Operand, Reg
from headrace.compile.epilogue import Epilogue
from headrace.compile.kernel import Team
from headrace.compile.kernels.gemm_memory import Sink, Source, accumulator
from headrace.compile.kernels.gemm_pack import Packing, panel_count, ranges
from headrace.compile.kernels.gemm_tile import Tile, TileWriter, best_tile
from headrace.compile.target import Target, host
from headrace.graph.pointwise import Pointwise

__all__ = ["Gemm", "PackB", "gemm", "nothing"]

BLOCK_ROWS, BLOCK_COLUMNS = 128, 384  # so that a block's A, sums and panels of B fit in L2
BLOCKS = 8  # at least so many, for the threads
LINE = 64


def nothing(dtype: str) -> Epilogue:
    """The epilogue that stores the product as it is."""
    return Epilogue(Pointwise((dtype,), (), (0,)))


@dataclass(frozen=True)
class Gemm:
    """C[m,n] = epilogue(op(A)[m,k] op(B)[k,n]). A transposed operand is stored the other way round.

    Arguments: a, its prologue's operands, b, its prologue's operands, the epilogue's operands, its
    outputs.
    """

    m: int
    n: int
    k: int
    transpose_a: bool
    transpose_b: bool
    dtype: str
    epilogue: Epilogue
    rows: int
    columns: int
    depth: int
    tiles: int
    panels: int
    a: str = "pack"
    b: str = "pack"
    prologue_a: Epilogue | None = None
    prologue_b: Epilogue | None = None
    look: int = 0

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise ValueError(f"an empty matrix product: {self.m} x {self.n} x {self.k}")
        if self.depth % 16 and self.depth < self.k:
            raise ValueError(f"depth must be a multiple of 16, not {self.depth}")
        changed = self.dtype == "bfloat16"
        if self.a == "direct" and (self.prologue_a is not None or changed):
            raise ValueError("A is changed as it is packed: it can't be read in place")
        if self.b == "direct" and (self.prologue_b is not None or changed or self.transpose_b):
            raise ValueError("B is changed as it is packed: it can't be read in place")
        if self.b == "packed" and (self.prologue_b is not None or self.transpose_b):
            raise ValueError("a packed B can't be changed or transposed any more")
        accumulator(self.dtype)

    @property
    def arguments(self) -> tuple[str, ...]:
        first = [f"a_{name}" for name in self._source_a.arguments]
        second = [f"b_{name}" for name in self._source_b.arguments]
        return ("a", *first, "b", *second, *self.epilogue.arguments)

    counters = 2

    def scratch(self, threads: int) -> int:
        return self._sums_at + threads * self._sums_size

    # -- Sizes -----------------------------------------------------------------------------------

    @property
    def _source_a(self) -> Source:
        return Source(self.dtype, self.m if self.transpose_a else self.k, self.prologue_a)

    @property
    def _source_b(self) -> Source:
        return Source(self.dtype, self.k if self.transpose_b else self.n, self.prologue_b)

    @property
    def _width(self) -> int:
        """Bytes of an accumulated element."""
        return accumulator(self.dtype).bits // 8

    @property
    def _split(self) -> bool:
        return self.k > self.depth

    @property
    def _b_at(self) -> int:
        """Where in scratch packed panels of B begin, in bytes; those of A come first."""
        return (
            _lines(panel_count(self.m, self.rows) * self.k * self.rows * self._width)
            if self.a == "pack"
            else 0
        )

    @property
    def _sums_at(self) -> int:
        size = _packed_size(self.n, self.k, self.columns) * self._width
        return self._b_at + (_lines(size) if self.b == "pack" else 0)

    @property
    def _sums_size(self) -> int:
        count = self.tiles * self.panels if self._split else 1
        return _lines(count * self.rows * self.columns * self._width)

    # -- Code ------------------------------------------------------------------------------------

    def emit(self, team: Team) -> None:
        _Writer(self, team).write()


@dataclass(frozen=True)
class PackB:
    """B in the panels that a `Gemm` with b="packed" reads. Arguments: b, packed."""

    n: int
    k: int
    transpose_b: bool
    dtype: str
    columns: int

    arguments = ("b", "out:packed")
    counters = 1

    @property
    def packed_bytes(self) -> int:
        """How much memory the packed matrix takes."""
        return _packed_size(self.n, self.k, self.columns) * accumulator(self.dtype).bits // 8

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        source = Source(self.dtype, self.k if self.transpose_b else self.n)
        b, packed = team.args
        pack = Packing(team, "b", source, self.n, self.k, self.columns, self.transpose_b)
        team.claim(0, pack.units, lambda i: pack.run(i, packed, [b]))


def _packed_size(n: int, k: int, columns: int) -> int:
    return panel_count(n, columns) * columns * k


def _lines(size: int) -> int:
    """Bytes, rounded up to whole cache lines."""
    return -(-size // LINE) * LINE


class _Writer:
    """Writes the code of one `Gemm`."""

    def __init__(self, spec: Gemm, team: Team) -> None:
        self.spec, self.team, self.f = spec, team, team.f
        self.type = accumulator(spec.dtype)
        first = 1 + len(spec._source_a.arguments)
        second = first + 1 + len(spec._source_b.arguments)
        self.a, self.b = team.args[:first], team.args[first:second]
        self.results = team.args[second:]
        self.sink = Sink(spec.epilogue, spec.n)

    def write(self) -> None:
        """Pack, meet, multiply."""
        spec, f, team = self.spec, self.f, self.team
        packings = []
        if spec.a == "pack":
            tiles = Packing(
                team, "a", spec._source_a, spec.m, spec.k, spec.rows, not spec.transpose_a
            )
            packings.append((tiles, team.scratch, self.a))
            self.a = [team.scratch]
        if spec.b == "pack":
            there = self._scratch(spec._b_at)
            panels = Packing(
                team, "b", spec._source_b, spec.n, spec.k, spec.columns, spec.transpose_b
            )
            packings.append((panels, there, self.b))
            self.b = [there]
        self._pack(packings)
        own = f.add(spec._sums_at, f.mul(team.thread, spec._sums_size))
        self.sums = self._scratch(own)
        down = -(-self._tiles_all // spec.tiles)
        across = -(-self._panels_all // spec.panels)
        team.claim(1, down * across, lambda i: self._block(f.rem(i, down), f.div(i, down)))

    def _scratch(self, at: Operand) -> Reg:
        size = self.spec._width
        return self.f.offset(self.team.scratch, self.f.div(at, size), self.type)

    def _pack(self, packings: list[tuple[Packing, Reg, list[Reg]]]) -> None:
        if not packings:
            return
        f, first = self.f, packings[0]

        def unit(i: Reg) -> None:
            if len(packings) == 1:
                first[0].run(i, *first[1:])
                return
            split, second = first[0].units, packings[1]
            f.when(
                f.icmp("slt", i, split),
                lambda: first[0].run(i, *first[1:]),
                lambda: second[0].run(f.sub(i, split), *second[1:]),
            )

        self.team.claim(0, sum(p[0].units for p in packings), unit)
        self.team.barrier()

    # -- Multiplying -----------------------------------------------------------------------------

    @cached_property
    def _tiles_all(self) -> int:
        return panel_count(self.spec.m, self.spec.rows)

    @cached_property
    def _panels_all(self) -> int:
        return panel_count(self.spec.n, self.spec.columns)

    @cached_property
    def _writer(self) -> TileWriter:
        return TileWriter(self.f.module, self.f.name, self.sink)

    def _tile(self, rows: int, columns: int) -> Function:
        """The function of a tile of a size; rows and columns may be a remainder."""
        spec = self.spec
        if spec.a == "pack":
            a, a_row = spec.rows, 1
        else:
            a, a_row = (spec.m, 1) if spec.transpose_a else (1, spec.k)
        direct = spec.b == "direct"
        tile = Tile(
            self.type, rows, columns, a, a_row, spec.n if direct else spec.columns,
            b_padded=not direct, split=spec._split, look=spec.look, ahead=self._ahead,
        )  # fmt: skip
        return self._writer.tile(tile)

    def _block(self, down: Operand, across: Operand) -> None:
        """One block of the product, complete."""
        f, spec = self.f, self.spec
        t0, p0 = f.mul(down, spec.tiles), f.mul(across, spec.panels)
        t1 = f.minimum(f.add(t0, spec.tiles), self._tiles_all)
        p1 = f.minimum(f.add(p0, spec.panels), self._panels_all)

        def stretch(k: Reg) -> None:
            depth = f.minimum(f.sub(spec.k, k), spec.depth)
            first = f.icmp("eq", k, 0)
            last = f.icmp("sge", f.add(k, spec.depth), spec.k)

            def sweep(p: Operand, columns: int) -> None:
                following = self._b_after(p, p0, p1, k)

                def one(t: Operand, rows: int) -> None:
                    done = f.sub(t, t0)
                    count = f.add(f.mul(f.sub(p, p0), spec.tiles), done)
                    held = f.mul(count, spec.rows * spec.columns) if spec._split else 0
                    index = f.add(f.mul(t, spec.rows * spec.n), f.mul(p, spec.columns))
                    ahead = f.mul(f.mul(done, self._ahead), depth)
                    f.call_function(
                        self._tile(rows, columns), self._a_at(t, k), self._b_at(p, k), depth,
                        f.offset(self.sums, held, self.type), first, last, index,
                        f.mul(p, spec.columns), f.offset(following, ahead, self.type),
                        *self.results,
                    )  # fmt: skip

                ranges(f, t0, t1, spec.m, spec.rows, one)

            ranges(f, p0, p1, spec.n, spec.columns, sweep)

        f.loop(0, spec.k, stretch, step=spec.depth)

    def _a_at(self, t: Operand, k: Reg) -> Reg:
        f, spec = self.f, self.spec
        if spec.a == "pack":
            at = f.add(f.mul(t, spec.rows * spec.k), f.mul(k, spec.rows))
        elif spec.transpose_a:
            at = f.add(f.mul(k, spec.m), f.mul(t, spec.rows))
        else:
            at = f.add(f.mul(t, spec.rows * spec.k), k)
        return f.offset(self.a[0], at, self.type)

    @cached_property
    def _ahead(self) -> int:
        """Elements per k that a tile prefetches, so that a sweep fetches the next panel of B."""
        return 0 if self.spec.b == "direct" else -(-self.spec.columns // self.spec.tiles)

    def _b_after(self, p: Operand, p0: Operand, p1: Operand, k: Reg) -> Reg:
        """The panel of B that is swept after panel p: in the next stretch of k after the last."""
        f = self.f
        after = f.add(p, 1)
        more = f.icmp("slt", after, p1)
        onward = f.select(more, k, f.add(k, self.spec.depth))
        return self._b_at(f.select(more, after, p0), onward)

    def _b_at(self, p: Operand, k: Reg) -> Reg:
        f, spec = self.f, self.spec
        if spec.b == "direct":
            at = f.add(f.mul(k, spec.n), f.mul(p, spec.columns))
        else:
            at = f.add(f.mul(p, spec.columns * spec.k), f.mul(k, spec.columns))
        return f.offset(self.b[0], at, self.type)


def gemm(
    m: int,
    n: int,
    k: int,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: str = "float32",
    epilogue: Epilogue | None = None,
    *,
    a: str = "pack",
    b: str = "pack",
    prologue_a: Epilogue | None = None,
    prologue_b: Epilogue | None = None,
    depth: int = 512,
    tile: tuple[int, int] | None = None,
    target: Target | None = None,
) -> Gemm:
    """A `Gemm` with blocks that suit a shape."""
    held = "float32" if dtype == "bfloat16" else dtype
    rows, columns = tile or best_tile(m, n, held, target or host())
    depth = -(-_even(k, depth) // 16) * 16
    tiles, panels = _block_size(-(-m // rows), -(-n // columns), rows, columns)
    return Gemm(
        m, n, k, transpose_a, transpose_b, dtype, epilogue or nothing(held), rows, columns, depth,
        tiles, panels, a, b, prologue_a, prologue_b,
    )  # fmt: skip


def _even(count: int, size: int) -> int:
    """The size of parts of about `size` that are equal but for rounding."""
    return -(-count // max(1, round(count / size)))


def _block_size(tiles: int, panels: int, rows: int, columns: int) -> tuple[int, int]:
    """Tiles down and across in a block: few enough for the cache, many blocks for the threads."""
    down = _even(tiles, max(1, BLOCK_ROWS // rows))
    across = _even(panels, max(1, BLOCK_COLUMNS // columns))
    while -(-tiles // down) * -(-panels // across) < BLOCKS and down * across > 1:
        if across == 1 or (down > 1 and down * rows >= across * columns):
            down = -(-down // 2)
        else:
            across = -(-across // 2)
    return down, across
