"""Matrix products: C = epilogue(op(A) op(B)) for row-major matrices of any size.

A and B are packed into panels (shared by all threads), then blocks of the product are claimed. A
block is swept panel by panel and tile by tile, for one stretch of the common dimension after the
other; its sums stay in the core's own cache in between. Operands that need no packing are read in
place (`a` or `b` = "direct"), and B may be packed already ("packed", by `PackB`), so that a matrix
that several products share is packed once. Of A, each thread may copy the part that a block reads,
one stripe at a time (`a` = "stripes"): if it's transposed, or has a prologue. Of a B with a
prologue, each thread may copy the panel that it multiplies next, a stretch at a time, so that
elements are changed once and not for each tile (`b` = "stripes").

Free threads claim blocks (`share` = "claim"), or each thread has its own part of the columns
("columns"): then it packs its own panels of B, no thread waits, and the next product finds in a
core's own cache the columns that this core has written. Or threads claim groups of columns
("groups"): a thread packs the panels of B when its first block needs them, so that they come from
its own cache, and a thread without a group helps with the other blocks.

`rows` x `columns` is the register tile, `depth` the stretch of k, `tiles` and `panels` are how many
tiles a block has down and across: `gemm` chooses them. `look` is how far ahead rows of a B that is
read in place are prefetched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from headrace._src.compile.codegen.cache_lines import LINE, prefetch, prefetch_row
from headrace._src.compile.codegen.emit import I8, I64, Operand, Reg
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.codegen.kernel_spec import COUNTER_STRIDE, Team
from headrace._src.compile.codegen.pointwise_code import load_value
from headrace._src.compile.kernels.gemm.gemm_blocking import (
    FEW_ROWS,
    block_height,
    block_size,
    even_block,
    group_size,
    stretch,
)
from headrace._src.compile.kernels.gemm.gemm_memory import (
    MatrixSource,
    Sink,
    accumulator,
    lane_mask,
)
from headrace._src.compile.kernels.gemm.gemm_pack import Packing, RowStripe, Stripe, panel_count
from headrace._src.compile.kernels.gemm.gemm_sweep import Ahead, Blocking, Left, Right, Sweep
from headrace._src.compile.kernels.gemm.gemm_tile import best_tile, no_operands
from headrace._src.devices.target import SIZES, Target, host
from headrace._src.lowering.pointwise import Pointwise, PointwiseStep

__all__ = [
    "Gemm",
    "PackB",
    "gemm",
    "nothing",
    "rounding",
    "whole_lines",
]

SMALL = 50_000  # multiply-adds, about a microsecond's


def rounding(dtype: str) -> Epilogue | None:
    """The prologue that rounds float32 elements to a narrower type's precision; "": none."""
    if not dtype:
        return None
    steps = (PointwiseStep("cast", (0,), dtype), PointwiseStep("cast", (1,), "float32"))
    return Epilogue(Pointwise(("float32",), steps, (2,)))


