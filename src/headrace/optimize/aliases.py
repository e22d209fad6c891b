"""Read again what is an alias of a variable. In: a StepGraph. Out: the same, with `rereads`,
`carriers`, `keepers` and `read_last`.

In TensorFlow the Identity of a reference has the variable's own memory, so whatever uses it after
a write sees the write. Graphs rely on that: a constraint's function or a moving average takes
`w/read`, which was made with the variable, under a control dependency on the update; a loop reads
in each iteration what the last one has written; a branch reads what was written before it. Here an
array that was read does not change any more. So an operation that uses an alias after a write gets
the reference in place of the alias, and reads when it runs. Where the alias comes through a Switch,
a Merge or the border of a loop, or what made it waits for something, these carry the reference.

What a tensor array holds of a variable is read when the row is read, what a step fetches when the
step is over. Without a path from a write, what a user of an alias sees is a race in TensorFlow, and
here the value that was read first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.core.dtypes import resource
from headrace.graph.definition import Effect
from headrace.graph.flow import Flow
from headrace.graph.lists import row_kept
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import StepGraph
from headrace.optimize.surroundings import (
    Frame,
    Sides,
    around,
    entered,
    exclude,
    frames_of,
    passes,
    sides_of,
)

__all__ = ["Variable", "leads_to_state", "reread", "variables_behind"]

Variable = tuple[str, str]  # the container and the name of a variable
Aliases = dict[Variable, int]  # of a tensor: the variables whose memory it may have, see _Aliases

_NOW = 1  # the bit that every operation comes after, and that an outdated alias lacks


def reread(step: StepGraph) -> StepGraph:
    """Find the operations that use an alias of a variable after a write to it."""
    writers = [op for op in step.operations if _targets(op)]
    if not writers or not any(map(_makes_alias, step.operations)):
        return step
    found = _Aliases(step, writers)
    found.follow()
    return found.rewritten()


class _Aliases:
    """Which tensors are aliases of variables, and what has been written since they were made.

    Every write has a bit. `_before[op]`: the writes that an operation runs after, by a path in its
    own iteration; `_born[t]`: for each variable that a tensor may be an alias of, the writes that
    came before the alias. A write in the first and not in the second has changed what the alias
    shows. An alias that enters or goes round a loop which writes its variable lacks `_NOW` too: all
    that use it read again, in each iteration.
    """

    def __init__(self, step: StepGraph, writers: list[Operation]) -> None:
        self._step = step
        self._fed = set(step.feeds)
        self._bit = {op: 2 << i for i, op in enumerate(writers)}
        self._frames = frames_of(step)
        self._writes: dict[Variable, int] = {}
        self._frame_writes: dict[Frame, int] = {}
        for op in writers:
            for t in _targets(op):
                for variable in variables_behind(t):
                    self._writes[variable] = self._writes.get(variable, 0) | self._bit[op]
            for frame in around(self._frames[op]):
                self._frame_writes[frame] = self._frame_writes.get(frame, 0) | self._bit[op]
        self._before: dict[Operation, int] = {}
        self._born: dict[Tensor, Aliases] = {}
        self._switches: dict[Tensor, int] = {}  # how many ask a predicate
        self._sides, self._tensor_sides = sides_of(step, self._frames)
        self._elsewhere: dict[Sides, int] = {frozenset(): 0}
        self._rereads: dict[Operation, tuple[Tensor, ...]] = {}
        self._carriers: set[Tensor] = set()
        self._keepers: set[Operation] = set()
        self._reader: dict[Operation, Operation] = {}  # of a Switch: what reads its predicate

    # -- What is an alias of what ------------------------------------------------------------------

    def follow(self) -> None:
        """Go through the operations in order, until what loops pass on is known."""
        for op in self._step.operations:
            self._before[op] = self._writes_before(op)
        # What another side of a branch writes is not written where this side runs.
        for op, sides in self._sides.items():
            if sides:
                self._before[op] &= ~self._excluded(sides)
        for op in self._step.operations:
            if op.definition.flow is Flow.SWITCH:
                pred = op._inputs[1]
                self._switches[pred] = self._switches.get(pred, 0) + 1
        changed = True
        while changed:
            changed = False
            for op in self._step.operations:
                born = self._aliases_made(op)
                for t in op._outputs if born else ():
                    is_alias = _holds_data(op, t) and not t.dtype._is_ref_dtype
                    if is_alias and t not in self._fed and self._born.get(t) != born:
                        self._born[t] = born
                        changed = True

    def _writes_before(self, op: Operation) -> int:
        before = _NOW
        for source in _sources(op):
            before |= self._before.get(source, 0) | self._bit.get(source, 0)
            if source.definition.flow is Flow.EXIT:
                before |= self._frame_writes.get(self._frames[source], 0)
        return before

    def _excluded(self, sides: Sides) -> int:
        """The writes that never happen in a step where an operation on these sides runs."""
        found = self._elsewhere.get(sides)
        if found is None:
            writers = self._bit if sides else ()
            found = sum(self._bit[w] for w in writers if exclude(sides, self._sides[w]))
            self._elsewhere[sides] = found
        return found

    def _aliases_made(self, op: Operation) -> Aliases:
        """The variables that the outputs of an operation are aliases of."""
        flow = op.definition.flow
        if flow is None and not passes(op):
            return {}
        before = self._before[op]
        joined: Aliases = {}
        for t in _data(op):
            aliases = self._aliases(t, before)
            if flow is None:  # it reads again what is outdated
                aliases = {v: b | before for v, b in aliases.items()}
            elif flow is Flow.MERGE:
                never = self._excluded(self._tensor_sides.get(t, frozenset()))
                aliases = {v: b | never for v, b in aliases.items()}
            elif flow is Flow.ENTER and op._attrs["is_constant"]:
                aliases = self._outdated(aliases, entered(op, self._frames[op]))
            if t.op.definition.flow is Flow.NEXT:
                aliases = self._outdated(aliases, self._frames[op])
            for variable, born in aliases.items():
                joined[variable] = joined.get(variable, -1) & born
        return joined

    def _aliases(self, t: Tensor, now: int) -> Aliases:
        if t in self._fed:
            return {}
        if t.dtype._is_ref_dtype:
            return dict.fromkeys(variables_behind(t), now)
        return self._born.get(t, {})

    def _outdated(self, aliases: Aliases, frame: Frame) -> Aliases:
        """Aliases inside of a loop that may write their variables."""
        written = self._frame_writes.get(frame, 0)
        return {v: b & ~_NOW if self._writes.get(v, 0) & written else b for v, b in aliases.items()}

    def _is_outdated(self, t: Tensor, before: int) -> bool:
        """Whether an alias may not show what its variable holds after these writes."""
        if t.dtype._is_ref_dtype:
            return False
        aliases = self._born.get(t, {})
        return any(before & (self._writes.get(v, 0) | _NOW) & ~b for v, b in aliases.items())

    def _may_change(self, op: Operation, t: Tensor) -> bool:
        """Whether a variable that a tensor is an alias of may be written after an operation."""
        later = ~self._before[op] & ~self._excluded(self._sides[op])
        for frame in around(self._frames[op]):
            later |= self._frame_writes.get(frame, 0)
        return any(self._writes.get(v, 0) & later for v in self._aliases(t, 0))

    # -- Who reads again ---------------------------------------------------------------------------

    def rewritten(self) -> StepGraph:
        for op in self._step.operations:
            if op.definition.flow is None:
                before = self._before[op]
                inputs = [self._current(t, before) for t in op._inputs]
                kept = row_kept(op.definition)
                if kept is not None and self._may_change(op, op._inputs[kept]):
                    inputs[kept] = self._root(op._inputs[kept])
                    self._keepers.add(op)
                self._take(op, inputs)
        for op in self._step.operations:
            if op.definition.flow is Flow.SWITCH:
                self._take(op, [self._step_input(op, 0), self._predicate(op)])
        everything = _NOW
        for bit in self._bit.values():
            everything |= bit
        fetches = tuple(self._current(t, everything) for t in self._step.fetches)
        changed = self._rereads or self._carriers or self._keepers
        if not changed and fetches == self._step.fetches:
            return self._step
        return replace(
            self._step,
            keepers=frozenset(self._keepers),
            operations=tuple(self._in_order()),
            rereads=self._rereads,
            carriers=frozenset(self._carriers),
            read_last=fetches if fetches != self._step.fetches else (),
        )

    def _in_order(self) -> Iterator[Operation]:
        """The operations, those that read predicates before the Switches that ask them."""
        done: set[Operation] = set()
        for op in self._step.operations:
            reader = self._reader.get(op)
            for each in (op,) if reader is None else (reader, op):
                if each not in done:
                    done.add(each)
                    yield each

    def _step_input(self, op: Operation, i: int) -> Tensor:
        return self._rereads[op][i] if op in self._rereads else op._inputs[i]

    def _take(self, op: Operation, inputs: list[Tensor]) -> None:
        if inputs != op._inputs:
            self._rereads[op] = tuple(inputs)

    def _current(self, t: Tensor, before: int) -> Tensor:
        """What to take in place of a tensor after these writes: it, or what leads to the variable
        that it's an outdated alias of.
        """
        return self._root(t) if self._is_outdated(t, before) else t

    def _root(self, t: Tensor) -> Tensor:
        """The reference, or what carries it, that an alias was made of."""
        t = self._uncovered(t)
        if t in self._born:
            self._carry(t)
        return t

    def _uncovered(self, t: Tensor) -> Tensor:
        """What operations that do nothing else pass on; one that waits is waited for."""
        while t in self._born and t.op.definition.flow is None and not t.op._control_inputs:
            t = t.op._inputs[0]
        return t

    def _carry(self, t: Tensor) -> None:
        """Let what made an alias pass on the reference in its place."""
        stack = [t]
        while stack:
            op = stack.pop().op
            carried = [t for t in op._outputs if _holds_data(op, t)]
            if self._carriers.issuperset(carried):
                continue
            self._carriers.update(carried)
            inputs = list(self._rereads.get(op, op._inputs))
            for i, given in enumerate(_data(op)):
                given = self._uncovered(given)
                if given in self._born:
                    stack.append(given)
                inputs[i] = given
            self._take(op, inputs)

    def _predicate(self, switch: Operation) -> Tensor:
        """What a Switch asks. All of one branch must see the same: a predicate that another
        operation reads at the same time is read by that one only. What the data went through does
        not count, unless nobody else asks.
        """
        t = switch._inputs[1]
        before = self._before[switch]
        if self._switches[t] > 1:
            sources = [t.op, *switch._control_inputs]
            before = _NOW
            for source in sources:
                before |= self._before.get(source, 0) | self._bit.get(source, 0)
        outdated = self._is_outdated(t, before)
        if not outdated and not t.dtype._is_ref_dtype:
            return t
        for op in t._consumers:
            if op in self._before and passes(op) and self._reads_at_once(op, switch, before):
                self._reader[switch] = op
                return op._outputs[0]
        return self._root(t) if outdated else t

    def _reads_at_once(self, op: Operation, switch: Operation, before: int) -> bool:
        """Whether an operation reads what a Switch asks after the same writes as the Switch."""
        if not set(op._control_inputs) <= set(switch._control_inputs):
            return False
        between = self._before[op] ^ before
        aliases = self._aliases(switch._inputs[1], before)
        return not any(between & self._writes.get(v, 0) for v in aliases)


def variables_behind(t: Tensor) -> set[Variable]:
    """The variables that a reference or handle may lead to: a write passes on what it was given."""
    found: set[Variable] = set()
    seen: set[Operation] = set()
    stack = [t.op]
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        given = [i.op for i in op._inputs if leads_to_state(i)]
        if not given:
            attrs = op._attrs
            found.add((attrs.get("container", ""), attrs.get("shared_name") or op.name))
        stack += given
    return found


def leads_to_state(t: Tensor) -> bool:
    """Whether a tensor is a reference or a handle."""
    return t.dtype._is_ref_dtype or t.dtype is resource


def _makes_alias(op: Operation) -> bool:
    """Whether an operation makes an alias of a variable, or puts one into a tensor array."""
    kept = row_kept(op.definition)
    if kept is not None:
        return op._inputs[kept].dtype._is_ref_dtype
    if op.definition.flow is None and not passes(op):
        return False
    given = any(t.dtype._is_ref_dtype for t in _data(op))
    return given and not op._outputs[0].dtype._is_ref_dtype


def _data(op: Operation) -> list[Tensor]:
    """The inputs that an operation which steers or passes its input may give."""
    return op._inputs[:1] if op.definition.flow is Flow.SWITCH else op._inputs


def _holds_data(op: Operation, t: Tensor) -> bool:
    """Whether an output is one of the inputs: a Merge also says which one."""
    return op.definition.flow is not Flow.MERGE or t.value_index == 0


def _targets(op: Operation) -> list[Tensor]:
    """The references through which an operation writes into the variables' memory: one that may
    give a variable another shape gives it other memory.
    """
    definition = op.definition
    if definition.effect is not Effect.WRITES:
        return []
    if definition.reshapes is not None and definition.reshapes(op):
        return []
    return [t for t in op._inputs if t.dtype._is_ref_dtype]


def _sources(op: Operation) -> list[Operation]:
    """What an operation runs after."""
    return [*(t.op for t in op._inputs), *op._control_inputs]
