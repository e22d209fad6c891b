"""Rows by index: gathering, scattering, summing segments.

Indices are checked before anything is written. If one is out of range, the word "status" becomes 1
and nothing else is done. Otherwise the word isn't touched, so many kernels can share it. Updates
are applied in the order of the indices, whatever the number of threads: each thread owns rows (or
columns, if rows are long) of the result and visits all indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace._src.compile.codegen.combine import state_dtype
from headrace._src.compile.codegen.emit import I1, I64, Function, Operand, Reg, Type
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import (
    emit_pointwise,
    load_value,
    memory_type,
    store_value,
)
from headrace._src.devices.target import SIZES
from headrace._src.lowering.pointwise import Pointwise, record

__all__ = [
    "GatherRows",
    "ScatterRows",
    "UpdateRows",
    "along",
    "lanes_of",
    "load_index",
]

# Rows of this many elements are divided among the threads by columns.
WIDE = 512


class _Indices(NamedTuple):
    """`count` indices that must be in [low, high)."""

    count: int
    dtype: str
    low: int
    high: int


@dataclass(frozen=True)
class GatherRows:
    """out[b, o, i] = params[b, o, indices[b, i]], rows of `inner` elements; params are [batch,
    outer, size, inner] and indices [batch, count].
    """

    batch: int
    outer: int
    size: int
    count: int
    inner: int
    dtype: str
    index_dtype: str

    arguments = ("params", "indices", "out:result", "inout:status")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        params, indices, result, status = team.args
        check = _Indices(self.batch * self.count, self.index_dtype, 0, self.size)
        bad = _checked(team, check, indices, status)
        f.when(bad, lambda: None, lambda: self._gather(team, params, indices, result))

    def _gather(self, team: Team, params: Reg, indices: Reg, result: Reg) -> None:
        f = team.f
        type = memory_type(self.dtype)

        def row(r: Reg) -> None:
            table = f.div(r, self.count)  # of batch and outer together
            at = f.add(f.mul(f.div(table, self.outer), self.count), f.rem(r, self.count))
            index = load_index(f, self.index_dtype, indices, at)
            source = f.mul(f.add(f.mul(table, self.size), index), self.inner)
            copy_row(
                f,
                type,
                f.offset(result, f.mul(r, self.inner), type),
                f.offset(params, source, type),
                self.inner,
            )

        f.loop(*team.share(self.batch * self.outer * self.count), row)


@dataclass(frozen=True)
class ScatterRows:
    """For each i in order, row indices[i] of the target [rows, inner] becomes how(row, updates[i]).

    `how`: "Update", "Add", "Sub", "Mul", "Min", "Max". Updates are [count, inner], or one `scalar`
    for all. A `fresh` target begins as zeros, negative indices are skipped then, and 16-bit floats
    are accumulated in float32 and rounded once; else every change is rounded.
    """

    how: str
    rows: int
    inner: int
    count: int
    scalar: bool
    fresh: bool
    dtype: str
    index_dtype: str

    counters = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        target = "out:target" if self.fresh else "inout:target"
        return ("updates", "indices", target, "inout:status")

    @property
    def _sum_dtype(self) -> str:
        return state_dtype(self.dtype) if self.fresh else self.dtype

    def scratch(self, threads: int) -> int:
        if self._sum_dtype == self.dtype:
            return 0
        return self.rows * self.inner * SIZES[self._sum_dtype]

    def emit(self, team: Team) -> None:
        f = team.f
        updates, indices, target, status = team.args
        check = _Indices(self.count, self.index_dtype, -(1 << 62) if self.fresh else 0, self.rows)
        bad = _checked(team, check, indices, status)
        f.when(bad, lambda: None, lambda: self._scatter(team, updates, indices, target))

    def _scatter(self, team: Team, updates: Reg, indices: Reg, target: Reg) -> None:
        f = team.f
        by_columns = self.inner >= WIDE
        first, last = team.share(self.inner, 64) if by_columns else (0, self.inner)
        top, bottom = (0, self.rows) if by_columns else team.share(self.rows)
        sums = team.scratch if self._sum_dtype != self.dtype else target
        if self.fresh:
            zero = f.const(0, memory_type(self._sum_dtype))
            self._rows(f, top, bottom, lambda r: self._fill(f, sums, r, first, last, zero))
        change = _CHANGES[self.how](self._sum_dtype)

        def update(i: Reg) -> None:
            row = load_index(f, self.index_dtype, indices, i)
            mine = f.and_(f.icmp("sge", row, top), f.icmp("slt", row, bottom))
            f.when(mine, lambda: self._change(f, change, sums, row, updates, i, first, last))

        f.loop(0, self.count, update)
        if sums is not target:
            self._rows(f, top, bottom, lambda r: self._round(f, sums, target, r, first, last))

    def _rows(self, f: Function, top: Operand, bottom: Operand, body: Callable[[Reg], Any]) -> None:
        f.loop(top, bottom, body)

    def _fill(
        self, f: Function, target: Reg, row: Reg, first: Operand, last: Operand, value: Reg
    ) -> None:
        base = f.mul(row, self.inner)

        def vector(j: Operand, lanes: int, mask: Reg | None) -> None:
            store_value(
                f, _raw(value.type), f.splat(value, lanes), target, f.add(base, j), mask=mask
            )

        along(f, lanes_of(f, self._sum_dtype), first, last, self.inner, vector)

    def _change(
        self, f: Function, change: Pointwise, target: Reg, row: Reg, updates: Reg, i: Reg,
        first: Operand, last: Operand,
    ) -> None:  # fmt: skip
        here, there = f.mul(row, self.inner), f.mul(i, self.inner)

        def vector(j: Operand, lanes: int, mask: Reg | None) -> None:
            old = load_value(f, self._sum_dtype, lanes, target, f.add(here, j), mask=mask)
            if self.scalar:
                new = f.splat(load_value(f, self.dtype, 0, updates), lanes)
            else:
                new = load_value(f, self.dtype, lanes, updates, f.add(there, j), mask=mask)
            (made,) = emit_pointwise(f, change, [old, new])
            store_value(f, self._sum_dtype, made, target, f.add(here, j), mask=mask)

        along(f, lanes_of(f, self._sum_dtype), first, last, self.inner, vector)

    def _round(
        self, f: Function, sums: Reg, target: Reg, row: Reg, first: Operand, last: Operand
    ) -> None:
        base = f.mul(row, self.inner)

        def vector(j: Operand, lanes: int, mask: Reg | None) -> None:
            value = load_value(f, self._sum_dtype, lanes, sums, f.add(base, j), mask=mask)
            store_value(f, self.dtype, value, target, f.add(base, j), mask=mask)

        along(f, lanes_of(f, self._sum_dtype), first, last, self.inner, vector)


@dataclass(frozen=True)
class UpdateRows:
    """For each i in order, replace rows indices[i] of the targets [rows, inner] by the program's
    results from these rows, scalars, and row i of the gradient [count, inner].

    The program's inputs are the targets, then its other operands, of which number `gradient` is
    the gradient. If `counted`, "length" says how many of the indices count.
    """

    program: Pointwise
    targets: int
    gradient: int
    counted: bool
    rows: int
    inner: int
    count: int
    dtype: str
    index_dtype: str

    counters = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        targets = [f"inout:target{i}" for i in range(self.targets)]
        operands = [f"operand{i}" for i in range(len(self.program.inputs) - self.targets)]
        length = ["length"] if self.counted else []
        return (*targets, *operands, "indices", *length, "inout:status")

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        count = len(self.program.inputs)
        targets, operands = team.args[: self.targets], list(team.args[self.targets : count])
        indices, status = team.args[count], team.args[-1]
        bad = _checked(team, _Indices(self.count, self.index_dtype, 0, self.rows), indices, status)
        last = f.load(I64, team.args[count + 1], 0) if self.counted else self.count
        f.when(bad, lambda: None, lambda: self._update(team, targets, operands, indices, last))

    def _update(
        self,
        team: Team,
        targets: Sequence[Reg],
        operands: Sequence[Reg],
        indices: Reg,
        count: Operand,
    ) -> None:
        f = team.f
        lanes = lanes_of(f, self.dtype)
        by_columns = self.inner >= WIDE
        first, last = team.share(self.inner, 64) if by_columns else (0, self.inner)
        top, bottom = (0, self.rows) if by_columns else team.share(self.rows)
        types = self.program.inputs[self.targets :]
        scalars = [
            None if k == self.gradient else f.splat(load_value(f, type, 0, x), lanes)
            for k, (type, x) in enumerate(zip(types, operands, strict=True))
        ]

        def update(i: Reg) -> None:
            row = load_index(f, self.index_dtype, indices, i)
            mine = f.and_(f.icmp("sge", row, top), f.icmp("slt", row, bottom))
            f.when(mine, lambda: along(f, lanes, first, last, self.inner, change(row, i)))

        def change(row: Reg, i: Reg) -> Callable[[Operand, int, Reg | None], None]:
            here, there = f.mul(row, self.inner), f.mul(i, self.inner)

            def vector(j: Operand, lanes: int, mask: Reg | None) -> None:
                at = f.add(here, j)
                old = [load_value(f, self.dtype, lanes, t, at, mask=mask) for t in targets]
                pull = operands[self.gradient]
                step = load_value(f, self.dtype, lanes, pull, f.add(there, j), mask=mask)
                given = [step if s is None else s for s in scalars]
                made = emit_pointwise(f, self.program, [*old, *given])
                for target, new in zip(targets, made, strict=True):
                    store_value(f, self.dtype, new, target, at, mask=mask)

            return vector

        f.loop(0, count, update)


def _binary(opcode: str) -> Callable[[str], Pointwise]:
    return lambda dtype: record(lambda e, old, new: getattr(e, opcode)(old, new), [dtype, dtype])


_CHANGES: dict[str, Callable[[str], Pointwise]] = {
    "Update": lambda dtype: Pointwise((dtype, dtype), (), (1,)),
    "Add": _binary("add"),
    "Sub": _binary("sub"),
    "Mul": _binary("mul"),
    "Min": _binary("min"),
    "Max": _binary("max"),
}


# -- Pieces -------------------------------------------------------------------------------------


def _raw(type: Type) -> str:
    """A type's name whose memory and registers are this LLVM type."""
    return {"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "float": "float32",
            "double": "float64", "half": "int16"}[type.element]  # fmt: skip