def nothing(dtype: str) -> Epilogue:
    """Return the epilogue that stores the product unchanged."""
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
    share: str = "claim"

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise ValueError(f"an empty matrix product: {self.m} x {self.n} x {self.k}")
        if self.depth % 16 and self.depth < self.k:
            raise ValueError(f"depth must be a multiple of 16, not {self.depth}")
        if self.a not in ("pack", "direct", "stripes"):
            raise ValueError(f"no such way to read A: {self.a!r}")
        if self.b not in ("pack", "direct", "packed", "stripes"):
            raise ValueError(f"no such way to read B: {self.b!r}")
        if self.share not in ("claim", "columns", "groups"):
            raise ValueError(f"no such way to share the work: {self.share!r}")
        if self.share == "groups" and self.b != "pack":
            raise ValueError("groups of columns are packed by the threads that multiply them")
        changed = self.dtype in ("bfloat16", "float16")
        if self.a == "direct" and (self.prologue_a is not None or changed):
            raise ValueError("A is changed as it is packed: it can't be read in place")
        reads = self.prologue_b is not None and self.prologue_b.operands
        if self.b in ("direct", "stripes") and (reads or changed or self.transpose_b):
            raise ValueError("B is changed as it is packed: it can't be read in place")
        if self.b == "packed" and (self.prologue_b is not None or self.transpose_b):
            raise ValueError("a packed B can't be changed or transposed any more")
        accumulator(self.dtype)

    def reads_in_place(self, name: str) -> bool:
        """Whether an argument is an operand of the epilogue, with an element for each result."""
        return name.startswith("full")

    @property
    def arguments(self) -> tuple[str, ...]:
        first = [f"a_{name}" for name in self._source_a.arguments]
        second = [f"b_{name}" for name in self._source_b.arguments]
        return ("a", *first, "b", *second, *self.epilogue.arguments)

    @property
    def counters(self) -> int:
        return 2 + (self._size.across if self.share == "groups" else 0)

    @property
    def meetings(self) -> int:
        """Panels are packed before they are read, unless each thread packs its own."""
        shares_b = self.b == "pack" and self.share == "claim"
        return int(self.a == "pack" or shares_b)

    @property
    def small(self) -> bool:
        """Whether one thread is done before a team would meet."""
        return self.m * self.n * self.k < SMALL

    def scratch(self, threads: int) -> int:
        _, at, size = self._places()
        return at + threads * size

    # -- Sizes -----------------------------------------------------------------------------------

    @property
    def _source_a(self) -> MatrixSource:
        return MatrixSource(self.dtype, self.m if self.transpose_a else self.k, self.prologue_a)

    @property
    def _source_b(self) -> MatrixSource:
        return MatrixSource(self.dtype, self.k if self.transpose_b else self.n, self.prologue_b)

    @property
    def _size(self) -> Blocking:
        return Blocking(
            self.m, self.n, self.k, self.rows, self.columns, self.depth, self.tiles, self.panels
        )

    def _places(self) -> tuple[int, int, int]:
        """Bytes in scratch where packed B begins (packed A comes first), where the threads' own
        memory begins (stripes of A and B, sums), and how many each has.
        """
        width = accumulator(self.dtype).bits // 8
        b_at = whole_lines(self._size.packed_a * width) if self.a == "pack" else 0
        sums_at = b_at + (whole_lines(self._size.packed_b * width) if self.b == "pack" else 0)
        own = self._stripe + self._panel + self._size.sums
        return b_at, sums_at, whole_lines(own * width)

    @property
    def _stripe(self) -> int:
        """Elements of the stripe of A that a thread copies at a time."""
        if self.a != "stripes":
            return 0
        if not self.transpose_a:
            return self.tiles * self.rows * RowStripe.stride(self.depth)
        panels, width = self._stripe_shape
        return panels * Stripe.panel_size(width, self.depth)

    @property
    def _stripe_shape(self) -> tuple[int, int]:
        """The panels of a stripe and their columns: a panel for each tile, or rows as they were,
        which are copied in fewer instructions, if all matrices are in the cores' own caches.
        """
        wide = self.share == "columns"
        return (1, self.tiles * self.rows) if wide else (self.tiles, self.rows)

    @property
    def _panel(self) -> int:
        """Elements of the panel of B that a thread copies at a time."""
        return self.columns * self.depth if self.b == "stripes" else 0

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
        elements = panel_count(self.n, self.columns) * self.columns * self.k
        return elements * accumulator(self.dtype).bits // 8

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        source = MatrixSource(self.dtype, self.k if self.transpose_b else self.n)
        b, packed = team.args
        pack = Packing(team, "b", source, self.n, self.k, self.columns, self.transpose_b)
        team.claim(0, pack.units, lambda i: pack.run(i, packed, [b]))


