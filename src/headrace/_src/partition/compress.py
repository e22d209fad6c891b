"""Compress transfers between hosts. In: a Dataflow with explicit transfers. Out: the same, in which
float32 values travel between hosts as bfloat16 (white paper §5.5).

Both conversions are nodes: the sender drops the lower 16 bits, and the receiver fills them with
zeros. So they become part of the clusters on both sides, and the step can be printed with them.
Within a host, nothing is copied, and nothing is compressed.
"""

from __future__ import annotations

from headrace._src.core.device_names import DeviceSpec
from headrace._src.core.dtypes import DType, bfloat16, float32
from headrace._src.graph.dataflow import Dataflow, Node, Value, ValueType, rewrite
from headrace._src.graph.definition import lookup
from headrace._src.ops.base.transfers import TRANSFER, is_transfer

__all__ = ["compress_transfers"]


def compress_transfers(flow: Dataflow) -> Dataflow:
    """Let float32 values travel between hosts in 16 bits."""

    def rule(node: Node) -> tuple[Value, ...] | None:
        if not is_transfer(node) or node.attrs["T"] is not float32:
            return None
        sender = node.attrs["send_device"]
        if _host(sender) == _host(node.device):
            return None
        narrow = _cast(node.inputs[0], bfloat16, f"{node.name}/narrow", node, sender)
        moved = Node(
            TRANSFER,
            node.name,
            {**node.attrs, "T": bfloat16},
            narrow.outputs,
            node.controls,
            narrow.types,
            node.origin,
            device=node.device,
        )
        return _cast(moved.outputs[0], float32, f"{node.name}/wide", node, node.device).outputs

    return rewrite(flow, rule) if any(map(is_transfer, flow.nodes)) else flow


def _host(device: str) -> tuple[str | None, int | None, int | None]:
    spec = DeviceSpec.from_string(device)
    return spec.job, spec.replica, spec.task


def _cast(value: Value, to: DType, name: str, like: Node, device: str) -> Node:
    attrs = {"SrcT": value.dtype.base_dtype, "DstT": to, "Truncate": to is bfloat16}
    types = (ValueType(to, value.type.sizes, value.type.partial),)
    return Node(lookup("Cast"), name, attrs, (value,), (), types, like.origin, device=device)
