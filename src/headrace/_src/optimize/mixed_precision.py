"""Mixed precision. In: a Dataflow of float32. Out: one whose contractions, and the ops between
them, compute in bfloat16, with casts where the two types meet.

Definitions say what each op tolerates (`precision`). Variables, feeds, fetches and updates keep
their types: weights are rounded when a product reads them, and their gradients are float32 again
before they are used. This is the one pass that changes results: it runs only if a session or its
graph requests it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.graph.dataflow import Dataflow, Node, Value
from headrace._src.graph.definition import Definition, Kind, Precision, lookup

__all__ = ["mix_precision"]

_WIDE = as_dtype("float32")
_NARROW = as_dtype("bfloat16")
_USUAL = {Kind.CONTRACTION: Precision.NARROW, Kind.REDUCTION: Precision.WIDE}


def mix_precision(flow: Dataflow) -> Dataflow:
    """Compute in bfloat16 where that is allowed and profitable."""
    chosen = _chosen(flow)
    return _Narrowing(flow, chosen).run() if chosen else flow


# -- Which nodes -----------------------------------------------------------------------------------


def _chosen(flow: Dataflow) -> set[Node]:
    """Return the contractions and the nodes between two of them, except between two WIDE ones."""
    kinds = {node: _kind(node) for node in flow.nodes}
    free = {node for node, kind in kinds.items() if kind is Precision.EITHER}
    narrow = {node for node, kind in kinds.items() if kind is Precision.NARROW}
    wide = {node for node, kind in kinds.items() if kind is Precision.WIDE}
    free -= _between(flow, wide, free)
    return narrow | _between(flow, narrow, free)


def _kind(node: Node) -> Precision:
    if node.constant is not None:
        return Precision.UNKNOWN
    kind = _precision_of(node.definition)
    able = kind is Precision.WIDE or _can_be_narrow(node)
    return kind if able else Precision.UNKNOWN


def _precision_of(definition: Definition) -> Precision:
    if definition.precision is not None:
        return definition.precision
    return _USUAL.get(definition.kind, Precision.UNKNOWN)


def _can_be_narrow(node: Node) -> bool:
    """Whether an op is of float32, and has a bfloat16 form."""
    if node.attrs.get("T") != _WIDE or any(v.dtype._is_ref_dtype for v in node.inputs):
        return False
    allowed = node.definition.schema.attributes["T"].allowed
    return allowed is None or _NARROW in allowed


def _between(flow: Dataflow, ends: set[Node], through: set[Node]) -> set[Node]:
    """Return the members of `through` between two of `ends`, with only `through` in between."""
    after: set[Node] = set()
    for node in flow.nodes:
        if node in through and any(p in ends or p in after for p in _before(node)):
            after.add(node)
    between: set[Node] = set()
    wanted: set[Any] = set()  # inputs of an end, or of nodes before one
    for node in reversed(flow.nodes):
        if node in wanted and node in after:
            between.add(node)
        if node in ends or (node in through and node in wanted):
            wanted.update(_before(node))
    return between


def _before(node: Node) -> list[Any]:
    """Return the producers of a node's inputs, except integers such as shapes."""
    return [v.producer for v in node.inputs if v.dtype.is_floating]


# -- Casts -----------------------------------------------------------------------------------------


class _Narrowing:
    """A flow under construction. `_held`: the replacement of a value, in either type; `_casts`: the
    same in the other type; `_nodes`: the replacement of a node.
    """

    def __init__(self, flow: Dataflow, chosen: set[Node]) -> None:
        self._flow, self._chosen = flow, chosen
        self._held: dict[Value, Value] = {}
        self._casts: dict[Value, Value] = {}
        self._nodes: dict[Node, Node] = {}
        self._kept: list[Node] = []

    def run(self) -> Dataflow:
        for node in self._flow.nodes:
            made = self._placed(node)
            self._nodes[node] = made
            self._held.update(zip(node.outputs, made.outputs, strict=True))
            self._kept.append(made)
        fetches = tuple(self._as(v, v.dtype) for v in self._flow.fetches)
        targets = tuple(self._nodes[t] for t in self._flow.targets)
        return replace(self._flow, nodes=tuple(self._kept), fetches=fetches, targets=targets)

    def _placed(self, node: Node) -> Node:
        controls = tuple(self._nodes[c] for c in node.controls)
        narrow = node in self._chosen
        inputs = tuple(self._as(v, _narrowed(v.dtype) if narrow else v.dtype) for v in node.inputs)
        if not narrow:
            same = inputs == node.inputs and controls == node.controls
            return node if same else node.moved(inputs, controls)
        types = tuple(replace(t, dtype=_narrowed(t.dtype)) for t in node.types)
        attrs = {**node.attrs, "T": _NARROW}
        return replace(node, attrs=attrs, inputs=inputs, controls=controls, types=types)

    def _as(self, value: Value, dtype: DType) -> Value:
        """Return a value of the old flow in one of the two types."""
        held = self._held.get(value, value)
        if held.dtype == dtype:
            return held
        if held not in self._casts:
            self._casts[held] = self._cast(held, dtype)
        return self._casts[held]

    def _cast(self, value: Value, to: DType) -> Value:
        attrs = {"SrcT": value.dtype, "DstT": to, "Truncate": False}
        name = f"{value.producer.name}/{value.index}/{to.name}"
        types = (replace(value.type, dtype=to),)
        node = Node(lookup("Cast"), name, attrs, (value,), (), types)
        self._kept.append(node)
        return node.outputs[0]


def _narrowed(dtype: DType) -> DType:
    return _NARROW if dtype == _WIDE else dtype
