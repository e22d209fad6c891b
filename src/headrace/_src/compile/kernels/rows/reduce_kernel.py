"""Reductions: combine elements along dimensions, with programs before and after.

There are three forms, chosen by the layout and the number of elements:

    rows        the lanes are along a reduced dimension; a row's lanes are combined in the end
    columns     the lanes are along a dimension that is kept, the rows are added to each other
    partial     either of the two for few results from many elements: the threads share the
    elements,
                leave partial results in scratch memory, meet, and combine those in the order of the
                threads

Results depend on the number of threads, but not on how the threads run. Sums of floating numbers
are made of short sums (at most CHAIN additions) that are added up with compensation. Where a kernel
has an `order`, they depend on neither the inputs' layout nor the program before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

from headrace._src.compile.codegen.combine import Combine, combine_of, state_dtype
from headrace._src.compile.codegen.emit import I8
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
    Accumulate,
    Affine,
    Body,
    Compute,
    Fold,
    For,
    Load,
    Merge,
    Rest,
    Split,
    Statement,
    Store,
    Take,
    TeamBarrier,
    Total,
    affine,
)
from headrace._src.devices.target import SIZES, Target
from headrace._src.lowering.pointwise import Pointwise

__all__ = ["ReduceKernel", "follows"]

# The most additions of a plain sum before it's added to a compensated one.
CHAIN = 64
# Work of fewer vector instructions than this is not worth a second thread.
SMALL = 4000
# The form of a reduction, and with it the layout of scratch memory, must not depend on the target:
# it's chosen for vectors of this size.
_USUAL = Target("", "", "", 64, 32)
# With fewer units than this to share, the threads share the elements of each result.
ENOUGH = 16


@dataclass(frozen=True)
class ReduceKernel:
    """outputs = after(combined before(inputs), operands), at every point of the `kept` dimensions.

    `before` gives one value for each of `combines`, which are combined over the `reduced`
    dimensions: "sum", "prod", "max", "min", "all", "any", or "argmax" and "argmin", whose result is
    the int64 position in the reduced dimensions, flattened. Inputs have strides for (*kept,
    *reduced), operands and outputs for kept alone; "index" counts the dimensions likewise. The
    results come first among the inputs of `after`. An output may be the memory of an operand.

    `order`: strides of an array for (*kept, *reduced). Values are combined as if the only input
    were this array. Reduced dimensions that are one in it must be one in every input.
    """

    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    before: Pointwise
    combines: tuple[str, ...]
    after: Pointwise
    inputs: tuple[Access, ...]
    operands: tuple[Access, ...]
    outputs: tuple[Access, ...]
    order: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        rank = len(self.kept) + len(self.reduced)
        if any(len(a.strides) != rank for a in self.inputs):
            raise ValueError(f"a reduction over {rank} dimensions has an input of another rank")
        if any(len(a.strides) != len(self.kept) for a in (*self.operands, *self.outputs)):
            raise ValueError(f"operands and outputs need strides for the {len(self.kept)} kept")
        if len(self.combines) != len(self.before.outputs):
            raise ValueError(f"{len(self.before.outputs)} values for {self.combines}")
        if self.order and not follows(self.order, self.reduced, self.before, self.inputs):
            raise ValueError(
                "an input's reduced dimensions are not one where they are in the order"
            )

    @property
    def small(self) -> bool:
        """Whether one thread is done before a team would meet."""
        return prod(self.kept) * prod(self.reduced) * (2 + len(self.before.steps)) <= SMALL

    @property
    def arguments(self) -> tuple[str, ...]:
        inputs = [f"x{i}" for i in range(len(self.inputs))]
        operands = [f"b{i}" for i in range(len(self.operands))]
        return (*inputs, *operands, *(f"out:y{i}" for i in range(len(self.outputs))))

    @property
    def counters(self) -> int:
        return 0

    @property
    def meetings(self) -> int:
        """All threads' partial results are stored before they are combined."""
        return int(_ReductionLoops(self, _USUAL).is_partial)

    def scratch(self, threads: int) -> int:
        return threads * _ReductionLoops(self, _USUAL).partial_bytes

    def emit(self, team: Team) -> None:
        plan = _ReductionLoops(self, team.target)
        names = [a.removeprefix("out:") for a in self.arguments]
        buffers = dict(zip(names, team.args, strict=True))
        for name, (start, _) in plan.partials.items():
            buffers[name] = team.f.offset(team.scratch, start, I8)
        generate_loops(team, plan.program(), buffers)

    def loops(self, target: Target) -> Body:
        """The loop program, to look at."""
        return _ReductionLoops(self, target).program()


