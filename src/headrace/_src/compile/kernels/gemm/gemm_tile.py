"""The register tile of a matrix product. In: its size and how A and B lie. Out: a function.

The function adds `depth` outer products of a column of A and a row of B to rows x columns of the
product, which stay in vector registers:

    tile(a, b, depth, partial, first, last, index, column, ahead, *pointers)

If the common dimension comes in several blocks, sums are kept at `partial` between them (dense rows
of whole vectors): `first` says that there are none yet, `last` that the tile is complete. Then it
goes through the sink's epilogue to element `index` of the outputs, in column `column`. Meanwhile
`ahead` elements per k are fetched into the core's own cache from the address of that name, and
what the sink will read and write after the last block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from headrace._src.compile.codegen.cache_lines import LINE, prefetch
from headrace._src.compile.codegen.emit import I1, I64, PTR, Function, Module, Reg, Type
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.codegen.pointwise_code import load_value
from headrace._src.compile.kernels.gemm.gemm_memory import Sink, lane_mask
from headrace._src.devices.target import Target

__all__ = ["Tile", "TileWriter", "best_tile", "no_operands"]

# An epilogue is written out for each vector of a tile up to so many operations in total, else once,
# in a loop over the tile in memory: long code takes long to compile.
INLINE_EPILOGUE = 200
NAMES = {"float": "float32", "double": "float64"}


@dataclass(frozen=True)
class Tile:
    """`a` and `b`: elements from one k to the next; `a_row`: from one row of A to the next.

    `b_padded`: whether rows of B may be read in whole vectors; `split`: whether the common
    dimension comes in several blocks; `ahead`: elements to prefetch per k; `look`: how far to
    prefetch in each row of B, 0 for not at all; `prologue`: what is done to elements of B.
    """

    type: Type
    rows: int
    columns: int
    a: int
    a_row: int
    b: int
    b_padded: bool = True
    split: bool = False
    ahead: int = 0
    look: int = 0
    prologue: Epilogue | None = None

    def vectors(self, lanes: int) -> int:
        return -(-self.columns // lanes)


class TileWriter:
    """Writes the functions of a kernel's tiles, each once, all with one sink."""

    def __init__(self, module: Module, prefix: str, sink: Sink) -> None:
        self.module = module
        self.prefix = prefix
        self.sink = sink
        self._tiles: dict[Tile, Function] = {}
        self._finishers: dict[int, Function] = {}

    def tile(self, tile: Tile) -> Function:
        """The function of a tile."""
        if tile not in self._tiles:
            self._tiles[tile] = self._write(tile)
        return self._tiles[tile]

    def _write(self, tile: Tile) -> Function:
        sink = self.sink
        lanes = self.module.target.lanes(NAMES[tile.type.element])
        vectors = tile.vectors(lanes)
        compact = sink.cost() * tile.rows * vectors > INLINE_EPILOGUE
        finish = self._finisher(tile, lanes) if compact else None
        f = self.module.function(
            f"{self.prefix}_tile{tile.rows}x{tile.columns}",
            [PTR, PTR, I64, PTR, I1, I1, I64, I64, PTR, *sink.parameters],
            noalias=False,
        )
        a, b, depth, partial, first, last, index, column, ahead, *pointers = f.parameters
        masks = [lane_mask(f, tile.columns - lanes * v, lanes) for v in range(vectors)]
        sums = _begin(f, tile, lanes, vectors, partial, first)

        def fetch(r: Reg) -> None:
            for column in range(0, tile.columns, LINE * 8 // tile.type.bits):
                at = f.add(f.mul(r, sink.stride), column)
                sink.fetch(f, pointers, f.add(index, at))

        if tile.split:
            f.when(last, lambda: f.loop(0, tile.rows, fetch))
        elif sink.far:
            f.loop(0, tile.rows, fetch)
        sums = _multiply(f, tile, lanes, vectors, (a, b, depth, ahead), masks, sums)

        def keep() -> None:
            for i, value in enumerate(sums):
                f.store(value, partial, i * lanes)

        def complete() -> None:
            if finish is not None:
                keep()
                f.call_function(finish, partial, tile.rows, index, column, *pointers)
                return
            found = []
            for v in range(vectors):
                known: dict[int, Reg] = {}
                for r in range(tile.rows):
                    at = f.add(index, r * sink.stride + v * lanes)
                    where = f.add(column, v * lanes)
                    value = sums[r * vectors + v]
                    outputs = sink.results(f, pointers, value, at, where, masks[v], known)
                    if sink.reads_first:
                        found.append((outputs, at, masks[v]))
                    else:
                        sink.write(f, pointers, outputs, at, masks[v])
            for outputs, at, mask in found:
                sink.write(f, pointers, outputs, at, mask)

        if tile.split:
            f.when(last, complete, keep)
        else:
            complete()
        return f.finish()

    def _finisher(self, tile: Tile, lanes: int) -> Function:
        """finish(partial, rows, index, column, *pointers): a complete tile to the sink."""
        if tile.columns in self._finishers:
            return self._finishers[tile.columns]
        sink = self.sink
        f = self.module.function(
            f"{self.prefix}_finish{tile.columns}",
            [PTR, I64, I64, I64, *sink.parameters],
            noalias=False,
        )
        partial, rows, index, column, *pointers = f.parameters
        vectors = tile.vectors(lanes)

        def row(r: Reg) -> None:
            for v in range(vectors):
                mask = lane_mask(f, tile.columns - v * lanes, lanes)
                here = f.add(f.mul(r, vectors * lanes), v * lanes)
                value = f.load(tile.type.of(lanes), partial, here)
                at = f.add(f.add(index, f.mul(r, sink.stride)), v * lanes)
                sink.store(f, pointers, value, at, f.add(column, v * lanes), mask)

        f.loop(0, rows, row)
        self._finishers[tile.columns] = f.finish()
        return f


def _begin(
    f: Function, tile: Tile, lanes: int, vectors: int, partial: Reg, first: Reg
) -> list[Reg]:
    """The sums so far."""
    zeros = [f.const(0.0, tile.type.of(lanes))] * (tile.rows * vectors)
    if not tile.split:
        return zeros
    vector = tile.type.of(lanes)
    return f.when(
        first,
        lambda: zeros,
        lambda: [f.load(vector, partial, i * lanes) for i in range(tile.rows * vectors)],
    )


def _multiply(
    f: Function,
    tile: Tile,
    lanes: int,
    vectors: int,
    inputs: tuple[Reg, Reg, Reg, Reg],
    masks: Sequence[Reg | None],
    sums: list[Reg],
) -> list[Reg]:
    """sums += A's tile x B's panel, over `depth`."""
    a, b, depth, ahead = inputs
    dtype, line = NAMES[tile.type.element], LINE * 8 // tile.type.bits

    def steps(count: int) -> Callable[..., list[Reg]]:
        def step(_: Reg, ap: Reg, bp: Reg, next: Reg, *sums: Reg) -> list[Reg]:
            found = list(sums)
            for k in range(count):
                row = [
                    load_value(
                        f, dtype, lanes, bp, k * tile.b + v * lanes,
                        mask=None if tile.b_padded else masks[v],
                    )
                    for v in range(vectors)
                ]  # fmt: skip
                if tile.prologue is not None:
                    row = [tile.prologue.apply(f, value, no_operands)[0] for value in row]
                if tile.ahead:
                    prefetch(f, f.offset(next, k * tile.ahead, tile.type))
                if tile.look:
                    for column in range(0, tile.columns, line):
                        at = k * tile.b + tile.look + column
                        prefetch(f, f.offset(bp, at, tile.type))
                for r in range(tile.rows):
                    x = f.splat(f.load(tile.type, ap, k * tile.a + r * tile.a_row), lanes)
                    for v in range(vectors):
                        i = r * vectors + v
                        found[i] = f.fma(x, row[v], found[i])
            following = ((ap, tile.a), (bp, tile.b), (next, tile.ahead))
            return [*(f.offset(p, count * size, tile.type) for p, size in following), *found]

        return step

    at_once = _at_once(tile, vectors)
    whole = f.and_(depth, -at_once)
    carried = f.loop(0, whole, steps(at_once), [a, b, ahead, *sums], step=at_once)
    if at_once > 1:
        carried = f.loop(whole, depth, steps(1), carried)
    return carried[3:]


def _at_once(tile: Tile, vectors: int) -> int:
    """How many k a round of a tile's loop multiplies. A processor that begins four instructions a
    cycle has no more than two for everything around two multiply-adds: with 12 sums, the loop's own
    would slow it down. Small tiles are few, and not worth the longer code. Rows of B that are read
    in place are fetched by the processor, which expects each load to go on by a short step.
    """
    if tile.b > tile.columns and not tile.look:
        return 1
    return 2 if tile.rows * vectors >= 24 else 4 if tile.rows * vectors >= 8 else 1


def no_operands(number: int, kind: str) -> Reg:
    """Refuse to read an operand of a prologue."""
    raise ValueError("a prologue of elements that are read in place has no operands")


@lru_cache(1024)
def best_tile(m: int, n: int, dtype: str, target: Target, packed: bool = False) -> tuple[int, int]:
    """Rows and columns of the register tile that covers an m x n product in the fewest cycles. If B
    is packed, so that rows of any number of vectors are contiguous, a tile may use every register:
    of 16, 4 x 3 vectors. Without fused multiply-adds, a product needs one for itself.
    """
    lanes = target.lanes(dtype)
    spare = 0 if packed and target.has("fma") else 1
    # Narrow vectors have no masked stores: rows of A are packed in whole ones.
    step = lanes if target.vector_bytes < 32 else 1
    options = []
    for vectors in range(1, 5):
        most = (target.registers - 1 - spare - vectors) // vectors
        for rows in range(step, min(most, m + step - 1) + 1, step):
            cycles = _cycles(m, n, rows, vectors, lanes, target)
            options.append((cycles, -rows * vectors, rows, vectors * lanes))
    return min(options)[2:]


def _cycles(m: int, n: int, rows: int, vectors: int, lanes: int, target: Target) -> float:
    """Estimated cycles per k for a whole m x n product."""
    tiles, row_rest = divmod(m, rows)
    panels, rest = divmod(n, vectors * lanes)
    tail = -(-rest // lanes)
    return (
        tiles * panels * _tile_cycles(rows, vectors, target)
        + panels * _tile_cycles(row_rest, vectors, target)
        + tiles * _tile_cycles(rows, tail, target)
        + _tile_cycles(row_rest, tail, target)
    )


def _tile_cycles(rows: int, vectors: int, target: Target) -> float:
    """Cycles per k of one tile, as measured: two multiply-adds a cycle, a little for each load; a
    broadcast that is used once only costs as much as a multiply-add. Fewer than eight sums don't
    hide the latency of four cycles. Few registers hold so few sums that the loop itself counts:
    with 16 of them, tiles of 2 x 4 and 3 x 3 vectors are 8 % slower than 6 x 2.
    """
    if not rows * vectors:
        return 0.0
    loads = 0.12 * rows + 0.1 * vectors + (0.45 * rows if vectors == 1 else 0)
    around = 0.0 if target.registers >= 32 else 0.5
    return max(rows * vectors / 2 + loads + around, 4.0)
