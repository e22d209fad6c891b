"""Add control loops. In: a Dataflow with control flow primitives and explicit transfers. Out: the
same, with a small loop on each device that receives something in each iteration of another
device's loop (white paper §4.4).

A Recv has no inputs that say in which iteration it runs. On each device that takes part in a loop,
a control loop runs as often as the loop itself: a variable of the loop enters it, its Merge begins
each iteration, and its Switch is decided by the loop's predicate, which that device receives in
each iteration. Every other
Recv of the loop there waits for the Merge, so it runs once in each iteration, the last one
included, in which the tensors of the body are dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace._src.core.dtypes import int32
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.dataflow import Backedge, Dataflow, Node, Value, ValueType
from headrace._src.graph.definition import Definition, lookup
from headrace._src.ops.base.transfers import TRANSFER, is_transfer

__all__ = ["Looped", "add_control_loops"]


@dataclass(frozen=True)
class Looped:
    """A flow with control loops. `triggers`: for a node in a loop and a device, the node there that
    begins each iteration.
    """

    flow: Dataflow
    triggers: Mapping[tuple[Node, str], Node]


class _Frame:
    """A loop: its name, the loop around it, the first Enter of a variable, its predicate."""

    def __init__(self, name: str, within: _Frame | None) -> None:
        self.name = name
        self.within = within
        self.enter: Node | None = None
        self.predicate: Value | None = None
        self.devices: dict[str, _Loop] = {}

    def on(self, device: str) -> _Loop:
        """Return the control loop on a device, made if there is none."""
        found = self.devices.get(device)
        if found is None:
            outer = self.within.on(device) if self.within is not None else None
            found = self.devices[device] = _Loop(self, device, outer)
        return found


class _Loop:
    """The nodes of a control loop. It is entered by the value of a variable of the loop, so that it
    is dead where the loop is.
    """

    def __init__(self, frame: _Frame, device: str, outer: _Loop | None) -> None:
        if frame.enter is None or frame.predicate is None:
            raise InvalidArgumentError(
                None, None, f"loop '{frame.name}' has no variable or no condition"
            )
        self._name = f"{frame.name}/control_{device.rsplit(':', 1)[-1]}"
        self._device = device
        self._outer = outer
        self.enter = frame.enter
        value = self.enter.inputs[0]
        self._type = replace(value.type, dtype=value.dtype.base_dtype)
        self.back = Backedge(_Named(_Operation(f"{self._name}/NextIteration")), self._type)  # type: ignore[arg-type]
        self.merge: Node  # once it has begun

    def begin(self, value: Value) -> list[Node]:
        """Return the nodes that begin each iteration, given the value of the variable."""
        added: list[Node] = []
        value = self._here(value, "start", added, self._outer)
        attrs = {
            "T": self._type.dtype,
            "frame_name": self.enter.attrs["frame_name"],
            "is_constant": False,
            "parallel_iterations": self.enter.attrs["parallel_iterations"],
        }
        entered = self._node("Enter", attrs, (value,), (self._type,))
        inputs = (entered.outputs[0], self.back.value)
        types = (self._type, ValueType(int32, ()))
        self.merge = self._node("Merge", {"T": self._type.dtype, "N": 2}, inputs, types)
        return [*added, entered, self.merge]

    def end(self, predicate: Value) -> tuple[list[Node], Value]:
        """Return the nodes that pass on to the next iteration, and the value passed back."""
        added: list[Node] = []
        predicate = self._here(predicate, "predicate", added, self)
        attrs: dict[str, object] = {"T": self._type.dtype}
        merged = self.merge.outputs[0]
        types = (self._type, self._type)
        switch = self._node("Switch", attrs, (merged, predicate), types)
        following = self._node("NextIteration", attrs, (switch.outputs[1],), (self._type,))
        return [*added, switch, following], following.outputs[0]

    def _here(self, value: Value, name: str, added: list[Node], within: _Loop | None) -> Value:
        """Return a value on this device, which may receive it in each iteration of a loop."""
        there = getattr(value.producer, "device", self._device)  # a fed one is everywhere
        if there == self._device or value.constant is not None:
            return value
        type = replace(value.type, dtype=value.dtype.base_dtype)
        attrs = {"T": type.dtype, "send_device": there}
        controls = () if within is None else (within.merge,)
        added.append(self._node(name, attrs, (value,), (type,), controls, TRANSFER))
        return added[-1].outputs[0]

    def _node(
        self,
        op_type: str,
        attrs: dict[str, object],
        inputs: tuple[Value, ...],
        types: tuple[ValueType, ...],
        controls: tuple[Node, ...] = (),
        definition: Definition | None = None,
    ) -> Node:
        definition = definition or lookup(op_type)
        name = f"{self._name}/{op_type}"
        return Node(definition, name, attrs, inputs, controls, types, device=self._device)


@dataclass(frozen=True)
class _Operation:
    name: str


@dataclass(frozen=True)
class _Named:
    """Stands for the client's tensor of a Backedge, which a control loop has not."""

    op: _Operation
    value_index: int = 0


