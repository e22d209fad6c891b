"""Find the devices that a group of operations may be on. In: a group, the devices of a session in
order of preference. Out: the feasible devices, in the same order; InvalidArgumentError if there are
none.

The rules are TensorFlow 1.15's:
- The requests of operations that make references or handles must agree. A request of an operation
  that takes one is ignored where it contradicts them, or an earlier operation that takes one.
- All other requests must agree with these and with each other. With soft placement they need not:
  the device type and index that they differ in count as not requested.
- The devices that match must have kernels for all operations. If there are none, soft placement
  drops device type and index; job, replica and task are never dropped.
- A device where the group keeps state is the only one that is feasible.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from headrace._src.core.device_names import DeviceSpec
from headrace._src.devices.device import Device
from headrace._src.graph.definition import HOST
from headrace._src.place import refusals
from headrace._src.place.groups import MAKER, OTHER, USER, Item, Members

__all__ = ["feasible"]

Fields = tuple[Any, Any, Any, Any, Any]  # job, replica, task, device type, device index
_Request = tuple[int, Fields, Item]  # with the role of the operation

_ANY: Fields = (None, None, None, None, None)
_TYPE = 3  # the number of the field; fields before it are never dropped


def feasible(group: Members, devices: tuple[Device, ...], soft: bool) -> tuple[Device, ...]:
    """Return the devices that a group may be on, the preferred one first."""
    if not group.asks and not group.pins:
        listed = _matching(_ANY, devices)
        return _runnable(group, listed) or _refuse_kernels(group, listed)
    asks = sorted((role, at, ask, item) for (role, ask), (at, item) in group.asks.items())
    found = [(role, _parsed(ask, item), item) for role, _, ask, item in asks]
    made = _agreed([(f, item) for role, f, item in found if role == MAKER], group)
    if group.pins:
        return _pinned(group, found, soft)
    kept = _kept(made, found)
    wanted = _merge_others(made, kept, group, soft)
    tried = (wanted, wanted[:_TYPE] + made[_TYPE:], (*wanted[:_TYPE], None, None))
    for fields in tried if soft else tried[:1]:
        matching = _matching(fields, devices)
        suitable = _runnable(group, matching)
        if suitable:
            return suitable
        if matching and soft:
            kind = matching[0].type
            for definition in group.kinds:
                if not definition.table(kind):
                    _report_move(definition.op_type, kind)
    matching = _matching(wanted, devices)
    if matching:
        _refuse_kernels(group, matching)
    culprit = _culprit(found, devices)
    raise refusals.no_such_device(culprit, devices, soft)


@lru_cache(maxsize=1024)
def _report_move(op_type: str, device_type: str) -> None:
    """Say once that operations of a type go elsewhere than they asked for."""
    logging.getLogger("headrace").warning(
        "%s has no kernel for %s devices; soft placement puts such operations, and those that must "
        "be with them, on another device",
        op_type,
        device_type,
    )


@lru_cache(maxsize=1024)
def _matching(wanted: Fields, devices: tuple[Device, ...]) -> tuple[Device, ...]:
    return tuple(device for device in devices if _satisfies(device, wanted))


def _satisfies(device: Device, wanted: Fields) -> bool:
    """Whether a device has every field that was requested; some must be requested by their type."""
    if device.on_request and wanted[_TYPE] is None:
        return False
    return _fit(_fields(device.name), wanted)


def _parsed(request: str, item: Item) -> Fields:
    try:
        return _fields(request)
    except ValueError:
        raise refusals.malformed(item, request) from None


@lru_cache(maxsize=1024)
def _fields(name: str) -> Fields:
    return DeviceSpec.from_string(name)._key()


def _fit(one: Fields, other: Fields) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def _merged(one: Fields, other: Fields) -> Any:
    return tuple(b if a is None else a for a, b in zip(one, other, strict=True))


def _agreed(requests: list[tuple[Fields, Item]], group: Members) -> Fields:
    """Merge the requests of operations that make references or handles."""
    made, first = _ANY, None
    for fields, item in requests:
        if not _fit(made, fields):
            assert first is not None
            raise refusals.apart(group, item, first, item.device, first.device, "resource")
        made, first = _merged(made, fields), first or item
    return made


def _kept(made: Fields, found: list[_Request]) -> list[_Request]:
    """Leave out the requests of operations that take references or handles, where they contradict
    those of the operations that make them, or earlier ones.
    """
    kept = []
    for role, fields, item in found:
        if role != USER or _fit(made, fields):
            kept.append((role, fields, item))
            made = _merged(made, fields) if role == USER else made
    return kept


def _merge_others(made: Fields, kept: list[_Request], group: Members, soft: bool) -> Fields:
    """Merge all requests; with soft placement, drop device types and indices that they differ in,
    but not those of operations that make references or handles.
    """
    wanted = made
    for role, fields, item in kept:
        if role == OTHER and not _fit(wanted, fields):
            field = _differing(wanted, fields)
            if not soft or field < _TYPE:
                rival = next(i for _, f, i in kept if i is not item and not _fit(f, fields))
                raise refusals.incompatible(group, item, rival, field)
            wanted = (*wanted[:field], *made[field:])
        else:
            wanted = _merged(wanted, fields)
    return wanted


def _differing(one: Fields, other: Fields) -> int:
    """Return the number of the first field in which two requests differ."""
    pairs = enumerate(zip(one, other, strict=True))
    return next(i for i, (a, b) in pairs if a is not None and b is not None and a != b)


def _pinned(group: Members, found: list[_Request], soft: bool) -> tuple[Device, ...]:
    """Return the device where a group keeps state."""
    device, *rest = group.pins
    holder = group.pins[device]
    if rest:
        other = group.pins[rest[0]]
        raise refusals.apart(group, other, holder, rest[0].name, device.name, "assigned")
    for role, fields, item in found:
        if not soft and role != USER and not _satisfies(device, fields):
            raise refusals.moved(group, item, holder, device)
    return _runnable(group, [device]) or _refuse_kernels(group, [device])


def _runnable(group: Members, devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices that have kernels for all operations of a group."""
    return tuple(
        device
        for device in devices
        if device.type == HOST or all(kind.table(device.type) for kind in group.kinds)
    )


def _refuse_kernels(group: Members, devices: Sequence[Device]) -> Any:
    kind = devices[0].type
    _, item = min(here for d, here in group.kinds.items() if not d.table(kind))
    raise refusals.no_kernel(item, kind)


def _culprit(found: list[_Request], devices: Sequence[Device]) -> Item:
    """Return an operation whose request no device satisfies; if there is none, the last one that
    requests something.
    """
    for _, fields, item in found:
        if not any(_satisfies(device, fields) for device in devices):
            return item
    return found[-1][2]
