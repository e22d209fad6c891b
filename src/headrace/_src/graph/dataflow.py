"""The form of a step: nodes in order, each with its definition, inputs, types and device.

Pruning makes a Dataflow of the client's graph, every pass takes one and returns one, and the
scheduler turns the last one into a Program. A node keeps the operation that it came from, for
messages only. It has the attributes of an Operation that kernels and definitions use
(`definition`, `_attrs`, `_inputs`, `_outputs`, `name`), so that the interpreter can run either.

A Dataflow becomes more specific from pass to pass:

- At first, types have the shapes that the client's graph declares, and `device` is what the client
  asked for. Loops are primitives: a Merge reads the value of a `Backedge`, and `returns` names the
  value that the NextIteration passes back.
- `place` gives every node a device. A node made by a later pass may have none: it runs on its
  step's device.
- `raise` replaces the primitives by nodes whose attributes are Dataflows (see graph.structured).
- `read` makes each read of a reference variable a node (verify_reads).
- `specialise` fixes shapes, and adds controls between nodes that access the same state, if one of
  them writes (verify_order).

Invariants at all times (verify_dataflow): a node comes after the nodes that it reads and waits for;
types agree with the definitions. A node with a `constant` never runs: it has no inputs and no
controls, and nothing waits for it; its readers have the controls that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace._src.core.dtypes import DType
from headrace._src.core.tensor_shape import Sizes, TensorShape, all_known
from headrace._src.graph.definition import Definition, Effect
from headrace._src.graph.operation import Operation, Tensor

__all__ = [
    "Backedge",
    "Dataflow",
    "Feed",
    "Node",
    "Value",
    "ValueType",
    "handle_data",
    "is_local",
    "map_parts",
    "origin_of",
    "rebuild",
    "rewrite",
    "show_constant",
    "tensor_of",
    "variable_type",
]


_NOT_ARRAYS = frozenset({"string", "resource", "variant"})

if TYPE_CHECKING:
    _made_once = property
else:

    class _made_once:
        """A property that is computed at its first use. Before Python 3.12,
        functools.cached_property takes a lock, which costs more than all other work on a node.
        """

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self._function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type) -> Any:
            # If two threads compute it, both get the value that was stored first.
            return instance.__dict__.setdefault(self._name, self._function(instance))


@dataclass(frozen=True, slots=True)
class ValueType:
    """A value's element type and sizes; None if not known before the step runs.

    `partial`: if `sizes` is None, the sizes that are known (None for each of the others).
    """

    dtype: DType
    sizes: tuple[int, ...] | None
    partial: Sizes | None = None

    @staticmethod
    def of(dtype: DType, shape: TensorShape) -> ValueType:
        """Return the type of a value of static shape `shape`."""
        sizes: Any = shape.sizes
        if sizes is None:
            return ValueType(dtype, None)
        return ValueType(dtype, None, sizes) if None in sizes else ValueType(dtype, sizes)

    @property
    def shape(self) -> TensorShape:
        return TensorShape.of(self.partial if self.sizes is None else self.sizes)

    @property
    def size(self) -> int | None:
        """The bytes of an array of this type; None if they aren't known, or it isn't an array."""
        dtype = self.dtype
        if self.sizes is None or dtype._is_ref_dtype or dtype.name in _NOT_ARRAYS:
            return None
        return prod(self.sizes) * dtype.size

    def __str__(self) -> str:
        known = self.partial if self.sizes is None else self.sizes
        sizes = "?" if known is None else ",".join("?" if n is None else str(n) for n in known)
        return f"{self.dtype.name}[{sizes}]"


@dataclass(frozen=True, eq=False, init=False)
class Value:
    """One output of a node, or a feed. Two values are the same only if they are one object."""

    producer: Node | Feed
    index: int
    type: ValueType

    def __init__(self, producer: Node | Feed, index: int, type: ValueType) -> None:
        # A frozen dataclass sets attribute by attribute, which takes three times as long.
        self.__dict__.update(producer=producer, index=index, type=type)

    # The interface of a Tensor, for kernels and shape rules.

    @property
    def op(self) -> Any:
        return self.producer

    @property
    def value_index(self) -> int:
        return self.index

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @_made_once
    def _shape(self) -> TensorShape:
        return self.type.shape

    @property
    def shape(self) -> TensorShape:
        return self._shape

    @property
    def constant(self) -> np.ndarray | None:
        """The value, if it's known at compile time."""
        known = self.producer.constant
        return None if known is None else known[self.index]

    @property
    def _handle_data(self) -> Any:
        """Static information on the variable behind a handle."""
        if isinstance(self.producer, Feed):
            return self.producer.handle
        origin = self.producer.origin
        outputs = () if origin is None else origin._outputs
        if self.index >= len(outputs):  # none for a loop, say, which represents many operations
            return None
        return getattr(outputs[self.index], "_handle_data", None)

    @property
    def name(self) -> str:
        return f"{self.producer.name}:{self.index}"

    def __repr__(self) -> str:
        return f"<{self.name} {self.type}>"


