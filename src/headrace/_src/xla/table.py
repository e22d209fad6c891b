"""The kernel table of device type XLA. In: a Definition. Out: its kernels there, or none.

The table is known without JAX: placement asks it for every op. An op has a kernel if its lowering
rule or one of the functions that `FUNCTIONS` names computes it. It has one, too, if it makes state,
steers or only passes values on, which its own kernel does on any device.

A kernel of this table runs one op by itself, where no region has it: its NumPy kernel runs on the
host, since XLA is for whole regions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from headrace._src.graph.dataflow import Node, Value, is_local
from headrace._src.graph.definition import Definition, Effect, OpKernel, keywords_of
from headrace._src.graph.structured import parts_of
from headrace._src.lowering.rules import Anchor, Update

__all__ = ["FUNCTIONS", "STATIC", "is_reference", "kernels_of", "writes_of"]

# Ops whose own kernels serve here: they find state, steer, or tell what is known of a value.
_HOST = frozenset(
    [
        "Assert",
        "CheckNumerics",
        "Const",
        "ControlTrigger",
        "CountUpTo",
        "DestroyResourceOp",
        "DestroyTemporaryVariable",
        "Enter",
        "Exit",
        "GuaranteeConst",
        "If",
        "IsVariableInitialized",
        "LoopCond",
        "Merge",
        "NextIteration",
        "PartitionedCall",
        "Placeholder",
        "Print",
        "PrintV2",
        "Rank",
        "RefEnter",
        "RefExit",
        "RefIdentity",
        "RefMerge",
        "RefNextIteration",
        "RefSelect",
        "RefSwitch",
        "ResourceCountUpTo",
        "Shape",
        "ShapeN",
        "Size",
        "StatefulPartitionedCall",
        "StatelessIf",
        "StatelessWhile",
        "Switch",
        "TemporaryVariable",
        "VarHandleOp",
        "VarIsInitializedOp",
        "Variable",
        "VariableShape",
        "VariableV2",
        "While",
        "BroadcastGradientArgs",
        "BroadcastArgs",
        "ConcatOffset",
        "TensorArrayCloseV3",
        "TensorArraySplitV3",
        "TensorArrayConcatV3",
        "TensorListStack",
        "TensorListFromTensor",
        "TensorListLength",
        "TensorListElementShape",
        "StackCloseV2",
        "_Call",
        "_Undefined",
        "_Hold",
        "_Reserve",
        "_Generator",
    ]
)

# The module of kernels that has the function of an op.
FUNCTIONS: dict[str, str] = {
    op_type: module
    for module, names in {
        "moves": "Concat ConcatV2 Pack Pad PadV2",
    }.items()
    for op_type in names.split()
}

# The inputs of these ops that must be constants: shapes and axes, by number; -1 is the last one.
STATIC: dict[str, tuple[int, ...]] = {
    "Concat": (0,),
    "ConcatV2": (-1,),
    "Pad": (1,),
    "PadV2": (1,),
}


def is_reference(value: Value) -> bool:
    """Whether a value stands for a variable, not for data."""
    return value.dtype._is_ref_dtype or (value.dtype.name == "resource" and not is_local(value))


def writes_of(node: Node) -> tuple[Value, ...]:
    """The references to the variables that a node writes."""
    rule = node.definition.lower
    if parts_of(node):
        return _written_inside(node)
    if isinstance(rule, Update):
        return node.inputs[: rule.variables]
    if isinstance(rule, Anchor) and node.definition.effect is Effect.WRITES:
        return node.inputs[: rule.variables]
    return ()


def _written_inside(node: Node) -> tuple[Value, ...]:
    """The references among a loop's or branch's inputs whose variables its parts write."""
    if node.definition.effect is not Effect.WRITES:
        return ()
    found: dict[Value, None] = {}
    for part in parts_of(node).values():
        given = node.inputs[len(node.inputs) - len(part.feeds) :]  # all but a branch's predicate
        outer = {f.value: v for f, v in zip(part.feeds, given, strict=True)}
        for written in (v for n in part.nodes for v in writes_of(n)):
            while isinstance(written.producer, Node) and written.producer.inputs:
                written = written.producer.inputs[written.index]  # an update returns its reference
            if written in outer:
                found[outer[written]] = None
    return tuple(found)


class HostKernel:
    """An op's NumPy kernel, on arrays that may be JAX's."""

    def __init__(self, definition: Definition) -> None:
        self._kernel = definition.kernel
        self.asks_for = keywords_of(definition.kernel)

    def __call__(self, *inputs: Any, **attrs: Any) -> Any:
        return self._kernel(*map(on_host, inputs), **attrs)


def on_host(value: Any) -> Any:
    """Return a value with NumPy arrays in place of JAX's."""
    if isinstance(value, list | tuple):
        return [on_host(v) for v in value]
    return value.__array__() if hasattr(value, "addressable_shards") else value


@cache
def kernels_of(definition: Definition) -> tuple[OpKernel, ...]:
    """The kernels that an op has on XLA devices."""
    known = definition.op_type in FUNCTIONS or definition.op_type in _HOST
    if definition.calls_python or not (known or definition.lower is not None):
        return ()
    return (OpKernel(HostKernel(definition)),)
