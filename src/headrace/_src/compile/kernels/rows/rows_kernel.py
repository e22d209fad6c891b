"""Kernels that pass over each row several times while it is in cache.

A stage is a pointwise program along the row. Its results are stored, kept for later stages,
combined over the row to a scalar that later stages use, or added up over all rows. Softmax, losses
with their gradients, normalisations and their gradients all consist of a few stages (see recipes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

from headrace._src.compile.codegen.combine import COMBINES, combine_of, state_dtype
from headrace._src.compile.codegen.emit import I8
from headrace._src.compile.codegen.iteration_spaces import (
    Access,
    ProgramInput,
    StagedProgram,
    cost,
    lanes_for,
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
    Let,
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
from headrace._src.lowering.pointwise import Pointwise, record

__all__ = ["Rows", "Stage"]

# The most additions of a plain sum before it's added to a compensated one.
CHAIN = 64
# Rows whose sums over all rows are added plainly before they are folded.
BLOCK = 32
# Work of fewer vector instructions than this is not worth a second thread.
SMALL = 4000


@dataclass(frozen=True)
class Stage:
    """One pass over a row.

    `operands` are the program's inputs: "x<i>" for an input of the kernel, "row<i>" for what an
    earlier stage kept, "s<i>" for a scalar. `results` say what becomes of its outputs: "y<i>" is
    stored, "row<i>" kept, "sum s<i>" (or any other combine) gives a scalar, and "total y<i>" is
    added up over all rows and stored in the end. A `scalar` stage is done once per row; its outputs
    are "s<i>" or "y<i>", its inputs have no stride along the row.
    """

    program: Pointwise
    operands: tuple[str, ...]
    results: tuple[str, ...]
    scalar: bool = False


@dataclass(frozen=True)
class Rows:
    """Run `stages` on every row of `inner` elements, at every point of the `outer` dimensions.

    Inputs and outputs have strides for (*outer, inner); outputs that are totals over rows have
    none along the outer dimensions. "index" counts the dimensions likewise.
    """

    outer: tuple[int, ...]
    inner: int
    stages: tuple[Stage, ...]
    inputs: tuple[Access, ...]
    outputs: tuple[Access, ...]

    def __post_init__(self) -> None:
        rank = len(self.outer) + 1
        if any(len(a.strides) != rank for a in (*self.inputs, *self.outputs)):
            raise ValueError(f"rows over {rank} dimensions have an access of another rank")
        for stage in self.stages:
            if len(stage.operands) != len(stage.program.inputs):
                raise ValueError(f"operands {stage.operands} don't fit\n{stage.program}")
            if len(stage.results) != len(stage.program.outputs):
                raise ValueError(f"results {stage.results} don't fit\n{stage.program}")
            for i, kind, _ in _results(stage):
                if kind == "total" and "float" not in stage.program.output_dtypes[i]:
                    raise ValueError("only floating numbers are added up over all rows")
                if kind not in ("", "total", *COMBINES):
                    raise ValueError(f"no reduction is called {kind!r}")

    @property
    def arguments(self) -> tuple[str, ...]:
        inputs = [f"x{i}" for i in range(len(self.inputs))]
        return (*inputs, *(f"out:y{i}" for i in range(len(self.outputs))))

    @property
    def counters(self) -> int:
        return 0

    @property
    def meetings(self) -> int:
        """All threads' totals are stored before they are added."""
        return int(any(kind == "total" for s in self.stages for _, kind, _ in _results(s)))

    def scratch(self, threads: int) -> int:
        return threads * _places(self)[1]

    def emit(self, team: Team) -> None:
        names = [a.removeprefix("out:") for a in self.arguments]
        buffers = dict(zip(names, team.args, strict=True))
        for name, (start, _) in _places(self)[0].items():
            buffers[name] = team.f.offset(team.scratch, start, I8)
        generate_loops(team, _RowLoops(self, team.target).program(), buffers)

    def loops(self, target: Target) -> Body:
        """The loop program, to look at."""
        return _RowLoops(self, target).program()


def _results(stage: Stage) -> Iterator[tuple[int, str, str]]:
    """The number, kind ("" for a plain one) and place of each of a stage's results."""
    for i, text in enumerate(stage.results):
        kind, _, place = text.rpartition(" ")
        yield i, kind, place


