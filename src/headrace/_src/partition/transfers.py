"""Make transfers explicit. In: a placed Dataflow, raised or with primitives. Out: the same, in
which every value that is read on another device passes through a TRANSFER to that device.

There is one TRANSFER for each value and destination; a reference is read once for each reader,
because a write may come between two of them. Feeds and constants are available on every device, and
an empty list is made on each device that needs one.
Control edges between devices stay; the cut makes transfers of them.

A loop or branch runs on one device. If operations inside it were asked to run on several CPU
devices of one task, they run there, and the TRANSFERs between them are inside; what it takes from
outside is on its own device, except for variables, which are found where they are. If they are on
different tasks or types of devices, it has no structured form (Unraisable): the step then runs on
the primitives, which can be cut inside.

All passes after this one see the whole step. They neither move a node to another device nor look
through a TRANSFER, so each of them works on the nodes of one device at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from headrace._src.core.device_names import DeviceSpec
from headrace._src.core.errors import InternalError
from headrace._src.devices.device import compiler_of
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.dataflow import Dataflow, Feed, Node, Value, map_parts, rebuild
from headrace._src.graph.definition import Effect
from headrace._src.graph.state_sources import carries_state, is_source
from headrace._src.graph.structured import Unraisable, parts_of
from headrace._src.ops.base.transfers import TRANSFER, is_transfer

__all__ = ["add_transfers", "complete_devices", "settle_devices", "verify_transfers"]


def add_transfers(flow: Dataflow) -> Dataflow:
    """Add a TRANSFER for each value that is read on another device."""
    if len(flow.devices) < 2 and not any(parts_of(n) for n in flow.nodes):
        return flow
    return _joined(_settle_structures(flow))


def _joined(flow: Dataflow) -> Dataflow:
    """Add the TRANSFERs of a flow and of the parts in it."""
    flow = map_parts(flow, _joined)
    return _Joining(flow).run() if len(flow.devices) > 1 else flow


class _Joining:
    """A flow under construction: the replacement of each value and node, and the transfers."""

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        self._values: dict[Value, Value] = {}
        self._nodes: dict[Node, Node] = {}
        self._made: list[Node] = []
        self._transfers: dict[tuple[Value, str], Value] = {}
        self._names = {node.name for node in flow.nodes}
        # A NextIteration passes its value to its Merge, so it runs there.
        self._next = {
            flow.maker_of(v): node.device
            for node in flow.nodes
            if node.definition.flow is Flow.MERGE
            for v in node.inputs
            if flow.maker_of(v) is not v.producer
        }

    def run(self) -> Dataflow:
        flow = self._flow
        for node in flow.nodes:
            self._add(node)
        return replace(
            flow,
            nodes=tuple(self._made),
            fetches=tuple(self._values.get(v, v) for v in flow.fetches),
            targets=tuple(self._nodes[n] for n in flow.targets),
            returns={b: self._values.get(v, v) for b, v in flow.returns.items()},
        )

    def _add(self, node: Node) -> None:
        if is_transfer(node):
            inputs = tuple([self._values.get(v, v) for v in node.inputs])
            self._keep(node, node.moved(inputs, tuple([self._nodes[c] for c in node.controls])))
            return
        device = self._next.get(node, node.device)
        controls = tuple([self._nodes[c] for c in node.controls])
        parts = parts_of(node)
        wanted = node.definition.schema.references(node.attrs) if not parts else ()
        spans = any(_devices_in(part) - {device} for part in parts.values())
        inputs = tuple(
            [
                self._on(device, value, controls, bool(wanted) and wanted[i], spans)
                for i, value in enumerate(node.inputs)
            ]
        )
        same = inputs == node.inputs and controls == node.controls and device == node.device
        self._keep(node, node if same else node.moved(inputs, controls, device))

    def _keep(self, node: Node, new: Node) -> None:
        self._made.append(new)
        self._nodes[node] = new
        self._values.update(zip(node.outputs, new.outputs, strict=True))

    def _on(
        self,
        device: str,
        value: Value,
        controls: tuple[Node, ...],
        reference: bool,
        spans: bool = False,
    ) -> Value:
        """Return a value as a node on `device` gets it, after `controls` if it is read there.
        spans: the node has parts on several devices.
        """
        value = self._values.get(value, value)
        source = value.producer
        if isinstance(source, Node) and is_transfer(source) and not source.controls:
            value = source.inputs[0]
            source = value.producer
        if isinstance(source, Feed) or source.constant is not None or source.device == device:
            return value
        if not device or not source.device or (reference and value.dtype._is_ref_dtype):
            return value  # placement keeps references with their variable
        if spans and carries_state(value) and is_source(source):
            return value
        is_reference = value.dtype._is_ref_dtype
        if spans and is_reference:
            raise Unraisable(f"a part of a loop or branch uses {value.name} on {source.device}")
        if _is_new_list(source):
            return self._made_again(device, value)
        if source.definition.flow is Flow.ENTER and not is_reference:
            return self._entered(device, value, source)
        found = None if is_reference else self._transfers.get((value, device))
        if found is None:
            type = replace(value.type, dtype=value.dtype.base_dtype)
            node = Node(
                TRANSFER,
                self._name(value, device),
                {"T": type.dtype, "send_device": source.device},
                (value,),
                controls if is_reference else (),
                (type,),
                source.origin,
                device=device,
            )
            self._made.append(node)
            found = node.outputs[0]
            if not is_reference:
                self._transfers[value, device] = found
        return found

    def _entered(self, device: str, value: Value, enter: Node) -> Value:
        """Return the value of an Enter on another device, where it has a copy: a loop's variable
        enters in the first iteration only, and a Recv runs in all of them.
        """
        found = self._transfers.get((value, device))
        if found is None:
            inputs = tuple([self._on(device, v, enter.controls, False) for v in enter.inputs])
            copy = enter.moved(inputs, enter.controls, device)
            copy = replace(copy, name=self._name(value, device))
            self._made.append(copy)
            found = self._transfers[value, device] = copy.outputs[0]
        return found

    def _made_again(self, device: str, value: Value) -> Value:
        """Return a value that is made again on another device, from constants."""
        found = self._transfers.get((value, device))
        if found is None:
            maker = value.producer
            assert isinstance(maker, Node)
            inputs = tuple([self._made_again(device, v) for v in maker.inputs])
            copy = replace(maker.moved(inputs, (), device), name=self._name(value, device))
            self._made.append(copy)
            found = self._transfers[value, device] = copy.outputs[value.index]
        return found

    def _name(self, value: Value, device: str) -> str:
        """Return a new name: `h/to_CPU_1` for the first output of h."""
        which = f"_{value.index}" if value.index else ""
        place = device.rsplit(":", 2)
        name = base = f"{value.producer.name}{which}/to_{place[-2]}_{place[-1]}"
        count = 0
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name


def _is_new_list(node: Node) -> bool:
    """Return whether a node makes a list from constants alone. A loop is compiled together with the
    lists that it fills, so they are made on its device; lists are immutable values.
    """
    if node.definition.effect is not Effect.LOCAL or node.controls:
        return False
    makers = [v.producer for v in node.inputs]
    return all(v.dtype.name == "variant" for v in node.outputs) and all(map(_is_constant, makers))


def _is_constant(producer: Node | Feed) -> bool:
    if not isinstance(producer, Node) or producer.inputs or producer.controls:
        return False
    return producer.definition.effect is Effect.PURE


def _settle_structures(flow: Dataflow) -> Dataflow:
    """Put each loop and branch on the one device that its nodes ask for. If they ask for none, a
    gradient loop goes where the loop is that saved values for it. If they ask for several, each
    node stays where it is.
    """

    def placed(node: Node) -> Node:
        if not parts_of(node):
            return node
        wanted = dict.fromkeys(n.device for n in _inside(node) if n.device and _is_asked(n))
        if len(wanted) > 1:
            around = {**wanted, **dict.fromkeys(n.device for n in _inside(node) if n.device)}
            if not _share_memory([node.device, *around]):
                raise Unraisable(f"'{node.name}' spans {' and '.join(wanted)}")
            inner = {k: _settle_structures(part) for k, part in parts_of(node).items()}
            return replace(node, attrs={**node.attrs, **inner})
        device = next(iter(wanted), "") or _of_lists(node) or node.device
        part = {name: _on_device(inner, device) for name, inner in parts_of(node).items()}
        return replace(node, device=device, attrs={**node.attrs, **part})

    if not any(parts_of(n) for n in flow.nodes) or not _several(flow):
        return flow
    return rebuild(flow, lambda node, inputs, controls: placed(node.moved(inputs, controls)))


def _share_memory(devices: Iterable[str]) -> bool:
    """Return whether devices are CPUs of one task."""
    specs = [DeviceSpec.from_string(device) for device in devices]
    tasks = {(spec.job, spec.replica, spec.task) for spec in specs}
    return len(tasks) == 1 and all(compiler_of(device) == "llvm" for device in devices)


def _of_lists(node: Node) -> str:
    """Return the device of the loop that has filled a list for this one; empty if there is none."""
    sources = [v.producer for v in node.inputs if v.dtype.name == "variant"]
    return next((s.device for s in sources if isinstance(s, Node) and parts_of(s)), "")


def _several(flow: Dataflow) -> bool:
    return len(_devices_in(flow)) > 1


def _devices_in(flow: Dataflow) -> set[str]:
    """Return the devices of a flow's nodes and of those in its parts."""
    inside = (n.device for node in flow.nodes for n in _inside(node) if n.device)
    return {*flow.devices, *inside}


