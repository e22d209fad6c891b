"""Products with few columns, as the last layer of a classifier has: C = epilogue(op(A) B).

A row of the product doesn't fill a vector, and a broadcast element of A would be used only once. So
vectors run down the columns here: `lanes` rows of a column of op(A) times one element of B. In a
transposed A these are contiguous; otherwise squares of A are transposed in registers. So are the
sums, before the epilogue.

Where products divide their columns (`Gemm.share`), a core's cache holds the columns of A that the
core has written, and a thread should read no others. If A is transposed, these are rows of the
product, which only this thread computes. If not, each thread multiplies its columns by the
corresponding rows of B, for all rows of the product; after a barrier, each adds up the sums of its
part of the rows. Only these few sums move from core to core.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import Function, Operand, Reg, Type
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.register_transpose import transpose
from headrace._src.compile.kernels.gemm.gemm import nothing
from headrace._src.compile.kernels.gemm.gemm_memory import Sink, accumulator, lane_mask
from headrace._src.compile.kernels.gemm.gemm_tile import INLINE_EPILOGUE
from headrace._src.devices.target import Target, host

__all__ = ["NarrowProduct", "narrow_product"]

SPARE = 4  # registers for what is loaded and shuffled


@dataclass(frozen=True)
class NarrowProduct:
    """C[m,n] = epilogue(op(A)[m,k] B[k,n]) for n <= `lanes`, which divide m, and k unless A is
    transposed; `vectors` of rows are multiplied at a time.

    Arguments: a, b, the epilogue's operands, its outputs.
    """

    m: int
    n: int
    k: int
    transpose_a: bool
    dtype: str
    epilogue: Epilogue
    lanes: int
    vectors: int = 1

    counters = 0

    @property
    def meetings(self) -> int:
        """The threads' sums are complete before they are added."""
        return 0 if self.transpose_a else 1

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"narrow products are of float32 or float64, not {self.dtype}")
        if not 1 <= self.n <= self.lanes or self.m < 1 or self.k < 1:
            raise ValueError(f"no narrow product: {self.m} x {self.n} x {self.k}")
        if self.m % (self.lanes * self.vectors) or (self.k % self.lanes and not self.transpose_a):
            raise ValueError(f"{self.m} x {self.k} has no whole vectors of {self.lanes}")
        if self.vectors > 1 and not self.transpose_a:
            raise ValueError("squares of A are multiplied one at a time")

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("a", "b", *self.epilogue.arguments)

    @property
    def _sums(self) -> int:
        """How many elements a thread's sums of all rows take."""
        return 0 if self.transpose_a else self.m * self.n

    def scratch(self, threads: int) -> int:
        square = self.lanes * self.lanes
        return threads * (self._sums + square) * accumulator(self.dtype).bits // 8

    def emit(self, team: Team) -> None:
        _Writer(self, team).write()


