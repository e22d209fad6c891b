"""Convert a traced step for Chrome (chrome://tracing) or Perfetto. In: the StepStats of a
RunMetadata. Out: JSON in the trace event format.

Each device is a process. Operations that overlap in time are in different lanes (threads) of it.
Tensors are objects that live from the start of their operation to the end of their last reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Timeline"]

_LABEL = re.compile(r"(?P<name>.*) = (?P<op>[^(]*)\((?P<inputs>.*)\)", re.S)


@dataclass(slots=True)
class _Event:
    """An operation that ran on a device, in a lane of its process."""

    stats: Any
    pid: int
    tid: int
    op: str
    inputs: list[str]

    @property
    def name(self) -> str:
        return self.stats.node_name

    @property
    def start(self) -> int:
        return self.stats.all_start_micros

    @property
    def end(self) -> int:
        return self.start + self.stats.all_end_rel_micros


@dataclass(slots=True)
class _Value:
    """The outputs of an operation: their bytes by allocator, and the operations that read them."""

    event: _Event
    pid: int
    number: int
    sizes: dict[str, int] = field(default_factory=dict)
    readers: list[_Event] = field(default_factory=list)

    @property
    def end(self) -> int:
        """When the last reader has ended. As in TensorFlow's traces, a reader holds the value up to
        its last microsecond: the outputs of an operation that starts right then don't overlap it.
        """
        return max([self.event.end, *(reader.end - 1 for reader in self.readers)])


class Timeline:
    """A traced step. `graph` is used only for operations whose label does not name their type."""

    def __init__(self, step_stats: Any, graph: Any = None) -> None:
        self._step_stats = step_stats
        self._graph = graph

    def generate_chrome_trace_format(
        self, show_dataflow: bool = True, show_memory: bool = False
    ) -> str:
        """Return the trace as JSON.

        show_dataflow: add arrows from each operation to its readers in other lanes.
        show_memory: add the tensors as objects, and the bytes in use over time.
        """
        processes = _Processes()
        allocators = processes.add("Allocators")
        events: list[_Event] = []
        tensors: dict[int, int] = {}
        for device in self._step_stats.dev_stats:
            pid = processes.add(f"{device.device} Compute")
            tensors[pid] = processes.add(f"{device.device} Tensors")
            events.extend(self._events(device, pid))
        values = _values(events, tensors)
        trace = [*processes.names, *map(_operation, events)]
        if show_dataflow:
            trace.extend(_arrows(values))
        if show_memory:
            trace.extend(_objects(values))
            trace.extend(_memory(values, allocators))
        return json.dumps({"traceEvents": trace}, indent=4, separators=(",", ": "))

    def _events(self, device: Any, pid: int) -> Iterator[_Event]:
        """Yield the operations of a device, each in the first lane that is free when it starts."""
        free_at: list[int] = []
        for stats in sorted(device.node_stats, key=lambda s: s.all_start_micros):
            start = stats.all_start_micros
            tid = next((i for i, end in enumerate(free_at) if end <= start), len(free_at))
            free_at[tid : tid + 1] = [start + stats.all_end_rel_micros]
            op, inputs = self._kind(stats)
            yield _Event(stats, pid, tid, op, inputs)

    def _kind(self, stats: Any) -> tuple[str, list[str]]:
        """Return an operation's type, and the names of the operations that it reads from."""
        label = _LABEL.fullmatch(stats.timeline_label)
        if label:
            inputs = [i for i in label["inputs"].split(", ") if i and not i.startswith("^")]
            return label["op"], inputs
        if self._graph is not None:
            try:
                op = self._graph.get_operation_by_name(stats.node_name)
            except KeyError:
                return "unknown", []
            return op.type, [tensor.op.name for tensor in op.inputs]
        return "unknown", []


class _Processes:
    """The processes of a trace, with their numbers and names."""

    def __init__(self) -> None:
        self.names: list[dict[str, Any]] = []

    def add(self, name: str) -> int:
        pid = len(self.names)
        self.names.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}})
        return pid


def _values(events: list[_Event], tensors: dict[int, int]) -> list[_Value]:
    """Return the outputs of the operations, with their readers."""
    found: dict[str, _Value] = {}
    for event in events:
        if not event.stats.output:
            continue
        value = _Value(event, tensors[event.pid], len(found))
        for output in event.stats.output:
            allocation = output.tensor_description.allocation_description
            name = allocation.allocator_name
            value.sizes[name] = value.sizes.get(name, 0) + allocation.requested_bytes
        found[event.name] = value
    for event in events:
        for name in dict.fromkeys(event.inputs):
            if name in found:
                found[name].readers.append(event)
    return list(found.values())


def _operation(event: _Event) -> dict[str, Any]:
    args = {"name": event.name, "op": event.op}
    args.update({f"input{i}": name for i, name in enumerate(event.inputs)})
    return {
        "ph": "X",
        "cat": "Op",
        "name": event.op,
        "pid": event.pid,
        "tid": event.tid,
        "ts": event.start,
        "dur": event.stats.all_end_rel_micros,
        "args": args,
    }


def _arrows(values: list[_Value]) -> Iterator[dict[str, Any]]:
    """Yield the arrows between lanes; within a lane the order shows the flow."""
    number = 0
    for value in values:
        made = value.event
        for reader in value.readers:
            if (reader.pid, reader.tid) == (made.pid, made.tid):
                continue
            common = {"cat": "DataFlow", "name": made.name, "id": number}
            number += 1
            yield {"ph": "s", **common, "pid": made.pid, "tid": made.tid, "ts": made.end}
            yield {"ph": "t", **common, "pid": reader.pid, "tid": reader.tid, "ts": reader.start}


def _objects(values: list[_Value]) -> Iterator[dict[str, Any]]:
    for value in values:
        made = value.event
        common = {
            "cat": "Tensor",
            "name": made.name,
            "pid": value.pid,
            "tid": made.tid,
            "id": value.number,
        }
        described = "\n".join(str(output.tensor_description) for output in made.stats.output)
        snapshot = {"snapshot": {"tensor_description": described}}
        yield {"ph": "N", **common, "ts": made.start}
        # Before the end, when the object may be deleted.
        yield {"ph": "O", **common, "ts": max(made.start, made.end - 1), "args": snapshot}
        yield {"ph": "D", **common, "ts": value.end}


def _memory(values: list[_Value], pid: int) -> Iterator[dict[str, Any]]:
    """Yield the bytes in use of each allocator, at each change."""
    changes = [
        (time, name, size * sign)
        for value in values
        for name, size in value.sizes.items()
        for time, sign in ((value.event.start, 1), (value.end, -1))
    ]
    used: dict[str, int] = {}
    for time, name, change in sorted(changes):
        used[name] = used.get(name, 0) + change
        yield {
            "ph": "C",
            "cat": "Memory",
            "name": name,
            "pid": pid,
            "tid": 0,
            "ts": time,
            "args": {name: used[name]},
        }
