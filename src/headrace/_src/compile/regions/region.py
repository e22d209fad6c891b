"""A region: the nodes of a step that become one compiled cluster, and the sources of their values.

In: nodes of a Dataflow that can all be lowered. Out: for every value, its `Source`: a region input,
a constant, a variable, the result of a node that does work, or a view of another source. Nodes that
do no work (Pass, Read, Move) disappear here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace

import numpy as np

from headrace._src.graph.dataflow import Feed, Node, Value, is_local
from headrace._src.graph.definition import Effect
from headrace._src.graph.structured import parts_of
from headrace._src.lowering.anchor_geometry import AnchorGeometry
from headrace._src.lowering.pointwise import record
from headrace._src.lowering.references import is_reference, writes_of
from headrace._src.lowering.rules import (
    Anchor,
    Elementwise,
    Join,
    Move,
    Pass,
    Read,
    Reduce,
    Update,
    View,
    assembly_of,
    pointwise_of,
    row_major,
    views_of,
)
from headrace._src.lowering.window_anchors import pooling_of

__all__ = ["Region", "Source", "live_nodes"]

_LONG = 16  # contiguous elements that are worth reading in vectors
_WIDENED = record(lambda e, x: e.cast(x, "int64"), ["int32"])


@dataclass(frozen=True, slots=True)
class Source:
    """The place of a value's elements: a base value (an input, a constant, a variable's read or the
    result of a working node) seen through a view; None: the whole base, row-major.
    """

    base: Value
    view: View | None = None


@dataclass
class Region:
    """Nodes in order, with their inputs and outputs.

    variables: the number of each variable (in order of first use), by the value that refers to it
    reads: the variable of each read's value; copied_reads: those that must not see later updates
    copies: strided views that are copied, because a view of them is needed
    pools: the pool of each gradient of a max-pool: the pool stores the positions of its maxima, and
        the gradient needs neither its input nor its output
    limits: inputs that hold indices, with their upper bounds
    private: the outputs that only other regions read, so that their layout is the compiler's choice
    in_blocks: the inputs that another region gives in the blocked layout
    """

    nodes: list[Node]
    outputs: list[Value]
    private: Set[Value] = frozenset()
    in_blocks: Set[Value] = frozenset()
    inputs: list[Value] = field(default_factory=list)
    variables: dict[Value, int] = field(default_factory=dict)
    reads: dict[Value, int] = field(default_factory=dict)
    copied_reads: set[Value] = field(default_factory=set)
    copies: dict[Value, Source] = field(default_factory=dict)
    pools: dict[Node, Node] = field(default_factory=dict)
    limits: list[tuple[Value, int]] = field(default_factory=list)
    sources: dict[Value, Source] = field(default_factory=dict)
    consumers: dict[Value, list[Node]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._aliases: dict[Value, Value] = {}
        self.nodes = live_nodes(self.nodes, self.outputs)
        inside = set(self.nodes)
        for node in self.nodes:
            for value in operands_of(node):
                if value.producer not in inside:
                    self._enter(value)
            self._place(node)
        for value in self.outputs:
            if value.producer not in inside:  # an input or a constant that is an output too
                self._enter(value)
        self._find_pools(inside)
        self.limits += dict.fromkeys(
            (self.sources[base].base, limit)
            for node in self.nodes
            for value, limit in limits_of(node)
            for base in index_bases(value, inside.__contains__)
        )
        self._find_consumers()
        self._find_copied_reads()

    def _enter(self, value: Value) -> None:
        if value in self.sources:
            return
        self.sources[value] = Source(value)
        if not is_constant(value):
            self.inputs.append(value)

    def _place(self, node: Node) -> None:
        """Record the sources of a node's outputs."""
        rule = node.definition.lower
        if isinstance(rule, Pass):
            for given, got in zip(node.inputs, node.outputs, strict=False):
                if is_reference(given):
                    self._aliases[got] = self.reference(given)
                else:
                    self.sources[got] = self.source(given)
        elif isinstance(rule, Read):
            value = node.outputs[0]
            self.reads[value] = self.variable(node.inputs[0])
            self.sources[value] = Source(value)
        elif writes_of(node) and not parts_of(node):
            for reference in writes_of(node):
                self.variable(reference)
            for got, given in zip(node.outputs, node.inputs, strict=False):
                if is_reference(got):
                    self._aliases[got] = self.reference(given)
                else:
                    self.sources[got] = Source(got)
        elif isinstance(rule, Move):
            views = views_of(rule, node)
            assert views is not None, f"{node} was let into a region without a view"
            given = self.sources[node.inputs[rule.operand]]
            seen = [_seen_through(given.view, v) for v in views] if given.view else [None]
            if all(seen):
                found = [Source(given.base, view) for view in seen]
            else:
                source = self._row_major_source(node.inputs[rule.operand])
                found = [_through(source, view) for view in views]
            for value, view, place in zip(node.outputs, views, found, strict=True):
                self.sources[value] = place
                if view.shape != value.type.sizes:  # the same elements in more dimensions: Tile
                    self.copies[value] = self.sources[value]
                    self.sources[value] = Source(value)
        else:
            for value in filter(is_reference, node.inputs):  # of a loop or branch
                self.variable(value)
            for value in node.outputs:
                self.sources[value] = Source(value)

    def _row_major_source(self, value: Value) -> Source:
        """Return a source that a view can be taken of; a strided one is copied first."""
        source = self.sources[value]
        if source.view is None or source.view.strides == row_major(source.view.shape):
            return source
        self.copies[value] = source
        return Source(value)

    def reference(self, value: Value) -> Value:
        return self._aliases.get(value, value)

    def variable(self, reference: Value) -> int:
        """Return the number of the variable that a reference (or an update's result) refers to."""
        return self.variables.setdefault(self.reference(reference), len(self.variables))

    def source(self, value: Value) -> Source:
        """Where a value's elements are."""
        return self.sources[value]

    def _find_consumers(self) -> None:
        for node in self.nodes:
            if isinstance(node.definition.lower, Pass | Read | Move):
                continue
            for value in self.data_inputs(node):
                self.consumers[self.sources[value].base].append(node)
        for value, source in self.copies.items():
            self.consumers[source.base].append(value.producer)  # type: ignore[arg-type]

    def data_inputs(self, node: Node) -> list[Value]:
        """The inputs whose elements a node's kernel reads."""
        operands = operands_of(node)
        return operands[2:] if node in self.pools else operands

    def _find_pools(self, inside: set[Node]) -> None:
        for node in self.nodes:
            geometry = pooling_of(node)
            if geometry is None or (geometry.kind, geometry.direction) != ("max", "gradient"):
                continue
            if geometry.positions:  # it is given what the pool stored
                continue
            source = self.sources[node.inputs[1]]
            pool = source.base.producer
            if (
                source.view is None
                and pool in inside
                and pooling_of(pool) == replace(geometry, direction="forward")  # type: ignore[arg-type]
                and self.sources[pool.inputs[0]] == self.sources[node.inputs[0]]  # type: ignore[union-attr]
            ):
                self.pools[node] = pool  # type: ignore[assignment]

    def _find_copied_reads(self) -> None:
        """Find the reads to copy. A read's value is the variable's own memory, unless a node or the
        caller needs it after an update.
        """
        position = {node: i for i, node in enumerate(self.nodes)}
        updates: dict[int, list[int]] = defaultdict(list)
        for node in self.nodes:
            for reference in writes_of(node):
                updates[self.variable(reference)].append(position[node])
        escaping = {self.sources[v].base for v in self.outputs if v in self.sources}
        for value, variable in self.reads.items():
            at = position[value.producer]  # type: ignore[index]
            later = [u for u in updates[variable] if u > at]
            if not later:
                continue
            last_use = max((position[n] for n in self.consumers[value]), default=at)
            first = min(later)
            in_time = last_use < first or (
                last_use == first and self._reads_in_place(self.nodes[first], value)
            )
            if value in escaping or not in_time:
                self.copied_reads.add(value)

    def _reads_in_place(self, update: Node, read: Value) -> bool:
        """Return whether an update uses each element of a read only for the same element of its
        variable.
        """
        sources = {v: self.sources[v] for v in self.data_inputs(update)}
        pointwise = isinstance(update.definition.lower, Update)
        return all(
            pointwise and source.view is None and value.type.sizes == read.type.sizes
            for value, source in sources.items()
            if source.base is read
        )


