"""Report on sessions and steps: their devices, placement and RunMetadata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace._src.devices.device import Device, local_devices
from headrace._src.graph.attributes import set_proto
from headrace._src.graph.dataflow import Dataflow, Node, origin_of
from headrace._src.graph.definition import HOST
from headrace._src.graph.graph_def import node_def
from headrace._src.graph.operation import Operation
from headrace._src.graph.program import Instruction, Program
from headrace._src.ops.base.transfers import is_recv, is_send
from headrace._src.place.constraints import Placement
from headrace._src.place.groups import is_generator

if TYPE_CHECKING:
    from headrace._src.core import proto
    from headrace._src.graph.graph import Graph

__all__ = [
    "DeviceAttributes",
    "TraceRecorder",
    "collect",
    "listed",
    "graph_placement",
    "recorder",
    "step_placement",
]

_TRANSFER_ATTRIBUTES = {"T", "tensor_type", "tensor_name", "send_device", "recv_device"}
_TRANSFER_ATTRIBUTES |= {"send_device_incarnation"}
_TENSORFLOWS_CPU = 1 << 28  # the memory limit that TensorFlow states for every CPU


@dataclass(frozen=True, slots=True)
class DeviceAttributes:
    """The description of a device that `Session.list_devices` returns."""

    name: str
    device_type: str
    memory_limit_bytes: int
    incarnation: int

    def __repr__(self) -> str:
        return (
            f"_DeviceAttributes({self.name}, {self.device_type}, {self.memory_limit_bytes}, "
            f"{self.incarnation})"
        )


def listed(device: Device) -> DeviceAttributes:
    """Return the description of a device for `Session.list_devices`."""
    limit = _TENSORFLOWS_CPU if device.type == HOST else device.allocator.limit
    return DeviceAttributes(device.name, device.type, limit, device.incarnation)


def _device_of(op: Operation | Node) -> str:
    return op.device if isinstance(op, Node) and op.device else local_devices()[0].name


def step_placement(step: Dataflow) -> str:
    """Return a line for each operation of a prepared step, with its device."""
    return "\n".join(_line(node, node.device) for node in step.nodes)


def graph_placement(placement: Placement, operations: Sequence[Operation]) -> str:
    """Return a line for each operation of a session's graph, with its device: as TensorFlow does,
    those last that are placed last.
    """
    ordered = sorted(operations, key=is_generator)
    return "\n".join(_line(op, placement.device(op.name)) for op in ordered)


def _line(op: Operation | Node, device: str) -> str:
    return f"{op.name}: ({op.type}): {device}"


def collect(metadata: proto.RunMetadata, recorded: Sequence[Any], graph: Graph) -> None:
    """Fill a RunMetadata with those of the tasks that ran a step, as serialized, and their graphs
    with the operations of the client's graph.
    """
    metadata.Clear()
    for part in recorded:
        metadata.MergeFromString(part.tobytes())
    for partition in metadata.partition_graphs:
        ran = list(partition.node)
        del partition.node[:]
        for node in ran:
            op = graph._by_name.get(node.name)
            if "tensor_name" in node.attr:
                partition.node.add().CopyFrom(node)
            elif op is not None and op.type == node.op:
                partition.node.add().CopyFrom(node_def(op))
                partition.node[-1].device = node.device
        partition.versions.CopyFrom(graph.graph_def_versions)


def _fill_transfer(made: Any, node: Any) -> None:
    """Describe a Send or Recv in a NodeDef, with TensorFlow's attributes. A control edge sends no
    tensor.
    """
    made.name, made.op, made.device = node.name, node.type, node.device
    made.input.extend(v.name.removesuffix(":0") for v in node.inputs)
    made.input.extend(f"^{c.name}" for c in node.controls)
    for name in _TRANSFER_ATTRIBUTES & node.attrs.keys():
        set_proto(made.attr[name], node.definition.schema.attributes[name].kind, node.attrs[name])
    made.attr["client_terminated"].b = False


def recorder(options: Any, metadata: Any, costs: bool) -> TraceRecorder | None:
    """Return the recorder of a run, or None without metadata; `costs`: the run measures costs."""
    if metadata is None:
        return None
    times = costs or (options is not None and options.trace_level > 0)
    graphs = options is not None and options.output_partition_graphs
    return TraceRecorder(metadata, times, graphs, costs)


class TraceRecorder:
    """Fill a RunMetadata with the times and costs of operations, and the client's operations that
    ran. A specialised step does not run constants, nor operations that it does not need.
    """

    def __init__(
        self, metadata: proto.RunMetadata, times: bool, graphs: bool, costs: bool = False
    ) -> None:
        self._metadata = metadata
        self._times = times
        self._graphs = graphs
        self._costs = costs
        self.events: list[tuple[Operation | Node, float, float, list[Any]]] = []

    def observe(self, op: Operation | Node, start: float, end: float, outputs: list[Any]) -> None:
        if self._times:
            sizes = [(getattr(v, "shape", ()), getattr(v, "nbytes", 0)) for v in outputs]
            self.events.append((op, start, end, sizes))

    def finish(self, program: Program, graph: Graph) -> None:
        """Replace the contents of the RunMetadata by the recorded events."""
        self._metadata.Clear()
        if self._times:
            self._write_times(0, local_devices()[0].name)
        if self._costs:
            self._write_costs()
        if self._graphs:
            self._write_graphs(program, graph)

    def part(self, ahead: int, first: str, instructions: Iterable[Instruction]) -> bytes:
        """Return the RunMetadata of a task whose clock is ahead by so many microseconds. Its graphs
        have the names, types and devices of operations only: the client knows the rest.
        """
        if self._times:
            self._write_times(ahead, first)
        if self._graphs:
            by_device: dict[str, Any] = {first: self._metadata.partition_graphs.add()}
            for instruction in instructions:
                op = origin_of(instruction.op)
                travels = is_send(instruction.op) or is_recv(instruction.op)
                if travels or (op is not None and op.type == instruction.op.type):
                    device = instruction.op.device
                    if device not in by_device:
                        by_device[device] = self._metadata.partition_graphs.add()
                    if travels:
                        _fill_transfer(by_device[device].node.add(), instruction.op)
                    else:
                        by_device[device].node.add(name=op.name, op=op.type, device=device)
        return self._metadata.SerializeToString()

    @property
    def observes(self) -> bool:
        """Whether the recorder must be called after each operation."""
        return self._times

    def _write_graphs(self, program: Program, graph: Graph) -> None:
        """Write a graph for each device with the operations that ran there."""
        by_device: dict[str, Any] = {}
        for instruction in program.instructions:
            op = origin_of(instruction.op)
            travels = is_send(instruction.op) or is_recv(instruction.op)
            if travels or (isinstance(op, Operation) and op.type == instruction.op.type):
                device = _device_of(instruction.op)
                if device not in by_device:
                    by_device[device] = self._metadata.partition_graphs.add()
                node = by_device[device].node.add()
                if travels:
                    _fill_transfer(node, instruction.op)
                else:
                    node.CopyFrom(node_def(op))
                    node.device = device
        for target in by_device.values() or [self._metadata.partition_graphs.add()]:
            target.versions.CopyFrom(graph.graph_def_versions)

    def _write_costs(self) -> None:
        graph = self._metadata.cost_graph
        graph.SetInParent()  # even if no operation ran, since all values were known
        number = {id(op): i for i, (op, *_) in enumerate(self.events)}
        for i, (op, start, end, outputs) in enumerate(self.events):
            node = graph.node.add()
            node.name, node.device, node.id = op.name, _device_of(op), i
            node.compute_cost = node.compute_time = int((end - start) * 1e6)
            for t in op._inputs:
                if id(t.op) in number:
                    node.input_info.add(
                        preceding_node=number[id(t.op)], preceding_port=t.value_index
                    )
            for t, (shape, nbytes) in zip(op._outputs, outputs, strict=False):
                output: Any = node.output_info.add()
                output.size, output.alias_input_port = int(nbytes), -1
                output.dtype = t.dtype.base_dtype.enum
                for size in shape:
                    output.shape.dim.add().size = size

    def _write_times(self, ahead: int, first: str) -> None:
        """Write the times of operations; `first`: a device that is there in any case."""
        devices = dict.fromkeys([first, *(_device_of(op) for op, *_ in self.events)])
        by_device = {d: self._metadata.step_stats.dev_stats.add(device=d) for d in devices}
        for op, start, end, outputs in self.events:
            node = by_device[_device_of(op)].node_stats.add()
            node.node_name = op.name
            node.all_start_micros = int(start * 1e6) - ahead
            node.op_end_rel_micros = int((end - start) * 1e6)
            node.all_end_rel_micros = node.op_end_rel_micros
            inputs = ", ".join(t.op.name for t in op._inputs)
            node.timeline_label = f"{op.name} = {op.type}({inputs})"
            for i, (shape, nbytes) in enumerate(outputs):
                output = node.output.add()
                output.slot = i
                description: Any = output.tensor_description
                description.dtype = op._outputs[i].dtype.base_dtype.enum
                for size in shape:
                    description.shape.dim.add().size = size
                description.allocation_description.requested_bytes = int(nbytes)
                description.allocation_description.allocator_name = "cpu"