def _inside(node: Node) -> Iterator[Node]:
    """Yield the nodes in a structured node's parts that do something."""
    for part in parts_of(node).values():
        for inner in part.nodes:
            if parts_of(inner):
                yield from _inside(inner)
            elif inner.constant is None:
                yield inner


def _is_asked(node: Node) -> bool:
    """Return whether a node must be where it is: somebody asked for it, or it uses state there."""
    origin = node.origin
    if origin is not None and (origin._device or "_class" in node.attrs):
        return bool(node.inputs)  # a constant can be anywhere
    return any(v.dtype._is_ref_dtype or v.dtype.name == "resource" for v in node.inputs)


def _on_device(flow: Dataflow, device: str) -> Dataflow:
    """Return a flow, and the parts in it, with all nodes on one device."""
    flow = map_parts(flow, lambda part: _on_device(part, device))
    return rebuild(flow, lambda node, inputs, controls: node.moved(inputs, controls, device))


def complete_devices(flow: Dataflow, device: str) -> Dataflow:
    """Return a flow, and the parts in it, whose nodes without a device are on this one."""
    flow = map_parts(flow, lambda part: complete_devices(part, device))
    return rebuild(flow, lambda node, inputs, c: node.moved(inputs, c, node.device or device))


def settle_devices(flow: Dataflow) -> Dataflow:
    """Give a device to the nodes that passes have made without one: that of a node whose value they
    read, or else that of a reader. Add the TRANSFERs that are missing where a branch that spans
    devices was replaced by the nodes of one side.
    """
    flow = map_parts(flow, settle_devices)
    if len(flow.devices) < 2:
        return flow
    flow = _settled(flow)
    return flow if _foreign_read(flow) is None else _Joining(flow).run()


