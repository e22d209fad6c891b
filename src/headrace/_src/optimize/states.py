"""Which nodes touch which state, and in what order. In: nodes, in the order of the program. Out:
for each the earlier nodes that it must follow.

A state is a variable (or another resource), identified by the container and name of its source op,
or the outside world (printing, Python functions, checks that may fail). References and handles
carry the states that they may lead to. Two accesses to a state, one of them a write, keep the
program's order; each random op has a state of its own, and needs no order.

The order must not deadlock a step: a dequeued element may be assigned to a variable that is read
for the enqueue that the dequeue waits for. So a node follows an earlier one only if it also comes
after all blocking ops that the earlier one comes after; other pairs are as unordered as in
TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace._src.core.errors import InternalError
from headrace._src.graph.dataflow import Dataflow, Feed, Node, Value
from headrace._src.graph.definition import Effect
from headrace._src.graph.state_sources import carries_state, is_source
from headrace._src.graph.structured import parts_of
from headrace._src.graph.verify_flow import verify_reads

__all__ = ["Order", "State", "states_of", "verify_order"]

WORLD = "the world"
ANYTHING = "anything"  # a fed handle may lead to any state

State = Any
_TOUCHING = (Effect.READS, Effect.WRITES)
_NONE: frozenset[State] = frozenset()
_WORLD: frozenset[State] = frozenset({WORLD})
_ANYTHING: frozenset[State] = frozenset({ANYTHING})


def states_of(value: Value, known: dict[Value, frozenset[State]] | None = None) -> frozenset[State]:
    """Return the states that a reference or handle may lead to."""
    seen: set[Value] = set()
    found: set[State] = set()
    stack = [value]
    while stack:
        value = stack.pop()
        if value in seen or not carries_state(value):
            continue
        seen.add(value)
        node = value.producer
        if known is not None and value in known:
            found |= known[value]
        elif isinstance(node, Feed):
            found |= _ANYTHING
        elif node.inputs:
            stack.extend(node.inputs)
        else:
            found.add((node.attrs.get("container", ""), node.attrs.get("shared_name") or node.name))
    return frozenset(found)


def _touched(node: Node, known: dict[Value, frozenset[State]]) -> tuple[frozenset[State], bool]:
    """Return the states that a node touches, and whether it writes them."""
    effect = node.definition.effect
    if effect not in _TOUCHING or is_source(node):
        return _NONE, False
    states = frozenset().union(*(states_of(v, known) for v in node.inputs))
    return states or _WORLD, effect is Effect.WRITES


class Order:
    """The order of effects so far.

    `_writers[s]`: the nodes that wrote state s, the last one and those that it didn't follow;
    `_readers[s]`: those that read it and that no writer has followed. `_awaited`: the blocking ops
    that a node comes after, as bits; nodes that come after none have no entry.
    """

    def __init__(self) -> None:
        self._writers: dict[State, list[Node]] = {}
        self._readers: dict[State, list[Node]] = {}
        self._known: dict[Value, frozenset[State]] = {}
        self._awaited: dict[Node | Feed, int] = {}
        self._waiting = 0  # the number of blocking ops

    def states(self, value: Value) -> frozenset[State]:
        """Return the states that a reference or handle of an added node may lead to."""
        return states_of(value, self._known)

    def before(self, node: Node) -> list[Node]:
        """Return the earlier nodes that `node` must follow because of the states that
        it touches.
        """
        states, writes = _touched(node, self._known)
        found: list[Node] = []
        for state in self._overlapping(states):
            found += self._writers.get(state, ())
            if writes:
                found += self._readers.get(state, ())
        return self._followed(found, self._awaited_by(node))

    def add(self, node: Node) -> None:
        """Record the states that `node` touches; it is the last node so far."""
        awaited = self._awaited_by(node)
        states, writes = _touched(node, self._known)
        for state in states:
            if writes:
                for touched in (self._writers, self._readers):
                    earlier = touched.get(state, [])
                    done = set(self._followed(earlier, awaited))
                    touched[state] = [n for n in earlier if n not in done]
                self._writers[state].append(node)
            else:
                self._readers.setdefault(state, []).append(node)
        if any(map(carries_state, node.types)):
            for value in node.outputs:
                self._known[value] = states_of(value, self._known)
        if node.definition.may_wait:
            awaited |= 1 << self._waiting
            self._waiting += 1
        if awaited:
            self._awaited[node] = awaited

    def _awaited_by(self, node: Node) -> int:
        """Return the blocking ops before `node`, as bits."""
        awaited = 0
        if self._awaited:
            for before in (*(v.producer for v in node.inputs), *node.controls):
                awaited |= self._awaited.get(before, 0)
        return awaited

    def _followed(self, earlier: list[Node], awaited: int) -> list[Node]:
        """Return the earlier nodes that a node after these blocking ops can follow."""
        if not self._awaited:
            return earlier
        return [n for n in earlier if not self._awaited.get(n, 0) & ~awaited]

    def _overlapping(self, states: frozenset[State]) -> Iterable[State]:
        if ANYTHING in states:
            return dict.fromkeys([*self._writers, *self._readers])
        return sorted(states, key=str) + [ANYTHING] if states else ()


def verify_order(flow: Dataflow) -> None:
    """Check that, of two nodes that touch one variable, one of them writing, the later one comes
    after the earlier one; and everything that verify_reads checks. Flows with blocking ops, which
    leave some nodes unordered, are not checked, nor is what a part does to references that it is
    fed.
    """
    verify_reads(flow)
    _verify_order(flow)


def _verify_order(flow: Dataflow) -> None:
    for node in flow.nodes:
        for part in parts_of(node).values():
            _verify_order(part)
    if any(node.definition.may_wait for node in flow.nodes):
        return
    known: dict[Value, frozenset[State]] = {}
    before: dict[Any, int] = {}
    touches: dict[State, list[tuple[Node, int, bool]]] = {}
    for i, node in enumerate(flow.nodes):
        before[node] = 1 << i
        for source in (*(v.producer for v in node.inputs), *node.controls):
            before[node] |= before.get(source, 0)
        states, writes = _NONE, False
        if node.constant is None:
            states, writes = _touched(node, known)
        for state in states - _WORLD - _ANYTHING:
            for earlier, bit, wrote in touches.setdefault(state, []):
                if (writes or wrote) and not before[node] & bit:
                    message = f"nothing orders {earlier.name} and {node.name}, which touch {state}"
                    raise InternalError(None, None, message)
            touches[state].append((node, 1 << i, writes))
