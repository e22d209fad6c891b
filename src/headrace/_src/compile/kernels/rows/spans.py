"""Element-wise kernels, sums of columns and updates of rows for any sizes, for interpreted
operations.

Arrays are tables of `rows` times `columns` elements. An input is one of three kinds: "full" (such a
table), "row" (one row, for all rows) or "single" (one element for all).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace._src.compile.codegen.emit import F64, I64, Function, Operand, Reg
from headrace._src.compile.codegen.iteration_spaces import lanes_for
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import (
    compute_type,
    emit_pointwise,
    load_value,
    store_value,
)
from headrace._src.compile.kernels.rows.map_kernel import unroll_of
from headrace._src.devices.target import Target
from headrace._src.lowering.pointwise import Pointwise

__all__ = ["ColumnSums", "RowUpdates", "Span", "block_of"]

_NEAR = 128  # this many rows are added up in the elements' own type


def block_of(program: Pointwise, target: Target) -> int:
    """Return how many elements of a row are done at once: a row has at least as many."""
    return lanes_for(target, [program]) * unroll_of(program)


def _inputs(program: Pointwise) -> list[str]:
    return [f"x{i}" for i in range(len(program.inputs))]


class _Operands:
    """The inputs of a program in a table; an input of one element is loaded once."""

    def __init__(
        self, f: Function, program: Pointwise, kinds: Sequence[str], pointers: Sequence[Reg]
    ) -> None:
        self._f = f
        self._lanes = lanes_for(f.target, [program])
        self._inputs = list(zip(program.inputs, kinds, pointers, strict=True))
        self._known = {
            i: load_value(f, dtype, 0, pointer)
            for i, (dtype, kind, pointer) in enumerate(self._inputs)
            if kind == "single"
        }

    def load(self, start: Operand, column: Operand) -> list[Reg]:
        """Vectors of the inputs at a column of the row that starts at an element."""
        f, at = self._f, self._f.add(start, column)
        return [
            self._known[i]
            if kind == "single"
            else load_value(f, dtype, self._lanes, pointer, at if kind == "full" else column)
            for i, (dtype, kind, pointer) in enumerate(self._inputs)
        ]


@dataclass(frozen=True)
class Span:
    """outputs = program(inputs), element by element. The sizes are data (rows, columns), so that
    tables of all sizes share one piece of code; columns are at least `block_of`.

    A row is done in blocks, of which the last one ends where the row ends: some elements are
    computed twice, and no code is needed for a part of a block. So an output must not be the memory
    of an input. Threads share the blocks of all rows.
    """

    program: Pointwise
    kinds: tuple[str, ...]

    counters = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        outputs = (f"out:y{i}" for i in range(len(self.program.outputs)))
        return ("sizes", *_inputs(self.program), *outputs)

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, program = team.f, self.program
        lanes, block = lanes_for(team.target, [program]), block_of(program, team.target)
        sizes, *pointers = team.args
        rows, columns = f.load(I64, sizes), f.load(I64, sizes, 1)
        count = len(program.inputs)
        operands = _Operands(f, program, self.kinds, pointers[:count])
        last = f.sub(columns, block)
        blocks = f.div(f.add(columns, block - 1), block)

        def vector(start: Operand, column: Operand) -> None:
            results = emit_pointwise(f, program, operands.load(start, column))
            at = f.add(start, column)
            for dtype, value, place in zip(
                program.output_dtypes, results, pointers[count:], strict=True
            ):
                store_value(f, dtype, value, place, at)

        def at_block(b: Reg, start: Operand) -> None:
            first = f.minimum(f.mul(b, block), last)
            for step in range(0, block, lanes):
                vector(start, f.add(first, step))

        def in_row(r: Reg) -> None:
            start = f.mul(r, columns)
            f.loop(0, blocks, lambda b: at_block(b, start))

        if "row" in self.kinds:
            f.loop(*team.share(rows), in_row)
        else:  # a single row
            f.loop(*team.share(blocks), lambda b: at_block(b, 0))


@dataclass(frozen=True)
class ColumnSums:
    """The sums over all rows of the outputs of program(inputs), for each column, as float64:
    [threads, outputs, columns], a part of each thread (zeros before). Sizes are data: rows, and
    columns, a multiple of the lanes.
    """

    program: Pointwise
    kinds: tuple[str, ...]

    counters = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("sizes", *_inputs(self.program), "inout:sums")

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, program = team.f, self.program
        lanes = lanes_for(team.target, [program])
        sizes, *pointers, sums = team.args
        rows, columns = f.load(I64, sizes), f.load(I64, sizes, 1)
        operands = _Operands(f, program, self.kinds, pointers)
        count = len(program.outputs)
        mine = f.offset(sums, f.mul(f.mul(columns, count), team.thread), F64)
        zeros = [f.const(0.0, compute_type(dtype, lanes)) for dtype in program.output_dtypes]

        def over(first: Reg, end: Operand) -> Callable[[Reg], None]:
            def column(c: Reg) -> None:
                def add(r: Reg, *totals: Reg) -> list[Reg]:
                    values = emit_pointwise(f, program, operands.load(f.mul(r, columns), c))
                    return [f.fadd(t, v) for t, v in zip(totals, values, strict=True)]

                for i, total in enumerate(f.loop(first, end, add, zeros)):
                    wide = total if total.type.scalar == F64 else f.convert("fpext", total, F64)
                    at = f.add(f.mul(columns, i), c)
                    f.store(f.fadd(f.load(F64.of(lanes), mine, at), wide), mine, at)

            return column

        def stretch(first: Reg) -> None:
            end = f.minimum(f.add(first, _NEAR), stop)
            f.loop(0, columns, over(first, end), step=lanes)

        start, stop = team.share(rows, _NEAR)
        f.loop(start, stop, stretch, step=_NEAR)


@dataclass(frozen=True)
class RowUpdates:
    """target[keys[i]] = program(target[keys[i]], rows[i]) for each row, in order. Sizes are data:
    how many rows, and their columns. Keys are int64, and within the target. Threads share the
    columns.
    """

    program: Pointwise

    arguments = ("sizes", "keys", "rows", "inout:target")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, program = team.f, self.program
        (dtype,) = program.output_dtypes
        lanes = lanes_for(team.target, [program])
        sizes, keys, rows, target = team.args
        count, columns = f.load(I64, sizes), f.load(I64, sizes, 1)
        start, stop = team.share(columns, lanes)
        whole = f.add(start, f.mul(f.div(f.sub(stop, start), lanes), lanes))

        def row(i: Reg) -> None:
            source, place = (f.mul(r, columns) for r in (i, f.load(I64, keys, i)))

            def update(column: Reg, lanes: int) -> None:
                at = f.add(place, column)
                old = load_value(f, dtype, lanes, target, at)
                new = load_value(f, dtype, lanes, rows, f.add(source, column))
                (result,) = emit_pointwise(f, program, [old, new])
                store_value(f, dtype, result, target, at)

            f.loop(start, whole, lambda column: update(column, lanes), step=lanes)
            f.loop(whole, stop, lambda column: update(column, 0))

        f.loop(0, count, row)