@dataclass(frozen=True, eq=False)
class Feed:
    """A value that the caller provides. `handle`: static information on the variable behind a
    handle. `local`: whether it refers to state of one step.
    """

    tensor: Tensor
    type: ValueType
    handle: Any = None
    local: bool = False
    constant: None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.tensor.op.name

    @property
    def _inputs(self) -> tuple[Value, ...]:
        return ()

    @_made_once
    def value(self) -> Value:
        return Value(self, self.tensor.value_index, self.type)


class Backedge(Feed):
    """The value that an iteration of a loop passes back to a Merge earlier in the order:
    `Dataflow.returns` maps it to that value. `tensor` is the NextIteration's.
    """


@dataclass(frozen=True, eq=False, init=False)
class Node:
    """One use of an op. `constant`: its outputs' values, if they are known at compile time.
    `device`: where it runs; before placement, the client's request.
    """

    definition: Definition
    name: str
    attrs: dict[str, Any]
    inputs: tuple[Value, ...]
    controls: tuple[Node, ...]
    types: tuple[ValueType, ...]
    origin: Operation | None = None
    constant: tuple[np.ndarray, ...] | None = field(default=None, repr=False)
    device: str = ""

    def __init__(
        self,
        definition: Definition,
        name: str,
        attrs: dict[str, Any],
        inputs: tuple[Value, ...],
        controls: tuple[Node, ...],
        types: tuple[ValueType, ...],
        origin: Operation | None = None,
        constant: tuple[np.ndarray, ...] | None = None,
        device: str = "",
    ) -> None:
        self.__dict__.update(  # see Value
            definition=definition,
            name=name,
            attrs=attrs,
            inputs=inputs,
            controls=controls,
            types=types,
            origin=origin,
            constant=constant,
            device=device,
        )

    @_made_once
    def outputs(self) -> tuple[Value, ...]:
        return tuple([Value(self, i, t) for i, t in enumerate(self.types)])

    def moved(
        self, inputs: tuple[Value, ...], controls: tuple[Node, ...], device: str | None = None
    ) -> Node:
        """Return a copy at another position in a flow, or on another device."""
        return Node(
            self.definition,
            self.name,
            self.attrs,
            inputs,
            controls,
            self.types,
            self.origin,
            self.constant,
            self.device if device is None else device,
        )

    # The interface of an Operation, for kernels, shape rules and messages.

    @property
    def type(self) -> str:
        return self.definition.op_type

    @property
    def _attrs(self) -> dict[str, Any]:
        return self.attrs

    @property
    def _inputs(self) -> tuple[Value, ...]:
        return self.inputs

    @property
    def _outputs(self) -> tuple[Value, ...]:
        return self.outputs

    @property
    def _control_inputs(self) -> tuple[Node, ...]:
        return self.controls

    # The Site of lowering rules.

    @_made_once
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(_known(v.type) for v in self.inputs)

    @_made_once
    def output_shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(_known(t) for t in self.types)

    @_made_once
    def input_dtypes(self) -> tuple[str, ...]:
        return tuple(v.dtype.base_dtype.name for v in self.inputs)

    @_made_once
    def output_dtypes(self) -> tuple[str, ...]:
        return tuple(t.dtype.base_dtype.name for t in self.types)

    @_made_once
    def geometry(self) -> Any:
        """The description of this use of the op by its anchor's rule (see lowering.anchors); None
        for nodes that aren't anchors, and where the rule doesn't apply.
        """
        rule = self.definition.lower
        return None if rule is None else rule.geometry(self)

    def constant_input(self, index: int) -> np.ndarray | None:
        """Return the value of input `index` if it's known at compile time."""
        return self.inputs[index].constant

    def variable_type(self, index: int) -> tuple[str, tuple[int, ...]] | None:
        """Return the type and shape of the variable that input `index` refers to; None if
        unknown.
        """
        return variable_type(self.inputs[index])

    def __repr__(self) -> str:
        return f"<{self.type} {self.name}>"

    def __str__(self) -> str:
        inputs = [v.name for v in self.inputs] + [f"^{c.name}" for c in self.controls]
        outputs = ", ".join(f"{v.name} {v.type}" for v in self.outputs) or self.name
        if self.constant is not None:
            shown = ", ".join(show_constant(c) for c in self.constant)
            return f"{outputs} = {shown}"
        line = f"{outputs} = {self.type}({', '.join(inputs)})"
        for name, part in self.attrs.items():
            if isinstance(part, Dataflow):
                line += f"\n  {name}:" + "".join(f"\n    {s}" for s in str(part).splitlines())
        return line


