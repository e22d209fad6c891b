"""Make reads explicit. In: a Dataflow, raised or with primitives. Out: the same, with inputs as
each node's schema requires: a value or a reference.

Where a node takes a value and is given a reference, a READ before it returns the variable's value
at that time. Where a reference is required of a value that isn't a variable (a Merge, a loop or a
branch may return either), a HOLD makes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace._src.graph.control_roles import Flow
from headrace._src.graph.dataflow import Dataflow, Feed, Node, Value, ValueType
from headrace._src.graph.operation import Operation
from headrace._src.graph.structured import is_loop, is_undefined, parts_of
from headrace._src.ops.base.internal import HOLD, READ

__all__ = ["read_variables"]


def read_variables(flow: Dataflow, ordered: bool = False) -> Dataflow:
    """Add a node for each read of a variable, before the node that takes the value, in the order of
    the program, which specialising keeps by controls. `ordered`: the read waits for everything that
    the node waits for, because nothing else will keep the order. That is also done where nodes may
    block: specialising orders a read after a write only if it comes after the same blocking ops.
    """
    if not _has_references(flow):
        return flow
    return _Reading(ordered or any(n.definition.may_wait for n in flow.nodes)).flow(flow)


def _has_references(flow: Dataflow) -> bool:
    """Whether a flow or its parts contain a reference."""
    if any(t.dtype._is_ref_dtype for n in flow.nodes for t in n.types):
        return True
    if any(f.type.dtype._is_ref_dtype for f in flow.feeds):
        return True
    return any(_has_references(part) for n in flow.nodes for part in parts_of(n).values())


class _Reading:
    """A flow under construction: the replacement of each value and of each node."""

    def __init__(self, ordered: bool = False) -> None:
        self._ordered = ordered
        self._values: dict[Value, Value] = {}
        self._nodes: dict[Node, Node] = {}
        self._made: list[Node] = []

    def flow(self, flow: Dataflow) -> Dataflow:
        """Return the flow; its fetches are references where they were before."""
        self._add_all(flow)
        return self._finished(flow, flow.feeds, [self._values.get(v, v) for v in flow.fetches])

    def part(self, part: Dataflow, given: Sequence[bool], wanted: Sequence[bool]) -> Dataflow:
        """Return a part of a structured node whose inputs are references where `given` says so, and
        whose results are where `wanted` does.
        """
        pairs = zip(part.feeds, given, strict=True)
        feeds = tuple(_fed(feed, reference) for feed, reference in pairs)
        self._values.update((a.value, b.value) for a, b in zip(part.feeds, feeds, strict=True))
        self._add_all(part)
        fetches = [
            self._as_wanted(self._values.get(v, v), reference, f"{v.producer.name}/{{}}", None)
            for v, reference in zip(part.fetches, wanted, strict=True)
        ]
        return self._finished(part, feeds, fetches)

    def _add_all(self, flow: Dataflow) -> None:
        for node in flow.nodes:
            self._add(node)

    def _finished(
        self, flow: Dataflow, feeds: tuple[Feed, ...], fetches: Sequence[Value]
    ) -> Dataflow:
        return replace(
            flow,
            nodes=tuple(self._made),
            feeds=feeds,
            fetches=tuple(fetches),
            targets=tuple(self._nodes[n] for n in flow.targets),
            returns={b: self._values.get(v, v) for b, v in flow.returns.items()},
        )

    def _add(self, node: Node) -> None:
        inputs = [self._values.get(v, v) for v in node.inputs]
        controls = tuple([self._nodes[c] for c in node.controls if c in self._nodes])
        parts = parts_of(node)
        if parts:
            self._add_structured(node, parts, inputs, controls)
            return
        if any(v.dtype._is_ref_dtype for v in inputs) or node.definition.flow is not None:
            wanted = node.definition.schema.references(node.attrs)
            if node.definition.flow is None:  # a fed value can't be turned into a variable
                given = zip(wanted, inputs, strict=True)
                wanted = [wants and v.dtype._is_ref_dtype for wants, v in given]
            inputs = self._all_as_wanted(node, inputs, wanted, self._before(node, inputs, controls))
        same = tuple(inputs) == node.inputs and controls == node.controls
        self._keep(node, node if same else node.moved(tuple(inputs), controls))

    def _before(
        self, node: Node, inputs: Sequence[Value], controls: tuple[Node, ...]
    ) -> tuple[Node, ...]:
        """Return what a read for a node waits for. All inputs of a Merge except one may be dead."""
        if not self._ordered or node.definition.flow is Flow.MERGE:
            return controls
        made = [v.producer for v in inputs if not v.dtype._is_ref_dtype]
        return (*controls, *(n for n in made if isinstance(n, Node) and n.constant is None))

    def _keep(self, node: Node, new: Node) -> None:
        self._made.append(new)
        self._nodes[node] = new
        if new is not node:
            self._values.update(zip(node.outputs, new.outputs, strict=True))

    def _all_as_wanted(
        self,
        node: Node,
        inputs: Sequence[Value],
        wanted: Sequence[bool],
        controls: tuple[Node, ...],
    ) -> list[Value]:
        names = [f"{node.name}/{{}}_{i}" for i in range(len(inputs))]
        return [
            self._as_wanted(value, reference, name, node, controls)
            for value, reference, name in zip(inputs, wanted, names, strict=True)
        ]

    # -- Loops and branches ------------------------------------------------------------------------

    def _add_structured(
        self,
        node: Node,
        parts: dict[str, Dataflow],
        inputs: list[Value],
        controls: tuple[Node, ...],
    ) -> None:
        """A structured node's parts agree on references: an input is one if any part takes it as
        one.
        """
        fed = [
            any(feed.type.dtype._is_ref_dtype for feed in feeds)
            for feeds in zip(*(part.feeds for part in parts.values()), strict=True)
        ]
        decided = len(inputs) - len(fed)  # an IF has a predicate as well
        inputs = self._all_as_wanted(node, inputs, [False] * decided + fed, controls)
        results = [t.dtype._is_ref_dtype for t in node.types]
        if is_loop(node):
            count = len(parts["body"].fetches)
            made = {
                "cond": _Reading().part(parts["cond"], fed, [False]),
                "body": _Reading().part(parts["body"], fed, fed[:count]),
            }
            results = [fed[i] for i in node.attrs["results"]]
        else:
            made = {name: _Reading().part(part, fed, results) for name, part in parts.items()}
        types = tuple(_typed(t, r) for t, r in zip(node.types, results, strict=True))
        attrs = {
            **node.attrs,
            "Tin": tuple(v.dtype for v in inputs),
            "Tout": tuple(t.dtype for t in types),
            **made,
        }
        new = replace(node, attrs=attrs, inputs=tuple(inputs), controls=controls, types=types)
        self._keep(node, new)
        # A value that a loop carries as a reference may leave it as a value.
        for old, value in zip(node.outputs, new.outputs, strict=True):
            wanted = old.dtype._is_ref_dtype
            name = f"{node.name}/{{}}_result_{old.index}"
            self._values[old] = self._as_wanted(value, wanted, name, node)

    # -- Reading and holding -----------------------------------------------------------------------

    def _as_wanted(
        self,
        value: Value,
        reference: bool,
        name: str,
        reader: Node | None,
        controls: tuple[Node, ...] = (),
    ) -> Value:
        """Return the value of a reference, or a reference to a value, if the other kind is
        required. `name` has a placeholder for the operation.
        """
        if value.dtype._is_ref_dtype == reference or is_undefined(value.producer):
            return value
        definition, word = (HOLD, "hold") if reference else (READ, "read")
        source = value.producer if isinstance(value.producer, Node) else reader
        node = Node(
            definition,
            name.format(word),
            {"T": value.dtype.base_dtype},
            (value,),
            controls,
            (_typed(value.type, reference),),
            _origin(value) if reader is None else reader.origin,
            device="" if source is None else source.device,
        )
        self._made.append(node)
        return node.outputs[0]


def _origin(value: Value) -> Operation | None:
    producer = value.producer
    return producer.tensor.op if isinstance(producer, Feed) else getattr(producer, "origin", None)


def _fed(feed: Feed, reference: bool) -> Feed:
    if feed.type.dtype._is_ref_dtype == reference:
        return feed
    return replace(feed, type=_typed(feed.type, reference))


def _typed(t: ValueType, reference: bool) -> ValueType:
    return replace(t, dtype=t.dtype._as_ref if reference else t.dtype.base_dtype)
