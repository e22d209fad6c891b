"""Cut a step. In: a Dataflow whose nodes have devices and whose transfers are explicit. Out: the
Partitions of its devices; a step of one device stays as it is.

Each TRANSFER becomes a Send after the node that makes the value and a Recv before the first reader.
A control edge between devices becomes a Send and a Recv of an empty tensor, one for each node and
destination. Constants are copied to each partition that reads them; feeds are given to each.

All decisions were made on the whole step: the partitions keep its order, so none can deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from headrace._src.core.dtypes import float32
from headrace._src.graph.dataflow import Dataflow, Feed, Node, Value, ValueType, map_parts, rewrite
from headrace._src.graph.definition import Definition
from headrace._src.graph.partition import Edge, Partition, Partitions
from headrace._src.graph.state_sources import is_source
from headrace._src.ops.base.transfers import RECV, SEND, SEND_CONTROL, for_flow, is_transfer
from headrace._src.partition.control_loops import Looped, add_control_loops
from headrace._src.partition.stages import NO_STAGE, awaited, levels
from headrace._src.partition.transfers import complete_devices, settle_devices

__all__ = ["cut", "cut_all"]

_EMPTY = ValueType(float32, (0,))


def cut(
    flow: Dataflow, incarnations: Mapping[str, int] = MappingProxyType({})
) -> Dataflow | Partitions:
    """Return the partitions of a step; the flow itself if all of it is on one device.
    incarnations: of the devices, by name; 0 for one that isn't listed.
    """
    if len(flow.devices) < 2:
        return map_parts(flow, _by_reference)
    return cut_all(flow, incarnations, flow.devices[0])


def cut_all(flow: Dataflow, incarnations: Mapping[str, int], home: str) -> Partitions:
    """Return the partitions of a step, also if all of it is on one device. home: the device of
    what has none, if no other device takes part.
    """
    devices = flow.devices or [home]
    flow = settle_devices(flow) if len(devices) > 1 else complete_devices(flow, devices[0])
    flow = map_parts(flow, _by_reference)
    looped = add_control_loops(flow) if flow.steers else Looped(flow, {})
    return _Cut(looped, incarnations, devices).run()


def _by_reference(part: Dataflow) -> Dataflow:
    """Return a part of a loop or branch without TRANSFERs: the devices inside share memory."""

    def rule(node: Node) -> tuple[Value, ...] | None:
        return node.inputs if is_transfer(node) and not node.controls else None

    return rewrite(map_parts(part, _by_reference), rule)


class _Half:
    """A partition under construction. `values`, `nodes`: the replacements here of the step's values
    and nodes. `positions`: the order in which the nodes of all partitions were made.
    """

    def __init__(self, device: str, positions: dict[Node, int]) -> None:
        self.device = device
        self._positions = positions
        self.made: list[Node] = []
        self.values: dict[Value, Value] = {}
        self.nodes: dict[Node, Node] = {}
        self.fetches: list[Value] = []
        self.tensors: list[Any] = []  # the client's names of the fetches
        self.targets: list[Node] = []

    def add(self, node: Node) -> Node:
        self.made.append(node)
        self._positions[node] = len(self._positions)
        return node


class _Cut:
    def __init__(
        self, looped: Looped, incarnations: Mapping[str, int], devices: Sequence[str]
    ) -> None:
        self._flow = flow = looped.flow
        self._incarnations = incarnations
        self._levels = levels(flow)
        self._awaited = awaited(flow)
        self._triggers = looped.triggers
        self._positions: dict[Node, int] = {}
        self._halves = {device: _Half(device, self._positions) for device in devices}
        self._moves = self._find_moves()
        self._signals = self._find_signals()
        self._sent: set[tuple[Node, str]] = set()  # control edges
        self._received: dict[tuple[Node, str], Node] = {}
        self._behind: dict[Value, tuple[Node, ...]] = {}  # controls of transfers that vanish
        self._edges: list[Edge] = []
        self._keys: dict[tuple[str, str, str], Node] = {}  # whose value a key names

    def _find_moves(self) -> dict[Node, list[Node]]:
        """Return the transfers of each node's values."""
        found: dict[Node, list[Node]] = {}
        for node in self._flow.nodes:
            if is_transfer(node) and isinstance(source := _moved(node).producer, Node):
                found.setdefault(source, []).append(node)
        return found

    def _find_signals(self) -> dict[Node, dict[str, None]]:
        """Return the other devices on which something waits for a node."""
        found: dict[Node, dict[str, None]] = {}
        for node in self._flow.nodes:
            for control in node.controls:
                if control.device != node.device and not is_transfer(control):
                    found.setdefault(control, {})[node.device] = None
        return found

    def run(self) -> Partitions:
        flow = self._flow
        for node in flow.nodes:
            if node.constant is None:
                if is_transfer(node):
                    self._receive(node)
                else:
                    self._keep(node)
        tensors: Sequence[Any] = flow.tensors or flow.fetches
        sources = [self._fetch(v, t) for v, t in zip(flow.fetches, tensors, strict=True)]
        for node in flow.targets:
            half = self._halves[node.device]
            half.targets.append(half.nodes[node])
        halves = [h for h in self._halves.values() if h.made or h.fetches]
        number = {half.device: i for i, half in enumerate(halves)}
        return Partitions(
            tuple(Partition(half.device, self._finished(half)) for half in halves),
            flow.feeds,
            flow.tensors,
            tuple((number[device], position) for device, position in sources),
            tuple(self._edges),
            self._positions,
        )

    def _finished(self, half: _Half) -> Dataflow:
        feeds = {feed for node in half.made for v in node.inputs if (feed := _feed(v)) is not None}
        feeds.update(feed for v in half.fetches if (feed := _feed(v)) is not None)
        mine = set(half.made)
        returns = {
            back: half.values[v]
            for back, v in self._flow.returns.items()
            if half.values.get(v) is not None and half.values[v].producer in mine
        }
        return Dataflow(
            tuple(half.made),
            tuple(feed for feed in self._flow.feeds if feed in feeds),
            tuple(half.fetches),
            tuple(dict.fromkeys(half.targets)),
            tuple(half.tensors),
            returns,
        )

    # -- Nodes -------------------------------------------------------------------------------------

    def _keep(self, node: Node) -> None:
        """Add a node to the partition of its device, with the Sends of its values."""
        half = self._halves[node.device]
        inputs = tuple([self._value(v, half) for v in node.inputs])
        behind = [c for v in node.inputs for c in self._behind.get(v, ())]
        controls = self._controls((*node.controls, *behind), half)
        same = inputs == node.inputs and controls == node.controls
        new = half.add(node if same else node.moved(inputs, controls))
        half.nodes[node] = new
        half.values.update(zip(node.outputs, new.outputs, strict=True))
        self._send_all(node, half)
        for device in self._signals.get(node, ()):
            self._send_signal(node, device)

    def _value(self, value: Value, half: _Half) -> Value:
        """Return a value in a partition, where a constant is copied when it is first read. So is
        the node that looks up a variable of another device, for a loop that spans both.
        """
        found = half.values.get(value)
        if found is not None:
            return found
        source = value.producer
        if isinstance(source, Node) and source.device != half.device and is_source(source):
            copy = half.add(source.moved((), ()))
            half.values.update(zip(source.outputs, copy.outputs, strict=True))
            return half.values[value]
        if isinstance(source, Node) and source.constant is not None:
            half.add(source)
            half.values.update(zip(source.outputs, source.outputs, strict=True))
        return value

    def _controls(self, controls: Sequence[Node], half: _Half) -> tuple[Node, ...]:
        found = []
        for control in controls:
            if is_transfer(control):
                found += self._after_transfer(control, half)
            elif control.device == half.device:
                found.append(half.nodes[control])
            else:
                found.append(self._signal(control, half))
        return tuple(dict.fromkeys(found))

    def _after_transfer(self, transfer: Node, half: _Half) -> list[Node]:
        """Return the nodes to wait for instead of a TRANSFER."""
        there = self._halves[transfer.device]
        if transfer not in there.nodes:  # it vanished: its source was there already
            return list(self._controls(self._behind.get(transfer.outputs[0], ()), half))
        if there is half:
            return [half.nodes[transfer]]
        return [self._signal(transfer, half)]

    # -- Transfers ---------------------------------------------------------------------------------

    def _send_all(self, node: Node, half: _Half) -> None:
        """Add the Sends of a node's values."""
        for move in self._moves.get(node, ()):
            if move.device != half.device:
                self._send(move, half)

    def _send(self, move: Node, half: _Half) -> None:
        """Add the Send of a TRANSFER's value."""
        value = half.values[_moved(move)]
        attrs = {
            "T": move.attrs["T"],
            **self._edge(move, half.device, move.device),
            "stage": self._stage(_moved(move).producer),
        }
        send = self._node(SEND, f"{move.name}/send", attrs, (value,), (), (), move, half)
        half.targets.append(send)

    def _receive(self, move: Node) -> None:
        """Add the Recv of a TRANSFER's value."""
        half = self._halves[move.device]
        value, waits = _moved(move), move.controls
        source = value.producer
        if isinstance(source, Feed) or source.constant is not None or source.device == half.device:
            half.values[move.outputs[0]] = self._value(value, half)
            if waits:
                self._behind[move.outputs[0]] = waits
            self._send_all(move, half)
            return
        attrs = {
            "tensor_type": move.attrs["T"],
            **self._edge(move, source.device, half.device),
            "stage": self._stage(move),
            "awaits": self._awaits(move),
        }
        controls = self._controls(waits, half)
        recv = self._node(RECV, f"{move.name}/recv", attrs, (), controls, move.types, move, half)
        half.nodes[move] = recv
        half.values[move.outputs[0]] = recv.outputs[0]
        self._edges.append(Edge(value.name, source.device, half.device, move.types[0].size))
        self._send_all(move, half)

    def _send_signal(self, control: Node, device: str) -> None:
        """Add the Send of a control edge to another device."""
        half = self._halves[control.device]
        name = f"{control.name}/signal_{device.rsplit(':', 1)[-1]}/send"
        attrs = self._edge(control, half.device, device, "^")
        attrs["stage"] = self._stage(control)
        after = (half.nodes[control],)
        half.targets.append(self._node(SEND_CONTROL, name, attrs, (), after, (), control, half))
        self._sent.add((control, device))

    def _signal(self, control: Node, half: _Half) -> Node:
        """Return the Recv that stands for a control edge from another device."""
        key = control, half.device
        if key not in self._sent:  # the edge came with a constant or a transfer that vanished
            self._send_signal(*key)
        if key not in self._received:
            name = f"{control.name}/signal_{half.device.rsplit(':', 1)[-1]}/recv"
            edge = self._edge(control, control.device, half.device, "^")
            attrs = {
                "tensor_type": float32,
                **edge,
                "stage": self._stage(control, 1),
                "awaits": self._awaits(control),
            }
            trigger = self._triggers.get(key)
            after = () if trigger is None else (half.nodes[trigger],)
            recv = self._node(RECV, name, attrs, (), after, (_EMPTY,), control, half)
            self._received[key] = recv
            self._edges.append(Edge(f"^{control.name}", control.device, half.device, 0))
        return self._received[key]

    def _edge(self, node: Node, sender: str, receiver: str, mark: str = "") -> dict[str, object]:
        """Return the attributes of both ends of an edge; passes may have made nodes of one name."""
        tensor = base = f"{mark}{node.name}"
        count = 0
        while self._keys.setdefault((tensor, sender, receiver), node) is not node:
            count += 1
            tensor = f"{base}_{count}"
        return {
            "tensor_name": tensor,
            "send_device": sender,
            "send_device_incarnation": self._incarnations.get(sender, 0),
            "recv_device": receiver,
        }

    def _stage(self, node: Any, crossings: int = 0) -> int:
        return self._levels[node] + crossings if self._levels else NO_STAGE

    def _awaits(self, node: Node) -> tuple[int, ...]:
        return tuple(sorted(self._awaited.get(node, ())))

    def _node(
        self,
        definition: Definition,
        name: str,
        attrs: dict[str, object],
        inputs: tuple[Value, ...],
        controls: tuple[Node, ...],
        types: tuple[ValueType, ...],
        like: Node,
        half: _Half,
    ) -> Node:
        definition = for_flow(definition, self._flow.steers)
        return half.add(
            Node(definition, name, attrs, inputs, controls, types, like.origin, device=half.device)
        )

    # -- Fetches -----------------------------------------------------------------------------------

    def _fetch(self, value: Value, tensor: Any) -> tuple[str, int]:
        """Return the device of a fetched value, and its position among its partition's fetches."""
        source = value.producer
        half = next(iter(self._halves.values()))
        if isinstance(source, Node) and source.constant is None:
            half = self._halves[source.device]
        half.fetches.append(self._value(value, half))
        half.tensors.append(tensor)
        return half.device, len(half.fetches) - 1


def _moved(transfer: Node) -> Value:
    """Return the value that a TRANSFER moves, straight from where it is made unless it has to wait
    on the way.
    """
    value = transfer.inputs[0]
    while isinstance(source := value.producer, Node) and is_transfer(source):
        if source.controls:
            break
        value = source.inputs[0]
    return value


def _feed(value: Value) -> Feed | None:
    return value.producer if isinstance(value.producer, Feed) else None
