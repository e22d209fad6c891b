"""Join the partitions of a step again. In: Partitions. Out: one Dataflow in the order of the whole
step, without Sends and Recvs; None if the devices could work at the same time.

The partitions of a network that is split by layers wait for each other: while one device computes,
no other one has anything to do. One thread then runs the whole step in one order, and no tensor
passes the rendezvous. A step stays in partitions where something on one device could run beside a
long instruction of another. So does one with devices other than CPUs, which share the process's
threads, and one with control flow primitives, ops that may block or calls of Python.
"""

from __future__ import annotations

from headrace._src.devices.device import Cpu, find_device
from headrace._src.graph.dataflow import Dataflow, Node, Value
from headrace._src.graph.partition import Partitions, is_long
from headrace._src.lowering.rules import Pass, Read
from headrace._src.ops.base.transfers import is_recv, is_send, key_of

__all__ = ["join"]


def join(step: Partitions) -> Dataflow | None:
    """Return the step in one piece, if one thread can run it as fast as several."""
    if any(type(find_device(part.device)) is not Cpu for part in step.parts):
        return None
    nodes = dict.fromkeys(node for part in step.parts for node in part.flow.nodes)
    if any(part.flow.steers for part in step.parts) or not all(map(_is_plain, nodes)):
        return None
    # Several partitions may have a copy of a constant.
    order = sorted(nodes, key=lambda node: (node.constant is None, step.positions[node]))
    flow = _joined(step, order)
    return None if _overlaps(flow) else flow


def _is_plain(node: Node) -> bool:
    """Return whether a node neither blocks, except on another partition, nor calls Python."""
    definition = node.definition
    return is_recv(node) or not (definition.may_wait or definition.calls_python)


def _joined(step: Partitions, nodes: list[Node]) -> Dataflow:
    """Return the nodes as one flow, in which a Recv is the value that was sent."""
    sends = {key_of(node.attrs): node for node in nodes if is_send(node)}
    values: dict[Value, Value] = {}
    instead: dict[Node, tuple[Node, ...]] = {}  # the nodes to wait for in place of a node
    kept: list[Node] = []
    for node in nodes:
        inputs = tuple(values.get(v, v) for v in node.inputs)
        controls = tuple(dict.fromkeys(n for c in node.controls for n in instead.get(c, (c,))))
        if is_send(node):
            makers = [v.producer for v in inputs if isinstance(v.producer, Node)]
            instead[node] = (*makers, *controls)
            continue
        if is_recv(node):
            send = sends[key_of(node.attrs)]
            instead[node] = (*instead[send], *controls)
            if send.inputs:
                values[node.outputs[0]] = values.get(send.inputs[0], send.inputs[0])
            continue
        same = inputs == node.inputs and controls == node.controls
        new = node if same else node.moved(inputs, controls)
        instead[node] = (new,)
        values.update(zip(node.outputs, new.outputs, strict=True))
        kept.append(new)
    fetches = [step.parts[part].flow.fetches[position] for part, position in step.sources]
    targets = [t for part in step.parts for t in part.flow.targets if not is_send(t)]
    return Dataflow(
        tuple(kept),
        step.feeds,
        tuple(values.get(v, v) for v in fetches),
        tuple(n for t in targets for n in instead[t]),
        step.tensors,
    )


def _overlaps(flow: Dataflow) -> bool:
    """Return whether a node could run while a long one runs on another device. Sets of long nodes
    are bits of a number.
    """
    bits: dict[Node, int] = {}
    on: dict[str, int] = {}  # the long nodes of each device
    for node in flow.nodes:
        if is_long(node) and node.constant is None:
            bits[node] = 1 << len(bits)
            on[node.device] = on.get(node.device, 0) | bits[node]
    everywhere = (1 << len(bits)) - 1
    before: dict[Node, int] = {}
    for node in flow.nodes:
        before[node] = 0
        for earlier in _waits_for(node):
            before[node] |= before[earlier] | bits.get(earlier, 0)
    after = dict.fromkeys(flow.nodes, 0)
    for node in reversed(flow.nodes):
        others = everywhere & ~on.get(node.device, 0)
        if others & ~(before[node] | after[node]) and _works(node):
            return True
        for earlier in _waits_for(node):
            after[earlier] |= after[node] | bits.get(node, 0)
    return False


def _works(node: Node) -> bool:
    """Return whether a node does more than to look up state or to pass on a value."""
    passes = isinstance(node.definition.lower, Read | Pass)
    return node.constant is None and not passes and bool(node.inputs or node.controls)


def _waits_for(node: Node) -> list[Node]:
    makers = [v.producer for v in node.inputs if isinstance(v.producer, Node)]
    return [*makers, *node.controls]
