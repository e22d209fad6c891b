"""Element-wise kernels: a pointwise program at every point of a space, movement included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from headrace._src.compile.codegen.emit import I64, Function, Reg
from headrace._src.compile.codegen.iteration_spaces import (
    Access,
    Dim,
    ProgramInput,
    StagedProgram,
    cost,
    lanes_for,
    positions_of,
    simplify,
)
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.loop_code import generate_loops
from headrace._src.compile.codegen.loop_programs import (
    Affine,
    Body,
    For,
    Rest,
    Split,
    Store,
    affine,
)
from headrace._src.devices.target import SIZES, Target
from headrace._src.lowering.pointwise import Pointwise

__all__ = ["Map", "unroll_of"]

# Work of fewer vector instructions than this is not worth a second thread.
SMALL = 4000
# The units of work that the threads share: enough for even shares.
UNITS = 64
ENOUGH = 8
# Larger squares of registers than this aren't transposed: narrow types would need very large ones.
SQUARE = 16
# Rows whose elements are read several times are done in blocks of this many.
NEAR = 64
# Longer programs are not unrolled, or done on whole squares of registers.
LONG = 24


@dataclass(frozen=True)
class Map:
    """outputs = program(inputs), at every point of the space of `extents`.

    The strides of an Access belong to the dimensions of `extents`; 0 broadcasts. Dimension d's
    position is what "index d" means. An output may be the memory of an input with equal strides.
    Outputs of `stream_bytes` and more are written past the caches.
    """

    extents: tuple[int, ...]
    program: Pointwise
    inputs: tuple[Access, ...]
    outputs: tuple[Access, ...]
    stream_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        rank = len(self.extents)
        if any(len(a.strides) != rank for a in (*self.inputs, *self.outputs)):
            raise ValueError(f"a map over {rank} dimensions has an access of another rank")
        if tuple(a.dtype for a in self.inputs) != self.program.inputs:
            raise ValueError(f"inputs {self.inputs} don't fit the program\n{self.program}")
        if tuple(a.dtype for a in self.outputs) != self.program.output_dtypes:
            raise ValueError(f"outputs {self.outputs} don't fit the program\n{self.program}")

    @property
    def arguments(self) -> tuple[str, ...]:
        inputs = [f"x{i}" for i in range(len(self.inputs))]
        return (*inputs, *(f"out:y{i}" for i in range(len(self.outputs))))

    @property
    def counters(self) -> int:
        return 0

    @property
    def small(self) -> bool:
        """Whether one thread is done before a team would meet."""
        return prod(self.extents) * (1 + len(self.program.steps)) <= SMALL

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        nest = _Nest.of(self, team.target)
        names = [a.removeprefix("out:") for a in self.arguments]
        buffers = dict(zip(names, team.args, strict=True))
        if nest is None:
            generate_loops(team, self._point(), buffers)
            return
        streamed = nest.streamed(self.stream_bytes)
        if not any(streamed):
            generate_loops(team, nest.program(streamed), buffers)
            return
        outputs = [buffers[f"y{i}"] for i, yes in enumerate(streamed) if yes]
        plain = [False] * len(streamed)
        team.f.when(
            _aligned(team.f, outputs, team.target.vector_bytes),
            lambda: generate_loops(team, nest.program(streamed), buffers),
            lambda: generate_loops(team, nest.program(plain), buffers),
        )

    def loops(self, target: Target) -> Body:
        """The loop program, to look at."""
        nest = _Nest.of(self, target)
        return nest.program(nest.streamed(self.stream_bytes)) if nest else self._point()

    def _point(self) -> Body:
        """The program of a map with a single point."""
        inputs = [
            ProgramInput(f"x{i}", a.dtype, affine({}, a.offset)) for i, a in enumerate(self.inputs)
        ]
        staging = StagedProgram(self.program, inputs, [Affine()] * len(self.extents), {}, 1)
        stores = [
            Store(value, a.dtype, f"y{i}", affine({}, a.offset))
            for i, (value, a) in enumerate(zip(staging.outputs, self.outputs, strict=True))
        ]
        return (For("unit", 1, (*staging.at(0), *stores), "parallel"),)


def _aligned(f: Function, pointers: Sequence[Reg], size: int) -> Reg:
    bits = f.convert("ptrtoint", pointers[0], I64)
    for p in pointers[1:]:
        bits = f.or_(bits, f.convert("ptrtoint", p, I64))
    return f.icmp("eq", f.and_(bits, size - 1), 0)


@dataclass(frozen=True)
class _Nest:
    """A map's loops: units for the threads, then rows, then lanes.

    `outer` dimensions are flattened into units, together with blocks of the rows or of the lanes
    where those alone would be too few. In a nest that is `across`, a tile of `unroll` rows is
    done at once. In one that is `turned`, inputs are contiguous along the rows, and tiles of as
    many rows as lanes are transposed in registers.
    """

    map: Map
    outer: tuple[Dim, ...]
    row: Dim | None
    lane: Dim
    lanes: int
    unroll: int
    across: bool
    turned: bool = False

    @staticmethod
    def of(spec: Map, target: Target) -> _Nest | None:
        """The nest of a map; None if it has a single point."""
        arrays = [a.strides for a in (*spec.inputs, *spec.outputs)]
        arrays += positions_of([spec.program], len(spec.extents))
        first, last = len(spec.inputs), len(spec.inputs) + len(spec.outputs)
        dims = simplify(spec.extents, arrays, order_by=[*range(first, last), *range(first)])
        if not dims:
            return None
        lanes = lanes_for(target, [spec.program])
        *outer, lane = dims
        square = min(lanes, SQUARE)
        turned = _turned(spec, outer, lane, square)
        if turned is not None:
            outer.remove(turned)
            return _Nest(spec, tuple(outer), turned, lane, square, square, True, True)
        row = outer.pop() if outer else None
        unroll = unroll_of(spec.program)
        if row is not None and row.extent >= unroll > 1 and lane.extent <= 2 * lanes:
            return _Nest(spec, tuple(outer), row, lane, lanes, unroll, True)
        return _Nest(spec, tuple(outer), row, lane, lanes, unroll, False)

    # -- Shares of the work ----------------------------------------------------------------------

    def blocks(self) -> tuple[int, int]:
        """How many rows and lanes a unit of work has."""
        rows = self.row.extent if self.row else 1
        lanes = self.lane.extent
        units = prod(d.extent for d in self.outer)
        if self.is_small():
            return rows, lanes
        if self.turned:
            # Long runs along the inputs, which the processor's prefetcher predicts.
            return min(rows, 32 * self.lanes), min(lanes, 4 * self.lanes)
        if self._finer():
            return min(rows, NEAR), lanes
        if units >= UNITS:
            return rows, lanes
        wanted = ceil(UNITS / max(1, units))
        tile = self.unroll if self.across else 1
        if rows >= ENOUGH * tile:
            return _share(rows, wanted, tile), lanes
        step = self.lanes if self.across else self.lanes * self.unroll
        return rows, _share(lanes, wanted, step)

    def _finer(self) -> list[str]:
        """Return the outer dimensions with strides between those of a row's elements in an input:
        rows are done in blocks, and these dimensions within a block, while its lines are in cache.
        """
        row = self.row
        if row is None or not self.across:
            return []
        inputs = range(len(self.map.inputs))
        return [
            d.name
            for d in self.outer
            if any(0 < abs(d.strides[i]) < abs(row.strides[i]) for i in inputs)
        ]

    def is_small(self) -> bool:
        elements = prod(self.map.extents)
        return ceil(elements / self.lanes) * (cost(self.map.program) + 2) <= SMALL

    # -- The program -----------------------------------------------------------------------------

    def program(self, streamed: Sequence[bool]) -> Body:
        rows, lanes = self.blocks()
        row_blocks = ceil(self.row.extent / rows) if self.row and rows else 1
        lane_blocks = ceil(self.lane.extent / lanes) if lanes else 1
        sizes = {d.name: d.extent for d in self.outer}
        finer = self._finer()
        names = [n for n in sizes if n not in finer] + ["row_block", "lane_block", *finer]
        sizes |= {"row_block": row_blocks, "lane_block": lane_blocks}
        extents = [sizes[n] for n in names]
        body = self._unit(streamed, rows, lanes)
        if self.is_small():
            # One thread walks over the units by itself.
            return (For("unit", 1, (_flat("serial", "part", extents, names, body),), "parallel"),)
        return (_flat("parallel", "unit", extents, names, body),)

    def _unit(self, streamed: Sequence[bool], rows: int, lanes: int) -> Body:
        staging = self._staging(rows, lanes)
        inner = For(
            self.lane.name,
            _stop(self.lane, lanes, "lane_block"),
            (*staging.at(2), *self._stores(staging.outputs, streamed, rows, lanes)),
            "vector",
            lanes=self.lanes,
            unroll=1 if self.across else self.unroll,
            across=self.row.name if self.across and self.row else "",
        )
        body: Body = (*staging.at(1), inner)
        if self.row is not None:
            stop = _stop(self.row, rows, "row_block")
            kind, step = ("tile", self.unroll) if self.across else ("serial", 1)
            body = (For(self.row.name, stop, body, kind, step=step),)
        return (*staging.at(0), *body)

    def _dims(self) -> list[Dim]:
        return [*self.outer, *([self.row] if self.row else []), self.lane]

    def _staging(self, rows: int, lanes: int) -> StagedProgram:
        """The program at three levels: 0 outside, 1 rows, 2 lanes. Rows that are done at once
        count as lanes.
        """
        levels = {d.name: 0 for d in self.outer} | {"row_block": 0, "lane_block": 0}
        if self.row is not None:
            levels[self.row.name] = 2 if self.across else 1
        levels[self.lane.name] = 2
        inputs = [
            ProgramInput(f"x{i}", a.dtype, self._index(i, a.offset, rows, lanes))
            for i, a in enumerate(self.map.inputs)
        ]
        first = len(self.map.inputs) + len(self.map.outputs)
        positions = [self._index(first + d, 0, rows, lanes) for d in range(len(self.map.extents))]
        return StagedProgram(self.map.program, inputs, positions, levels, 3)

    def _stores(self, values: Sequence[str], streamed: Sequence[bool], rows: int, lanes: int):
        first = len(self.map.inputs)
        for i, (value, a) in enumerate(zip(values, self.map.outputs, strict=True)):
            index = self._index(first + i, a.offset, rows, lanes)
            yield Store(value, a.dtype, f"y{i}", index, streamed[i])

    def _index(self, array: int, offset: int, rows: int, lanes: int) -> Affine:
        """The address of an array's element, with the blocks of rows and lanes in it."""
        terms = {d.name: d.strides[array] for d in self._dims()}
        if self.row is not None and rows < self.row.extent:
            terms["row_block"] = self.row.strides[array] * rows
        if lanes < self.lane.extent:
            terms["lane_block"] = self.lane.strides[array] * lanes
        return affine(terms, offset)

    # -- Streaming -------------------------------------------------------------------------------

    def streamed(self, least: int) -> list[bool]:
        """Which outputs are written past the caches: large ones whose vectors are all aligned."""
        first = len(self.map.inputs)
        size = prod(self.map.extents)
        if self.turned:
            # Every store is to another page: most time would be spent on fetching lines first.
            least //= 16
        return [
            size * SIZES[a.dtype] >= least and self._is_aligned(first + i, a)
            for i, a in enumerate(self.map.outputs)
        ]

    def _is_aligned(self, array: int, access: Access) -> bool:
        vector = self.lanes * SIZES[access.dtype]
        others = [d.strides[array] for d in self._dims() if d is not self.lane]
        steps = [access.offset, *others]
        return (
            self.lane.strides[array] == 1
            and vector >= 16
            and all(s % self.lanes == 0 for s in steps)
        )


