"""Divide steps among tasks. In: a client's graph as it grows, and the names of a step's fetches,
targets and feeds. Out: what each task has to run.

The master has a copy of the client's graph. It places the copy on the devices of all tasks, and
runs the pipeline on whole steps as far as the cut. Nothing is compiled here: each worker does that
for its own processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from headrace._src.core import source
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.proto import ConfigProto, GraphDef
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.device import Device
from headrace._src.distributed import messages as say
from headrace._src.distributed.cluster_spec import task_of
from headrace._src.distributed.sessions import Divided
from headrace._src.distributed.values import holds_handle
from headrace._src.graph.dataflow import Dataflow
from headrace._src.graph.flow_def import encode_flow
from headrace._src.graph.graph import Graph
from headrace._src.graph.import_graph import extend_graph
from headrace._src.graph.operation import Operation
from headrace._src.graph.partition import Partitions
from headrace._src.graph.structured import Unraisable
from headrace._src.ops.base.transfers import is_recv, is_send
from headrace._src.optimize.races import find_races
from headrace._src.partition.covers import covers
from headrace._src.partition.shares import Share, shares
from headrace._src.pipeline import Options, divide, optimise, prepare
from headrace._src.place.constraints import Placement, StepPlacement
from headrace._src.runtime.takings import holds
from headrace._src.server.piecewise import piecewise
from headrace._src.server.registration import pack
from headrace._src.session import configuration
from headrace._src.session.tracing import graph_placement, step_placement

__all__ = ["MirroredGraph", "RemoteDevice", "shapes_of"]

_NO_LINES = source.Stack([])
_SCALAR = TensorShape([])
_UNSHAPED = frozenset({"resource", "variant"})


class RemoteDevice(Device):
    """A device of another task, as the master knows it."""

    def __init__(self, name: str, kind: str, limit: int, incarnation: int) -> None:
        super().__init__(name)
        self.type = kind
        self.memory_limit = limit
        self.incarnation = incarnation


def shapes_of(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Return what distinguishes the variants of a step: the shapes of its feeds."""
    return tuple(map(np.shape, tensors))


class MirroredGraph:
    """A session's copy of its client's graph, and the placement of its operations."""

    def __init__(self, config: ConfigProto, devices: Sequence[Device]) -> None:
        options = configuration.options(config, remote=True)
        self._options = replace(options, devices=tuple(devices))
        self._asked = configuration.asked(config)
        self._begin()

    def _begin(self) -> None:
        self._graph = Graph()
        form = StepPlacement if self._asked.place_pruned else Placement
        self._placement = form(self._graph, self._options.devices, self._options.soft_placement)
        self._steps: dict[int, Dataflow] = {}
        self._growing: set[str] = set()  # the variables that may get other shapes
        self._any_may_grow = False

    def extend(self, request: say.ExtendGraph) -> None:
        """Add what the client has added."""
        if request.anew:
            self._begin()
        message = GraphDef()
        known = self._graph.version
        try:
            message.ParseFromString(request.graph)
            extend_graph(self._graph, message)
        except Exception as error:
            raise InvalidArgumentError(None, None, f"the client's graph: {error}") from error
        for op in self._graph._operations[known:]:
            op.traceback_frames = _NO_LINES  # the client knows the lines
            self._note_shapes(op)

    def _note_shapes(self, op: Operation) -> None:
        """Note the variables that may get another shape than they were declared with."""
        if _looks_up(op) and not op._attrs.get("shape", _SCALAR).is_fully_defined():
            self._growing.add(op.name)
        if op._attrs.get("validate_shape", True) is False:
            variable = op._inputs[0].op
            self._growing.add(variable.name)
            self._any_may_grow |= not _looks_up(variable)

    def divide(self, request: say.Prepare, shapes: Sequence[Any] | None) -> Divided:
        """Return a step in parts for each task. The devices of operations are settled, even of
        those that the step does not need.
        """
        placed = self._placement.extend()
        mixed = True if request.mixed else self._options.mixed
        options = replace(self._options, placement=self._placement, mixed=mixed)
        step = self._steps.get(request.number)
        races: list[tuple[str, str, str]] = []
        if step is None:
            step = prepare(
                [self._graph.get_tensor_by_name(name) for name in request.fetches],
                [self._graph.get_operation_by_name(name) for name in request.targets],
                [self._graph.get_tensor_by_name(name) for name in request.feeds],
                options,
                report=False,  # the client has the lines of the operations
            )
            races = [(r.variable[1], r.read.name, r.write.name) for r in find_races(step)]
            self._placement.pin(step)
            self._steps[request.number] = step
        notice = ""
        if self._asked.log_placement:
            whole = self._placement.whole
            notice = graph_placement(self._placement, placed) if whole else step_placement(step)
        if request.piecewise:  # the shapes of later feeds are unknown
            divided = _by_task_piecewise(divide(step, options, as_is=True), request.targets)
        else:
            flow = self._optimised(step, shapes, options)
            divided = _by_task(divide(flow or step, options, as_is=flow is None), flow is None)
        return divided._replace(notice=notice, races=races)

    def _optimised(
        self, step: Dataflow, shapes: Sequence[Any] | None, options: Options
    ) -> Dataflow | None:
        """Return the step for feeds of these shapes; None if it is to run as it is. One whose
        variables may get other shapes is: a worker could notice that only when others have begun.
        """
        if not options.specialisations or options.check_numerics or self._may_grow(step):
            return None
        if shapes is None:
            return None  # a variable did not have the shape that was declared
        known = [
            None if feed.tensor.dtype.base_dtype.name in _UNSHAPED else shape
            for feed, shape in zip(step.feeds, shapes, strict=True)
        ]
        try:
            return optimise(step, known, options)
        except Unraisable:
            return None

    def _may_grow(self, step: Dataflow) -> bool:
        """Return whether a variable of a step may have another shape than was declared."""
        if not self._growing:
            return False
        return self._any_may_grow or any(node.name in self._growing for node in step.nodes)


