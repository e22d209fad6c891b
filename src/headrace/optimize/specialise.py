"""Specialise. In: a placed StepGraph and the shapes of its feeds. Out: a Dataflow.

Concrete shapes flow from the feeds through every op's shape rule; what follows from them and from
constants alone becomes a constant, at once if it's small (it may be a shape that the next rule asks
for), else in `fold`. What is left implicit between operations becomes explicit: reading a variable
through a reference is a node at the place of the operation that wanted the value, and whatever
touches the same state is ordered by controls as the program was.

A rule that refuses the shapes leaves them unknown: the kernel will say what is wrong when it runs.
What `set_shape` promised beyond the rules is checked by a node, then relied upon. The declared
shapes of variables are relied upon too, which the runtime checks before a step; after a node that
may change a variable's shape, they aren't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.core.errors import ShapeError
from headrace.core.shapes import TensorShape
from headrace.graph.dataflow import Dataflow, Feed, Node, Value, ValueType, handle_data, is_local
from headrace.graph.definition import Effect
from headrace.graph.inference import inferred_shapes, partial_value
from headrace.graph.lists import NUMBERS, makes, row_given, row_taken
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import StepGraph
from headrace.graph.structured import (
    CALL,
    IF,
    PASS,
    UNDEFINED,
    WHILE,
    Structured,
    is_undefined,
    parts_of,
    with_effect,
)
from headrace.ops.internal import ENSURE_SHAPE, HOLD, READ, SAME_REFERENCE
from headrace.optimize.evaluate import evaluate, is_known
from headrace.optimize.states import Order, State, carries_state, is_source

__all__ = ["specialise"]

_SMALL = 4096  # elements of what is evaluated at once
_UNKNOWN = TensorShape(None)


def specialise(step: StepGraph, shapes: Sequence[tuple[int, ...] | None]) -> Dataflow:
    """Settle the types of `step` for feeds of these shapes (None: not known)."""
    types = [_feed_type(t, shape) for t, shape in zip(step.feeds, shapes, strict=True)]
    feeds = [Feed(t, type) for t, type in zip(step.feeds, types, strict=True)]
    rows = _Rows()
    while True:
        try:
            return _Specialiser(step, feeds, rows).flow()
        except _Varying as found:
            rows = _Rows({*rows.varying, found.maker})


class _Varying(Exception):
    """A list has rows of different shapes."""

    def __init__(self, maker: Any) -> None:
        super().__init__(maker)
        self.maker = maker


class _Rows:
    """What is known of the rows of lists, tensor arrays and stacks, by who made them: what goes in
    comes out again. `varying`: those whose rows have several shapes.
    """

    def __init__(self, varying: Iterable[Any] = ()) -> None:
        self.varying = set(varying)
        self._shapes: dict[Any, TensorShape] = {}
        self._lists: dict[Any, Any] = {}  # who made those that a list of lists holds

    def give(self, maker: Any, shape: TensorShape) -> None:
        """Note the shape of a row that goes into a list."""
        if maker in self.varying:
            return
        known = self._shapes.get(maker)
        if known is not None and known.sizes != shape.sizes:
            raise _Varying(maker)  # somebody may have relied on it
        if shape.is_fully_defined():
            self._shapes[maker] = shape
        else:
            self.varying.add(maker)

    def take(self, maker: Any) -> TensorShape:
        return self._shapes.get(maker, _UNKNOWN)

    def give_list(self, maker: Any, inner: Any) -> None:
        """Note who made a list that goes into a list; None if that isn't known."""
        if maker in self.varying:
            return
        if inner is None or self._lists.setdefault(maker, inner) != inner:
            raise _Varying(maker)

    def take_list(self, maker: Any) -> Any:
        return None if maker in self.varying else self._lists.get(maker)


