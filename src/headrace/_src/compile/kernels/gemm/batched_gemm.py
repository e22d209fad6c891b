"""Batches of matrix products, one task each: C[b] = epilogue(op(A[b]) op(B[b])).

Matrices are addressed by strides, so that attention's heads are multiplied in place: in
[batch, sequence, heads, depth], the rows of one head's matrix are heads * depth apart. A stride of
0 along a dimension of the batch broadcasts. Each task packs its own matrices where that pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from headrace._src.compile.codegen.cache_lines import prefetch_row
from headrace._src.compile.codegen.emit import I8, Operand, Reg
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.gemm.gemm import nothing, whole_lines
from headrace._src.compile.kernels.gemm.gemm_blocking import even_block
from headrace._src.compile.kernels.gemm.gemm_memory import MatrixSource, Sink, accumulator
from headrace._src.compile.kernels.gemm.gemm_pack import Packing, panel_count
from headrace._src.compile.kernels.gemm.gemm_sweep import Ahead, Blocking, Left, Right, Sweep
from headrace._src.compile.kernels.gemm.gemm_tile import best_tile
from headrace._src.devices.target import SIZES, Target, host

__all__ = ["BatchStrides", "BatchedGemm", "batched_gemm", "dense"]

LARGE = 1 << 18  # bytes of a matrix whose columns are too far apart to be read in place
MANY_ROWS = 64  # make up for packing


@dataclass(frozen=True)
class BatchStrides:
    """The strides of a batch's matrices, in elements: from one row to the next, and from one matrix
    to the next along each dimension of the batch; `offset`: elements before the first. For a vector
    per matrix, `row` is 0.
    """

    row: int
    batch: tuple[int, ...]
    offset: int = 0


def dense(shape: Sequence[int], batch: Sequence[int], rows: int, columns: int) -> BatchStrides:
    """Matrices that follow each other in an array [*shape, rows, columns], where `shape` is
    broadcast to `batch`.
    """
    padded = (1,) * (len(batch) - len(shape)) + tuple(shape)
    if any(s not in (1, d) for s, d in zip(padded, batch, strict=True)):
        raise ValueError(f"a batch {tuple(shape)} can't be broadcast to {tuple(batch)}")
    strides = [
        rows * columns * prod(padded[i + 1 :]) if size > 1 else 0 for i, size in enumerate(padded)
    ]
    return BatchStrides(columns, tuple(strides))


@dataclass(frozen=True)
class BatchedGemm:
    """Products of `batch` matrices. Arguments: a, b, the epilogue's operands, its outputs.

    `operands` has the strides of each of the epilogue's operands; those of kind "full" have the row
    stride of the outputs, whose strides are `at_c`. `pack_a`, `pack_b`: whether a task copies its
    matrix into panels first. The other fields are a `Blocking`'s.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    transpose_a: bool
    transpose_b: bool
    dtype: str
    epilogue: Epilogue
    at_a: BatchStrides
    at_b: BatchStrides
    at_c: BatchStrides
    operands: tuple[BatchStrides, ...]
    rows: int
    columns: int
    depth: int
    tiles: int
    pack_a: bool
    pack_b: bool

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k, *self.batch) < 1:
            raise ValueError(f"an empty product: {self.batch} of {self.m} x {self.n} x {self.k}")
        places = (self.at_a, self.at_b, self.at_c, *self.operands)
        if any(len(p.batch) != len(self.batch) for p in places):
            raise ValueError(f"strides of another rank than the batch {self.batch}")
        if len(self.operands) != len(self.epilogue.operands):
            raise ValueError("each operand of the epilogue needs a place")
        for kind, place in zip(self.epilogue.operands, self.operands, strict=True):
            if kind == "full" and place.row != self.at_c.row:
                raise ValueError("an operand's rows must be as far apart as the result's")
        if self.transpose_b and not self.pack_b:
            raise ValueError("a transposed B must be packed")
        if SIZES[self.dtype] < 4 and not (self.pack_a and self.pack_b):
            raise ValueError(f"{self.dtype} is widened as it is packed: it can't be read in place")
        if self.pack_a and self._size.down > 1:
            raise ValueError("a packed A is multiplied in one task")
        if self.depth % 16 and self.depth < self.k:
            raise ValueError(f"depth must be a multiple of 16, not {self.depth}")

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("a", "b", *self.epilogue.arguments)

    counters = 1

    @property
    def _wide_a(self) -> int:
        """Elements of a row of A as it's stored."""
        return self.m if self.transpose_a else self.k

    def scratch(self, threads: int) -> int:
        return threads * sum(self._parts())

    @property
    def _size(self) -> Blocking:
        panels = panel_count(self.n, self.columns)
        return Blocking(
            self.m, self.n, self.k, self.rows, self.columns, self.depth, self.tiles, panels
        )

    def _parts(self) -> tuple[int, int, int]:
        """Bytes of a thread's packed A, packed B and sums."""
        width = accumulator(self.dtype).bits // 8
        size = self._size
        counts = (size.packed_a * self.pack_a, size.packed_b * self.pack_b, size.sums)
        a, b, sums = (whole_lines(count * width) for count in counts)
        return a, b, sums

    def emit(self, team: Team) -> None:
        f = team.f
        a_size, b_size, sums_size = self._parts()
        own = f.offset(team.scratch, f.mul(team.thread, a_size + b_size + sums_size), I8)
        own_b, sums = f.offset(own, a_size, I8), f.offset(own, a_size + b_size, I8)
        size = self._size
        sweep = Sweep(f, accumulator(self.dtype), size, Sink(self.epilogue, self.at_c.row))
        outputs = (self.at_c,) * len(self.epilogue.program.outputs)
        places = (self.at_a, self.at_b, *self.operands, *outputs)
        dtypes = (self.dtype, self.dtype, *self._dtypes())
        pack_a = [self._packing(team, "a")] if self.pack_a else []
        pack_b = [self._packing(team, "b")] if self.pack_b else []

        def task(i: Reg) -> None:
            item = f.div(i, size.down)
            a, b, *results = [
                self._matrix(team, *given, item)
                for given in zip(team.args, places, dtypes, strict=True)
            ]
            for packing in pack_a:
                packing.all(own, [a])
            for packing in pack_b:
                packing.all(own_b, [b])
            # A matrix of one row may have any distance between rows, but 0 says that it's packed.
            a_row, b_row = self.at_a.row or self._wide_a, self.at_b.row or self.n
            left = Left(own) if self.pack_a else Left(a, a_row, self.transpose_a)
            right = Right(own_b) if self.pack_b else Right(b, b_row)
            ahead = self._ahead(team, f.add(i, team.threads))
            sweep.block(left, right, results, sums, f.rem(i, size.down), 0, ahead)

        team.claim(0, prod(self.batch) * size.down, task)

    def _ahead(self, team: Team, item: Operand) -> Ahead | None:
        """The matrices of the task that this thread probably takes next, if each task is one
        stretch of a whole product.
        """
        if self._size.down > 1 or self._size.split or SIZES[self.dtype] < 4:
            return None
        f, type = team.f, accumulator(self.dtype)
        shapes = (
            (self.k, self.m) if self.transpose_a else (self.m, self.k),
            (self.n, self.k) if self.transpose_b else (self.k, self.n),
        )
        places = (self.at_a, self.at_b)
        matrices = [
            (self._matrix(team, array, place, self.dtype, item), place.row, *shape)
            for array, place, shape in zip(team.args, places, shapes, strict=False)
        ]

        def fetch(_down: Operand, _k: Operand, row: Operand) -> None:
            for matrix, stride, rows, width in matrices:
                here = f.minimum(row, rows - 1)
                prefetch_row(f, f.offset(matrix, f.mul(here, stride), type), width, type)

        return Ahead(max(rows for _, _, rows, _ in matrices), fetch)

    def _dtypes(self) -> tuple[str, ...]:
        program = self.epilogue.program
        return (*program.inputs[1:], *program.output_dtypes)

    def _packing(self, team: Team, name: str) -> Packing:
        if name == "a":
            source = MatrixSource(self.dtype, self.at_a.row)
            return Packing(team, name, source, self.m, self.k, self.rows, not self.transpose_a)
        source = MatrixSource(self.dtype, self.at_b.row)
        return Packing(team, name, source, self.n, self.k, self.columns, self.transpose_b)

    def _matrix(
        self, team: Team, array: Reg, place: BatchStrides, dtype: str, item: Operand
    ) -> Reg:
        """The address of matrix number `item`."""
        f = team.f
        at: Operand = place.offset
        for size, stride in zip(reversed(self.batch), reversed(place.batch), strict=True):
            at = f.add(at, f.mul(f.rem(item, size), stride))
            item = f.div(item, size)
        return f.offset(array, f.mul(at, SIZES[dtype]), I8)