def _looks_up(op: Operation) -> bool:
    """Return whether an operation only looks up a variable or another resource."""
    types = [t.dtype for t in op._outputs]
    return not op._inputs and bool(types) and all(d._is_ref_dtype or holds_handle(d) for d in types)


def _by_task(step: Partitions, as_is: bool) -> Divided:
    """Return the shares of the tasks, packed for the way."""
    edges = _edges(step)
    held = holds(node for part in step.parts for node in part.flow.nodes)
    sources: list[Any] = [None] * len(step.tensors)
    parts, feeds = {}, {}
    found = shares(step, task_of)
    covering = covers(found, task_of)
    covered = {task for tasks in covering.values() for task in tasks}
    for share in found:
        for i, position in enumerate(share.fetches):
            sources[position] = share.task, i
        about, payload = _packed(share, edges, as_is)
        about |= {"holds": held, "covered": share.task in covered}
        parts[share.task] = about, payload
        feeds[share.task] = share.feeds
    return Divided(parts, feeds, tuple(sources), covers=covering)


def _by_task_piecewise(step: Partitions, targets: Sequence[str]) -> Divided:
    """Return the shares of the tasks in a step that is fed and fetched piece by piece."""
    edges = _edges(step)
    numbers = count(len(edges))
    parts: dict[str, Any] = {}
    pieces: dict[str, list[tuple[str, int]]] = {}
    fetched: dict[int, str] = {}
    for share in shares(step, task_of):
        made = [piecewise(part.flow, part.device, targets) for part in share.parts]
        fed: list[list[Any]] = []
        sent: list[list[Any]] = []
        for part, each in zip(share.parts, made, strict=True):
            for name in each.feeds:
                fed.append([next(numbers), part.device, name])
                pieces.setdefault(name, []).append((share.task, fed[-1][0]))
            for name in each.fetches:
                sent.append([next(numbers), part.device, name])
                fetched[sent[-1][0]] = name
        flows = [replace(p, flow=m.flow) for p, m in zip(share.parts, made, strict=True)]
        about, payload = _packed(replace(share, parts=tuple(flows)), edges, as_is=True)
        parts[share.task] = {**about, "fed": fed, "sent": sent}, payload
    return Divided(parts, dict.fromkeys(parts, ()), (), pieces=pieces, fetched=fetched)


def _packed(share: Share, edges: list[list[Any]], as_is: bool) -> tuple[dict[str, Any], bytes]:
    about = {
        "as_is": as_is,
        "devices": [part.device for part in share.parts],
        "edges": [edge for edge in edges if share.task in (task_of(edge[1]), task_of(edge[2]))],
    }
    return about, pack([encode_flow(part.flow).SerializeToString() for part in share.parts])


def _edges(parts: Partitions) -> list[list[Any]]:
    """Return the edges between tasks: a number, the sender's and the receiver's device, and the
    name of the tensor.
    """
    found: dict[tuple[str, str, str], None] = {}
    for part in parts.parts:
        for node in part.flow.nodes:
            if is_send(node) or is_recv(node):
                sender, receiver = node.attrs["send_device"], node.attrs["recv_device"]
                if task_of(sender) != task_of(receiver):
                    found[sender, receiver, node.attrs["tensor_name"]] = None
    return [[number, *edge] for number, edge in enumerate(sorted(found))]
