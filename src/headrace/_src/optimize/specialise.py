"""Specialise. In: a Dataflow without primitives, and the shapes of its feeds. Out: the same, with
these shapes.

Concrete shapes flow from the feeds through every op's shape rule; values that follow from them and
from constants alone become constants, at once if they are small (the next rule may need one as a
shape), else in `fold`. Calls are replaced by the bodies of their functions, and branches whose
predicate is known by the side that is taken. Controls keep the program's order of nodes that touch
the same state.

A rule that rejects the shapes leaves them unknown: the kernel will report the error when it runs. A
shape that `set_shape` promised beyond the rules is checked by a node, then relied upon. The
declared shapes of variables are relied upon too; the runtime checks them before a step. After a
node that may change a variable's shape, they aren't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace._src.core.errors import ShapeError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.dataflow import (
    Dataflow,
    Feed,
    Node,
    Value,
    ValueType,
    handle_data,
    is_local,
)
from headrace._src.graph.definition import Effect
from headrace._src.graph.inference import inferred_shapes, partial_value
from headrace._src.graph.state_sources import carries_state, is_source
from headrace._src.graph.structured import (
    effect_of,
    is_loop,
    is_undefined,
    parts_of,
    with_effect,
)
from headrace._src.lowering.list_anchors import NUMBERS, makes, row_given, row_taken
from headrace._src.ops.base.internal import ENSURE_SHAPE
from headrace._src.optimize.evaluate import evaluate, is_known
from headrace._src.optimize.states import Order, State

__all__ = ["specialise"]

_SMALL = 4096  # the most elements of a value that is evaluated at once
_UNKNOWN = TensorShape(None)


def specialise(flow: Dataflow, shapes: Sequence[tuple[int, ...] | None]) -> Dataflow:
    """Infer the types of `flow` for feeds of these shapes (None: not known)."""
    feeds = [
        feed if shape is None else replace(feed, type=_of_shape(feed.type, shape))
        for feed, shape in zip(flow.feeds, shapes, strict=True)
    ]
    given = {old.value: new.value for old, new in zip(flow.feeds, feeds, strict=True)}
    # Static shapes may follow from a tensor's static value; if the tensor is fed, they are
    # meaningless.
    promises = all(partial_value(feed.tensor) is None for feed in feeds)
    rows = _Rows()
    while True:
        try:
            return _Specialiser(rows, feeds, given, promises=promises).flow(flow)
        except _Varying as found:
            rows = _Rows({*rows.varying, found.maker})


class _Varying(Exception):
    """A list has rows of different shapes."""

    def __init__(self, maker: Any) -> None:
        super().__init__(maker)
        self.maker = maker


class _Rows:
    """The known row shapes of lists, tensor arrays and stacks, by the node that made them: rows
    that are put in come out again. `varying`: those whose rows have several shapes.
    """

    def __init__(self, varying: Iterable[Any] = ()) -> None:
        self.varying = set(varying)
        self._shapes: dict[Any, TensorShape] = {}
        self._lists: dict[Any, Any] = {}  # the makers of the lists that a list of lists holds

    def give(self, maker: Any, shape: TensorShape) -> None:
        """Record the shape of a row that is put into a list."""
        if maker in self.varying:
            return
        known = self._shapes.get(maker)
        if known is not None and known.sizes != shape.sizes:
            raise _Varying(maker)  # a node may already have relied on it
        if shape.is_fully_defined():
            self._shapes[maker] = shape
        else:
            self.varying.add(maker)

    def take(self, maker: Any) -> TensorShape:
        return self._shapes.get(maker, _UNKNOWN)

    def give_list(self, maker: Any, inner: Any) -> None:
        """Record the maker of a list that is put into a list; None if it isn't known."""
        if maker in self.varying:
            return
        if inner is None or self._lists.setdefault(maker, inner) != inner:
            raise _Varying(maker)

    def take_list(self, maker: Any) -> Any:
        return None if maker in self.varying else self._lists.get(maker)