def _known(t: ValueType) -> tuple[int, ...]:
    if t.sizes is None:
        raise ValueError("a lowering rule was asked about a shape that isn't known")
    return t.sizes


def is_local(value: Value) -> bool:
    """Return whether a value refers to state of one step: a list, or the handle of a tensor array
    or a stack.
    """
    producer = value.producer
    if isinstance(producer, Feed):
        return producer.local
    if value.dtype.name == "variant":
        return True
    if value.dtype.name != "resource":
        return False
    return producer.definition.effect is Effect.LOCAL or any(map(is_local, producer.inputs))


def handle_data(value: Value) -> Any:
    """Return the static information on the variable behind a handle, which other nodes may have
    passed on.
    """
    passed = [v for v in value.producer._inputs if v.dtype == value.dtype]
    found = value._handle_data
    return handle_data(passed[0]) if found is None and len(passed) == 1 else found


def variable_type(value: Value) -> tuple[str, tuple[int, ...]] | None:
    """Return the type and shape of the variable that a value refers to; None if unknown."""
    dtype, shape = value.dtype, value.shape
    if not dtype._is_ref_dtype:
        found = handle_data(value)
        if found is None:
            return None
        dtype, shape = found.dtype, found.shape
    sizes = None if shape.sizes is None else all_known(shape.sizes)
    return None if sizes is None else (dtype.base_dtype.name, tuple(sizes))


def show_constant(value: np.ndarray) -> str:
    """Format a constant for printing: its elements if there are few."""
    return str(value.tolist()) if value.size <= 8 else f"<{value.dtype}{list(value.shape)}>"


def tensor_of(value: Value) -> Tensor:
    """Return the client's tensor that a value corresponds to."""
    producer = value.producer
    if isinstance(producer, Feed):
        return producer.tensor
    assert isinstance(producer, Node) and producer.origin is not None
    return producer.origin._outputs[value.index]


def origin_of(op: Any) -> Any:
    """Return the client's operation that a Node came from; an Operation unchanged."""
    return getattr(op, "origin", None) or op


@dataclass(frozen=True)
class Dataflow:
    """The nodes of a step in order, and where values go in and out.

    `fetches` are values (a Feed's value if a feed is fetched); `targets` are nodes that must run.
    `tensors` are the client's fetches: passes may replace their values. `returns`: for loops made
    of primitives, the value behind each Backedge.
    """

    nodes: tuple[Node, ...]
    feeds: tuple[Feed, ...]
    fetches: tuple[Value, ...]
    targets: tuple[Node, ...]
    tensors: tuple[Tensor, ...] = ()
    returns: Mapping[Backedge, Value] = field(default_factory=dict)

    def maker_of(self, value: Value) -> Node | Feed:
        """Return the node that makes a value, possibly in the last iteration."""
        producer = value.producer
        if isinstance(producer, Backedge):
            return self.returns[producer].producer
        return producer

    @cached_property
    def steers(self) -> bool:
        """Whether some node controls what runs: then the step may have cycles."""
        return any(n.definition.flow is not None for n in self.nodes)

    @cached_property
    def calls(self) -> bool:
        """Whether some node calls functions."""
        return any(n.definition.calls is not None for n in self.nodes)

    @cached_property
    def devices(self) -> list[str]:
        """The devices of the nodes, in the order of their first use."""
        return list(dict.fromkeys([n.device for n in self.nodes if n.device and not n.constant]))

    def __str__(self) -> str:
        lines = [f"feed  {f.value.name} {f.type}" for f in self.feeds]
        several = len(self.devices) > 1
        lines += [f"{n} on {n.device}" if several and n.device else str(n) for n in self.nodes]
        lines += [f"fetch {v.name}" for v in self.fetches]
        lines += [f"run   {n.name}" for n in self.targets]
        return "\n".join(lines)