class _Specialiser:
    """What has been made so far: `_values` of tensors; `_waits`, the nodes that waiting for an
    operation means; `_behind`, those that a constant's readers must wait for; `_origins`, what a
    constant was made of before it was known.
    """

    def __init__(
        self,
        step: StepGraph,
        feeds: Sequence[Feed],
        rows: _Rows,
        known: Mapping[Tensor, Value] | None = None,
        makers: Mapping[Value, Any] | None = None,
        around: StepGraph | None = None,
    ) -> None:
        """known: constants of the step around it, and feeds under another name; makers: who made
        the lists that it's fed; around: the step that says who reads again, if this is part of it.
        """
        self._step = step
        self._rules = around or step
        self._rows = rows
        self._makers: dict[Value, Any] = dict(makers or {})
        self._feeds = tuple(feeds)
        self._values: dict[Tensor, Value] = {f.tensor: f.value for f in self._feeds}
        self._waits: dict[Operation, tuple[Node, ...]] = {}
        self._behind: dict[Node, tuple[Node, ...]] = {}
        self._origins: dict[Node, tuple[Value, ...]] = {}
        self._folded: dict[Operation, Node] = {}
        self._order = Order()
        self._around: tuple[Node, ...] = ()  # what the call whose body is being added waits for
        self._made: list[Node] = []
        # States whose shape isn't what was declared any more.
        self._reshaped: set[State] = set()
        # Static shapes may follow from a tensor's static value; if it's fed, they mean nothing.
        self._promises = step.inner or all(partial_value(t) is None for t in step.feeds)
        for tensor, value in (known or {}).items():
            self._values[tensor] = value
            if value.constant is not None:
                self._made.append(value.op)

    def flow(self, references: Sequence[bool] | None = None) -> Dataflow:
        """The step, whose results are references where that is asked for, and values elsewhere."""
        self._add_all(self._step)
        wanted = self._step.read_last or self._step.fetches
        fetches = tuple(self._values[t] for t in wanted)
        if references is not None:
            settled = zip(wanted, fetches, references, strict=True)
            fetches = tuple(self._as_reference_or_value(*each) for each in settled)
        targets = [n for op in self._step.targets for n in self._waited(op)]
        if not self._step.inner:
            known = [v.op for v in fetches if v.constant is not None]
            targets += [n for node in known for n in self._behind.get(node, ())]
            targets += [n for node in known for n in self._reads_behind(node)]
        return Dataflow(
            tuple(dict.fromkeys(self._made)),
            self._feeds,
            fetches,
            tuple(dict.fromkeys(targets)),
            self._step.fetches,
        )

    def _add_all(self, step: StepGraph) -> None:
        for op in step.operations:
            if isinstance(op, Structured):
                self._add_structured(op)
            else:
                self._add_operation(op)

    def _add_operation(self, op: Operation) -> None:
        controls = self._controls(op)
        if op._outputs and op._outputs[0] in self._rules.carriers:
            self._carry(op, controls)
            return
        inputs = self._with_reads(op, controls)
        node = Node(op.definition, op.name, op._attrs, inputs, controls, _static_types(op), op)
        if is_source(node):
            # It only finds its state; the runtime looks at all of them before anything happens.
            node = node.moved((), ())
        else:
            node = self._settled(node)
        if node.constant is None:
            node = self._add(node)
            self._waits[op] = (node,)
        else:
            node = node.moved((), ())
            self._made.append(node)
            self._waits[op] = controls
            self._origins[node] = inputs
            self._folded[op] = node
            if controls:
                self._behind[node] = controls
        for t, value in zip(op._outputs, node.outputs, strict=True):
            self._values.setdefault(t, self._promised(t, value))  # a fed output stays the feed

    def _carry(self, op: Operation, controls: tuple[Node, ...]) -> None:
        """Pass on a reference through what would have passed on the value."""
        (t,), (out,) = self._rules.inputs_of(op), op._outputs
        value = self._as_reference_or_value(t, self._values[t], True)
        attrs = {"T": value.dtype.base_dtype}
        node = Node(SAME_REFERENCE, op.name, attrs, (value,), controls, (value.type,), op)
        node = self._add(node)
        self._waits[op] = (node,)
        self._values[out] = node.outputs[0]

    def _controls(self, op: Operation | Structured) -> tuple[Node, ...]:
        """What an operation must wait for, by itself or through the constants that it reads."""
        found = [n for c in op._control_inputs for n in self._waited(c)]
        if self._around and op.definition.effect is not Effect.PURE:
            found += self._around
        if self._behind:
            found += [n for t in op._inputs for n in self._behind.get(self._values[t].op, ())]
        return tuple(dict.fromkeys(found)) if found else ()

    def _waited(self, op: Operation) -> tuple[Node, ...]:
        """What waiting for an operation means."""
        waits, folded = self._waits.get(op, ()), self._folded.get(op)
        return waits if folded is None else (*waits, *self._reads_behind(folded))

    def _reads_behind(self, constant: Node) -> list[Node]:
        """The readings of variables that a constant would have needed: who asks for the rank of a
        variable, and for nothing else, wants to know that the variable has a value.
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
        """Put a node in its place, after what touched the same states before."""
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
            self._promises = False  # static shapes may follow from what the variable's was
            for value in filter(carries_state, node.inputs):
                self._reshaped |= self._order.states(value)
        return node

    # -- Loops and branches ------------------------------------------------------------------------

    def _add_structured(self, op: Structured) -> None:
        inputs = [self._values[t] for t in op._inputs]
        if op.definition is PASS:
            self._give(op, inputs * len(op._outputs))
            self._waits.update(dict.fromkeys(op.members, self._controls(op)))
            return
        if op.definition is CALL:
            self._inline(op, op._attrs["callee"], inputs)
            return
        if op.definition is IF:
            inputs[0] = self._as_reference_or_value(op._inputs[0], inputs[0], False)
        if op.definition is IF and inputs[0].constant is not None:
            taken = op._attrs["then" if inputs[0].constant else "otherwise"]
            self._inline(op, taken, inputs[1:])
            return
        if op.definition is UNDEFINED:
            node = Node(UNDEFINED, op.name, op._attrs, (), (), _static_types(op), op.origin)
        elif op.definition is WHILE:
            node = self._loop(op, inputs)
        else:
            node = self._branch(op, inputs)
        node = self._add(node)
        self._waits.update(dict.fromkeys(op.members, (node,)))
        self._give(op, node.outputs)

    def _give(self, op: Structured, values: Sequence[Value]) -> None:
        """Let the outputs of an operation have these values, or what they lead to."""
        for t, value in zip(op._outputs, values, strict=True):
            self._values[t] = self._as_reference_or_value(t, value, self._is_reference(t))

    def _inline(self, op: Structured, part: StepGraph, inputs: list[Value]) -> None:
        """Do what a part does that is done in any case: a function's body, the branch taken."""
        inputs = self._taken(part.feeds, inputs)
        for inner in part.operations:  # the body may have been added before, for another call
            for t in inner._outputs:
                self._values.pop(t, None)
        self._values.update(zip(part.feeds, inputs, strict=True))
        before = self._controls(op)
        outer, self._around = self._around, (*self._around, *before)
        start = len(self._made)
        rules = self._rules
        self._rules = part if part.rereads_any else rules
        self._add_all(part)
        self._around, self._rules = outer, rules
        made = tuple(n for n in self._made[start:] if n.constant is None)
        self._waits.update(dict.fromkeys(op.members, (*before, *made)))
        self._give(op, [self._values[f] for f in part.fetches])

    def _loop(self, op: Structured, inputs: list[Value]) -> Node:
        """A loop, whose variables have the types that they keep from one iteration to the next."""
        cond, body = op._attrs["cond"], op._attrs["body"]
        count = len(body.fetches)
        references = [self._is_reference(t) for t in cond.feeds[:count]]
        inputs = self._taken(cond.feeds, inputs)
        variables, invariants = inputs[:count], inputs[count:]
        types = [v.type for v in variables]
        while True:
            flow = self._part(body, [*variables, *invariants], types, references)
            kept = [_joined(t, v.type) for t, v in zip(types, flow.fetches, strict=True)]
            if kept == types:
                break
            types = kept
        goes_on = self._part(cond, [*variables, *invariants], types, [False])
        parts = {"cond": goes_on, "body": flow}
        given = [*variables, *_given(invariants)]
        results = op._attrs["results"]
        return self._structured(op, given, [types[i] for i in results], parts, results=results)

    def _branch(self, op: Structured, inputs: list[Value]) -> Node:
        references = [self._is_reference(t) for t in op._outputs]
        sides = zip(*(part.feeds for part in parts_of(op).values()), strict=True)
        carried = [any(map(self._is_reference, feeds)) for feeds in sides]
        given = zip(op._inputs[1:], inputs[1:], carried, strict=True)
        inputs = [inputs[0], *(self._as_reference_or_value(*each) for each in given)]
        parts = {
            name: self._part(step, inputs[1:], references=references)
            for name, step in parts_of(op).items()
        }
        outcomes = zip(parts["then"].fetches, parts["otherwise"].fetches, strict=True)
        types = [
            b.type
            if is_undefined(a.op)
            else a.type
            if is_undefined(b.op)
            else _joined(a.type, b.type)
            for a, b in outcomes
        ]
        given = [inputs[0], *_given(inputs[1:])]
        return self._structured(op, given, types, parts)

    def _part(
        self,
        step: StepGraph,
        values: Sequence[Value],
        types: Sequence[ValueType] = (),
        references: Sequence[bool] = (),
    ) -> Dataflow:
        """A part of a structured operation for these values, which have other types where `types`
        says so; it holds those that are constant, and gets a reference that comes twice once.
        """
        feeds, known, makers = [], {}, {}
        fed: dict[Value, Value] = {}
        for i, (tensor, value) in enumerate(zip(step.feeds, values, strict=True)):
            if value.constant is not None and i >= len(types):
                known[tensor] = value
            elif value in fed:
                known[tensor] = fed[value]
            else:
                type = types[i] if i < len(types) else value.type
                feeds.append(Feed(tensor, type, handle_data(value), is_local(value)))
                if value.dtype._is_ref_dtype and i >= len(types):
                    fed[value] = feeds[-1].value
                if value in self._makers:
                    makers[feeds[-1].value] = self._makers[value]
        around = step if step.rereads_any else self._rules
        return _Specialiser(step, feeds, self._rows, known, makers, around).flow(references)

    def _structured(
        self,
        op: Structured,
        inputs: Sequence[Value],
        types: Sequence[ValueType],
        parts: dict[str, Dataflow],
        **attrs: Any,
    ) -> Node:
        attrs["Tin"] = tuple(v.dtype for v in inputs)
        attrs["Tout"] = tuple(t.dtype for t in types)
        effect = _effect(n for flow in parts.values() for n in flow.nodes)
        definition = with_effect(op.definition, effect)
        controls = self._controls(op)
        return Node(
            definition,
            op.name,
            {**attrs, **parts},
            tuple(inputs),
            controls,
            tuple(types),
            op.origin,
        )

    # -- Reading variables -------------------------------------------------------------------------

    def _with_reads(self, op: Operation, controls: tuple[Node, ...]) -> tuple[Value, ...]:
        """The op's inputs, with a reading of the variable wherever it wants a value and is given a
        reference.
        """
        inputs = [self._values[t] for t in self._rules.inputs_of(op)]
        if any(v.dtype._is_ref_dtype for v in inputs):
            for i, wanted in enumerate(self._rules.wants_reference(op)):
                if inputs[i].dtype._is_ref_dtype and not wanted:
                    inputs[i] = self._read(inputs[i], f"{op.name}/read_{i}", op, controls)
        return tuple(inputs)

    def _read(self, ref: Value, name: str, op: Operation, controls: tuple[Node, ...]) -> Value:
        dtype = ref.dtype.base_dtype
        shape = _UNKNOWN if self._is_reshaped(ref) else ref.shape
        node = Node(READ, name, {"T": dtype}, (ref,), controls, (ValueType.of(dtype, shape),), op)
        return self._add(node).outputs[0]

    def _is_reference(self, t: Tensor) -> bool:
        return self._rules.is_reference(t)

    def _taken(self, tensors: Sequence[Tensor], values: Sequence[Value]) -> list[Value]:
        """Values for tensors of a part, of which few hold references."""
        settled = zip(tensors, values, strict=True)
        return [self._as_reference_or_value(t, v, self._is_reference(t)) for t, v in settled]

    def _as_reference_or_value(self, t: Tensor, value: Value, reference: bool) -> Value:
        """What a reference leads to, or a reference to a value, if the other is wanted of `t`."""
        if value.dtype._is_ref_dtype == reference or is_undefined(value.producer):
            return value
        if not reference:
            return self._read(value, f"{t.op.name}/read", t.op, ())
        dtype = value.dtype._as_ref
        attrs = {"T": value.dtype}
        types = (ValueType.of(dtype, value.shape),)
        node = Node(HOLD, f"{t.op.name}/hold", attrs, (value,), (), types, t.op)
        return self._add(node).outputs[0]

    def _is_reshaped(self, value: Value) -> bool:
        return bool(self._reshaped) and not self._reshaped.isdisjoint(self._order.states(value))

    # -- Types and values --------------------------------------------------------------------------

    def _settled(self, node: Node) -> Node:
        """The node with the types of its outputs, and their values if they are known."""
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
        """The shapes of an op on a list: what comes out is like what went in."""
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
        """Who made the list that a node works on, if that is known."""
        return self._makers.get(node.inputs[0]) if node.inputs else None

    def _note_lists(self, node: Node) -> None:
        """Remember who made the lists that a node gives, and those that it puts into a list."""
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

    def _promised(self, tensor: Tensor, value: Value) -> Value:
        """The value of `tensor`, through a check if its static shape says more than the rules."""
        promise, known = tensor._shape, value.shape
        if known.is_fully_defined() or promise.sizes is None or promise.sizes == known.sizes:
            return value
        if not self._promises or carries_state(value) or not promise.is_compatible_with(known):
            return value
        shape = known.merge_with(promise)
        if shape.sizes == known.sizes:
            return value
        op = tensor.op
        name = f"{op.name}/shape_{tensor.value_index}"
        attrs: dict[str, Any] = {"T": value.dtype, "shape": shape}
        types = (ValueType.of(value.dtype, shape),)
        return self._add(Node(ENSURE_SHAPE, name, attrs, (value,), (), types, op)).outputs[0]