def batched_gemm(
    batch: tuple[int, ...],
    m: int,
    n: int,
    k: int,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: str = "float32",
    epilogue: Epilogue | None = None,
    *,
    at_a: BatchStrides | None = None,
    at_b: BatchStrides | None = None,
    at_c: BatchStrides | None = None,
    operands: Sequence[BatchStrides | None] = (),
    pack_a: bool | None = None,
    pack_b: bool | None = None,
    depth: int = 512,
    target: Target | None = None,
) -> BatchedGemm:
    """Return a `BatchedGemm` with blocks that suit a shape. Strides that aren't given are dense; an
    operand is then as large as the result, or a vector that all matrices share.
    """
    epilogue = epilogue or nothing(dtype)
    at_a = at_a or dense(batch, batch, *((k, m) if transpose_a else (m, k)))
    at_b = at_b or dense(batch, batch, *((n, k) if transpose_b else (k, n)))
    at_c = at_c or dense(batch, batch, m, n)
    same = BatchStrides(0, (0,) * len(batch))
    given = [*operands, *[None] * (len(epilogue.operands) - len(operands))]
    places = tuple(
        place or (at_c if kind == "full" else same)
        for kind, place in zip(epilogue.operands, given, strict=True)
    )
    narrow = SIZES[dtype] < 4
    if pack_a is None:
        pack_a = narrow or (transpose_a and m * k * SIZES[dtype] > LARGE)
    if pack_b is None:
        # Rows that lie far apart compete for few sets of the first-level cache.
        pack_b = narrow or transpose_b or (at_b.row != n and m >= MANY_ROWS)
    pack_a = pack_a or (not at_a.row and (k if transpose_a else m) > 1)
    pack_b = pack_b or (not at_b.row and k > 1)
    held = "float64" if dtype == "float64" else "float32"
    rows, columns = best_tile(m, n, held, target or host())
    tiles = panel_count(m, rows)
    if not pack_a:
        tiles = even_block(tiles, max(1, tiles * prod(batch) // 8))
    return BatchedGemm(
        batch, m, n, k, transpose_a, transpose_b, dtype, epilogue, at_a, at_b, at_c, places, rows,
        columns, -(-even_block(k, depth) // 16) * 16, tiles, pack_a, pack_b,
    )  # fmt: skip
