"""Read again what is an alias of a variable. In: a Dataflow with primitives. Out: the same, in
which a node that uses an alias after a write takes the reference in its place.

In TensorFlow the Identity of a reference has the variable's own memory, so whatever uses it after
a write sees the write. Graphs rely on that: a constraint's function or a moving average takes
`w/read`, which was made with the variable, under a control dependency on the update; a loop reads
in each iteration what the last one has written; a branch reads what was written before it. Here an
array that was read does not change any more. So a node that uses an alias after a write gets the
reference in place of the alias, and reads when it runs. Where the alias comes through a Switch, a
Merge or the border of a loop, or what made it waits for something, these carry the reference
(optimize.references).

What a tensor array holds of a variable is read when the row is read, what a step fetches when the
step is over. Without a path from a write, what a user of an alias sees is a race in TensorFlow, and
here the value that was read first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from headrace._src.core.dtypes import resource
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.dataflow import Backedge, Dataflow, Feed, Node, Value, ValueType
from headrace._src.graph.definition import Effect
from headrace._src.lowering.list_anchors import row_kept
from headrace._src.ops.base.internal import SAME_REFERENCE
from headrace._src.optimize.references import carrying, holds_data, keeping
from headrace._src.optimize.surroundings import (
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
Aliases = dict[Variable, int]  # of a value: the variables whose memory it may share, see _Aliases

_NOW = 1  # the bit that every node comes after, and that an outdated alias lacks


def reread(flow: Dataflow) -> Dataflow:
    """Let nodes that use an alias of a variable after a write to it read the variable again."""
    writers = [node for node in flow.nodes if _targets(node)]
    if not writers or not any(map(_makes_alias, flow.nodes)):
        return flow
    found = _Aliases(flow, writers)
    found.follow()
    return found.rewritten()


class _Aliases:
    """Which values are aliases of variables, and which writes happened since they were made.

    Every write has a bit. `_before[node]`: the writes that a node runs after, by a path in its own
    iteration; `_born[value]`: for each variable that a value may be an alias of, the writes that
    came before the alias. A write in the first and not in the second has changed the memory that
    the alias shares. An alias that enters or is carried by a loop which writes its variable lacks
    `_NOW` too: all nodes that use it read again, in each iteration.
    """

    def __init__(self, flow: Dataflow, writers: list[Node]) -> None:
        self._flow = flow
        self._bit: dict[Any, int] = {node: 2 << i for i, node in enumerate(writers)}
        self._frames = frames_of(flow)
        self._writes: dict[Variable, int] = {}
        self._frame_writes: dict[Frame, int] = {}
        for node in writers:
            for value in _targets(node):
                for variable in variables_behind(value):
                    self._writes[variable] = self._writes.get(variable, 0) | self._bit[node]
            for frame in around(self._frames[node]):
                self._frame_writes[frame] = self._frame_writes.get(frame, 0) | self._bit[node]
        self._before: dict[Any, int] = {}
        self._born: dict[Value, Aliases] = {}
        self._readers: dict[Value, list[Node]] = {}
        self._switches: dict[Value, int] = {}  # how many Switches use a predicate
        for node in flow.nodes:
            for value in node.inputs:
                self._readers.setdefault(value, []).append(node)
            if node.definition.flow is Flow.SWITCH:
                predicate = node.inputs[1]
                self._switches[predicate] = self._switches.get(predicate, 0) + 1
        self._sides, self._value_sides = sides_of(flow, self._frames)
        self._elsewhere: dict[Sides, int] = {frozenset(): 0}
        # The changes: the inputs of nodes, the values that carry references, the tensor arrays that
        # keep one, and the reader of a Switch's predicate.
        self._rereads: dict[Node, tuple[Value, ...]] = {}
        self._carriers: set[Value] = set()
        self._keepers: set[Node] = set()
        self._reader: dict[Node, Node] = {}

    # -- Aliases -----------------------------------------------------------------------------------

    def follow(self) -> None:
        """Visit the nodes in order, until the aliases that loops carry are known."""
        for node in self._flow.nodes:
            self._before[node] = self._writes_before(node)
        # Writes of the other side of a branch don't happen where this side runs.
        for node, sides in self._sides.items():
            if sides:
                self._before[node] &= ~self._excluded(sides)
        changed = True
        while changed:
            changed = False
            for node in self._flow.nodes:
                born = self._aliases_made(node)
                for value in node.outputs if born else ():
                    is_alias = holds_data(node, value.index) and not value.dtype._is_ref_dtype
                    if is_alias and self._born.get(value) != born:
                        self._born[value] = born
                        changed = True

    def _writes_before(self, node: Node) -> int:
        before = _NOW
        for source in _sources(node):
            before |= self._before.get(source, 0) | self._bit.get(source, 0)
            if isinstance(source, Node) and source.definition.flow is Flow.EXIT:
                before |= self._frame_writes.get(self._frames[source], 0)
        return before

    def _excluded(self, sides: Sides) -> int:
        """Return the writes that never happen in a step where a node on these sides runs."""
        found = self._elsewhere.get(sides)
        if found is None:
            writers = self._bit if sides else ()
            found = sum(self._bit[w] for w in writers if exclude(sides, self._sides[w]))
            self._elsewhere[sides] = found
        return found

    def _aliases_made(self, node: Node) -> Aliases:
        """Return the variables that the outputs of a node are aliases of."""
        role = node.definition.flow
        if role is None and not passes(node):
            return {}
        before = self._before[node]
        joined: Aliases = {}
        for value in _data(node):
            aliases = self._aliases(value, before)
            if role is None:  # it reads outdated aliases again
                aliases = {v: b | before for v, b in aliases.items()}
            elif role is Flow.MERGE:
                never = self._excluded(self._value_sides.get(value, frozenset()))
                aliases = {v: b | never for v, b in aliases.items()}
            elif role is Flow.ENTER and node.attrs["is_constant"]:
                aliases = self._outdated(aliases, entered(node, self._frames[node]))
            if isinstance(value.producer, Backedge):
                aliases = self._outdated(aliases, self._frames[node])
            for variable, born in aliases.items():
                joined[variable] = joined.get(variable, -1) & born
        return joined

    def _aliases(self, value: Value, now: int) -> Aliases:
        if isinstance(value.producer, Backedge):
            value = self._flow.returns[value.producer]
        if isinstance(value.producer, Feed):
            return {}
        if value.dtype._is_ref_dtype:
            return dict.fromkeys(variables_behind(value), now)
        return self._born.get(value, {})

    def _outdated(self, aliases: Aliases, frame: Frame) -> Aliases:
        """Return aliases inside a loop that may write their variables."""
        written = self._frame_writes.get(frame, 0)
        return {v: b & ~_NOW if self._writes.get(v, 0) & written else b for v, b in aliases.items()}

    def _is_outdated(self, value: Value, before: int) -> bool:
        """Whether an alias may differ from its variable's value after these writes."""
        if value.dtype._is_ref_dtype:
            return False
        aliases = self._born.get(value, {})
        return any(before & (self._writes.get(v, 0) | _NOW) & ~b for v, b in aliases.items())

    def _may_change(self, node: Node, value: Value) -> bool:
        """Whether a variable that a value is an alias of may be written after a node."""
        later = ~self._before[node] & ~self._excluded(self._sides[node])
        for frame in around(self._frames[node]):
            later |= self._frame_writes.get(frame, 0)
        return any(self._writes.get(v, 0) & later for v in self._aliases(value, 0))

    # -- Rereading ---------------------------------------------------------------------------------

    def rewritten(self) -> Dataflow:
        """Return the flow in which outdated aliases are read again."""
        for node in self._flow.nodes:
            if node.definition.flow is None:
                before = self._before[node]
                inputs = [self._current(v, before) for v in node.inputs]
                kept = row_kept(node.definition)
                if kept is not None and self._may_change(node, node.inputs[kept]):
                    inputs[kept] = self._root(node.inputs[kept])
                    self._keepers.add(node)
                self._take(node, inputs)
        for node in self._flow.nodes:
            if node.definition.flow is Flow.SWITCH:
                self._take(node, [self._inputs_of(node)[0], self._predicate(node)])
        everything = _NOW
        for bit in self._bit.values():
            everything |= bit
        fetches = tuple(self._current(v, everything) for v in self._flow.fetches)
        changed = self._rereads or self._carriers or self._keepers
        if not changed and fetches == self._flow.fetches:
            return self._flow
        return self._rebuilt(fetches)

    def _inputs_of(self, node: Node) -> Sequence[Value]:
        return self._rereads.get(node, node.inputs)

    def _take(self, node: Node, inputs: Sequence[Value]) -> None:
        if tuple(inputs) != node.inputs:
            self._rereads[node] = tuple(inputs)

    def _current(self, value: Value, before: int) -> Value:
        """Return what to use instead of a value after these writes: itself or, if it is an outdated
        alias, a value that leads to the variable.
        """
        return self._root(value) if self._is_outdated(value, before) else value

    def _root(self, value: Value) -> Value:
        """Return the reference, or its carrier, that an alias was made from."""
        value = self._uncovered(value)
        if self._is_alias(value):
            self._carry(value)
        return value

    def _is_alias(self, value: Value) -> bool:
        producer = value.producer
        return (self._flow.returns[producer] if isinstance(producer, Backedge) else value) in (
            self._born
        )

    def _uncovered(self, value: Value) -> Value:
        """Return the value behind nodes that only pass it on, down to one that has
        control inputs.
        """
        while value in self._born and value.op.definition.flow is None and not value.op.controls:
            value = value.op.inputs[0]
        return value

    def _carry(self, value: Value) -> None:
        """Let the node that made an alias pass on the reference instead."""
        stack = [value]
        while stack:
            value = stack.pop()
            if isinstance(value.producer, Backedge):
                self._carriers.add(value)
            node = self._flow.maker_of(value)
            assert isinstance(node, Node)
            carried = [v for v in node.outputs if holds_data(node, v.index)]
            if self._carriers.issuperset(carried):
                continue
            self._carriers.update(carried)
            inputs = list(self._inputs_of(node))
            for i, given in enumerate(_data(node)):
                given = self._uncovered(given)
                if self._is_alias(given) or isinstance(given.producer, Backedge):
                    stack.append(given)
                inputs[i] = given
            self._take(node, inputs)

    def _predicate(self, switch: Node) -> Value:
        """Return the predicate of a Switch. All Switches of a branch must see the same value: if
        another node reads the predicate at the same time, only that node reads it. Writes before
        the data count only if no other Switch uses the predicate.
        """
        value = switch.inputs[1]
        before = self._before[switch]
        if self._switches[value] > 1:
            before = _NOW
            for source in (value.producer, *switch.controls):
                before |= self._before.get(source, 0) | self._bit.get(source, 0)
        outdated = self._is_outdated(value, before)
        if not outdated and not value.dtype._is_ref_dtype:
            return value
        for node in self._readers[value]:
            if passes(node) and self._reads_at_once(node, switch, before):
                self._reader[switch] = node
                return node.outputs[0]
        return self._root(value) if outdated else value

    def _reads_at_once(self, node: Node, switch: Node, before: int) -> bool:
        """Whether a node reads a Switch's predicate after the same writes as the Switch."""
        if not set(node.controls) <= set(switch.controls):
            return False
        between = self._before[node] ^ before
        aliases = self._aliases(switch.inputs[1], before)
        return not any(between & self._writes.get(v, 0) for v in aliases)

    # -- The new flow ------------------------------------------------------------------------------

    def _rebuilt(self, fetches: Sequence[Value]) -> Dataflow:
        """Return the flow with other inputs, carriers and keepers, and these fetches."""
        values: dict[Value, Value] = {}
        nodes: dict[Node, Node] = {}
        backedges: dict[Backedge, Backedge] = {}
        for back in self._flow.returns:
            carried = back.value in self._carriers
            new = replace(back, type=_by_reference(back.type)) if carried else back
            backedges[back] = new
            values[back.value] = new.value
        for node in self._in_order():
            inputs = tuple([values.get(v, v) for v in self._inputs_of(node)])
            controls = tuple([nodes[c] for c in node.controls])
            new = nodes[node] = self._changed(node, inputs, controls)
            values.update(zip(node.outputs, new.outputs, strict=True))
        returns = self._flow.returns.items()
        return replace(
            self._flow,
            nodes=tuple(nodes.values()),
            fetches=tuple(values.get(v, v) for v in fetches),
            targets=tuple(nodes[n] for n in self._flow.targets),
            returns={backedges[back]: values.get(v, v) for back, v in returns},
        )

    def _changed(self, node: Node, inputs: tuple[Value, ...], controls: tuple[Node, ...]) -> Node:
        moved = node
        if inputs != node.inputs or controls != node.controls:
            moved = node.moved(inputs, controls)
        if node in self._keepers:
            return replace(moved, definition=keeping(node.definition))
        if not self._carriers.intersection(node.outputs):
            return moved
        if node.definition.flow is None:
            attrs = {"T": inputs[0].dtype.base_dtype}
            types = tuple(_by_reference(t) for t in node.types)
            return replace(moved, definition=SAME_REFERENCE, attrs=attrs, types=types)
        types = tuple(
            _by_reference(t) if holds_data(node, i) else t for i, t in enumerate(node.types)
        )
        return replace(moved, definition=carrying(node.definition), types=types)

    def _in_order(self) -> Iterator[Node]:
        """Return the nodes, with those that read predicates before the Switches that use them."""
        done: set[Node] = set()
        for node in self._flow.nodes:
            reader = self._reader.get(node)
            for each in (node,) if reader is None else (reader, node):
                if each not in done:
                    done.add(each)
                    yield each


