"""Stages of a step in partitions. In: a Dataflow whose nodes have devices, or its Partitions. Out:
the level of each node; the check of the stages.

The level of a node is the greatest number of crossings between devices on a path to it. A Send has
the level of the node that makes its value as its `stage`, a Recv that of its TRANSFER, which is
greater. ops.base.stages says what follows for the regions of each partition. A step with control
flow primitives has no levels, because its loops cross devices in each iteration.

Stages say nothing of queues: an op that blocks may wait for what another partition enqueues. So a
Recv also lists the blocking ops that come before it (`awaits`), on any device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from headrace._src.core.errors import InternalError
from headrace._src.graph.dataflow import Dataflow, Node
from headrace._src.ops.base.stages import keeps_stages
from headrace._src.ops.base.transfers import is_recv, is_send, key_of

__all__ = ["NO_STAGE", "awaited", "earliest_first", "levels", "verify_stages"]

NO_STAGE = -1


def levels(flow: Dataflow, place: Callable[[str], str] = str) -> dict[Node, int]:
    """Return the level of each node of a whole step; nothing for one with primitives. `place`: of a
    device; only what goes from one place to another crosses.
    """
    if flow.steers:
        return {}
    found: dict[Node, int] = {}
    for node in flow.nodes:
        level, here = 0, place(node.device)
        for before in _before(node):
            level = max(level, found[before] + (place(before.device) != here))
        found[node] = level
    return found


def earliest_first(flow: Dataflow) -> Dataflow:
    """Sort the nodes of a step of several tasks by their levels, and those of a level in the order
    in which other tasks send what they need. Later passes order accesses to state by the nodes'
    order, where the client has not: so none waits for another task that need not. TensorFlow leaves
    that order open.
    """
    tasks = {_task(device) for device in flow.devices}
    if len(tasks) < 2 or flow.steers:
        return flow
    level = levels(flow, _task)
    groups: dict[int, list[Node]] = {}
    for node in flow.nodes:
        groups.setdefault(level[node], []).append(node)
    position: dict[Node, int] = {}
    arrival: dict[Node, int] = {}  # the position of the last node of another task that one needs

    def arrived(node: Node) -> int:
        here, last = _task(node.device), -1
        for before in _before(node):
            if _task(before.device) != here:
                last = max(last, position[before])
            elif level[before] == level[node]:
                last = max(last, arrival[before])
        return last

    for _, nodes in sorted(groups.items()):
        for node in nodes:
            arrival[node] = arrived(node)
        for node in sorted(nodes, key=arrival.__getitem__):
            position[node] = len(position)
    return replace(flow, nodes=tuple(position))


def _before(node: Node) -> Iterable[Node]:
    """Return the nodes that a node reads and waits for, without constants."""
    for before in (*(v.producer for v in node.inputs), *node.controls):
        if isinstance(before, Node) and before.constant is None:
            yield before


def _task(device: str) -> str:
    return device.partition("/device:")[0]


def awaited(flow: Dataflow) -> dict[Node, frozenset[int]]:
    """Return the numbers of the blocking ops that each node of a whole step comes after, or is;
    nothing if there are none, or if the step has primitives.
    """
    blocking = [n for n in flow.nodes if n.definition.may_wait and n.constant is None]
    if flow.steers or not blocking:
        return {}
    own = {node: frozenset({i}) for i, node in enumerate(blocking)}
    found: dict[Node, frozenset[int]] = {}
    for node in flow.nodes:
        before = dict.fromkeys(v.producer for v in node.inputs) | dict.fromkeys(node.controls)
        known = [found[b] for b in before if isinstance(b, Node) and b.constant is None]
        found[node] = own.get(node, frozenset()).union(*known)
    return found


def verify_stages(flows: Iterable[Dataflow]) -> None:
    """Check all partitions of a step, compiled or not: each Recv has a greater stage than its Send,
    and no Send depends on a Recv of a greater stage than its own. Then they have no cycle together.
    """
    sent: dict[object, int] = {}
    received: dict[object, int] = {}
    for flow in flows:
        if not keeps_stages(flow):
            raise InternalError(None, None, f"a Send comes before its stage in\n{flow}")
        for node in flow.nodes:
            if is_send(node):
                sent[key_of(node.attrs)] = node.attrs["stage"]
            elif is_recv(node):
                received[key_of(node.attrs)] = node.attrs["stage"]
    for key, stage in received.items():
        if NO_STAGE not in (stage, sent[key]) and sent[key] >= stage:
            message = f"{key} is sent in stage {sent[key]} and received in stage {stage}"
            raise InternalError(None, None, message)