def lanes_of(f: Function, dtype: str) -> int:
    return min(f.target.lanes(dtype), 16)


def load_index(f: Function, dtype: str, indices: Reg, at: Operand) -> Reg:
    value = f.load(memory_type(dtype), indices, at)
    if value.type == I64:
        return value
    return f.convert("zext" if dtype.startswith("u") else "sext", value, I64)


def along(
    f: Function,
    lanes: int,
    first: Operand,
    last: Operand,
    length: int,
    vector: Callable[[Operand, int, Reg | None], None],
) -> None:
    """Run vector(position, lanes, mask) from `first` to `last` of a row: whole registers, then the
    end of the row. A range that isn't the end of the row is a multiple of the lanes.
    """
    over = length % lanes
    whole = f.sub(last, f.rem(last, lanes)) if over else last
    f.loop(first, whole, lambda j: vector(j, lanes, None), step=lanes)
    if not over:
        return
    if isinstance(last, int):
        _tail(f, whole, lanes, over, vector)
    else:
        ends = f.and_(f.icmp("slt", whole, last), f.icmp("slt", first, last))
        f.when(ends, lambda: _tail(f, whole, lanes, over, vector))


def _tail(
    f: Function,
    start: Operand,
    lanes: int,
    count: int,
    vector: Callable[[Operand, int, Reg | None], None],
) -> None:
    vector(start, lanes, f.first_lanes(count, lanes))


