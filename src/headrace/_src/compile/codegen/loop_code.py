"""Generate the code of loop programs. In: a kernel's team and a verified program. Out: its body.

A value inside a vector loop is a tuple of registers, one per unrolled copy. A value that is the
same for all copies is a tuple of one register, which is a scalar if it's the same in all lanes.
Ranges are cut into blocks that are multiples of a loop's step, so leftovers have constant counts
and every variant of a loop's body is straight-line code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from headrace._src.compile.codegen.combine import Combine, combine_of
from headrace._src.compile.codegen.emit import I32, I64, PTR, VOID, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.loop_programs import (
    Accumulate,
    Affine,
    Assign,
    Body,
    CallKernel,
    Compute,
    Fold,
    For,
    If,
    Let,
    Load,
    Merge,
    Position,
    Rest,
    Split,
    Statement,
    Store,
    Take,
    TeamBarrier,
    Total,
    While,
    changed,
    verify,
)  # fmt: skip
from headrace._src.compile.codegen.pointwise_code import (
    compute_type,
    emit_pointwise,
    load_value,
    memory_type,
    narrow,
    store_value,
    to_vector,
    widen,
)  # fmt: skip
from headrace._src.compile.codegen.register_transpose import transpose

__all__ = ["generate_loops"]

Value = tuple[Reg, ...]


def generate_loops(team: Team, program: Body, buffers: Mapping[str, Reg]) -> None:
    """Write a program's code; `buffers` are the addresses of its buffers."""
    verify(program, buffers)
    generator = _Generator(team, buffers)
    for meeting, part in enumerate(_between_barriers(program)):
        team.after(meeting, partial(generator.run, part))


def _between_barriers(program: Body) -> list[Body]:
    parts: list[list[Statement]] = [[]]
    for statement in program:
        if isinstance(statement, TeamBarrier):
            parts.append([])
        else:
            parts[-1].append(statement)
    return [tuple(p) for p in parts]


@dataclass(frozen=True)
class _Lanes:
    """The vector loop around the code: its variable, the numbers of lanes and copies, the variable
    along which the copies go ("": they follow each other), and the active lanes.
    """

    variable: str
    lanes: int
    copies: int
    across: str
    count: int  # active lanes of the only copy, if fewer than all


@dataclass(frozen=True)
class _State:
    """A total while it's accumulated: a state (one register per component) for each copy."""

    combine: Combine
    own_lanes: bool  # whether the lanes are its own, to be combined in the end
    copies: tuple[Value, ...]