def _places(spec: Rows) -> tuple[dict[str, tuple[int, str]], int]:
    """Where a thread's rows and totals are in its scratch memory, with their types; its size."""
    places: dict[str, tuple[int, str]] = {}
    at = 0
    for stage in spec.stages:
        for i, kind, place in _results(stage):
            dtype = state_dtype(stage.program.output_dtypes[i])
            names = [place] if place.startswith("row") else []
            if kind == "total":
                # What is being added, and the compensated sum of it.
                names = [f"{part}_{place}" for part in ("plain", "high", "low")]
            for name in names:
                places[name] = (at, dtype)
                at += -(-spec.inner * SIZES[dtype] // 64) * 64
    return places, at


class _RowLoops:
    """The loops of a Rows kernel for a target."""

    def __init__(self, spec: Rows, target: Target) -> None:
        self.spec = spec
        programs = [s.program for s in spec.stages if not s.scalar]
        self.lanes = lanes_for(target, programs)
        self.places, self.bytes = _places(spec)
        self.rows = prod(spec.outer)
        self.outer = [f"o{d}" for d in range(len(spec.outer))]

    @cached_property
    def totals(self) -> list[tuple[str, str]]:
        """The outputs that are totals over rows, with the types they are added in."""
        return [
            (place, state_dtype(s.program.output_dtypes[i]))
            for s in self.spec.stages
            for i, kind, place in _results(s)
            if kind == "total"
        ]

    @property
    def is_small(self) -> bool:
        steps = sum(cost(s.program) + 4 for s in self.spec.stages)
        return self.rows * ceil(self.spec.inner / self.lanes) * steps <= SMALL

    def program(self) -> Body:
        if not self.totals:
            return self._all_rows()
        return (
            self._along(self._clear(("plain", "high", "low"))),
            *self._all_rows(),
            TeamBarrier(),
            For("last", 1, (self._along(self._sum_totals()),), "parallel"),
        )

    def _all_rows(self) -> Body:
        """All rows, in blocks for the threads to share."""
        size = BLOCK if self.totals else 1
        flat = affine({"block": size, "row": 1} if self.totals else {"block": 1})
        split = [Split(flat, tuple(self.outer), self.spec.outer)] if self.outer else []
        block: list[Statement] = [*split, *self._row()]
        if self.totals:
            rest = Rest(size, self.rows, affine({"block": size}))
            block = [For("row", rest, tuple(block)), self._along(self._fold_totals())]
        blocks = ceil(self.rows / size)
        if self.is_small:
            return (For("unit", 1, (For("block", blocks, tuple(block)),), "parallel"),)
        return (For("block", blocks, tuple(block), "parallel"),)

    # -- One row ---------------------------------------------------------------------------------

    def _row(self) -> list[Statement]:
        body: list[Statement] = []
        for number, stage in enumerate(self.spec.stages):
            write = self._scalar_stage if stage.scalar else self._stage
            body += write(number, stage)
        return body

    def _along(self, body: Sequence[Statement], unroll: int = 1, stop: int | Rest = 0) -> For:
        """The loop along the row (or a chunk of it)."""
        length = stop or self.spec.inner
        return For("i", length, tuple(body), "vector", lanes=self.lanes, unroll=unroll)

    def _address(self, access: Access, chunk: int = 0) -> Affine:
        *outer, inner = access.strides
        terms = {**dict(zip(self.outer, outer, strict=True)), "i": inner, "chunk": inner * chunk}
        return affine(terms, access.offset)

    def _in_scratch(self, name: str, chunk: int = 0, thread: str = "thread") -> Affine:
        size = SIZES[self.places[name][1]]
        return affine({thread: self.bytes // size, "i": 1, "chunk": chunk})

    def _staging(self, number: int, stage: Stage, chunk: int = 0) -> StagedProgram:
        operands = []
        for name, dtype in zip(stage.operands, stage.program.inputs, strict=True):
            if name.startswith("x"):
                access = self.spec.inputs[int(name[1:])]
                operands.append(ProgramInput(name, access.dtype, self._address(access, chunk)))
            elif name.startswith("row"):
                kept = self.places[name][1]
                operands.append(ProgramInput(name, kept, self._in_scratch(name, chunk)))
            else:
                operands.append(ProgramInput("", dtype, name))
        positions = [affine({o: 1}) for o in self.outer] + [affine({"i": 1, "chunk": chunk})]
        levels = dict.fromkeys([*self.outer, "thread"], 0) | {"i": 1, "chunk": 1}
        count = 1 if stage.scalar else 2
        return StagedProgram(
            stage.program, operands, positions, levels, count, prefix=f"v{number}_"
        )

    def _scalar_stage(self, number: int, stage: Stage) -> list[Statement]:
        staging = self._staging(number, stage)
        body = staging.at(0)
        for i, _, place in _results(stage):
            value = staging.outputs[i]
            if place.startswith("s"):
                body.append(Let(place, stage.program.output_dtypes[i], value))
            else:
                access = self.spec.outputs[int(place[1:])]
                body.append(Store(value, access.dtype, place, self._address(access)))
        return body

    def _stage(self, number: int, stage: Stage) -> list[Statement]:
        """A pass over the row; over chunks of it where a sum over the row would be too long."""
        most = 4 if cost(stage.program) <= 8 else 2
        unroll = max(1, min(most, self.spec.inner // self.lanes))
        size = CHAIN * self.lanes * unroll
        folded = [
            kind == "sum" and "float" in dtype and self.spec.inner > size
            for (_, kind, _), dtype in zip(
                _results(stage), stage.program.output_dtypes, strict=True
            )
        ]
        chunk = size if any(folded) else 0
        staging = self._staging(number, stage, chunk)
        body = [*staging.at(1), *self._placed(stage, staging.outputs, folded, chunk)]
        loop: list[Statement] = [self._along(body, unroll)]
        if chunk:
            rest = Rest(size, self.spec.inner, affine({"chunk": size}))
            places = [place for _, _, place in _results(stage)]
            ends = [
                Fold(f"short_{p}", f"whole_{p}")
                for p, yes in zip(places, folded, strict=True)
                if yes
            ]
            count = ceil(self.spec.inner / size)
            loop = [For("chunk", count, (self._along(body, unroll, rest), *ends))]
        return [
            *staging.at(0), *self._begun(stage, folded, unroll), *loop, *self._taken(stage, folded)
        ]  # fmt: skip

    def _begun(self, stage: Stage, folded: Sequence[bool], unroll: int) -> list[Statement]:
        """The totals of a stage."""
        body: list[Statement] = []
        for i, kind, place in _results(stage):
            if kind not in COMBINES:
                continue
            dtype = state_dtype(stage.program.output_dtypes[i])
            whole = "long_sum" if folded[i] else kind
            body.append(Total(f"whole_{place}", whole, dtype, self.lanes, unroll))
            if folded[i]:
                body.append(Total(f"short_{place}", kind, dtype, self.lanes, unroll))
        return body

    def _taken(self, stage: Stage, folded: Sequence[bool]) -> list[Statement]:
        """Scalars from the totals of a stage."""
        body: list[Statement] = []
        for i, kind, place in _results(stage):
            if kind not in COMBINES:
                continue
            dtype = state_dtype(stage.program.output_dtypes[i])
            combine = combine_of("long_sum" if folded[i] else kind, dtype)
            state = tuple(f"{place}_{c}" for c in range(len(combine.state)))
            body += [Take(state, f"whole_{place}"), Compute((place,), combine.result, state)]
        return body

    def _placed(
        self, stage: Stage, values: Sequence[str], folded: Sequence[bool], chunk: int
    ) -> list[Statement]:
        """Return the statements that store or keep the values of a stage."""
        body: list[Statement] = []
        for i, kind, place in _results(stage):
            if kind == "total":
                body += self._add_to(f"plain_{place}", values[i], chunk)
            elif kind:
                name = f"short_{place}" if folded[i] else f"whole_{place}"
                body.append(Accumulate(name, values[i], affine({"i": 1, "chunk": chunk})))
            elif place.startswith("row"):
                at = self._in_scratch(place, chunk)
                body.append(Store(values[i], self.places[place][1], place, at))
            else:
                access = self.spec.outputs[int(place[1:])]
                body.append(Store(values[i], access.dtype, place, self._address(access, chunk)))
        return body

    # -- Totals over all rows --------------------------------------------------------------------

    def _add_to(self, name: str, value: str, chunk: int) -> list[Statement]:
        dtype, at = self.places[name][1], self._in_scratch(name, chunk)
        add = record(lambda e, a, b: a + b, [dtype, dtype])
        return [
            Load(f"old_{name}", dtype, name, at),
            Compute((f"new_{name}",), add, (f"old_{name}", value)),
            Store(f"new_{name}", dtype, name, at),
        ]

    def _clear(self, parts: Sequence[str]) -> list[Statement]:
        body: list[Statement] = []
        for place, dtype in self.totals:
            zero = record(lambda e, t=dtype: e.const(0, t), [])
            body.append(Compute((f"zero_{place}",), zero, ()))
            for part in parts:
                name = f"{part}_{place}"
                body.append(Store(f"zero_{place}", dtype, name, self._in_scratch(name)))
        return body

    def _fold_totals(self) -> list[Statement]:
        """Add a block's plain sums to the compensated ones, and reset them."""
        body: list[Statement] = []
        for place, dtype in self.totals:
            parts = [f"{part}_{place}" for part in ("high", "low", "plain")]
            body += [Load(f"old_{n}", dtype, n, self._in_scratch(n)) for n in parts]
            old = [f"old_{n}" for n in parts]
            body += [
                Total(f"sum_{place}", "long_sum", dtype),
                Merge(f"sum_{place}", (old[0], old[1])),
                Accumulate(f"sum_{place}", old[2]),
                Take((f"new_{parts[0]}", f"new_{parts[1]}"), f"sum_{place}"),
            ]
            body += [Store(f"new_{n}", dtype, n, self._in_scratch(n)) for n in parts[:2]]
        return [*body, *self._clear(("plain",))]

    def _sum_totals(self) -> list[Statement]:
        """Compute the outputs that are totals from the totals of all threads."""
        body: list[Statement] = []
        for place, dtype in self.totals:
            names = [f"{part}_{place}" for part in ("high", "low")]
            loads = [Load(f"o_{n}", dtype, n, self._in_scratch(n, 0, "other")) for n in names]
            state = (f"t_{names[0]}", f"t_{names[1]}")
            access = self.spec.outputs[int(place[1:])]
            index = affine({"i": access.strides[-1]}, access.offset)
            total = f"sum_{place}"
            merge = Merge(total, tuple(f"o_{n}" for n in names))
            body += [
                Total(total, "long_sum", dtype),
                For("other", "threads", (*loads, merge)),
                Take(state, total),
                Compute((f"t_{place}",), combine_of("long_sum", dtype).result, state),
                Store(f"t_{place}", access.dtype, place, index),
            ]
        return body