def copy_row(f: Function, type: Type, target: Reg, source: Reg, count: int) -> None:
    """Copy `count` elements."""
    dtype = _raw(type)

    def vector(j: Operand, lanes: int, mask: Reg | None) -> None:
        value = load_value(f, dtype, lanes, source, j, mask=mask)
        store_value(f, dtype, value, target, j, mask=mask)

    along(f, lanes_of(f, dtype), 0, count, count, vector)


def _checked(team: Team, check: _Indices, indices: Reg, status: Reg) -> Reg:
    """Return whether some index is out of range; thread 0 sets the status if so."""
    f = team.f
    lanes = 16
    type = memory_type(check.dtype)
    unsigned = check.dtype.startswith("u")
    limits = [max(-(1 << (type.bits - 1)), min(v, (1 << (type.bits - 1)) - 1)) for v in
              (check.low, check.high)]  # fmt: skip
    beyond = check.high > limits[1]

    def outside(values: Reg) -> Reg:
        low = f.icmp("ult" if unsigned else "slt", values, limits[0])
        if beyond:
            return low
        return f.or_(low, f.icmp("uge" if unsigned else "sge", values, limits[1]))

    def whole(i: Operand, found: Reg) -> Reg:
        return f.or_(found, outside(f.load(type.of(lanes), indices, i)))

    def single(i: Operand, found: Reg) -> Reg:
        return f.or_(found, outside(f.load(type, indices, i)))

    vectors = check.count - check.count % lanes
    (found,) = f.loop(0, vectors, whole, [f.const(0, I1.of(lanes))], lanes)
    (bad,) = f.loop(vectors, check.count, single, [f.reduce("or", found)])
    report = f.and_(bad, f.icmp("eq", team.thread, 0))
    f.when(report, lambda: f.store(f.const(1, I64), status))
    return bad
