"""Errors about operations that can't be placed. In: operations, requests and devices. Out:
InvalidArgumentErrors that name the operations, their constraints and the lines that made them.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace._src.core import source
from headrace._src.core.device_names import canonical_name
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.device import Device
from headrace._src.graph.dataflow import origin_of
from headrace._src.place.groups import Item, Members, links

__all__ = [
    "apart",
    "incompatible",
    "malformed",
    "moved",
    "no_kernel",
    "no_such_device",
    "not_feasible",
]

_SOFT = "allow_soft_placement in the session's ConfigProto"
_PLURALS = ("jobs", "replicas", "tasks", "types", "ids")


def malformed(item: Item, request: str) -> InvalidArgumentError:
    """A request that is no device name."""
    return _error(item, f"Malformed device specification '{request}' in node: {item.name}.")


def no_such_device(item: Item, devices: Sequence[Device], soft: bool) -> InvalidArgumentError:
    """A request that no device of the session satisfies."""
    request = canonical_name(item.device)
    available = ", ".join(device.name for device in devices if not device.on_request)
    return _error(
        item,
        f"Cannot assign a device for operation {item.name}: node {item.name} was explicitly "
        f"assigned to {request} but available devices are [ {available} ]. Make sure the device "
        "specification refers to a valid device" + ("." if soft else f", or set {_SOFT}."),
    )


def no_kernel(item: Item, kind: str) -> InvalidArgumentError:
    """An operation without a kernel on the devices that its group may be on."""
    request = f"'{canonical_name(item.device)}' " if item.device else ""
    return _error(
        item,
        f"Cannot assign a device for operation {item.name}: Could not satisfy explicit device "
        f"specification {request}because no supported kernel for {kind} devices is available. No "
        f"OpKernel was registered to support Op '{item.type}' on a device of type {kind}. Place it "
        f"elsewhere, register one (headrace.register_kernel), or set {_SOFT}.",
    )


def incompatible(group: Members, item: Item, other: Item, field: int) -> InvalidArgumentError:
    """Two operations of one group that request different devices."""
    asked, found = canonical_name(item.device), canonical_name(other.device)
    return _error(
        item,
        f"Cannot colocate nodes {item.name} and {other.name}: Cannot merge devices with "
        f"incompatible {_PLURALS[field]}: '{asked}' and '{found}'. Request one device, or remove "
        "what keeps them together:",
        group,
        other,
    )


def apart(
    group: Members, item: Item, other: Item, asked: str, found: str, what: str
) -> InvalidArgumentError:
    """Two operations of one group whose state is on different devices, or must be."""
    reason = "each keeps state there already" if what == "assigned" else "each was requested"
    return _error(
        item,
        f"Cannot colocate nodes {item.name} and {other.name}: Cannot place the graph because a "
        "reference or resource edge, or a colocation group, connects operations with incompatible "
        f"{what} devices: {canonical_name(asked)} vs {canonical_name(found)}; {reason}. They are "
        "kept together so:",
        group,
        other,
    )


def moved(group: Members, item: Item, holder: Item, device: Device) -> InvalidArgumentError:
    """A request for a group that keeps state elsewhere."""
    asked = canonical_name(item.device)
    return _error(
        item,
        f"Cannot colocate nodes {item.name} and {holder.name}: {item.name} was explicitly assigned "
        f"to {asked}, but {holder.name} keeps state on {device.name} already, which can't move "
        f"within a session. Use that device, another session, or set {_SOFT}.",
        group,
        holder,
    )


def not_feasible(name: str, chosen: str, devices: Sequence[Device]) -> InvalidArgumentError:
    """A choice that the constraints of a group forbid."""
    allowed = ", ".join(device.name for device in devices)
    return InvalidArgumentError(
        None,
        None,
        f"the group of operation {name} can't be placed on {chosen}: it may be on [ {allowed} ].",
    )


def _error(
    item: Item, message: str, group: Members | None = None, other: Item | None = None
) -> InvalidArgumentError:
    error = InvalidArgumentError(None, origin_of(item), message)
    if group is not None and other is not None:
        for line in _chain(group, item, other):
            error.add_detail(line)
        for line in _made_at(other):
            error.add_detail(line)
    return error


def _made_at(item: Item) -> list[str]:
    frames = getattr(origin_of(item), "traceback_frames", ())
    return source.user_lines(frames, f"'{item.name}' was made at", 1)


def _chain(group: Members, start: Item, end: Item) -> list[str]:
    """Say why two operations are in one group: the shortest chain of links between them."""
    edges: dict[str, list[tuple[str, str, Item]]] = {}
    for item in group.items:
        for name, reason in links(item):
            edges.setdefault(item.name, []).append((name, reason, item))
            edges.setdefault(name, []).append((item.name, reason, item))
    reached: dict[str, list[tuple[str, Item]]] = {start.name: []}
    waiting = [start.name]
    while waiting and end.name not in reached:
        following = []
        for name in waiting:
            for neighbour, reason, item in edges.get(name, ()):
                if neighbour not in reached:
                    reached[neighbour] = [*reached[name], (reason, item)]
                    following.append(neighbour)
        waiting = following
    lines = []
    for reason, item in reached.get(end.name, ()):
        lines.append(f"'{item.name}' {reason}")
        if item.name not in (start.name, end.name):
            lines += [f"  {line}" for line in _made_at(item)]
    return lines
