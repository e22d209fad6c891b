"""Place a step by its constraints. In: a StepGraph and the devices there are. Out: the same with a
placement.

Operations that must be together (`loc:@` groups and inputs that are references) share the device
that their requests agree on. A request that no device satisfies is an error, or, with soft
placement, falls back to the first device.
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
        for t in op._inputs:
            if t.dtype._is_ref_dtype:
                groups.join(op.name, t.op.name)
    requests: dict[str, Operation] = {}
    for op in step.operations:
        if op._device:
            requests.setdefault(groups.find(op.name), op)
    chosen = {root: _choose(op, devices, soft) for root, op in requests.items()}
    placement = {op: chosen.get(groups.find(op.name), devices[0]) for op in step.operations}
    return replace(step, placement=placement)


def _choose(op: Operation, devices: Sequence[str], soft: bool) -> str:
    pattern = canonical_name(op._device)
    for device in devices:
        if matches(pattern, device):
            return device
    if soft:
        return devices[0]
    raise InvalidArgumentError(
        None,
        op,
        f"Cannot assign a device for operation {op.name}: it asks for {op._device}, but available "
        f"devices are [ {', '.join(devices)} ]. Make sure the device specification refers to a "
        "valid "
        "device, or set allow_soft_placement in the session's ConfigProto.",
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
