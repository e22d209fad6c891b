"""Iteration spaces: the dimensions that a kernel loops over, and where arrays are in them.

In: extents and each array's strides. Out: the same elements with fewer, better ordered dimensions:
those of one element are dropped, neighbours that every array walks as one are merged.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace.compile.loops import Affine, affine
from headrace.compile.target import SIZES, Target
from headrace.graph.pointwise import Instruction, Pointwise

__all__ = ["Access", "Dim", "Piece", "cost", "index_dims", "lanes_for", "simplify", "staged"]


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

    def index(self, array: int) -> dict[str, int]:
        return {self.name: self.strides[array]}


def simplify(
    extents: Sequence[int],
    arrays: Sequence[Access],
    *,
    order_by: Sequence[int] = (),
    whole: Collection[int] = (),
    prefix: str = "i",
) -> list[Dim]:
    """The dimensions of a space, outermost first.

    They are ordered by falling strides of the arrays `order_by` (the first that tells them apart);
    without it they stay as they are. Dimensions in `whole` keep their names, `prefix` and number,
    and aren't merged: somebody asks for positions along them.
    """
    dims = [
        Dim(f"{prefix}{d}", n, tuple(a.strides[d] for a in arrays))
        for d, n in enumerate(extents)
        if n != 1 or d in whole
    ]
    if order_by:
        dims.sort(key=lambda d: [-abs(d.strides[a]) for a in order_by])
    kept = {f"{prefix}{d}" for d in whole}
    merged: list[Dim] = []
    for dim in dims:
        last = merged[-1] if merged else None
        if last is not None and not {last.name, dim.name} & kept and _continues(last, dim):
            merged[-1] = Dim(dim.name, last.extent * dim.extent, dim.strides)
        else:
            merged.append(dim)
    return merged


def _continues(outer: Dim, inner: Dim) -> bool:
    steps = zip(outer.strides, inner.strides, strict=True)
    return all(a == b * inner.extent for a, b in steps)


def address(array: int, access: Access, dims: Sequence[Dim]) -> Affine:
    """The affine address of an access."""
    return affine({d.name: d.strides[array] for d in dims}, access.offset)


# -- What programs ask for ----------------------------------------------------------------------

_COSTS = {
    "div": 4, "sqrt": 5, "rsqrt": 9, "exp": 14, "expm1": 16, "log": 22, "log1p": 26, "tanh": 26,
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
    done where its last operand is known: what doesn't change in an inner loop is kept out of it.
    Outputs are made at the innermost level at the latest.
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
    steps: list[Instruction] = []
    for v in sorted({*wanted, *_consts_of(program, wanted)}):
        step = program.steps[v - inputs]
        numbers[v] = len(operands) + len(steps)
        steps.append(
            Instruction(
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