def map_parts(flow: Dataflow, function: Callable[[Dataflow], Dataflow]) -> Dataflow:
    """Replace the flows inside structured nodes; their inputs and outputs stay the same."""

    def rule(node: Node) -> Node | None:
        parts = {k: function(v) for k, v in node.attrs.items() if isinstance(v, Dataflow)}
        return replace(node, attrs={**node.attrs, **parts}) if parts else None

    structured = any(isinstance(v, Dataflow) for n in flow.nodes for v in n.attrs.values())
    return rewrite(flow, rule) if structured else flow


def rebuild(
    flow: Dataflow, change: Callable[[Node, tuple[Value, ...], tuple[Node, ...]], Node]
) -> Dataflow:
    """Replace each node by `change(node, inputs, controls)`, which gets the node's new inputs and
    controls. It is a `rewrite` that neither adds nor removes nodes.
    """
    values: dict[Value, Value] = {}
    nodes: dict[Node, Node] = {}
    for node in flow.nodes:
        inputs = tuple([values.get(v, v) for v in node.inputs])
        new = nodes[node] = change(node, inputs, tuple([nodes[c] for c in node.controls]))
        values.update(zip(node.outputs, new.outputs, strict=True))
    return replace(
        flow,
        nodes=tuple(nodes.values()),
        fetches=tuple(values.get(v, v) for v in flow.fetches),
        targets=tuple(nodes[n] for n in flow.targets),
        returns={back: values[v] for back, v in flow.returns.items()},
    )


Rule = Callable[[Node], Node | Sequence[Value] | None]


def rewrite(flow: Dataflow, rule: Rule) -> Dataflow:
    """Rebuild `flow`, asking `rule` about every node (its inputs already rewritten).

    The rule returns None to keep the node, a Node to replace it, or one Value per output to use
    instead: then the node is removed, and nodes that waited for it wait for those values' producers
    and the node's own controls instead. New nodes that a result needs join the flow.
    """
    return _Rewriting(flow).run(rule)


class _Rewriting:
    """A flow under construction.

    `_values`: the replacement of each value; `_waits`: the nodes to wait for instead of each node;
    `_behind`: the nodes that a constant's readers must wait for.
    """

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        self._values: dict[Value, Value] = {}
        self._waits: dict[Node, tuple[Node, ...]] = {}
        self._behind: dict[Node, tuple[Node, ...]] = {}
        self._kept: dict[Node, None] = {}

    def run(self, rule: Rule) -> Dataflow:
        flow, values = self._flow, self._values
        for node in flow.nodes:
            rebuilt = self._rebuilt(node)
            answer = rule(rebuilt)
            if answer is None or isinstance(answer, Node):
                self._keep(node, rebuilt if answer is None else answer)
            else:
                self._replace(node, rebuilt, answer)
        return replace(
            flow,
            nodes=tuple(self._kept),
            fetches=tuple(values.get(v, v) for v in flow.fetches),
            targets=_unique([n for t in flow.targets for n in self._waits[t]]),
            returns={back: values.get(v, v) for back, v in flow.returns.items()},
        )

    def _rebuilt(self, node: Node) -> Node:
        """Return the node with its new inputs and controls."""
        inputs = tuple([self._values.get(v, v) for v in node.inputs])
        controls = [n for c in node.controls for n in self._waits[c]]
        if self._behind:
            controls += [n for v in inputs for n in self._behind.get(v.op, ())]
        after = _unique(controls) if controls else ()
        same = inputs == node.inputs and after == node.controls
        return node if same else node.moved(inputs, after)

    def _keep(self, node: Node, stays: Node) -> None:
        """Record that `stays` replaces `node`."""
        if stays.constant is not None and stays.controls:
            before, stays = stays.controls, stays.moved((), ())
            self._behind[stays] = before
        self._join(stays)
        self._waits[node] = self._behind.get(stays, () if stays.constant is not None else (stays,))
        self._values.update(zip(node.outputs, stays.outputs, strict=True))

    def _replace(self, node: Node, rebuilt: Node, answer: Sequence[Value]) -> None:
        """Record that values of other nodes replace the outputs of `node`."""
        self._values.update(zip(node.outputs, answer, strict=True))
        waits = list(rebuilt.controls)
        for value in answer:
            producer = value.producer
            if isinstance(producer, Node):
                self._join(producer)
                constant = producer.constant is not None
                waits += self._behind.get(producer, ()) if constant else (producer,)
        self._waits[node] = _unique(waits)

    def _join(self, node: Node) -> None:
        """Add a node after the new ones that it reads (a rule makes few: recursion is shallow)."""
        if node not in self._kept:
            for value in node.inputs:
                if isinstance(value.producer, Node):
                    self._join(value.producer)
            self._kept[node] = None


def _unique(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(nodes))