def _turned(spec: Map, outer: Sequence[Dim], lane: Dim, lanes: int) -> Dim | None:
    """The dimension along which inputs are contiguous that aren't along the lanes, if they can be
    transposed in registers.
    """
    strided = [i for i in range(len(spec.inputs)) if lane.strides[i] not in (0, 1)]
    if not strided or cost(spec.program) > LONG or lane.extent < lanes // 2 or lanes < 2:
        return None
    for dim in outer:
        if dim.extent >= lanes // 2 and all(dim.strides[i] == 1 for i in strided):
            return dim
    return None


def unroll_of(program: Pointwise) -> int:
    """How many vectors of a program are done at once."""
    steps = cost(program)
    return 4 if steps <= 8 else 2 if steps <= LONG else 1


def _share(extent: int, parts: int, step: int) -> int:
    """The size of blocks, a multiple of `step`, that cut an extent into about `parts`."""
    return max(1, ceil(extent / parts / step)) * step


def _stop(dim: Dim, block: int, variable: str) -> int | Rest:
    if block >= dim.extent:
        return dim.extent
    return Rest(block, dim.extent, affine({variable: block}))


def _flat(
    kind: str, variable: str, extents: Sequence[int], names: Sequence[str], body: Body
) -> For:
    """A loop over flattened dimensions."""
    return For(
        variable,
        prod(extents),
        (Split(affine({variable: 1}), tuple(names), tuple(extents)), *body),
        kind,
    )