def _settled(flow: Dataflow) -> Dataflow:
    devices = flow.devices
    if all(n.device or n.constant is not None for n in flow.nodes):
        return flow
    found: dict[Node, str] = {}
    for node in flow.nodes:
        found[node] = node.device
        if not node.device:
            sources = [v.producer for v in node.inputs] + list(node.controls)
            known = [found[s] for s in sources if isinstance(s, Node) and s.constant is None]
            found[node] = next(filter(None, known), "")
    for node in reversed(flow.nodes):
        for value in node.inputs:
            source = value.producer
            if isinstance(source, Node) and not found[source] and not is_transfer(node):
                found[source] = found[node]
    settled = {n: d or devices[0] for n, d in found.items()}
    return rebuild(flow, lambda n, inputs, controls: n.moved(inputs, controls, settled[n]))


def verify_transfers(flow: Any) -> None:
    """Check that a node reads values of other devices through TRANSFERs only; a loop or branch also
    takes variables of other devices.
    """
    for node in flow.nodes:
        for part in parts_of(node).values():
            verify_transfers(part)
    found = _foreign_read(flow)
    if found is not None:
        node, value = found
        message = f"{node.name} on {node.device} reads {value.name} on {value.producer.device}"
        raise InternalError(None, None, message)


def _foreign_read(flow: Dataflow) -> tuple[Node, Any] | None:
    """Return a node that reads a value of another device without a TRANSFER, and that value."""
    for node in flow.nodes:
        if is_transfer(node) or node.constant is not None or not node.device:
            continue
        for value in node.inputs:
            source = value.producer
            if isinstance(source, Feed) or source.constant is not None:
                continue
            if source.device in ("", node.device) or (is_source(source) and parts_of(node)):
                continue
            return node, value
    return None
