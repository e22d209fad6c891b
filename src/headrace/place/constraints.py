"""Place a step by its constraints. In: a StepGraph and the devices there are. Out: the same with a
placement.

Operations that must be together (`loc:@` groups, and those that take a reference, with what it
refers to) share the first device that suits the requests of them all. An operation that only reads
a variable through its reference may be elsewhere. A request that can't be met is an error, or, with
soft placement, has no say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.core.device import canonical_name, matches
from headrace.core.errors import InvalidArgumentError
from headrace.graph.operation import Operation
from headrace.graph.program import StepGraph

__all__ = ["place"]


def place(step: StepGraph, devices: Sequence[str], soft: bool = False) -> StepGraph:
    """Give every operation of `step` one of `devices` (full names, the preferred one first)."""
    groups = _Groups()
    for op in step.operations:
        for name in op.colocation_groups():
            groups.join(op.name, name.decode().removeprefix("loc:@"))
        if op.definition.schema.has_ref_inputs:
            wanted = op.definition.schema.references(op._attrs)
            for t, by_reference in zip(op._inputs, wanted, strict=True):
                if by_reference:
                    groups.join(op.name, t.op.name)
    requests: dict[str, dict[str, Operation]] = {}
    for op in step.operations:
        if op._device:
            requests.setdefault(groups.find(op.name), {}).setdefault(op._device, op)
    chosen = {root: _choose(asked, devices, soft) for root, asked in requests.items()}
    placement = {op: chosen.get(groups.find(op.name), devices[0]) for op in step.operations}
    return replace(step, placement=placement)


def _choose(asked: dict[str, Operation], devices: Sequence[str], soft: bool) -> str:
    """The first device that suits the requests of a group; `asked` has one operation for each."""
    suitable = list(devices)
    for request, op in asked.items():
        pattern = canonical_name(request)
        left = [device for device in suitable if matches(pattern, device)]
        if not left and not soft:
            raise _misfit(op, asked, suitable, devices)
        suitable = left or suitable
    return suitable[0]


def _misfit(
    op: Operation, asked: dict[str, Operation], suitable: Sequence[str], devices: Sequence[str]
) -> InvalidArgumentError:
    available = f"available devices are [ {', '.join(devices)} ]"
    if len(suitable) == len(devices):
        return InvalidArgumentError(
            None,
            op,
            f"Cannot assign a device for operation {op.name}: it asks for {op._device}, but "
            f"{available}. Make sure the device specification refers to a valid device, or set "
            "allow_soft_placement in the session's ConfigProto.",
        )
    others = " and ".join(f"{o.name} on {d}" for d, o in asked.items() if o is not op)
    return InvalidArgumentError(
        None,
        op,
        f"Cannot colocate {op.name} on {op._device} with {others}: they must be placed together, "
        f"but {available}.",
    )


class _Groups:
    """Union-find over names."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        parent = self._parent
        root = name
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[name] != root:
            parent[name], name = root, parent[name]
        return root

    def join(self, a: str, b: str) -> None:
        self._parent[self.find(a)] = self.find(b)