def _given(values: Sequence[Value]) -> list[Value]:
    """What a structured node is given: no constants, and each reference once."""
    kept = [v for v in values if v.constant is None]
    references = dict.fromkeys(v for v in kept if v.dtype._is_ref_dtype)
    return [v for v in kept if not v.dtype._is_ref_dtype or references.pop(v, 0) is None]


def _joined(one: ValueType, other: ValueType) -> ValueType:
    """The type of a value that has the one or the other."""
    if one == other:
        return one
    a, b = one.shape.sizes, other.shape.sizes
    if a is None or b is None or len(a) != len(b):
        return ValueType(one.dtype, None)
    sizes = tuple(m if m == n else None for m, n in zip(a, b, strict=True))
    return ValueType.of(one.dtype, TensorShape.of(sizes))


def _effect(nodes: Iterable[Node]) -> Effect:
    """What a structured node does, whose parts have these nodes."""
    effects = {n.definition.effect for n in nodes if n.constant is None}
    for effect in (Effect.WRITES, Effect.READS, Effect.RANDOM):
        if effect in effects:
            return effect
    return Effect.PURE


def _feed_type(tensor: Tensor, shape: tuple[int, ...] | None) -> ValueType:
    known = tensor._shape if shape is None else TensorShape.of(shape)
    return ValueType.of(tensor.dtype.base_dtype, known)  # what is fed is a value, no reference


def _static_types(op: Operation | Structured) -> tuple[ValueType, ...]:
    return tuple(ValueType.of(t.dtype, t._shape) for t in op._outputs)


def _typed(untyped: ValueType, shape: TensorShape) -> ValueType:
    sizes = shape.sizes
    if sizes is not None:  # rules that calculate with arrays give NumPy's integers
        shape = TensorShape.of(tuple(None if n is None else int(n) for n in sizes))
    return ValueType.of(untyped.dtype, shape)
