"""Steps that are fed and fetched piece by piece. In: a partition of a step. Out: the partition with
a Recv from the client for each feed, and a Send to the client for each fetch and each target.

The client takes part in the step's rendezvous under the name of a device, CLIENT; its master
forwards what it sends and receives. So such a step is an ordinary one that waits for tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace._src.graph.dataflow import Dataflow, Node, Value, rebuild
from headrace._src.ops.base.transfers import RECV, SEND, SEND_CONTROL, for_flow

__all__ = ["CLIENT", "Piecewise", "piecewise"]

CLIENT = "/client"


@dataclass(frozen=True)
class Piecewise:
    """A partition whose feeds and fetches are tensors that the client sends and receives.

    feeds: the names of those that are received. fetches: the names of those that are sent; of a
    target, "^" and its name.
    """

    flow: Dataflow
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]


def piecewise(flow: Dataflow, device: str, targets: Sequence[str]) -> Piecewise:
    """Return a partition on a device that the client feeds and fetches piece by piece. targets: the
    names of the client's.
    """
    made: list[Node] = []
    fed: dict[Value, Value] = {}
    for feed in flow.feeds:
        attrs = {
            "tensor_type": feed.type.dtype.base_dtype,
            **_edge(feed.value.name, CLIENT, device),
        }
        name = f"{feed.name}/from_client"
        definition = for_flow(RECV, True)
        recv = Node(definition, name, attrs, (), (), (feed.type,), feed.tensor.op, device=device)
        made.append(recv)
        fed[feed.value] = recv.outputs[0]

    def received(node: Node, inputs: tuple[Value, ...], controls: tuple[Node, ...]) -> Node:
        inputs = tuple([fed.get(v, v) for v in inputs])
        return (
            node
            if inputs == node.inputs and controls == node.controls
            else node.moved(inputs, controls)
        )

    flow = rebuild(flow, received)
    sends = [
        _send(fed.get(value, value), tensor, device)
        for value, tensor in zip(flow.fetches, flow.tensors, strict=True)
    ]
    sends += [_send_control(node, device) for node in flow.targets if node.name in targets]
    changed = replace(
        flow,
        nodes=(*made, *flow.nodes, *sends),
        feeds=(),
        fetches=(),
        tensors=(),
        targets=(*flow.targets, *sends),
    )
    return Piecewise(
        changed,
        tuple(feed.value.name for feed in flow.feeds),
        tuple(str(node.attrs["tensor_name"]) for node in sends),
    )


def _send(value: Value, tensor: Any, device: str) -> Node:
    attrs = {"T": value.dtype.base_dtype, **_edge(tensor.name, device, CLIENT)}
    name = f"{tensor.op.name}/to_client_{tensor.value_index}"
    return Node(for_flow(SEND, True), name, attrs, (value,), (), (), tensor.op, device=device)


def _send_control(node: Node, device: str) -> Node:
    attrs = _edge(f"^{node.name}", device, CLIENT)
    name = f"{node.name}/to_client"
    definition = for_flow(SEND_CONTROL, True)
    return Node(definition, name, attrs, (), (node,), (), node.origin, device=device)


def _edge(tensor: str, sender: str, receiver: str) -> dict[str, Any]:
    return {
        "tensor_name": tensor,
        "send_device": sender,
        "send_device_incarnation": 0,
        "recv_device": receiver,
        "stage": -1,
    }