def add_control_loops(flow: Dataflow) -> Looped:
    """Add the control loops that a flow needs, and let the transfers of loops wait for them."""
    reached = _frames(flow)
    asked: dict[Node, _Loop] = {}  # the control loop that a transfer waits for
    pairs: list[tuple[Node, str]] = []  # control edges in loops between devices
    for node in flow.nodes:
        frame = reached.get(node)
        if is_transfer(node) and frame is not None and _moves(node):
            asked[node] = frame.on(node.device)
        for control in node.controls:
            around = reached.get(control)
            if around is not None and control.device != node.device:
                around.on(node.device)
                pairs.append((control, node.device))
    frames = dict.fromkeys(frame for frame in reached.values() if frame is not None)
    loops = [(frame, loop) for frame in frames for loop in frame.devices.values()]
    if not loops:
        return Looped(flow, {})
    return _Assembling(flow, loops, reached, asked).run(pairs)


def _moves(node: Node) -> bool:
    source = node.inputs[0].producer
    return isinstance(source, Node) and source.constant is None and source.device != node.device


class _Assembling:
    def __init__(
        self,
        flow: Dataflow,
        loops: list[tuple[_Frame, _Loop]],
        reached: dict[Node, _Frame | None],
        asked: dict[Node, _Loop],
    ) -> None:
        self._flow = flow
        self._reached = reached
        self._asked = asked
        self._begins: dict[Node, list[_Loop]] = {}  # by the first Enter of their frame
        self._ends: dict[Node, list[_Loop]] = {}  # by the node that makes the predicate
        for frame, loop in loops:
            assert frame.predicate is not None
            self._begins.setdefault(loop.enter, []).append(loop)
            maker = frame.predicate.producer
            assert isinstance(maker, Node)
            self._ends.setdefault(maker, []).append(loop)

    def run(self, pairs: list[tuple[Node, str]]) -> Looped:
        flow = self._flow
        values: dict[Value, Value] = {}
        nodes: dict[Node, Node] = {}
        made: list[Node] = []
        returns = dict(flow.returns)
        for node in flow.nodes:
            for loop in self._begins.get(node, ()):
                made += loop.begin(values.get(node.inputs[0], node.inputs[0]))
            inputs = tuple([values.get(v, v) for v in node.inputs])
            controls = tuple([nodes[c] for c in node.controls])
            if node in self._asked:
                controls = (*controls, self._asked[node].merge)
            new = nodes[node] = node.moved(inputs, controls)
            made.append(new)
            values.update(zip(node.outputs, new.outputs, strict=True))
            for loop in self._ends.get(node, ()):
                frame = self._reached[node]
                assert frame is not None and frame.predicate is not None
                added, back = loop.end(values[frame.predicate])
                made += added
                returns[loop.back] = back
        triggers = {}
        for control, device in pairs:
            frame = self._reached[control]
            assert frame is not None
            triggers[nodes[control], device] = frame.devices[device].merge
        changed = replace(
            flow,
            nodes=tuple(made),
            fetches=tuple(values.get(v, v) for v in flow.fetches),
            targets=tuple(nodes[n] for n in flow.targets),
            returns={b: values.get(v, v) for b, v in returns.items()},
        )
        return Looped(changed, triggers)


def _frames(flow: Dataflow) -> dict[Node, _Frame | None]:
    """Return the loop that each node's results are in, None for the outermost level."""
    found: dict[tuple[_Frame | None, str], _Frame] = {}
    reached: dict[Node, _Frame | None] = {}
    for node in flow.nodes:
        sources = (*(v.producer for v in node.inputs), *node.controls)
        inside = [f for s in sources if isinstance(s, Node) and (f := reached.get(s)) is not None]
        frame = inside[0] if inside else None
        flow_role = node.definition.flow
        if flow_role is Flow.ENTER:
            key = frame, node.attrs["frame_name"]
            frame = found.setdefault(key, _Frame(node.attrs["frame_name"], frame))
            if frame.enter is None and not node.attrs["is_constant"]:
                frame.enter = node
        elif flow_role is Flow.EXIT and frame is not None:
            frame = frame.within
        elif flow_role is Flow.SWITCH and frame is not None and _is_loops(node, flow):
            predicate = node.inputs[1]
            maker = predicate.producer
            if isinstance(maker, Node) and is_transfer(maker):
                predicate = maker.inputs[0]
            frame.predicate = predicate
        reached[node] = frame
    return reached


def _is_loops(switch: Node, flow: Dataflow) -> bool:
    """Return whether a Switch decides whether a loop goes on: its data come from a loop's Merge."""
    merge = switch.inputs[0].producer
    if isinstance(merge, Node) and is_transfer(merge):
        merge = merge.inputs[0].producer
    if not isinstance(merge, Node) or merge.definition.flow is not Flow.MERGE:
        return False
    return any(isinstance(v.producer, Backedge) for v in merge.inputs)
