"""Iteration spaces: the dimensions that a kernel loops over, and the strides of arrays along them.

In: extents and each array's strides. Out: the same elements with fewer, better ordered dimensions:
dimensions of one element are dropped, and adjacent dimensions that are contiguous in every array
are merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace._src.compile.codegen.loop_programs import Affine, Compute, Load, Statement
from headrace._src.devices.target import SIZES, Target
from headrace._src.lowering.pointwise import Pointwise, PointwiseStep

__all__ = [
    "Access",
    "Dim",
    "Piece",
    "ProgramInput",
    "StagedProgram",
    "cost",
    "index_dims",
    "lanes_for",
    "positions_of",
    "simplify",
    "staged",
]  # fmt: skip


@dataclass(frozen=True)
class Access:
    """An array in an iteration space: the element at i is at offset + sum(i[d] * strides[d])."""

    dtype: str
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Dim:
    """A dimension: its loop's variable, and its stride in each array."""

    name: str
    extent: int
    strides: tuple[int, ...]


def simplify(
    extents: Sequence[int],
    strides: Sequence[Sequence[int]],
    *,
    order_by: Sequence[int] = (),
    prefix: str = "i",
) -> list[Dim]:
    """The dimensions of a space, outermost first; `strides` are each array's.

    They are sorted by descending strides of the arrays `order_by` (the first in which they differ);
    without it they keep their order. A caller that needs positions adds arrays that stand for them,
    with stride 1 along one dimension.
    """
    dims = [
        Dim(f"{prefix}{d}", n, tuple(s[d] for s in strides))
        for d, n in enumerate(extents)
        if n != 1
    ]
    if order_by:
        dims.sort(key=lambda d: [-abs(d.strides[a]) for a in order_by])
    merged: list[Dim] = []
    for dim in dims:
        last = merged[-1] if merged else None
        if last is not None and _continues(last, dim):
            merged[-1] = Dim(dim.name, last.extent * dim.extent, dim.strides)
        else:
            merged.append(dim)
    return merged


def _continues(outer: Dim, inner: Dim) -> bool:
    steps = zip(outer.strides, inner.strides, strict=True)
    return all(a == b * inner.extent for a, b in steps)


def positions_of(programs: Sequence[Pointwise], rank: int) -> list[tuple[int, ...]]:
    """Strides of arrays that stand for the positions along each of `rank` dimensions; all zero
    for those that no program asks for.
    """
    used = {d for p in programs for d in index_dims(p)}
    return [tuple(int(d in used and k == d) for k in range(rank)) for d in range(rank)]


# -- What programs ask for ----------------------------------------------------------------------

_COSTS = {
    "div": 4, "sqrt": 5, "rsqrt": 9, "exp": 14, "expm1": 16, "log": 22, "log1p": 26, "tanh": 26,
    "quotient": 8, "remainder": 10,
    "sigmoid": 22, "erf": 34, "sin": 40, "cos": 40, "pow": 60, "atan2": 40, "const": 0, "index": 2,
}  # fmt: skip


def cost(program: Pointwise) -> int:
    """About how many vector instructions a program takes."""
    return sum(_COSTS.get(s.opcode, 1) for s in program.steps)


def index_dims(program: Pointwise) -> set[int]:
    """The dimensions whose positions a program uses."""
    return {int(s.immediate or 0) for s in program.steps if s.opcode == "index"}


