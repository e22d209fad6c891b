"""Find references to variables. In: values and nodes. Out: which of them a node writes."""

from __future__ import annotations

from headrace._src.graph.dataflow import Node, Value, is_local
from headrace._src.graph.definition import Effect
from headrace._src.graph.structured import parts_of
from headrace._src.lowering.rules import Anchor, Update

__all__ = ["is_reference", "writes_of"]


def is_reference(value: Value) -> bool:
    """Whether a value stands for a variable, not for data."""
    return value.dtype._is_ref_dtype or (value.dtype.name == "resource" and not is_local(value))


def writes_of(node: Node) -> tuple[Value, ...]:
    """The references to the variables that a node writes."""
    rule = node.definition.lower
    if parts_of(node):
        return _written_inside(node)
    if isinstance(rule, Update):
        return node.inputs[: rule.variables]
    if isinstance(rule, Anchor) and node.definition.effect is Effect.WRITES:
        return node.inputs[: rule.variables]
    return ()


def _written_inside(node: Node) -> tuple[Value, ...]:
    """Return the references among a loop's or branch's inputs whose variables its parts write."""
    if node.definition.effect is not Effect.WRITES:
        return ()
    found: dict[Value, None] = {}
    for part in parts_of(node).values():
        given = node.inputs[len(node.inputs) - len(part.feeds) :]  # all but a branch's predicate
        outer = {f.value: v for f, v in zip(part.feeds, given, strict=True)}
        for written in (v for n in part.nodes for v in writes_of(n)):
            while isinstance(written.producer, Node) and written.producer.inputs:
                written = written.producer.inputs[written.index]  # an update returns its reference
            if written in outer:
                found[outer[written]] = None
    return tuple(found)