def operands_of(node: Node) -> list[Value]:
    """Return the inputs whose elements a node needs; for element-wise nodes and updates, in the
    order of the program's inputs (without an update's variables).
    """
    rule = node.definition.lower
    inputs = node.inputs
    if isinstance(rule, Update):
        return list(inputs[rule.variables :])
    if isinstance(rule, Elementwise):
        return [inputs[i] for i in rule.operands] if rule.operands is not None else list(inputs)
    if isinstance(rule, Move):
        return [inputs[rule.operand]]
    if isinstance(rule, Join):
        assembly = assembly_of(rule, node)
        return [inputs[i] for i, _ in assembly.pieces] if assembly is not None else []
    if isinstance(rule, Anchor):
        return [inputs[i] for i in node.geometry.operands if not is_reference(inputs[i])]
    if isinstance(rule, Pass):
        return [v for v in inputs if not is_reference(v)]
    return [] if isinstance(rule, Read) else [inputs[0]]


def limits_of(node: Node) -> list[tuple[Value, int]]:
    """Return the operands of a node that are indices, with their upper bounds."""
    geometry = node.geometry
    limits = geometry.limits if isinstance(geometry, AnchorGeometry) else ()
    return [(node.inputs[number], limit) for number, limit in limits]


def index_bases(value: Value, through: Callable[[Node], bool]) -> list[Value]:
    """Return the values that indices come from, through nodes that move, join or widen them: the
    indices are in range if all of these values are.
    """
    found: dict[Value, None] = {}
    waiting = [value]
    while waiting:
        value = waiting.pop()
        node = value.producer
        known = is_constant(value) or not isinstance(node, Node)
        if known or not _hands_on(node, through):  # type: ignore[arg-type]
            found[value] = None
        else:
            waiting += operands_of(node)  # type: ignore[arg-type]
    return list(found)