class _Generator:
    def __init__(self, team: Team, buffers: Mapping[str, Reg]) -> None:
        self.team = team
        self.f = team.f
        self.buffers = buffers
        self.variables: dict[str, Operand] = {"thread": team.thread}
        self.tiles: dict[str, int] = {}  # how many iterations of each tile loop are done at once
        self.values: dict[str, Value] = {}
        self.totals: dict[str, _State] = {}
        self.inside: _Lanes | None = None

    def run(self, body: Body) -> None:
        for statement in body:
            _WRITERS[type(statement)](self, statement)

    # -- Loops -----------------------------------------------------------------------------------

    def loop(self, s: For) -> None:
        if s.kind == "parallel":
            assert isinstance(s.stop, int)
            self._range(s, *self.team.share(s.stop), s.body)
        elif s.kind == "vector":
            self._vector(s)
        elif s.kind == "tile":
            self._tile(s)
        else:
            self._range(s, 0, self._stop(s), s.body)

    def _stop(self, s: For) -> Operand:
        if isinstance(s.stop, str):
            return self.team.threads
        if isinstance(s.stop, int):
            return s.stop
        f = self.f
        return f.minimum(s.stop.limit, f.sub(s.stop.total, self._index(s.stop.taken)))

    def _range(self, s: For, start: Operand, stop: Operand, body: Body) -> None:
        """Run a body for one iteration after the other, `step` apart."""
        self._carry(
            changed(body),
            lambda run, carried: self.f.loop(
                start, stop, lambda i, *state: run(i, state), carried, s.step
            ),
            lambda i: self._bound(s.variable, i, body),
        )

    def _bound(self, variable: str, value: Operand, body: Body) -> None:
        self.variables[variable] = value
        self.run(body)

    def _carry(
        self,
        names: Sequence[str],
        loop: Callable[..., list[Reg]],
        body: Callable[..., None],
    ) -> None:
        """Run `body` inside `loop`, which carries those of `names` that live outside of it."""
        kept = [n for n in names if n in self.totals or n in self.values]

        def run(position: Operand, state: Sequence[Reg]) -> list[Reg]:
            self._unpack(kept, state)
            body(position)
            return self._pack(kept)

        outside = dict(self.values), dict(self.totals)
        last = loop(run, self._pack(kept))
        self.values, self.totals = outside
        self._unpack(kept, last)

    def _pack(self, names: Sequence[str]) -> list[Reg]:
        packed: list[Reg] = []
        for name in names:
            if name in self.totals:
                packed += [r for copy in self.totals[name].copies for r in copy]
            else:
                packed += self.values[name]
        return packed

    def _unpack(self, names: Sequence[str], registers: Sequence[Reg]) -> None:
        rest = list(registers)
        for name in names:
            if name not in self.totals:
                count = len(self.values[name])
                self.values[name] = tuple(rest[:count])
                rest = rest[count:]
                continue
            state = self.totals[name]
            width = len(state.combine.state)
            copies = []
            for _ in state.copies:
                copies.append(tuple(rest[:width]))
                rest = rest[width:]
            self.totals[name] = replace(state, copies=tuple(copies))

    def _blocks(
        self, s: For, step: int, once: Callable[[Operand], None], left: Callable[[int, int], None]
    ) -> None:
        """Run once(i) for each whole step of a range, then left(i, count) for the remainder, whose
        count is known at compile time.
        """
        f, names = self.f, changed(s.body)
        if isinstance(s.stop, int):
            whole = s.stop - s.stop % step
            self._carry(
                names,
                lambda run, carried: f.loop(0, whole, lambda i, *c: run(i, c), carried, step),
                once,
            )
            if s.stop % step:
                left(whole, s.stop % step)
            return
        assert isinstance(s.stop, Rest)
        rest = s.stop
        if rest.limit % step or any(c % step for _, c in rest.taken.terms):
            raise ValueError(f"blocks of {rest.limit} can't be done {step} at once")
        stop = self._stop(s)
        over = rest.total % step
        whole = f.sub(stop, f.rem(stop, step)) if over else stop
        self._carry(
            names,
            lambda run, carried: f.loop(0, whole, lambda i, *c: run(i, c), carried, step),
            once,
        )
        if over:
            self._carry(
                names,
                lambda run, carried: f.when(
                    f.icmp("slt", whole, stop),
                    lambda: run(whole, carried),
                    lambda: list(carried),
                ),
                lambda start: left(start, over),
            )

    def _tile(self, s: For) -> None:
        def once(count: int) -> Callable[[Operand], None]:
            def run(start: Operand) -> None:
                self.tiles[s.variable] = count
                self._bound(s.variable, start, s.body)

            return run

        self._blocks(s, s.step, once(s.step), lambda start, count: once(count)(start))

    def _vector(self, s: For) -> None:
        copies = self.tiles[s.across] if s.across else s.unroll
        step = s.lanes if s.across else s.lanes * copies

        def once(start: Operand, copies: int = copies, count: int = s.lanes) -> None:
            self.inside = _Lanes(s.variable, s.lanes, copies, s.across, count)
            self._bound(s.variable, start, s.body)
            self.inside = None

        def left(start: Operand, count: int) -> None:
            # First whole registers, then the lanes of a last one.
            whole = count // s.lanes
            if whole:
                once(start, whole)
            if count % s.lanes:
                last = self.f.add(start, whole * s.lanes)
                once(last, copies if s.across else 1, count % s.lanes)

        self._blocks(s, step, once, left)

    # -- Addresses -------------------------------------------------------------------------------

    def _index(self, index: Affine) -> Operand:
        total: Operand = index.constant
        for variable, coefficient in index.terms:
            total = self.f.add(total, self.f.mul(self.variables[variable], coefficient))
        return total

    def _address(self, buffer: str, dtype: str, index: Affine) -> Reg:
        """Constants come last, so that they become displacements."""
        f, type = self.f, memory_type(dtype)
        at = f.offset(self.buffers[buffer], self._index(replace(index, constant=0)), type)
        return f.offset(at, index.constant, type)

    def _strides(self, index: Affine) -> tuple[int, int]:
        """Return the distances of an address from lane to lane and from copy to copy."""
        at = self.inside
        if at is None:
            return 0, 0
        lane = index.coefficient(at.variable)
        return lane, index.coefficient(at.across) if at.across else lane * at.lanes

    def _mask(self) -> Reg | None:
        """Return the mask of active lanes; None if all are."""
        at = self.inside
        if at is None or at.count == at.lanes:
            return None
        return self.f.first_lanes(at.count, at.lanes)

    def _each_lane(self, first: Operand, stride: int, lanes: int) -> Reg:
        """first + stride * lane."""
        f = self.f
        steps = f.consts([stride * i for i in range(lanes)], I64)
        return f.wrapping("add", f.splat(f.reg(first), lanes), steps)

    # -- Values ----------------------------------------------------------------------------------

    def load(self, s: Load) -> None:
        f, at = self.f, self.inside
        base = self._address(s.buffer, s.dtype, s.index)
        lane, copy = self._strides(s.index)
        copies = range(at.copies if at is not None and (lane or copy) else 1)
        if lane == 0:
            found = [load_value(f, s.dtype, 0, base, k * copy) for k in copies]
        elif lane == 1:
            assert at is not None
            mask = self._mask()
            found = [load_value(f, s.dtype, at.lanes, base, k * copy, mask=mask) for k in copies]
        elif at is not None and at.across and copy == 1:
            found = self._load_transposed(s.dtype, base, lane, at)
        else:
            found = [self._gather(s.dtype, base, k * copy, lane) for k in copies]
        self.values[s.result] = tuple(found)

    def _gather(self, dtype: str, base: Reg, start: int, stride: int) -> Reg:
        f, at = self.f, self.inside
        assert at is not None
        type = memory_type(dtype).of(at.lanes)
        indices = self._each_lane(start, stride, at.lanes)
        return widen(f, dtype, f.gather(type, base, indices, f.first_lanes(at.count, at.lanes)))

    def _load_transposed(self, dtype: str, base: Reg, stride: int, at: _Lanes) -> list[Reg]:
        """Load one register along the copies for each lane, and exchange the two directions."""
        f = self.f
        type = memory_type(dtype).of(at.lanes)
        if at.copies > at.lanes:
            raise ValueError(f"{at.copies} copies can't be transposed into {at.lanes} lanes")
        rows = []
        for k in range(at.lanes):
            if k >= at.count:
                rows.append(f.const(0, type))
            elif at.copies == at.lanes:
                rows.append(f.load(type, base, k * stride))
            else:
                mask = f.first_lanes(at.copies, at.lanes)
                rows.append(f.masked_load(type, base, mask, f.const(0, type), k * stride))
        return [widen(f, dtype, r) for r in transpose(f, rows)[: at.copies]]

    def store(self, s: Store) -> None:
        f, at = self.f, self.inside
        base = self._address(s.buffer, s.dtype, s.index)
        if at is None:
            store_value(f, s.dtype, self.values[s.value][0], base)
            return
        lane, copy = self._strides(s.index)
        mask = self._mask()
        for k, value in enumerate(self._copies(s.value)):
            value = to_vector(f, value, at.lanes)
            if lane == 1:
                stream = s.stream and mask is None
                store_value(f, s.dtype, value, base, k * copy, mask=mask, nontemporal=stream)
            else:
                indices = self._each_lane(k * copy, lane, at.lanes)
                wanted = f.first_lanes(at.count, at.lanes)
                f.scatter(narrow(f, s.dtype, value), base, indices, wanted)

    def _copies(self, name: str) -> Value:
        """A value's registers, one per copy."""
        found = self.values[name]
        count = self.inside.copies if self.inside is not None else 1
        return found if len(found) == count else found * count

    def compute(self, s: Compute) -> None:
        copies = max((len(self.values[o]) for o in s.operands), default=1)
        positions = [self._positions(i) for i in s.indices]
        copies = max([copies, *(len(p) for p in positions)])
        outputs = [
            emit_pointwise(
                self.f,
                s.program,
                [self.values[o][k % len(self.values[o])] for o in s.operands],
                [p[k % len(p)] for p in positions],
            )
            for k in range(copies)
        ]
        for name, registers in zip(s.results, zip(*outputs, strict=True), strict=True):
            self.values[name] = registers

    def _positions(self, index: Affine, narrow_type: bool = False) -> Value:
        """The value of an index in each lane of each copy, i64 (or i32)."""
        f, at = self.f, self.inside
        lane, copy = self._strides(index)
        first = f.reg(self._index(index))
        type = I32 if narrow_type else I64
        if narrow_type:
            first = f.convert("trunc", first, I32)
        if at is None or (lane, copy) == (0, 0):
            return (first,)
        found = []
        for k in range(at.copies):
            steps = [k * copy + lane * i for i in range(at.lanes)]
            found.append(
                f.wrapping("add", f.splat(first, at.lanes), f.consts(steps, type))
                if lane
                else f.wrapping("add", first, f.const(k * copy, type))
            )
        return tuple(found)

    def let(self, s: Let) -> None:
        self.values[s.variable] = self.values[s.value]

    def assign(self, s: Assign) -> None:
        self.values[s.variable] = self.values[s.value]

    def split(self, s: Split) -> None:
        rest = self._index(s.flat)
        for name, extent in reversed(list(zip(s.into[1:], s.extents[1:], strict=True))):
            self.variables[name] = self.f.rem(rest, extent)
            rest = self.f.div(rest, extent)
        self.variables[s.into[0]] = rest

    def position(self, s: Position) -> None:
        self.variables[s.variable] = self.values[s.value][0]

    # -- Totals ----------------------------------------------------------------------------------

    def total(self, s: Total) -> None:
        combine = combine_of(s.combine, s.dtype)
        lanes, copies = s.lanes, s.copies
        if self.inside is not None:
            lanes, copies = self.inside.lanes, self.inside.copies
        state = tuple(
            self.f.const(v, compute_type(t, lanes))
            for v, t in zip(combine.identity, combine.state, strict=True)
        )
        own = self.inside is None and lanes > 0
        self.totals[s.name] = _State(combine, own, (state,) * copies)

    def accumulate(self, s: Accumulate) -> None:
        total = self.totals[s.total]
        positions = self._positions(s.position, narrow_type=True)
        copies = list(total.copies)
        for k, value in enumerate(self._copies(s.value)):
            inputs = [*copies[k], value, positions[k % len(positions)]]
            fresh = emit_pointwise(self.f, total.combine.update, inputs)
            copies[k] = self._kept(fresh, copies[k])
        self.totals[s.total] = replace(total, copies=tuple(copies))

    def _kept(self, fresh: Sequence[Reg], old: Sequence[Reg]) -> Value:
        """Return the new state in active lanes, the old one in others."""
        mask = self._mask()
        if mask is None:
            return tuple(fresh)
        return tuple(self.f.select(mask, a, b) for a, b in zip(fresh, old, strict=True))

    def merge(self, s: Merge) -> None:
        total = self.totals[s.total]
        states = list(zip(*(self._copies(n) for n in s.state), strict=True))
        copies = [
            tuple(emit_pointwise(self.f, total.combine.merge, [*old, *new]))
            for old, new in zip(total.copies, states, strict=True)
        ]
        self.totals[s.total] = replace(total, copies=tuple(copies))

    def fold(self, s: Fold) -> None:
        total, into = self.totals[s.total], self.totals[s.into]
        zero = self.f.const(0, I32)
        copies = [
            tuple(emit_pointwise(self.f, into.combine.update, [*old, new[0], zero]))
            for old, new in zip(into.copies, total.copies, strict=True)
        ]
        self.totals[s.into] = replace(into, copies=tuple(copies))
        type = total.copies[0][0].type
        fresh = (self.f.const(total.combine.identity[0], type),)
        self.totals[s.total] = replace(total, copies=(fresh,) * len(copies))

    def take(self, s: Take) -> None:
        total = self.totals[s.total]
        if not total.own_lanes:
            for i, name in enumerate(s.results):
                self.values[name] = tuple(c[i] for c in total.copies)
            return
        state = self._across_lanes(total.combine, self._across_copies(total))
        for name, register in zip(s.results, state, strict=True):
            self.values[name] = (register,)

    def _across_copies(self, total: _State) -> Value:
        copies = list(total.copies)
        while len(copies) > 1:
            pairs = zip(copies[::2], copies[1::2], strict=False)
            odd = copies[len(copies) - len(copies) % 2 :]
            merge = total.combine.merge
            copies = [tuple(emit_pointwise(self.f, merge, [*a, *b])) for a, b in pairs] + odd
        return copies[0]

    def _across_lanes(self, combine: Combine, state: Value) -> Value:
        """Merge one half of the lanes with the other until one lane is left."""
        lanes = state[0].type.lanes
        while lanes > 1:
            lanes //= 2
            low = [self.f.shuffle(r, None, range(lanes)) for r in state]
            high = [self.f.shuffle(r, None, range(lanes, 2 * lanes)) for r in state]
            state = tuple(emit_pointwise(self.f, combine.merge, [*low, *high]))
        return tuple(self.f.extract(r, 0) for r in state)

    # -- Branches, calls -------------------------------------------------------------------------

    def branch(self, s: If) -> None:
        names = list(dict.fromkeys([*changed(s.then), *changed(s.otherwise)]))
        condition = self.values[s.condition][0]
        bodies = iter((s.then, s.otherwise))
        self._carry(
            names,
            lambda run, carried: self.f.when(
                condition, lambda: run(0, carried), lambda: run(0, carried)
            ),
            lambda _: self.run(next(bodies)),
        )

    def repeat(self, s: While) -> None:
        names = list(dict.fromkeys([*changed(s.before), *changed(s.body)]))
        kept = [n for n in names if n in self.values or n in self.totals]

        def condition(*state: Reg) -> Reg:
            self._unpack(kept, state)
            self.run(s.before)
            return self.values[s.condition][0]

        def body(*_: Reg) -> list[Reg]:
            self.run(s.body)
            return self._pack(kept)

        outside = dict(self.values), dict(self.totals)
        if any(n in kept for n in changed(s.before)):
            raise ValueError("what comes before a while loop's condition can't change variables")
        last = self.f.repeat(condition, body, self._pack(kept))
        self.values, self.totals = outside
        self._unpack(kept, last)

    def call(self, s: CallKernel) -> None:
        f = self.f
        table = f.local(PTR, len(s.buffers))
        for i, name in enumerate(s.buffers):
            f.store(self.buffers[name], table, i)
        f.call(s.symbol, VOID, table, f.reg(self.team.thread), f.reg(self.team.threads))


_WRITERS: dict[type, Callable[[_Generator, Statement], None]] = {
    Load: _Generator.load, Compute: _Generator.compute, Store: _Generator.store,
    Let: _Generator.let, Assign: _Generator.assign,
    Split: _Generator.split, Position: _Generator.position,
    Total: _Generator.total, Accumulate: _Generator.accumulate, Merge: _Generator.merge,
    Fold: _Generator.fold, Take: _Generator.take, For: _Generator.loop, If: _Generator.branch,
    While: _Generator.repeat, CallKernel: _Generator.call,
}  # type: ignore[dict-item]  # fmt: skip