def follows(
    order: tuple[int, ...], reduced: tuple[int, ...], before: Pointwise, inputs: Sequence[Access]
) -> bool:
    """Return whether reduced dimensions that are one in the array of strides `order` are one in
    every input of a program, and in the positions that it asks for.
    """
    rank, count = len(order), len(reduced)
    arrays = [order, *(a.strides for a in inputs), *positions_of([before], rank)]
    along = [strides[rank - count :] for strides in arrays]
    together = simplify(reduced, along, order_by=[0])
    return len(together) == len(simplify(reduced, along[:1], order_by=[0]))


Blocks = dict[str, tuple[Dim, int]]  # variables that count blocks of a dimension, of this size


class _ReductionLoops:
    """The loops of a reduction for a target.

    A reduction r has a total "whole<r>"; where long runs of floating numbers are added, values go
    to "short<r>" first, which is folded into it.
    """

    def __init__(self, spec: ReduceKernel, target: Target) -> None:
        self.spec = spec
        kept, reduced = len(spec.kept), len(spec.reduced)
        strides = [a.strides for a in spec.inputs]
        strides += [(*a.strides, *(0,) * reduced) for a in (*spec.operands, *spec.outputs)]
        self.first_operand = len(spec.inputs)
        self.first_output = self.first_operand + len(spec.operands)
        self.first_position = self.first_output + len(spec.outputs)
        strides += positions_of([spec.before], kept + reduced)
        strides += [(*p, *(0,) * reduced) for p in positions_of([spec.after], kept)]
        # The last array stands for the position in the reduced dimensions.
        self.flat_position = len(strides)
        asked = any(c in ("argmax", "argmin") for c in spec.combines)
        flat = [asked * prod(spec.reduced[d + 1 :]) for d in range(reduced)]
        strides.append((*(0,) * kept, *flat))
        order = [*range(len(spec.inputs)), *range(self.first_output, self.first_position)]
        self.kept = simplify(spec.kept, [s[:kept] for s in strides], order_by=order, prefix="k")
        if spec.order:
            order = [len(strides)]
            strides.append(spec.order)
        self.reduced = simplify(
            spec.reduced, [s[kept:] for s in strides], order_by=order, prefix="r"
        )
        self.lanes = lanes_for(target, [self._values_alone])
        self.lane, self.by_rows = self._ordered_lane() if spec.order else self._choose_lane()
        self.kept_rest = [d for d in self.kept if d is not self.lane]
        self.reduced_rest = [d for d in self.reduced if d is not self.lane]

    def _choose_lane(self) -> tuple[Dim, bool]:
        """The dimension of the lanes (the one in which most inputs are contiguous, the longest if
        there are several such), and whether it's a reduced one.
        """
        dims = [*self.kept, *self.reduced]
        if not dims:
            return Dim("r", 1, (0,) * (self.flat_position + 1)), True

        best = max(dims, key=self._merit)
        return best, best in self.reduced

    def _ordered_lane(self) -> tuple[Dim, bool]:
        """The dimension of the lanes where the spec has an order: the last one of its array. If
        that is kept, results do not depend on which of the kept ones it is.
        """
        by_rows = not self._ordered_kept or bool(self.reduced and self.reduced[-1].strides[-1] == 1)
        if not by_rows:
            return max(self.kept, key=self._merit), False
        return self.reduced[-1] if self.reduced else self._choose_lane()[0], True

    def _merit(self, dim: Dim) -> tuple[int, int, int]:
        along = [dim.strides[i] for i in range(len(self.spec.inputs))]
        contiguous = sum(s == 1 for s in along)
        return contiguous, -sum(s not in (0, 1) for s in along), dim.extent

    @cached_property
    def _ordered_kept(self) -> list[Dim]:
        """The kept dimensions, as the spec's order has them."""
        return simplify(self.spec.kept, [self.spec.order[: len(self.spec.kept)]], order_by=[0])

    @property
    def _values_alone(self) -> Pointwise:
        """The program on which the form depends: the one before, or just its results where the spec
        has an order.
        """
        if not self.spec.order:
            return self.spec.before
        dtypes = self.spec.before.output_dtypes
        return Pointwise(dtypes, (), tuple(range(len(dtypes))))

    # -- Sizes -----------------------------------------------------------------------------------

    @property
    def results(self) -> int:
        return prod(self.spec.kept)

    @property
    def is_small(self) -> bool:
        vectors = self.results * prod(self.spec.reduced) / lanes_for(_USUAL, [self._values_alone])
        return vectors * (cost(self._values_alone) + 2) <= SMALL

    @property
    def is_partial(self) -> bool:
        if self.is_small or not prod(self.spec.reduced):
            return False
        if self.by_rows:
            return self.results < ENOUGH
        panel = 8 * lanes_for(_USUAL, [self._values_alone])
        if self.spec.order:
            *rest, lane = (d.extent for d in self._ordered_kept)
        else:
            rest, lane = [d.extent for d in self.kept_rest], self.lane.extent
        panels = prod(rest) * ceil(lane / panel)
        # Whole rows are read faster than panels of them, if there are rows enough to share.
        many = prod(self.spec.reduced) >= CHAIN * ENOUGH and self.results <= 1 << 20
        return panels < ENOUGH or many

    @cached_property
    def unroll(self) -> int:
        """Registers of values at once: independent sums hide the adder's latency."""
        heavy = cost(self._values_alone) > 16
        many = len(self.spec.combines) > 1 or any(c.startswith("arg") for c in self.spec.combines)
        most = 2 if heavy else 4 if self.by_rows or many else 8
        return max(1, min(most, self.lane.extent // self.lanes))

    @property
    def panel(self) -> int:
        """The elements along the lanes that are done at once."""
        return self.lanes * self.unroll

    # -- Combining -------------------------------------------------------------------------------

    @cached_property
    def folding(self) -> list[bool]:
        """Which reductions add up such long runs that it's done in two stages."""
        run = prod(self._trips(d) for d in self.reduced)
        long = self.is_partial or run > CHAIN
        types = self.spec.before.output_dtypes
        return [
            long and c == "sum" and "float" in t
            for c, t in zip(self.spec.combines, types, strict=True)
        ]

    def _trips(self, dim: Dim) -> int:
        """How often a loop over a dimension adds to a sum."""
        return ceil(dim.extent / self.panel) if dim is self.lane else dim.extent

    def _combine(self, r: int) -> Combine:
        dtype = state_dtype(self.spec.before.output_dtypes[r])
        return combine_of("long_sum" if self.folding[r] else self.spec.combines[r], dtype)

    def _totals(self, *, own_lanes: bool, short: bool = True) -> list[Statement]:
        lanes, copies = (self.lanes, self.unroll) if own_lanes else (0, 1)
        body: list[Statement] = []
        for r, name in enumerate(self.spec.combines):
            dtype = state_dtype(self.spec.before.output_dtypes[r])
            whole = "long_sum" if self.folding[r] else name
            body.append(Total(f"whole{r}", whole, dtype, lanes, copies))
            if self.folding[r] and short:
                body.append(Total(f"short{r}", name, dtype, lanes, copies))
        return body

    def _accumulate(self, values: Sequence[str], blocks: Blocks) -> list[Statement]:
        position = self._address(self.flat_position, 0, blocks)
        return [
            Accumulate(f"short{r}" if self.folding[r] else f"whole{r}", value, position)
            for r, value in enumerate(values)
        ]

    def _folds(self) -> list[Statement]:
        return [Fold(f"short{r}", f"whole{r}") for r, yes in enumerate(self.folding) if yes]

    # -- Values and results ----------------------------------------------------------------------

    def _address(self, array: int, offset: int, blocks: Blocks) -> Affine:
        terms = {d.name: d.strides[array] for d in (*self.kept, *self.reduced)}
        for variable, (dim, size) in blocks.items():
            terms[variable] = dim.strides[array] * size
        return affine(terms, offset)

    def _values(self, blocks: Blocks) -> StagedProgram:
        """Return the program of the combined values, at three levels. Rows: kept, reduced and lane
        variables. Columns: kept, lane and reduced ones.
        """
        inner = 1 if self.by_rows else 2
        levels = {d.name: 0 for d in self.kept_rest} | {d.name: inner for d in self.reduced_rest}
        levels[self.lane.name] = 3 - inner
        levels |= {v: levels[dim.name] for v, (dim, _) in blocks.items()}
        inputs = [
            ProgramInput(f"x{i}", a.dtype, self._address(i, a.offset, blocks))
            for i, a in enumerate(self.spec.inputs)
        ]
        rank = len(self.spec.kept) + len(self.spec.reduced)
        positions = [self._address(self.first_position + d, 0, blocks) for d in range(rank)]
        return StagedProgram(self.spec.before, inputs, positions, levels, 3)

    def _finish(self, blocks: Blocks) -> list[Statement]:
        """Take the results, run `after`, store its outputs."""
        body: list[Statement] = []
        for r in range(len(self.spec.combines)):
            combine = self._combine(r)
            state = _state(r, combine)
            body.append(Take(state, f"whole{r}"))
            body.append(Compute((f"t{r}",), combine.result, state))
        after, count = self.spec.after, len(self.spec.combines)
        operands = [ProgramInput("", after.inputs[r], f"t{r}") for r in range(count)]
        for i, a in enumerate(self.spec.operands):
            index = self._address(self.first_operand + i, a.offset, blocks)
            operands.append(ProgramInput(f"b{i}", a.dtype, index))
        first = self.first_position + len(self.spec.kept) + len(self.spec.reduced)
        positions = [self._address(first + d, 0, blocks) for d in range(len(self.spec.kept))]
        levels = dict.fromkeys([*(d.name for d in self.kept), *blocks], 0)
        staging = StagedProgram(after, operands, positions, levels, 1, prefix="w")
        body += staging.at(0)
        for i, (value, a) in enumerate(zip(staging.outputs, self.spec.outputs, strict=True)):
            index = self._address(self.first_output + i, a.offset, blocks)
            body.append(Store(value, a.dtype, f"y{i}", index))
        return body

    # -- Loops -----------------------------------------------------------------------------------

    def program(self) -> Body:
        if not self.is_partial:
            return self._rows() if self.by_rows else self._columns()
        return self._partial_rows() if self.by_rows else self._partial_columns()

    def _lane_loop(self, blocks: Blocks, body: Sequence[Statement]) -> For:
        return For(
            self.lane.name,
            _stop(self.lane, blocks),
            tuple(body),
            "vector",
            lanes=self.lanes,
            unroll=self.unroll,
        )

    def _shared(self, dims: Sequence[Dim], blocks: Blocks, body: Sequence[Statement]) -> Body:
        """Share dimensions and blocks among the threads; one does it all if it's little."""
        names = [*(d.name for d in dims), *blocks]
        extents = [d.extent for d in dims] + [ceil(d.extent / n) for d, n in blocks.values()]
        if self.is_small:
            part = _flat("part", "serial", names, extents, body)
            return (For("unit", 1, (part,), "parallel"),)
        return (_flat("unit", "parallel", names, extents, body),)

    def _cut(self, dims: Sequence[Dim]) -> Blocks:
        """The block of a dimension after which sums are folded, given loops outermost first."""
        if not any(self.folding):
            return {}
        run = 1
        for dim in reversed(dims):
            if run * self._trips(dim) > CHAIN:
                size = CHAIN // run
                return {"block": (dim, size * self.panel if dim is self.lane else size)}
            run *= self._trips(dim)
        return {}

    def _chain(self, dims: Sequence[Dim], values: StagedProgram, blocks: Blocks) -> list[Statement]:
        """Loops over reduced dimensions, outermost first, that feed the totals."""
        body: list[Statement] = [*values.at(2), *self._accumulate(values.outputs, blocks)]
        for dim in reversed(dims):
            if dim is self.lane:
                body = [*values.at(1), self._lane_loop(blocks, body)]
            else:
                body = [For(dim.name, _stop(dim, blocks), tuple(body))]
            if "block" in blocks and blocks["block"][0] is dim:
                count = ceil(dim.extent / blocks["block"][1])
                body = [For("block", count, (*body, *self._folds()))]
        if "block" not in blocks:
            body += self._folds()
        return body

    def _rows(self) -> Body:
        dims = [*self.reduced_rest, self.lane]
        blocks = self._cut(dims)
        values = self._values(blocks)
        body = [
            *values.at(0),
            *self._totals(own_lanes=True),
            *self._chain(dims, values, blocks),
            *self._finish({}),
        ]
        return self._shared(self.kept_rest, {}, body)

    def _columns(self) -> Body:
        panel = {"panel": (self.lane, self.panel)} if self.lane.extent > self.panel else {}
        blocks = self._cut(self.reduced_rest)
        values = self._values({**blocks, **panel})
        inside = [
            *values.at(1),
            *self._totals(own_lanes=False),
            *self._chain(self.reduced_rest, values, {**blocks, **panel}),
            *self._finish(panel),
        ]
        body = [*values.at(0), self._lane_loop(panel, inside)]
        return self._shared(self.kept_rest, panel, body)

    # -- Partial results -------------------------------------------------------------------------

    @cached_property
    def partials(self) -> dict[str, tuple[int, str]]:
        """The components of partial results: where each begins in a thread's scratch memory, and
        its type.
        """
        places: dict[str, tuple[int, str]] = {}
        at = 0
        for r in range(len(self.spec.combines)) if self.is_partial else ():
            combine = self._combine(r)
            for name, dtype in zip(_state(r, combine), combine.state, strict=True):
                places[name] = (at, dtype)
                at += -(-self.results * SIZES[dtype] // 64) * 64
        return places

    @property
    def partial_bytes(self) -> int:
        """The scratch memory of one thread."""
        if not self.partials:
            return 0
        at, dtype = list(self.partials.values())[-1]
        return at + -(-self.results * SIZES[dtype] // 64) * 64

    def _partial(self, name: str, thread: str, blocks: Blocks) -> Affine:
        """Where a thread keeps a component of the result at this point."""
        dtype = self.partials[name][1]
        terms = {thread: self.partial_bytes // SIZES[dtype]}
        weight = 1
        for dim in reversed(self.kept):
            terms[dim.name] = weight
            terms |= {v: weight * n for v, (d, n) in blocks.items() if d is dim}
            weight *= dim.extent
        return affine(terms)

    def _load_partials(self, r: int, thread: str, blocks: Blocks, prefix: str) -> list[Statement]:
        state = _state(r, self._combine(r))
        names = tuple(f"{prefix}{n}" for n in state)
        loads = [
            Load(name, self.partials[n][1], n, self._partial(n, thread, blocks))
            for name, n in zip(names, state, strict=True)
        ]
        return [*loads, Merge(f"whole{r}", names)]

    def _store_partials(self, blocks: Blocks) -> list[Statement]:
        body: list[Statement] = []
        for r in range(len(self.spec.combines)):
            state = _state(r, self._combine(r))
            body.append(Take(state, f"whole{r}"))
            body += [
                Store(n, self.partials[n][1], n, self._partial(n, "thread", blocks)) for n in state
            ]
        return body

    def _combine_partials(self, blocks: Blocks) -> list[Statement]:
        """Results from all threads' partial ones."""
        merges = [
            s
            for r in range(len(self.spec.combines))
            for s in self._load_partials(r, "other", blocks, "o")
        ]
        return [
            *self._totals(own_lanes=False, short=False),
            For("other", "threads", tuple(merges)),
            *self._finish(blocks),
        ]

    def _partial_rows(self) -> Body:
        size = min(CHAIN * self.panel, -(-self.lane.extent // self.panel) * self.panel)
        blocks: Blocks = {"block": (self.lane, size)}
        values = self._values(blocks)
        unit = [
            *values.at(1),
            self._lane_loop(blocks, [*values.at(2), *self._accumulate(values.outputs, blocks)]),
            *self._folds(),
        ]
        names = [*(d.name for d in self.reduced_rest), "block"]
        extents = [*(d.extent for d in self.reduced_rest), ceil(self.lane.extent / size)]
        body = [
            *values.at(0),
            *self._totals(own_lanes=True),
            _flat("unit", "parallel", names, extents, unit),
            *self._store_partials({}),
        ]
        combine = _flat("result", "parallel", *_named(self.kept), self._combine_partials({}))
        return (*_nested(self.kept, body), TeamBarrier(), combine)

    def _partial_columns(self) -> Body:
        *outer, row = self.reduced_rest
        blocks: Blocks = {"block": (row, min(CHAIN, row.extent))}
        values = self._values(blocks)
        states = [
            s
            for r in range(len(self.spec.combines))
            for s in self._load_partials(r, "thread", {}, "o")
        ]
        body = [*values.at(2), *self._accumulate(values.outputs, blocks)]
        inside = [
            *values.at(1),
            *self._totals(own_lanes=False),
            *states,
            For(row.name, _stop(row, blocks), tuple(body)),
            *self._folds(),
            *self._store_partials({}),
        ]
        unit = _nested(self.kept_rest, [*values.at(0), self._lane_loop({}, inside)])
        names = [*(d.name for d in outer), "block"]
        extents = [*(d.extent for d in outer), ceil(row.extent / blocks["block"][1])]
        start = [*self._totals(own_lanes=False, short=False), *self._store_partials({})]
        panel = {"panel": (self.lane, self.panel)} if self.lane.extent > self.panel else {}
        return (
            *_nested(self.kept_rest, [self._lane_loop({}, start)]),
            _flat("unit", "parallel", names, extents, unit),
            TeamBarrier(),
            *self._shared(
                self.kept_rest, panel, [self._lane_loop(panel, self._combine_partials(panel))]
            ),
        )


def _state(r: int, combine: Combine) -> tuple[str, ...]:
    """What the components of a reduction's state are called."""
    return tuple(f"s{r}_{c}" for c in range(len(combine.state)))


def _stop(dim: Dim, blocks: Blocks) -> int | Rest:
    for variable, (blocked, size) in blocks.items():
        if blocked is dim and size < dim.extent:
            return Rest(size, dim.extent, affine({variable: size}))
    return dim.extent


def _named(dims: Sequence[Dim]) -> tuple[list[str], list[int]]:
    return [d.name for d in dims], [d.extent for d in dims]


def _nested(dims: Sequence[Dim], body: Sequence[Statement]) -> Body:
    """Serial loops around a body."""
    for dim in reversed(dims):
        body = [For(dim.name, dim.extent, tuple(body))]
    return tuple(body)


def _flat(
    variable: str,
    kind: str,
    names: Sequence[str],
    extents: Sequence[int],
    body: Sequence[Statement],
) -> For:
    """A loop over flattened dimensions."""
    split = [Split(affine({variable: 1}), tuple(names), tuple(extents))] if names else []
    return For(variable, prod(extents), (*split, *body), kind)
