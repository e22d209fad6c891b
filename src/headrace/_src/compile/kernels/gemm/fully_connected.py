"""Fully connected layers of small batches, whose time is spent on reading the weights.

Forward, `small_batch` is a `Gemm` that reads the weights in place and in order, a few rows at a
time, while the sums of all rows of the batch stay in the core's own cache. Backward,
`SmallBatchBackward` passes over the weights once: a block of rows is read, gives its part of the
gradient of the layer's input, and is updated before it leaves the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from headrace._src.compile.codegen.cache_lines import LINE, prefetch
from headrace._src.compile.codegen.emit import I1, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import store_value
from headrace._src.compile.kernels.gemm.gemm import Gemm, gemm, rounding
from headrace._src.compile.kernels.gemm.gemm_memory import (
    MatrixSource,
    Sink,
    accumulator,
    lane_mask,
)
from headrace._src.compile.kernels.gemm.gemm_pack import Packing, panel_count, ranges
from headrace._src.compile.kernels.gemm.gemm_tile import Tile, TileWriter
from headrace._src.devices.target import Target, host

__all__ = ["SmallBatchBackward", "small_batch", "small_batch_backward"]

DOT_ROWS = 3  # of W that a tile of dot products multiplies


def small_batch(
    m: int,
    n: int,
    k: int,
    dtype: str = "float32",
    epilogue: Epilogue | None = None,
    *,
    depth: int = 32,
    parts: int = 2,
    rounds: str = "",
    target: Target | None = None,
) -> Gemm:
    """epilogue(X[m,k] W[k,n]) for few rows: `parts` tasks share the columns of W, each reads W
    `depth` rows at a time, and copies its part of X, whose rows would compete for the same sets of
    a cache. `rounds`: the type to whose precision W is rounded.
    """
    target = target or host()
    vectors = 3 if target.registers >= 32 else 2
    most = (target.registers - 2 - vectors) // vectors
    tile = (-(-m // -(-m // most)), vectors * target.lanes(dtype))
    # With few registers a batch has several tiles, each of which would round the weights again.
    b = "stripes" if rounds and target.registers < 32 else "direct"
    spec = gemm(
        m, n, k, False, False, dtype, epilogue, a="stripes", b=b, tile=tile,
        prologue_b=rounding(rounds),
    )  # fmt: skip
    panels = -(-panel_count(n, spec.columns) // parts)
    return replace(spec, depth=depth, tiles=panel_count(m, spec.rows), panels=panels, look=64)


@dataclass(frozen=True)
class SmallBatchBackward:
    """Gradients of Y[m,n] = X[m,k] W[k,n] in one pass over W.

    `update` takes X^T dY where W is, `data` takes dY W^T where X is; either may be None, then it
    isn't computed. W may be an operand and a result of `update`: `data` sees its old value.

    Arguments: x (if `update`), dy, w (if `data`), operands and outputs of `update`, of `data`.
    `rows` of W are worked on at a time, `span` columns of them at a time, in tiles of `columns`.
    `stream`: outputs of `update` bypass the caches; they must be aligned then. `rounds`: the type
    to whose precision W is rounded for `data`.
    """

    m: int
    n: int
    k: int
    dtype: str
    update: Epilogue | None
    data: Epilogue | None
    rows: int
    columns: int
    span: int
    stream: bool = False
    rounds: str = ""

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"a one-pass backward multiplies float32 or float64, not {self.dtype}")
        if min(self.m, self.n, self.k) < 1:
            raise ValueError(f"an empty matrix product: {self.m} x {self.n} x {self.k}")
        if self.update is None and self.data is None:
            raise ValueError("neither the update nor the gradient of the input is wanted")
        if self.span % self.columns:
            raise ValueError(f"span {self.span} is not a multiple of {self.columns} columns")

    def reads_in_place(self, name: str) -> bool:
        """Whether an argument is an operand of the update, with an element for each weight."""
        return name.removeprefix("w_").startswith("full")

    @property
    def arguments(self) -> tuple[str, ...]:
        names = ["x", "dy"] if self.update is not None else ["dy"]
        names += ["w"] if self.data is not None else []
        for prefix, epilogue in (("w", self.update), ("x", self.data)):
            for name in epilogue.arguments if epilogue is not None else ():
                start, _, rest = name.rpartition(":")
                names.append(f"{start}:{prefix}_{rest}" if start else f"{prefix}_{rest}")
        return tuple(names)

    counters = 2
    meetings = 1

    def scratch(self, threads: int) -> int:
        return self._own_at + threads * self._own_size

    @property
    def _width(self) -> int:
        return accumulator(self.dtype).bits // 8

    @property
    def _own_at(self) -> int:
        """Where in scratch the threads' parts begin; dY comes first, in pieces of `span`."""
        return panel_count(self.n, self.span) * self.span * self.m * self._width

    @property
    def _own_size(self) -> int:
        """A thread's sums of the gradient (vectors), a tile of the update, its columns of X."""
        columns = -(-self.rows * self.m * self._width // LINE)
        return LINE * (self.rows * self.m + self._tile_lines + columns)

    @property
    def _tile_lines(self) -> int:
        return 1 + -(-self.rows * self.columns * self._width // LINE)

    def emit(self, team: Team) -> None:
        _Backward(self, team).write()


def small_batch_backward(
    m: int,
    n: int,
    k: int,
    dtype: str = "float32",
    update: Epilogue | None = None,
    data: Epilogue | None = None,
    *,
    stream: bool = False,
    rounds: str = "",
    target: Target | None = None,
) -> SmallBatchBackward:
    """Return a `SmallBatchBackward` with blocks that suit a shape: a piece of dY should take a
    third of the first-level cache, and few rows of W should compete for the same sets.
    """
    target = target or host()
    lanes = target.lanes(dtype)
    rows, vectors = (6, 4) if target.registers >= 32 else (6, 2)
    columns = vectors * lanes
    size = max(1, 16384 // (m * columns * (target.vector_bytes // lanes)))
    span = columns * min(size, panel_count(n, columns))
    return SmallBatchBackward(m, n, k, dtype, update, data, rows, columns, span, stream, rounds)


class _Backward:
    """Writes the code of one `SmallBatchBackward`."""

    def __init__(self, spec: SmallBatchBackward, team: Team) -> None:
        self.spec, self.team, self.f = spec, team, team.f
        self.type = accumulator(spec.dtype)
        self.lanes = team.target.lanes(spec.dtype)
        arguments = iter(team.args)
        self.x = next(arguments) if spec.update is not None else None
        self.dy = next(arguments)
        self.w = next(arguments) if spec.data is not None else None
        count = len(spec.update.arguments) if spec.update is not None else 0
        rest = list(arguments)
        self.updated, self.gradient = rest[:count], rest[count:]
        self._dots: dict[tuple[int, int, tuple[int, ...]], Function] = {}
        # Registers hold a vector of each row of W, one of dY, and all sums.
        self._batch = min(8, (team.target.registers - DOT_ROWS - 1) // DOT_ROWS)

    def write(self) -> None:
        """Lay out dY, meet, then pass over blocks of rows of W."""
        spec, f, team = self.spec, self.f, self.team
        source = MatrixSource(spec.dtype, spec.n)
        packing = Packing(team, "dy", source, spec.n, spec.m, spec.span, across=False)

        def lay_out() -> None:
            team.claim(0, packing.units, lambda i: packing.run(i, team.scratch, [self.dy]))

        team.after(0, lay_out)
        own = f.add(spec._own_at, f.mul(team.thread, spec._own_size))
        per_line = LINE // spec._width
        self.sums = f.offset(team.scratch, f.div(own, spec._width), self.type)
        self.tile = f.offset(self.sums, spec.rows * spec.m * per_line, self.type)
        self.own_x = f.offset(self.tile, spec._tile_lines * per_line, self.type)
        blocks = panel_count(spec.k, spec.rows)

        def block(i: Reg) -> None:
            ranges(f, i, f.add(i, 1), spec.k, spec.rows, self._block)

        team.after(1, lambda: team.claim(1, blocks, block))

    def _block(self, i: Operand, rows: int) -> None:
        f, spec = self.f, self.spec
        first = f.mul(i, spec.rows)
        if self.x is not None:
            self._take_x(self.x, first, rows)
        pieces = panel_count(spec.n, spec.span)
        f.loop(0, pieces, lambda piece: self._piece(first, rows, piece))
        if spec.data is not None:
            self._give_gradient(first, rows)

    def _take_x(self, x: Reg, first: Operand, rows: int) -> None:
        """This block's columns of X, side by side."""
        f, spec = self.f, self.spec
        source = MatrixSource(spec.dtype, spec.k)

        def one(b: Reg) -> None:
            at = f.add(f.mul(b, spec.k), first)
            for v in range(0, rows, self.lanes):
                mask = lane_mask(f, rows - v, self.lanes)
                value = source.load(f, [x], f.add(at, v), 0, self.lanes, mask)
                store_value(
                    f, spec.dtype, value, self.own_x, f.add(f.mul(b, spec.rows), v), mask=mask
                )

        f.loop(0, spec.m, one)

    def _piece(self, first: Operand, rows: int, piece: Reg) -> None:
        """`span` columns of a block: their part of the gradient, then their update."""
        f, spec = self.f, self.spec
        column = f.mul(piece, spec.span)
        width = f.minimum(f.sub(spec.n, column), spec.span)
        dy = f.offset(self.team.scratch, f.mul(piece, spec.span * spec.m), self.type)
        if spec.data is not None:
            self._dot_products(first, rows, column, width, dy, f.icmp("eq", piece, 0))
        if spec.update is None:
            return
        per = spec.span // spec.columns
        p0 = f.mul(piece, per)

        def tile(p: Operand, columns: int) -> None:
            index = f.add(f.mul(first, spec.n), f.mul(p, spec.columns))
            b = f.offset(dy, f.mul(f.sub(p, p0), spec.columns), self.type)
            f.call_function(
                self._tile(rows, columns), self.own_x, b, spec.m, self.tile, 1, 1, index,
                f.mul(p, spec.columns), b, *self.updated,
            )  # fmt: skip

        last = f.minimum(f.add(p0, per), panel_count(spec.n, spec.columns))
        ranges(f, p0, last, spec.n, spec.columns, tile)

    @cached_property
    def _writer(self) -> TileWriter:
        assert self.spec.update is not None
        sink = Sink(self.spec.update, self.spec.n, self.spec.stream, far=False)
        return TileWriter(self.f.module, self.f.name, sink)

    def _tile(self, rows: int, columns: int) -> Function:
        return self._writer.tile(Tile(self.type, rows, columns, self.spec.rows, 1, self.spec.span))

    # -- The gradient of the input: dot products of rows of W and rows of dY ---------------------

    def _dot_products(
        self, first: Operand, rows: int, column: Operand, width: Reg, dy: Reg, begins: Reg
    ) -> None:
        f, spec = self.f, self.spec
        assert self.w is not None
        for r in range(0, rows, DOT_ROWS):
            at = f.add(f.mul(f.add(first, r), spec.n), column)
            w = f.offset(self.w, at, self.type)
            for b in range(0, spec.m, self._batch):
                size = min(DOT_ROWS, rows - r), min(self._batch, spec.m - b)
                dot = self._dot(*size, b // self._batch)
                held = (b * spec.rows + r) * (LINE // spec._width)
                f.call_function(
                    dot, w, f.offset(dy, b * spec.span, self.type), width,
                    f.offset(self.sums, held, self.type), begins,
                )  # fmt: skip

    def _dot(self, rows: int, batch: int, turn: int) -> Function:
        """dot(w, dy, width, sums, begins): sums[b][r] (vectors) += w[r] * dy[b], lane by lane.

        `turn`: how many tiles have read these rows before. Together they prefetch the rows' next
        piece, each its share: memory takes as long as all of them.
        """
        turns = panel_count(self.spec.m, self._batch)
        fetched = tuple(range(turn, rows, turns))
        key = (rows, batch, fetched)
        if key not in self._dots:
            name = f"{self.f.name}_dot{rows}x{batch}_{'_'.join(map(str, fetched))}"
            f = self.f.module.function(name, [PTR, PTR, I64, PTR, I1])
            self._dots[key] = self._write_dot(f, rows, batch, fetched)
        return self._dots[key]

    def _write_dot(self, f: Function, rows: int, batch: int, fetched: tuple[int, ...]) -> Function:
        spec, lanes = self.spec, self.lanes
        w, dy, width, held, begins = f.parameters
        vector = self.type.of(lanes)
        places = [
            (b * spec.rows + r) * (LINE // spec._width) for b in range(batch) for r in range(rows)
        ]
        rest = spec.n % lanes
        tail = lane_mask(f, rest, lanes) if rest else None

        def step(n: Reg, sums: list[Reg], mask: Reg | None) -> list[Reg]:
            source = MatrixSource(spec.dtype, spec.n, rounding(spec.rounds))
            weights = [
                source.load(f, [w], f.add(n, r * spec.n), 0, lanes, mask) for r in range(rows)
            ]
            for r in fetched:
                prefetch(f, f.offset(w, f.add(n, r * spec.n + spec.span), self.type))
            found = []
            for b in range(batch):
                x = f.load(vector, dy, f.add(n, b * spec.span))
                found += [f.fma(weights[r], x, sums[b * rows + r]) for r in range(rows)]
            return found

        sums = f.when(
            begins,
            lambda: [f.const(0.0, vector)] * len(places),
            lambda: [f.load(vector, held, at) for at in places],
        )
        whole = f.and_(width, -lanes)
        sums = f.loop(0, whole, lambda n, *s: step(n, list(s), None), sums, step=lanes)
        if rest:
            more = f.icmp("slt", whole, width)
            sums = f.when(more, lambda: step(whole, sums, tail), lambda: sums)
        for at, value in zip(places, sums, strict=True):
            f.store(value, held, at)
        return f.finish()

    def _give_gradient(self, first: Operand, rows: int) -> None:
        """Add up the lanes of the sums and take them to X's gradient."""
        f, spec, lanes = self.f, self.spec, self.lanes
        assert spec.data is not None
        sink = Sink(spec.data, spec.k)
        per_line = LINE // spec._width

        def one(b: Reg) -> None:
            for r in range(rows):
                at = f.add(f.mul(b, spec.rows * per_line), r * per_line)
                total = f.reduce("fadd", f.load(self.type.of(lanes), self.sums, at))
                f.store(total, self.tile, r)
            for v in range(0, rows, lanes):
                value = f.load(self.type.of(lanes), self.tile, v)
                column = f.add(first, v)
                mask = lane_mask(f, rows - v, lanes)
                sink.store(f, self.gradient, value, f.add(f.mul(b, spec.k), column), column, mask)

        f.loop(0, spec.m, one)