class _Writer:
    """Writes the code of one `NarrowProduct`."""

    def __init__(self, spec: NarrowProduct, team: Team) -> None:
        self.spec, self.team = spec, team
        self.type = accumulator(spec.dtype)
        self.vector: Type = self.type.of(spec.lanes)
        self.a, self.b, *self.results = team.args
        self.sink = Sink(spec.epilogue, spec.n)
        # Behind all sums each thread has room for a square.
        f = team.f
        at = f.add(f.mul(team.threads, spec._sums), f.mul(team.thread, spec.lanes * spec.lanes))
        self.square = f.offset(team.scratch, at, self.type)

    def write(self) -> None:
        if self.spec.transpose_a:
            self._by_rows()
        else:
            self.team.after(0, self._by_columns)
            self.team.after(1, self._add)

    def _by_rows(self) -> None:
        """This thread's rows of the product: columns of the stored A."""
        spec, f = self.spec, self.team.f
        rows = spec.vectors * spec.lanes

        def some(row: Reg) -> None:
            def step(k: Reg, *sums: Reg) -> list[Reg]:
                at = f.add(f.mul(k, spec.m), row)
                parts = range(0, rows, spec.lanes)
                values = [f.load(self.vector, self.a, f.add(at, v)) for v in parts]
                return self._multiply(f, values, f.mul(k, spec.n), sums)

            sums = f.loop(0, spec.k, step, self._zeros(f, spec.vectors))
            for v in range(spec.vectors):
                self._store(f, sums[v :: spec.vectors], f.add(row, v * spec.lanes))

        f.loop(*self.team.share(spec.m, rows), some, step=rows)

    def _by_columns(self) -> None:
        """This thread's columns of A times their rows of B, to its sums: those of some rows of the
        product side by side, column by column.
        """
        spec, f = self.spec, self.team.f
        first, last = self.team.share(spec.k, spec.lanes)
        own = f.offset(self.team.scratch, f.mul(self.team.thread, spec._sums), self.type)

        def some(row: Reg) -> None:
            def square(k: Reg, *sums: Reg) -> list[Reg]:
                at = f.add(f.mul(row, spec.k), k)
                rows = [
                    f.load(self.vector, self.a, f.add(at, r * spec.k)) for r in range(spec.lanes)
                ]
                found = list(sums)
                for j, column in enumerate(transpose(f, rows)):
                    found = self._multiply(f, [column], f.mul(f.add(k, j), spec.n), found)
                return found

            sums = f.loop(first, last, square, self._zeros(f, 1), step=spec.lanes)
            for j, value in enumerate(sums):
                f.store(value, own, f.add(f.mul(row, spec.n), j * spec.lanes))

        f.loop(0, spec.m, some, step=spec.lanes)

    def _add(self) -> None:
        """All threads' sums of this thread's part of the rows."""
        spec, team, f = self.spec, self.team, self.team.f

        def some(row: Reg) -> None:
            at = f.mul(row, spec.n)

            def of(thread: Operand) -> list[Reg]:
                here = f.add(f.mul(thread, spec._sums), at)
                places = range(0, spec.n * spec.lanes, spec.lanes)
                return [f.load(self.vector, team.scratch, f.add(here, i)) for i in places]

            def more(thread: Reg, *sums: Reg) -> list[Reg]:
                return [f.fadd(x, y) for x, y in zip(sums, of(thread), strict=True)]

            self._store(f, f.loop(1, team.threads, more, of(0)), row)

        f.loop(*team.share(spec.m, spec.lanes), some, step=spec.lanes)

    # -- Parts -----------------------------------------------------------------------------------

    def _zeros(self, f: Function, vectors: int) -> list[Reg]:
        return [f.const(0.0, self.vector)] * (self.spec.n * vectors)

    def _multiply(
        self, f: Function, values: list[Reg], at: Operand, sums: list[Reg] | tuple[Reg, ...]
    ) -> list[Reg]:
        """Add vectors of a column of A, times each element of the row of B at `at`, to the sums."""
        found = []
        for j in range(self.spec.n):
            x = f.splat(f.load(self.type, self.b, f.add(at, j)), self.spec.lanes)
            for v, value in enumerate(values):
                found.append(f.fma(x, value, sums[j * len(values) + v]))
        return found

    def _store(self, f: Function, sums: list[Reg], row: Operand) -> None:
        """Take the sums of some rows, which come column by column, to memory."""
        spec = self.spec
        mask = lane_mask(f, spec.n, spec.lanes)
        square = [*sums, *[sums[0]] * (spec.lanes - spec.n)]
        known: dict[int, Reg] = {}

        def store(r: Operand, value: Reg) -> None:
            at = f.mul(f.add(row, r), spec.n)
            self.sink.store(f, self.results, value, at, 0, mask, known)

        rows = transpose(f, square)
        if self.sink.cost() * spec.lanes <= INLINE_EPILOGUE:
            for r, value in enumerate(rows):
                store(r, value)
            return
        for r, value in enumerate(rows):
            f.store(value, self.square, r * spec.lanes)
        f.loop(
            0, spec.lanes,
            lambda r: store(r, f.load(self.vector, self.square, f.mul(r, spec.lanes))),
        )  # fmt: skip


def narrow_product(
    m: int,
    n: int,
    k: int,
    transpose_a: bool = False,
    dtype: str = "float32",
    epilogue: Epilogue | None = None,
    *,
    target: Target | None = None,
) -> NarrowProduct | None:
    """A `NarrowProduct`; None if it isn't one, or has more columns than registers are good for."""
    target = target or host()
    lanes = target.lanes(dtype)
    if n > lanes or m % lanes or (k % lanes and not transpose_a):
        return None
    if n + SPARE + (0 if transpose_a else lanes) > target.registers:
        return None
    two = transpose_a and m % (2 * lanes) == 0 and 2 * n + SPARE <= target.registers
    return NarrowProduct(
        m, n, k, transpose_a, dtype, epilogue or nothing(dtype), lanes, 2 if two else 1
    )