def _hands_on(node: Node, through: Callable[[Node], bool]) -> bool:
    """Return whether a node's results are elements of its operands."""
    rule = node.definition.lower
    if not isinstance(rule, Pass | Move | Join | Elementwise) or not through(node):
        return False  # `through` comes last: for a lookup it follows that node's own indices
    if isinstance(rule, Join):
        assembly = assembly_of(rule, node)
        return assembly is not None and not assembly.fill
    return not isinstance(rule, Elementwise) or pointwise_of(rule, node) == _WIDENED


def live_nodes(nodes: list[Node], outputs: list[Value]) -> list[Node]:
    """Return the nodes that have an effect or whose values are used."""
    needed = set(outputs)
    live = []
    for node in reversed(nodes):
        effect = node.definition.effect in (Effect.WRITES, Effect.LOCAL)
        if effect or any(v in needed or is_reference(v) for v in node.outputs):
            needed.update(operands_of(node), filter(is_local, node.inputs))
            live.append(node)
    return live[::-1]


def is_constant(value: Value) -> bool:
    """Whether a value is known at compile time."""
    producer = value.producer
    return not isinstance(producer, Feed) and producer.constant is not None


def constant_of(value: Value) -> np.ndarray:
    """The value that is known at compile time."""
    producer = value.producer
    assert isinstance(producer, Node) and producer.constant is not None
    return np.asarray(producer.constant[value.index])


def _through(source: Source, view: View) -> Source:
    """A view of a row-major source."""
    if source.view is not None:
        return Source(source.base, View(view.shape, view.strides, view.offset + source.view.offset))
    whole = view.offset == 0 and view.strides == row_major(view.shape)
    return source if whole and view.shape == source.base.type.sizes else Source(source.base, view)


def _seen_through(inner: View, outer: View) -> View | None:
    """Return a view of a strided view as one view of the memory below, if that is strided again and
    has contiguous rows that fill vectors; None if not.
    """
    steps = row_major(inner.shape)
    # The last element along each dimension of the inner view: none may lie beyond its end.
    last = [outer.offset // s % n for s, n in zip(steps, inner.shape, strict=True)]
    offset = inner.offset + sum(i * s for i, s in zip(last, inner.strides, strict=True))
    strides = []
    for count, stride in zip(outer.shape, outer.strides, strict=True):
        if count == 1 or not stride:
            strides.append(0)
            continue
        for d, step in enumerate(steps):
            ahead = last[d] + (count - 1) * (stride // step)
            if stride % step == 0 and last[d] < ahead < inner.shape[d]:
                last[d] = ahead
                strides.append(stride // step * inner.strides[d])
                break
        else:
            return None
    neighbours = strides and strides[-1] == 1 and outer.shape[-1] >= _LONG
    return View(outer.shape, tuple(strides), offset) if neighbours else None


def works(node: Node) -> bool:
    """Return whether a node computes anything."""
    return isinstance(node.definition.lower, Elementwise | Reduce | Join | Update | Anchor)
