"""Who touches which state, and in what order. In: nodes, in the order of the program. Out: for each
the earlier nodes that it must follow.

A state is a variable (or another resource), named by its container and name as its source op has
them, or the world outside (printing, Python functions, checks that may fail). References and
handles carry the states that they may lead to. Two touches of a state, one of them a write, keep
the program's order; random ops have a state of their own each, and need no order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.core import dtypes
from headrace.graph.dataflow import Feed, Node, Value, ValueType
from headrace.graph.definition import Effect

__all__ = ["Order", "State", "carries_state", "is_source", "states_of"]

WORLD = "the world"
ANYTHING = "anything"  # a handle that was fed may lead to every state

State = Any
_TOUCHING = (Effect.READS, Effect.WRITES)
_NONE: frozenset[State] = frozenset()
_WORLD: frozenset[State] = frozenset({WORLD})
_ANYTHING: frozenset[State] = frozenset({ANYTHING})


def carries_state(value: Value | ValueType) -> bool:
    """Whether a value (or one of this type) is a reference or a handle."""
    return value.dtype._is_ref_dtype or value.dtype is dtypes.resource


def is_source(node: Node) -> bool:
    """Whether a node makes references or handles from nothing: it finds state, and changes none."""
    return not node.inputs and bool(node.types) and all(map(carries_state, node.types))


def states_of(value: Value, known: dict[Value, frozenset[State]] | None = None) -> frozenset[State]:
    """The states that a reference or handle may lead to."""
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
    """The states that a node touches, and whether it writes them."""
    effect = node.definition.effect
    if effect not in _TOUCHING or is_source(node):
        return _NONE, False
    states = frozenset().union(*(states_of(v, known) for v in node.inputs))
    return states or _WORLD, effect is Effect.WRITES


class Order:
    """The order of effects so far.

    `_writer[s]`: the last node that wrote state s; `_readers[s]`: those that read it since.
    """

    def __init__(self) -> None:
        self._writer: dict[State, Node] = {}
        self._readers: dict[State, list[Node]] = {}
        self._known: dict[Value, frozenset[State]] = {}

    def states(self, value: Value) -> frozenset[State]:
        """The states that a reference or handle of a node that was added may lead to."""
        return states_of(value, self._known)

    def before(self, node: Node) -> list[Node]:
        """The earlier nodes that `node` must follow because of the states that it touches."""
        states, writes = _touched(node, self._known)
        found: list[Node] = []
        for state in self._overlapping(states):
            if state in self._writer:
                found.append(self._writer[state])
            if writes:
                found.extend(self._readers.get(state, ()))
        return found

    def add(self, node: Node) -> None:
        """Take note of what `node` touches; it's the last so far."""
        states, writes = _touched(node, self._known)
        for state in states:
            if writes:
                self._writer[state] = node
                self._readers[state] = []
            else:
                self._readers.setdefault(state, []).append(node)
        if any(map(carries_state, node.types)):
            for value in node.outputs:
                self._known[value] = states_of(value, self._known)

    def _overlapping(self, states: frozenset[State]) -> Iterable[State]:
        if ANYTHING in states:
            return dict.fromkeys([*self._writer, *self._readers])
        return sorted(states, key=str) + [ANYTHING] if states else ()
