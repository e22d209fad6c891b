"""Ops that move values between devices; only the pipeline makes them.

TRANSFER passes a value to the device of its node. It stands for the edge as long as a step is in
one piece. When the step is cut into partitions, each TRANSFER becomes a SEND on the value's device
and a RECV on its own, which meet in the step's rendezvous.

SEND and RECV have TensorFlow's names and attributes, and a `stage` (see ops.base.stages; -1: none).
A RECV lists the blocking ops of the whole step that come before it (`awaits`). A control edge is a
SEND_CONTROL and a RECV of an empty tensor. In a step with control flow primitives, a tensor may be
dead, and each iteration of a loop sends its own (`for_flow`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.rendezvous import Key
from headrace._src.graph.control_roles import DEAD, Flow
from headrace._src.graph.definition import (
    NOT_DIFFERENTIABLE,
    Definition,
    Effect,
    OpKernel,
    UniversalDefinition,
)
from headrace._src.graph.internal_definitions import form, register_internal
from headrace._src.graph.schema import Schema
from headrace._src.ops.base import infer

__all__ = [
    "NOTHING",
    "RECV",
    "SEND",
    "SEND_CONTROL",
    "TRANSFER",
    "for_flow",
    "is_recv",
    "is_send",
    "is_transfer",
    "key_of",
    "leaves_task",
]

NOTHING = np.empty(0, np.float32)  # the tensor that a control edge sends

_EDGE = (
    "tensor_name: string; send_device: string; send_device_incarnation: int; recv_device: string; "
    "stage: int = -1"
)


class _Moving(Definition):
    """The definition of TRANSFER, which is an identity between CPUs."""

    def table(self, device_type: str) -> tuple[OpKernel, ...]:
        return (OpKernel(_transfer),)


def _transfer(value: Any, *, send_device: str, ctx: Any) -> Any:
    return ctx.device.put(ctx.resources.device(send_device).get(value))


TRANSFER = _Moving(
    schema=Schema("_Transfer", "value: T -> moved: T", "T: type; send_device: string"),
    infer=infer.same_as(0),
    kernel=lambda value: value,
    gradient=NOT_DIFFERENTIABLE,
    doc="Return a value on another device.",
)


def is_transfer(op: Any) -> bool:
    """Return whether a node is a TRANSFER, and not a constant that was one."""
    return op.definition is TRANSFER and op.constant is None


def key_of(attrs: dict[str, Any], frame: int | str = 0, iteration: int = 0) -> Key:
    """Return the rendezvous key of a Send or Recv in an iteration of a frame."""
    return Key(
        attrs["send_device"],
        attrs["send_device_incarnation"],
        attrs["recv_device"],
        attrs["tensor_name"],
        frame,
        iteration,
    )


def _send(value: Any, *, ctx: Any, step: Any) -> None:
    if value is not DEAD:
        value = ctx.device.get(value)
    step.rendezvous.send(key_of(ctx.attrs, step.path, step.iteration), value)


def _send_control(value: Any = NOTHING, *, ctx: Any, step: Any) -> None:
    step.rendezvous.send(key_of(ctx.attrs, step.path, step.iteration), value)


def _recv(*, ctx: Any, step: Any) -> Any:
    put = ctx.device.put
    key = key_of(ctx.attrs, step.path, step.iteration)
    return step.rendezvous.recv(key, lambda value: value if value is DEAD else put(value))


SEND = UniversalDefinition(
    schema=Schema("_Send", "tensor: T ->", f"T: type; {_EDGE}"),
    infer=lambda c, tensor: [],
    kernel=_send,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    doc="Send a tensor to another device.",
)
SEND_CONTROL = UniversalDefinition(
    schema=Schema("_SendControl", "->", _EDGE),
    infer=lambda c: [],
    kernel=_send_control,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    doc="Send an empty tensor to another device, where a node waits for this device.",
)
RECV = UniversalDefinition(
    schema=Schema(
        "_Recv", "-> tensor: tensor_type", f"tensor_type: type; {_EDGE}; awaits: list(int) = []"
    ),
    infer=lambda c: TensorShape.of(None),
    kernel=_recv,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
    doc="Receive a tensor from another device.",
)
# In a step with control flow primitives, a tensor may be dead.
_ROLES: dict[Definition, Flow] = {SEND: Flow.SEND, SEND_CONTROL: Flow.SEND, RECV: Flow.RECV}
register_internal(TRANSFER, *_ROLES)


@form("in_flow")
def _in_flow(definition: Definition) -> Definition:
    return replace(definition, flow=_ROLES[definition])


def for_flow(definition: Definition, steers: bool) -> Definition:
    """Return the definition of a Send or Recv for a step; `steers`: the step has primitives."""
    return _in_flow(definition) if steers else definition


def is_send(op: Any) -> bool:
    """Return whether an operation or node sends a tensor or a control edge."""
    return op.definition.op_type in (SEND.op_type, SEND_CONTROL.op_type)


def leaves_task(op: Any) -> bool:
    """Return whether an operation or node sends something to another task."""
    if not is_send(op):
        return False
    sender, receiver = op._attrs["send_device"], op._attrs["recv_device"]
    return sender.partition("/device:")[0] != receiver.partition("/device:")[0]


def is_recv(op: Any) -> bool:
    """Return whether an operation or node receives a tensor."""
    return op.definition.op_type == RECV.op_type
