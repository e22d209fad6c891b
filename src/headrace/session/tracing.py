"""What a session can tell about its steps: devices, placement, and RunMetadata."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.graph.dataflow import Dataflow, Node, origin_of
from headrace.graph.operation import Operation
from headrace.graph.program import Program, StepGraph

if TYPE_CHECKING:
    from headrace.core import proto
    from headrace.graph.graph import Graph

__all__ = ["Device", "Recorder", "log_placement", "recorder"]


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a session can use."""

    name: str
    device_type: str
    memory_limit_bytes: int = 0


def log_placement(stage: str, form: StepGraph | Dataflow | Program) -> None:
    """Print where each operation of a step goes, once per program."""
    if stage == "place" and isinstance(form, StepGraph):
        for op in form.operations:
            print(f"{op.name}: ({op.type}): {form.placement[op]}", file=sys.stderr)


def recorder(options: Any, metadata: Any) -> Recorder | None:
    """The recorder that these RunOptions ask for, or None."""
    if metadata is None:
        return None
    if options.trace_level == 0 and not options.output_partition_graphs:
        return None
    return Recorder(metadata, options.trace_level > 0, options.output_partition_graphs)


class Recorder:
    """Fills a RunMetadata: when each operation ran, and the client's operations that were run (in a
    specialised step constants aren't, nor what was found to be needless).
    """

    def __init__(self, metadata: proto.RunMetadata, times: bool, graphs: bool) -> None:
        self._metadata = metadata
        self._times = times
        self._graphs = graphs
        self._events: list[tuple[Operation | Node, float, float, list[Any]]] = []

    def observe(self, op: Operation | Node, start: float, end: float, outputs: list[Any]) -> None:
        if self._times:
            sizes = [(getattr(v, "shape", ()), getattr(v, "nbytes", 0)) for v in outputs]
            self._events.append((op, start, end, sizes))

    def finish(self, program: Program, graph: Graph) -> None:
        """Write what was seen into the RunMetadata."""
        if self._times:
            self._write_times()
        if self._graphs:
            from headrace.graph.graph_def import node_def

            target = self._metadata.partition_graphs.add()
            for instruction in program.instructions:
                op = origin_of(instruction.op)
                if isinstance(op, Operation) and op.definition is instruction.op.definition:
                    target.node.append(node_def(op))
            target.versions.CopyFrom(graph.graph_def_versions)

    def _write_times(self) -> None:
        stats = self._metadata.step_stats.dev_stats.add()
        stats.device = "/job:localhost/replica:0/task:0/device:CPU:0"
        for op, start, end, outputs in self._events:
            node = stats.node_stats.add()
            node.node_name = op.name
            node.all_start_micros = int(start * 1e6)
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