def _by_reference(t: ValueType) -> ValueType:
    return replace(t, dtype=t.dtype._as_ref)


def variables_behind(value: Value) -> set[Variable]:
    """Return the variables that a reference or handle may lead to: a write passes on its input."""
    found: set[Variable] = set()
    seen: set[Any] = set()
    stack: list[Any] = [value.producer]
    while stack:
        node = stack.pop()
        if node in seen or not isinstance(node, Node):
            continue
        seen.add(node)
        given = [v.producer for v in node.inputs if leads_to_state(v)]
        if not given:
            attrs = node.attrs
            found.add((attrs.get("container", ""), attrs.get("shared_name") or node.name))
        stack += given
    return found


def leads_to_state(value: Value) -> bool:
    """Whether a value is a reference or a handle."""
    return value.dtype._is_ref_dtype or value.dtype is resource


def _makes_alias(node: Node) -> bool:
    """Whether a node makes an alias of a variable, or puts one into a tensor array."""
    kept = row_kept(node.definition)
    if kept is not None:
        return node.inputs[kept].dtype._is_ref_dtype
    if node.definition.flow is None and not passes(node):
        return False
    given = any(v.dtype._is_ref_dtype for v in _data(node))
    return given and not node.types[0].dtype._is_ref_dtype


def _data(node: Node) -> Sequence[Value]:
    """Return the inputs that a control-flow or pass-through node may return."""
    return node.inputs[:1] if node.definition.flow is Flow.SWITCH else node.inputs


def _targets(node: Node) -> list[Value]:
    """Return the references through which a node writes into the variables' memory: a node that may
    change a variable's shape allocates new memory instead.
    """
    definition = node.definition
    if definition.effect is not Effect.WRITES:
        return []
    if definition.reshapes is not None and definition.reshapes(node):
        return []
    return [v for v in node.inputs if v.dtype._is_ref_dtype]


def _sources(node: Node) -> list[Any]:
    """Return the nodes that a node runs after."""
    return [*(v.producer for v in node.inputs), *node.controls]