def whole_lines(size: int) -> int:
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

    def write(self) -> None:
        """Pack, meet, multiply."""
        spec, f, team = self.spec, self.f, self.team
        _, own_at, own_size = spec._places()
        own = f.offset(team.scratch, f.add(own_at, f.mul(team.thread, own_size)), I8)
        across = team.share(spec._size.across) if spec.share == "columns" else None
        packings: list[tuple[Packing, Reg, list[Reg]]] = []
        left = self._left(own, packings)
        right = self._right(f.offset(own, spec._stripe, self.type), across, packings)
        if packings:
            team.after(0, lambda: self._pack(packings))
        sums = f.offset(own, spec._stripe + spec._panel, self.type)
        sweep = Sweep(
            f, self.type, spec._size, Sink(spec.epilogue, spec.n, far=spec.share != "columns")
        )
        down = spec._size.down

        def block(i: Operand) -> None:
            place = f.rem(i, down), f.div(i, down)
            sweep.block(left, right, self.results, sums, *place, self._ahead)

        def multiply() -> None:
            if spec.share == "groups":
                self._by_groups(block)
            elif across is not None:
                first, last = across
                f.loop(f.mul(first, down), f.mul(last, down), block)
            else:
                team.claim(1, down * spec._size.across, block)

        team.after(spec.meetings, multiply)

    def _by_groups(self, block: Callable[[Operand], None]) -> None:
        """Claim groups of columns and multiply their blocks; then help the threads whose groups are
        packed. Each group has a counter of blocks: only the thread that has multiplied the first
        block, and has packed the panels of B with it, makes the counter positive.
        """
        team, f, size = self.team, self.f, self.spec._size
        if team.serial:
            f.loop(0, size.down * size.across, block)
            return
        down, across = f.reg(size.down), f.reg(size.across)

        def counter(number: Operand) -> Reg:
            return f.offset(team.counters, f.mul(number, COUNTER_STRIDE), I64)

        def claim() -> Reg:
            return f.minimum(f.atomic_add(counter(1), 1), across)

        def visit(turn: Reg) -> Reg:
            helps = f.icmp("sge", turn, across)
            group = f.select(helps, f.sub(turn, across), turn)
            blocks = counter(f.add(group, 2))

            def another() -> Reg:
                return f.atomic_add(blocks, 1)

            def join() -> Reg:
                packed = f.icmp("sgt", f.atomic_load(blocks), 0)
                return f.when(packed, another, lambda: down)[0]

            def multiply(number: Reg) -> Reg:
                block(f.add(f.mul(group, down), number))
                is_first = f.icmp("eq", number, 0)
                f.when(is_first, lambda: f.atomic_add(blocks, 1, 0, "release"))
                return another()

            (first,) = f.when(helps, join, lambda: f.reg(0))
            f.repeat(lambda number: f.icmp("slt", number, down), multiply, [first])
            return f.when(helps, lambda: f.add(turn, 1), claim)[0]

        f.repeat(lambda turn: f.icmp("slt", turn, f.mul(across, 2)), visit, [claim()])

    def _left(self, own: Reg, packings: list[tuple[Packing, Reg, list[Reg]]]) -> Left:
        """How A is read; what is to be packed for all threads goes to `packings`."""
        spec, f, team = self.spec, self.f, self.team
        if spec.a == "direct":
            return Left(self.a[0], spec._source_a.stride, spec.transpose_a)
        if spec.a == "pack":
            tiles = Packing(
                team, "a", spec._source_a, spec.m, spec.k, spec.rows, not spec.transpose_a
            )
            packings.append((tiles, team.scratch, self.a))
            return Left(team.scratch)
        if not spec.transpose_a:
            return self._left_rows(own)
        panels, width = spec._stripe_shape
        stripe = Stripe(team, "a", spec._source_a, spec.m, width, panels, spec.depth)

        def copy(down: Operand, k: Reg, depth: Operand) -> None:
            f.call_function(stripe.function, down, k, depth, own, *self.a)

        if panels == 1:
            return Left(own, width, True, copy, tile=spec.rows)
        return Left(own, copy=copy, tile=stripe.panel)

    def _left_rows(self, own: Reg) -> Left:
        """How rows of A are read that a block copies."""
        spec, f = self.spec, self.f
        height, stride = spec.tiles * spec.rows, RowStripe.stride(spec.depth)
        stripe = RowStripe(self.team, "a", spec._source_a, (spec.m, spec.k), height, spec.depth)

        def copy(down: Operand, k: Reg, depth: Operand) -> None:
            f.call_function(stripe.function, down, k, depth, own, *self.a)

        return Left(own, stride, copy=copy, tile=spec.rows * stride)

    @property
    def _ahead(self) -> Ahead | None:
        """The stretch of a transposed A that a block copies next."""
        spec, f = self.spec, self.f
        if spec.a != "stripes" or not spec.transpose_a or not spec._size.split:
            return None
        stride, width = spec._source_a.stride, spec.tiles * spec.rows

        def fetch(down: Operand, k: Operand, row: Operand) -> None:
            at = f.add(f.mul(f.add(k, row), stride), f.mul(down, width))
            prefetch_row(f, f.offset(self.a[0], at, self.type), width, self.type)

        return Ahead(spec.depth, fetch)

    def _right(
        self,
        own: Reg,
        across: tuple[Operand, Operand] | None,
        packings: list[tuple[Packing, Reg, list[Reg]]],
    ) -> Right:
        """How B is read; a thread that has blocks `across` for itself packs them itself."""
        spec, f, team = self.spec, self.f, self.team
        if spec.b == "stripes":
            return Right(own, copy=partial(self._copy_panel, own))
        if spec.b == "direct":
            return Right(self.b[0], spec._source_b.stride, spec.look, spec.prologue_b)
        if spec.b == "packed":
            return Right(self.b[0])
        packed = f.offset(team.scratch, spec._places()[0], I8)
        panels = Packing(team, "b", spec._source_b, spec.n, spec.k, spec.columns, spec.transpose_b)
        if spec.share == "groups":

            def pack(first: Operand, last: Operand, k: Operand, depth: Operand) -> None:
                stop = f.add(k, depth)
                f.call_function(panels.function, packed, k, stop, first, last, *self.b)

            return Right(packed, pack=pack)
        if across is None:
            packings.append((panels, packed, self.b))
        else:
            first, last = (f.mul(i, spec.panels) for i in across)
            team.after(spec.meetings, lambda: panels.part(first, last, packed, self.b))
        return Right(packed)

    def _copy_panel(
        self, own: Reg, k: Operand, depth: Operand, column: Operand, columns: int
    ) -> None:
        """Copy `columns` columns of B through its prologue, `depth` rows from `k` on."""
        spec, f, stride = self.spec, self.f, self.spec._source_b.stride
        lanes = self.team.target.lanes(spec.dtype)
        first = f.offset(self.b[0], f.add(f.mul(k, stride), column), self.type)
        masks = [lane_mask(f, columns - v, lanes) for v in range(0, columns, lanes)]

        def row(i: Reg) -> None:
            source = f.offset(first, f.mul(i, stride), self.type)
            into = f.offset(own, f.mul(i, spec.columns), self.type)
            for v, mask in enumerate(masks):
                if spec.look:
                    prefetch(f, f.offset(source, spec.look + v * lanes, self.type))
                value = load_value(f, spec.dtype, lanes, source, v * lanes, mask=mask)
                if spec.prologue_b is not None:
                    value = spec.prologue_b.apply(f, value, no_operands)[0]
                f.store(value, into, v * lanes)

        f.loop(0, depth, row)

    def _pack(self, packings: list[tuple[Packing, Reg, list[Reg]]]) -> None:
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
    depth: int = 0,
    tile: tuple[int, int] | None = None,
    threads: int = 2,
    target: Target | None = None,
) -> Gemm:
    """A `Gemm` with blocks that suit a shape; `depth` and `tile` if they aren't given."""
    target = target or host()
    held = "float64" if dtype == "float64" else "float32"
    rows, columns = tile or best_tile(m, n, held, target, b == "packed")
    depth = depth or stretch(m, k, columns, SIZES[held], a, target)
    depth = -(-even_block(k, depth) // 16) * 16
    split = depth < k
    height = block_height(rows, split and a != "direct")
    tiles, panels = block_size((m, n), (rows, columns), height, split, threads)
    share = "claim"
    if b == "pack" and threads > 1 and m > FEW_ROWS and n * k * SIZES[held] > target.l2:
        block = tiles * rows, columns
        sums = tiles * rows * columns * SIZES[held] if split else 0
        share, panels = "groups", group_size((m, n), block, sums, threads, target)
    return Gemm(
        m, n, k, transpose_a, transpose_b, dtype, epilogue or nothing(dtype), rows, columns, depth,
        tiles, panels, a, b, prologue_a, prologue_b, share=share,
    )  # fmt: skip
