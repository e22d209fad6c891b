"""The building blocks of raising: drafts of structured nodes and of their parts, nodes in order,
and the reason why some steps are left as they are.

During raising, drafts keep the values of the original flow: a draft of a loop has the values of the
Exits that it replaces. `assembled` makes the nodes at the end, once all are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headrace._src.graph.dataflow import (
    Dataflow,
    Feed,
    Node,
    Value,
    handle_data,
    is_local,
    tensor_of,
)
from headrace._src.graph.definition import Definition
from headrace._src.graph.structured import Unraisable, effect_of, with_effect

__all__ = [
    "NodeDraft",
    "Op",
    "PartDraft",
    "assembled",
    "holders",
    "in_order",
    "members_of",
    "stand_in",
]

Op = Any  # a Node, or a Draft


class PartDraft(NamedTuple):
    """A step inside a structured node, under construction: `feeds` are values of the outer flow."""

    nodes: Sequence[Op]
    feeds: Sequence[Value]
    fetches: Sequence[Value]
    targets: Sequence[Node] = ()


class NodeDraft:
    """A structured node under construction, with the attributes of a Node that raising reads.
    Without a definition it is a node that does nothing: its outputs are its input.
    """

    def __init__(
        self,
        definition: Definition | None,
        like: Op,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        controls: Iterable[Node],
        members: Iterable[Op],
        parts: dict[str, PartDraft] | None = None,
        **attrs: Any,
    ) -> None:
        """Replace `members`, nodes and drafts, with the name and device of `like`."""
        self.definition: Any = definition or NOTHING
        self.members = {m for op in members for m in members_of(op)}
        self.name = like.name
        self.device = like.device
        self.origin = like.origin
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.controls = tuple(controls)
        self.parts = parts or {}
        self.attrs = attrs


class _Nothing(NamedTuple):
    """The part of a Definition that raising reads."""

    flow: None = None


NOTHING = _Nothing()


def members_of(op: Op) -> set[Node]:
    """Return the nodes that a node or draft stands for: itself, or all that were raised to it."""
    return op.members if isinstance(op, NodeDraft) else {op}


def stand_in(value: Value) -> Value:
    """Return a value to use where a part has none."""
    return Value(value.producer, value.index, value.type)


def holders(operations: Iterable[Op]) -> dict[Node, Op]:
    """Return, for each node, the node or draft to wait for."""
    return {m: op for op in operations for m in members_of(op)}


def in_order(operations: list[Op]) -> list[Op]:
    """Return the nodes after their dependencies, otherwise in the given order."""
    maker = {v: op for op in operations for v in op.outputs}
    holder = holders(operations)
    done: dict[Op, bool] = {}
    result: list[Op] = []

    def before(op: Op) -> list[Op]:
        found = [maker[v] for v in op.inputs if v in maker]
        return found + [holder[c] for c in op.controls if c in holder]

    for root in operations:
        stack = [] if root in done else [(root, iter(before(root)))]
        done.setdefault(root, False)
        while stack:
            op, remaining = stack[-1]
            for b in remaining:
                if b not in done:
                    done[b] = False
                    stack.append((b, iter(before(b))))
                    break
                if not done[b] and b is not op:
                    raise Unraisable(f"'{op.name}' and '{b.name}' wait for each other")
            else:
                stack.pop()
                done[op] = True
                result.append(op)
    return result


def assembled(flow: Dataflow, operations: Sequence[Op]) -> Dataflow:
    """Return the flow of nodes and drafts, in order, that replaces the nodes of `flow`."""
    made = _Assembly(flow.feeds)
    made.add_all(operations)
    return Dataflow(
        tuple(made.nodes),
        flow.feeds,
        tuple(made.value(v) for v in flow.fetches),
        tuple(dict.fromkeys(n for t in flow.targets for n in made.waits(t))),
        flow.tensors,
    )


class _Assembly:
    """Nodes under construction. `_values`: the replacement of each value; `_waits`: the nodes to
    wait for instead of a node. The node that holds a part waits for nodes outside the part.
    """

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self.nodes: list[Node] = []
        self._values: dict[Value, Value] = {f.value: f.value for f in feeds}
        self._waits: dict[Node, tuple[Node, ...]] = {}

    def value(self, value: Value) -> Value:
        return self._values[value]

    def waits(self, node: Node) -> tuple[Node, ...]:
        return self._waits.get(node, ())

    def add_all(self, operations: Sequence[Op]) -> None:
        for op in operations:
            controls = tuple(dict.fromkeys(n for c in op.controls for n in self.waits(c)))
            inputs = tuple([self._values[v] for v in op.inputs])
            if isinstance(op, NodeDraft) and op.definition is NOTHING:
                self._values.update((v, inputs[0]) for v in op.outputs)
                self._waits.update(dict.fromkeys(op.members, controls))
                continue
            if isinstance(op, NodeDraft):
                node = self._structured(op, inputs, controls)
            elif inputs == op.inputs and controls == op.controls:
                node = op
            else:
                node = op.moved(inputs, controls)
            self.nodes.append(node)
            self._waits.update(dict.fromkeys(members_of(op), (node,)))
            self._values.update(zip(op.outputs, node.outputs, strict=True))

    def _structured(
        self, op: NodeDraft, inputs: tuple[Value, ...], controls: tuple[Node, ...]
    ) -> Node:
        parts = {name: _assembled_part(part) for name, part in op.parts.items()}
        types = tuple(v.type for v in op.outputs)
        attrs = {
            "Tin": tuple(v.dtype for v in inputs),
            "Tout": tuple(t.dtype for t in types),
            **op.attrs,
            **parts,
        }
        definition = op.definition
        if parts:
            definition = with_effect(definition, effect_of(parts.values()))
        return Node(
            definition, op.name, attrs, inputs, controls, types, op.origin, device=op.device
        )


def _assembled_part(part: PartDraft) -> Dataflow:
    feeds = tuple(Feed(tensor_of(v), v.type, handle_data(v), is_local(v)) for v in part.feeds)
    made = _Assembly(())
    made._values.update((v, feed.value) for v, feed in zip(part.feeds, feeds, strict=True))
    made.add_all(part.nodes)
    return Dataflow(
        tuple(made.nodes),
        feeds,
        tuple(made.value(v) for v in part.fetches),
        tuple(dict.fromkeys(n for t in part.targets for n in made.waits(t))),
    )