class _Specialiser:
    """The state so far: `_values`, the replacements of the flow's values; `_waits`, the nodes to
    wait for instead of a node; `_behind`, those that a constant's readers must wait for;
    `_origins`, the nodes that a constant was computed from before it was known.
    """

    def __init__(
        self,
        rows: _Rows,
        feeds: Sequence[Feed],
        given: Mapping[Value, Value],
        makers: Mapping[Value, Any] | None = None,
        promises: bool = True,
    ) -> None:
        """given: the replacements of the flow's feeds: feeds, or constants of the outer flow;
        makers: the makers of the lists that it is fed; promises: whether static shapes hold.
        """
        self._rows = rows
        self._makers: dict[Value, Any] = dict(makers or {})
        self._feeds = tuple(feeds)
        self._values: dict[Value, Value] = dict(given)
        self._waits: dict[Node, tuple[Node, ...]] = {}
        self._behind: dict[Node, tuple[Node, ...]] = {}
        self._origins: dict[Node, tuple[Value, ...]] = {}
        self._folded: dict[Node, Node] = {}
        self._order = Order()
        self._around: tuple[Node, ...] = ()  # the controls of the call whose body is being added
        # States whose shape may differ from the declared one.
        self._reshaped: set[State] = set()
        self._promises = promises
        self._made: list[Node] = [v.op for v in given.values() if v.constant is not None]

    def flow(self, flow: Dataflow, inner: bool = False) -> Dataflow:
        """Return the flow with inferred types; `inner`: it is part of a structured node."""
        self._add_all(flow)
        fetches = tuple(self._values[v] for v in flow.fetches)
        targets = [n for node in flow.targets for n in self._waited(node)]
        if not inner:
            known = [v.op for v in fetches if v.constant is not None]
            targets += [n for node in known for n in self._behind.get(node, ())]
            targets += [n for node in known for n in self._reads_behind(node)]
        return Dataflow(
            tuple(dict.fromkeys(self._made)),
            self._feeds,
            fetches,
            tuple(dict.fromkeys(targets)),
            flow.tensors,
        )

    def _add_all(self, flow: Dataflow) -> None:
        for node in flow.nodes:
            if parts_of(node):
                self._add_structured(node)
            else:
                self._add_node(node)

    def _add_node(self, node: Node) -> None:
        controls = self._controls(node)
        inputs = tuple([self._values[v] for v in node.inputs])
        if is_source(node) or is_undefined(node):
            # A source only looks up its state; the runtime checks all of them before the step
            # begins.
            new = node.moved((), ())
        else:
            new = self._settled(node.moved(inputs, controls))
        if new.constant is None:
            new = self._add(new)
            self._waits[node] = (new,)
        else:
            new = new.moved((), ())
            self._made.append(new)
            self._waits[node] = controls
            self._origins[new] = inputs
            self._folded[node] = new
            if controls:
                self._behind[new] = controls
        for old, value in zip(node.outputs, new.outputs, strict=True):
            self._values[old] = self._promised(old, value)

    def _controls(self, node: Node) -> tuple[Node, ...]:
        """Return what a node must wait for, directly or through the constants that it reads."""
        found = [n for c in node.controls for n in self._waited(c)]
        if self._around and node.definition.effect is not Effect.PURE:
            found += self._around
        if self._behind:
            found += [n for v in node.inputs for n in self._behind.get(self._values[v].op, ())]
        return tuple(dict.fromkeys(found)) if found else ()

    def _waited(self, node: Node) -> tuple[Node, ...]:
        """Return the nodes to wait for instead of a node."""
        waits, folded = self._waits.get(node, ()), self._folded.get(node)
        return waits if folded is None else (*waits, *self._reads_behind(folded))

    def _reads_behind(self, constant: Node) -> list[Node]:
        """Return the reads of variables that a constant replaced: a node that reads only the rank
        of a variable still requires that the variable is initialised.
        """
        reads: dict[Node, None] = {}
        seen: set[Node] = set()
        stack = [constant]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.definition.effect is Effect.READS and any(map(carries_state, node.inputs)):
                reads[node] = None
                continue
            inputs = self._origins.get(node, node.inputs)
            stack += [v.op for v in inputs if not isinstance(v.producer, Feed)]
        return list(reads)

    def _add(self, node: Node) -> Node:
        """Add a node, after the earlier nodes that touched the same states."""
        waits = self._order.before(node)
        if waits:
            data = {v.producer for v in node.inputs}
            added = [n for n in waits if n not in data]
            node = node.moved(node.inputs, tuple(dict.fromkeys([*node.controls, *added])))
        self._order.add(node)
        self._made.append(node)
        self._note_lists(node)
        reshapes = node.definition.reshapes
        if reshapes is not None and reshapes(node):
            self._promises = False  # static shapes may follow from the variable's old shape
            for value in filter(carries_state, node.inputs):
                self._reshaped |= self._order.states(value)
        return node

    # -- Loops and branches ------------------------------------------------------------------------

    def _add_structured(self, node: Node) -> None:
        inputs = [self._values[v] for v in node.inputs]
        parts = parts_of(node)
        if "callee" in parts:
            self._inline(node, parts["callee"], inputs)
            return
        if "then" in parts and inputs[0].constant is not None:
            taken = parts["then" if inputs[0].constant else "otherwise"]
            self._inline(node, taken, inputs[1:])
            return
        make = self._loop if is_loop(node) else self._branch
        new = self._add(make(node, inputs))
        self._waits[node] = (new,)
        self._values.update(zip(node.outputs, new.outputs, strict=True))

    def _inline(self, node: Node, part: Dataflow, inputs: list[Value]) -> None:
        """Add the nodes of a part that certainly runs: a function's body, or the branch taken."""
        self._values.update((f.value, v) for f, v in zip(part.feeds, inputs, strict=True))
        before = self._controls(node)
        outer, self._around = self._around, (*self._around, *before)
        start = len(self._made)
        self._add_all(part)
        self._around = outer
        made = tuple(n for n in self._made[start:] if n.constant is None)
        self._waits[node] = (*before, *made)
        results = (self._values[v] for v in part.fetches)
        self._values.update(zip(node.outputs, results, strict=True))

    def _loop(self, node: Node, inputs: list[Value]) -> Node:
        """Return a loop whose variables have types that hold for all iterations."""
        cond, body = node.attrs["cond"], node.attrs["body"]
        count = len(body.fetches)
        variables, invariants = inputs[:count], inputs[count:]
        types = [v.type for v in variables]
        while True:
            flow = self._part(body, inputs, types)
            kept = [_joined(t, v.type) for t, v in zip(types, flow.fetches, strict=True)]
            if kept == types:
                break
            types = kept
        parts = {"cond": self._part(cond, inputs, types), "body": flow}
        given = [*variables, *_given(invariants)]
        results = [types[i] for i in node.attrs["results"]]
        return self._structured(node, given, results, parts)

    def _branch(self, node: Node, inputs: list[Value]) -> Node:
        predicate, *given = inputs
        parts = {name: self._part(part, given) for name, part in parts_of(node).items()}
        outcomes = zip(parts["then"].fetches, parts["otherwise"].fetches, strict=True)
        types = [
            b.type
            if is_undefined(a.op)
            else a.type
            if is_undefined(b.op)
            else _joined(a.type, b.type)
            for a, b in outcomes
        ]
        return self._structured(node, [predicate, *_given(given)], types, parts)

    def _part(
        self, part: Dataflow, values: Sequence[Value], types: Sequence[ValueType] = ()
    ) -> Dataflow:
        """Return a part of a structured node for these values, with other types where `types` says
        so; constants are inlined in it, and a repeated reference is passed once.
        """
        feeds, given, makers = [], {}, {}
        fed: dict[Value, Value] = {}
        for i, (feed, value) in enumerate(zip(part.feeds, values, strict=True)):
            if value.constant is not None and i >= len(types):
                given[feed.value] = value
            elif value in fed:
                given[feed.value] = fed[value]
            else:
                type = types[i] if i < len(types) else value.type
                new = Feed(feed.tensor, type, handle_data(value), is_local(value))
                feeds.append(new)
                given[feed.value] = new.value
                if value.dtype._is_ref_dtype and i >= len(types):
                    fed[value] = new.value
                if value in self._makers:
                    makers[new.value] = self._makers[value]
        return _Specialiser(self._rows, feeds, given, makers).flow(part, inner=True)

    def _structured(
        self,
        node: Node,
        inputs: Sequence[Value],
        types: Sequence[ValueType],
        parts: dict[str, Dataflow],
    ) -> Node:
        attrs = {
            **node.attrs,
            "Tin": tuple(v.dtype for v in inputs),
            "Tout": tuple(t.dtype for t in types),
            **parts,
        }
        definition = with_effect(node.definition, effect_of(parts.values()))
        controls = self._controls(node)
        return replace(
            node,
            definition=definition,
            attrs=attrs,
            inputs=tuple(inputs),
            controls=controls,
            types=tuple(types),
        )

    def _is_reshaped(self, value: Value) -> bool:
        return bool(self._reshaped) and not self._reshaped.isdisjoint(self._order.states(value))

    # -- Types and values --------------------------------------------------------------------------

    def _settled(self, node: Node) -> Node:
        """Return the node with the types of its outputs, and their values if they are known."""
        if self._reshaped and any(map(self._is_reshaped, node.inputs)):
            return replace(node, types=tuple(ValueType(t.dtype, None) for t in node.types))
        try:
            shapes = inferred_shapes(node)
        except ShapeError:
            shapes = [_UNKNOWN] * len(node.types)
        if node.definition.effect is Effect.LOCAL:
            shapes = self._with_row(node, shapes)
        types = tuple([_typed(t, shape) for t, shape in zip(node.types, shapes, strict=True)])
        if types != node.types:
            node = replace(node, types=types)
        values = evaluate(node, _SMALL)
        return node if values is None else is_known(node, values)

    def _with_row(self, node: Node, shapes: list[TensorShape]) -> list[TensorShape]:
        """Return the shapes of an op on a list: elements taken out are like those put in."""
        maker = self._maker(node)
        if maker is None:
            return shapes
        given, taken = row_given(node.definition), row_taken(node.definition)
        if given is not None:
            shape = node.inputs[given.index].shape
            self._rows.give(maker, shape[1:] if given.stacked else shape)
        elif taken is not None and not shapes[taken.index].is_fully_defined():
            row = self._rows.take(maker)
            if row.sizes is not None:
                shape = node.inputs[NUMBERS].shape.concatenate(row) if taken.stacked else row
                shapes = [shape if i == taken.index else s for i, s in enumerate(shapes)]
        return shapes

    def _maker(self, node: Node) -> Any:
        """Return the maker of the list that a node works on, if it is known."""
        return self._makers.get(node.inputs[0]) if node.inputs else None

    def _note_lists(self, node: Node) -> None:
        """Record the makers of the lists that a node returns, and of those that it puts into a
        list.
        """
        results = node.attrs.get("results")
        given = row_given(node.definition)
        if given is not None and is_local(node.inputs[given.index]) and self._maker(node):
            inner = self._makers.get(node.inputs[given.index])
            self._rows.give_list(self._maker(node), inner)
        for i, value in enumerate(node.outputs):
            if not is_local(value):
                continue
            if results is not None:
                maker = self._makers.get(node.inputs[results[i]])
            elif row_taken(node.definition) == (i, False):
                maker = self._rows.take_list(self._maker(node))
            else:
                maker = node.origin if makes(node.definition) else self._maker(node)
            if maker is not None:
                self._makers[value] = maker

    def _promised(self, old: Value, value: Value) -> Value:
        """Return the value, through a check if the static shape of `old` is stricter than the
        rules'.
        """
        promise, known = old.shape, value.shape
        if known.is_fully_defined() or promise.sizes is None or promise.sizes == known.sizes:
            return value
        if not self._promises or carries_state(value) or not promise.is_compatible_with(known):
            return value
        shape = known.merge_with(promise)
        if shape.sizes == known.sizes:
            return value
        node = old.op
        name = f"{node.name}/shape_{old.index}"
        attrs: dict[str, Any] = {"T": value.dtype, "shape": shape}
        types = (ValueType.of(value.dtype, shape),)
        check = Node(
            ENSURE_SHAPE, name, attrs, (value,), (), types, node.origin, device=node.device
        )
        return self._add(check).outputs[0]


def _given(values: Sequence[Value]) -> list[Value]:
    """Return the inputs of a structured node: no constants, and each reference once."""
    kept = [v for v in values if v.constant is None]
    references = dict.fromkeys(v for v in kept if v.dtype._is_ref_dtype)
    return [v for v in kept if not v.dtype._is_ref_dtype or references.pop(v, 0) is None]


def _joined(one: ValueType, other: ValueType) -> ValueType:
    """Return the type of a value that has one type or the other."""
    if one == other:
        return one
    a, b = one.shape.sizes, other.shape.sizes
    if a is None or b is None or len(a) != len(b):
        return ValueType(one.dtype, None)
    sizes = tuple(m if m == n else None for m, n in zip(a, b, strict=True))
    return ValueType.of(one.dtype, TensorShape.of(sizes))


def _of_shape(t: ValueType, shape: tuple[int, ...]) -> ValueType:
    return ValueType.of(t.dtype, TensorShape.of(shape))


def _typed(untyped: ValueType, shape: TensorShape) -> ValueType:
    sizes = shape.sizes
    if sizes is not None:  # rules that compute with arrays give NumPy's integers
        shape = TensorShape.of(tuple(None if n is None else int(n) for n in sizes))
    return ValueType.of(untyped.dtype, shape)