def lanes_for(target: Target, programs: Sequence[Pointwise]) -> int:
    """How many lanes to use: the widest floating type (the widest type, if none) fills a register.

    Narrow floating types are computed in float32. Wider integers beside floats, positions for
    example, take several registers.
    """
    types = {t for p in programs for t in (*p.inputs, *(s.dtype for s in p.steps))} - {"bool"}
    floats = {t for t in types if "float" in t}
    sizes = [max(4, SIZES[t]) if t in floats else SIZES[t] for t in (floats or types)]
    return max(1, target.vector_bytes // max(sizes, default=1))


@dataclass(frozen=True)
class Piece:
    """The part of a program that is done at one level of a loop nest; operands and results are
    the program's value numbers.
    """

    program: Pointwise
    operands: tuple[int, ...]
    results: tuple[int, ...]


def staged(
    program: Pointwise, levels: Sequence[int], index_levels: Sequence[int], count: int
) -> list[Piece]:
    """Cut a program into `count` pieces, one per level, outermost first.

    `levels` says at which level each input is known and `index_levels` each position. A step is
    computed at the level where its last operand is known, so invariants are hoisted out of inner
    loops. Outputs are computed at the innermost level at the latest.
    """
    inputs = len(program.inputs)
    level = list(levels)
    for step in program.steps:
        if step.opcode == "index":
            level.append(index_levels[int(step.immediate or 0)])
        elif step.opcode == "const":
            level.append(-1)  # anywhere: each piece has its own
        else:
            level.append(max((0, *(level[o] for o in step.operands))))
    for v in program.outputs:
        if level[v] < 0:
            level[v] = count - 1
    needed = set(program.outputs)
    pieces: list[Piece] = []
    for at in reversed(range(count)):
        piece = _piece(program, at, level, needed)
        needed = {v for v in needed if v < inputs or level[v] != at} | set(piece.operands)
        pieces.append(piece)
    return pieces[::-1]


def _piece(program: Pointwise, at: int, level: Sequence[int], needed: set[int]) -> Piece:
    inputs = len(program.inputs)
    results = tuple(sorted(v for v in needed if v >= inputs and level[v] == at))
    wanted = _steps_for(program, results, at, level)
    operands = sorted(
        {
            o
            for v in wanted
            for o in program.steps[v - inputs].operands
            if o not in wanted and not _is_const(program, o)
        }
    )
    numbers: dict[int, int] = {v: i for i, v in enumerate(operands)}
    steps: list[PointwiseStep] = []
    for v in sorted({*wanted, *_consts_of(program, wanted)}):
        step = program.steps[v - inputs]
        numbers[v] = len(operands) + len(steps)
        steps.append(
            PointwiseStep(
                step.opcode, tuple(numbers[o] for o in step.operands), step.dtype, step.immediate
            )
        )
    types = tuple(program.dtype_of(v) for v in operands)
    made = Pointwise(types, tuple(steps), tuple(numbers[v] for v in results))
    return Piece(made, tuple(operands), results)


def _is_const(program: Pointwise, value: int) -> bool:
    inputs = len(program.inputs)
    return value >= inputs and program.steps[value - inputs].opcode == "const"


def _steps_for(
    program: Pointwise, results: Sequence[int], at: int, level: Sequence[int]
) -> set[int]:
    """The steps of one level that some results of it need."""
    inputs = len(program.inputs)
    found: set[int] = set()
    pending = list(results)
    while pending:
        v = pending.pop()
        if v < inputs or v in found or level[v] != at:
            continue
        found.add(v)
        pending += program.steps[v - inputs].operands
    return found


def _consts_of(program: Pointwise, steps: set[int]) -> set[int]:
    """Constants that steps use: each piece has its own."""
    inputs = len(program.inputs)
    return {o for v in steps for o in program.steps[v - inputs].operands if _is_const(program, o)}


@dataclass(frozen=True)
class ProgramInput:
    """The place of a program's input: an element of a buffer, or (no buffer) the value
    named `at`.
    """

    buffer: str
    dtype: str
    at: Affine | str


class StagedProgram:
    """The loads and steps of a program, each at the level of a loop nest where it belongs.

    `variables` says at which level each loop's variable is known. `known` operands are values of
    given levels. Values are called `prefix` and their number in the program.
    """

    def __init__(
        self,
        program: Pointwise,
        operands: Sequence[ProgramInput],
        positions: Sequence[Affine],
        variables: Mapping[str, int],
        count: int,
        *,
        known: Mapping[str, int] | None = None,
        prefix: str = "v",
    ) -> None:
        self.program = program
        self.operands = operands
        self.positions = tuple(positions)
        self.variables = variables
        self.known = known or {}
        self.prefix = prefix
        self.levels = [self._level(o.at) for o in operands]
        self.pieces = staged(program, self.levels, [self._level(p) for p in positions], count)

    def _level(self, at: Affine | str) -> int:
        if isinstance(at, str):
            return self.known.get(at, 0)
        return max((self.variables[v] for v, _ in at.terms), default=0)

    def name(self, value: int) -> str:
        """Return the name of one of the program's values."""
        if value < len(self.operands):
            at = self.operands[value].at
            if isinstance(at, str):
                return at
        return f"{self.prefix}{value}"

    @property
    def outputs(self) -> list[str]:
        return [self.name(v) for v in self.program.outputs]

    def at(self, level: int) -> list[Statement]:
        """Return the statements that load and compute at one level."""
        body: list[Statement] = [
            Load(self.name(i), o.dtype, o.buffer, o.at)
            for i, o in enumerate(self.operands)
            if isinstance(o.at, Affine) and self.levels[i] == level
        ]
        piece = self.pieces[level]
        if piece.results:
            results, operands = (
                tuple(self.name(v) for v in values) for values in (piece.results, piece.operands)
            )
            used = index_dims(piece.program)
            positions = tuple(p if d in used else Affine() for d, p in enumerate(self.positions))
            body.append(Compute(results, piece.program, operands, positions))
        return body
