"""Device: a place where kernels run and state lives. In: full names, such as
`/job:localhost/replica:0/task:0/device:CPU:0`. Out: the one Device of that name in this process.

A device has a type, which decides the kernels that run on it (`graph.definition`), containers of
state, an allocator, a compiler (or none), and costs of its links to other devices. Devices belong
to the process, and sessions use them. A device is made at the first request and stays.

A server has devices of its own (`new_devices`), which only its sessions know, since a process may
have several servers. Passes that ask for them by name run `within` them.

`register_device` adds further types. Kernels of all types take and return NumPy arrays.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from headrace._src.core.device_names import DeviceSpec
from headrace._src.core.dtypes import DType
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.locks import Lock
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.allocator import Allocator
from headrace._src.devices.variable_state import VariableState

__all__ = [
    "Containers",
    "Device",
    "LinkCost",
    "compiler_of",
    "device_types",
    "devices_on_request",
    "find_device",
    "known_devices",
    "local_devices",
    "new_devices",
    "register_device",
    "within",
]

LOCAL = "/job:localhost/replica:0/task:0"


class LinkCost(NamedTuple):
    """The cost of sending a tensor from one device to another."""

    seconds: float  # per tensor
    bytes_per_second: float

    def cost(self, size: int) -> float:
        """Return the seconds that `size` bytes take."""
        return self.seconds + size / self.bytes_per_second


BY_REFERENCE = LinkCost(0.0, float("inf"))  # nothing is copied within a process


class Containers:
    """The named containers of a device, whose contents sessions and graphs share by name."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[str, dict[str, object]] = {}

    def __getitem__(self, name: str) -> dict[str, object]:
        with self._lock:
            return self._found.setdefault(name, {})

    def clear(self, names: list[str] | None = None) -> None:
        """Drop these containers with their contents, or all containers."""
        with self._lock:
            for name in list(self._found) if names is None else names:
                self._found.pop(name, None)


class Device:
    """One device of this process.

    compiler: the one that turns regions of a step into code for this device ("llvm"), or None if
    a kernel runs each operation. on_request: whether operations are placed here only if they ask
    for devices of this type. links: costs of sending to other devices, by their names.
    """

    compiler: str | None = None
    on_request: bool = False

    def __init__(self, name: str, memory_limit: int | None = None) -> None:
        spec = DeviceSpec.from_string(name)
        if None in spec._key():
            raise ValueError(f"a device needs a full name, but got {name!r}")
        self.name = name
        self.type = str(spec.device_type)
        self.incarnation = secrets.randbits(63) or 1
        self.containers = Containers()
        self.allocator = Allocator(memory_limit)
        self.links: dict[str, LinkCost] = {}

    def put(self, value: Any) -> Any:
        """Return a value of the host as this device's kernels take it."""
        return value

    def get(self, value: Any) -> Any:
        """Return a value of this device as the host and other devices take it."""
        return value

    def variable(self, name: str, dtype: DType, shape: TensorShape) -> VariableState:
        """Return a variable, without a value, whose value lives on the device."""
        return VariableState(name, dtype, shape, self.allocator)

    def link_to(self, other: Device) -> LinkCost:
        """Return the cost of sending a tensor to another device."""
        return self.links.get(other.name, BY_REFERENCE)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Cpu(Device):
    """The processor of this machine, or a share of it. All CPUs use the process's threads."""

    compiler = "llvm"


class _Type(NamedTuple):
    make: Callable[[str], Device]
    count: int  # of devices in a session, unless its ConfigProto says otherwise
    on_request: bool = False  # a session has one for operations that ask for this type


_types: dict[str, _Type] = {"CPU": _Type(Cpu, 1)}
_devices: dict[str, Device] = {}
_lock = Lock()


def register_device(
    device_type: str,
    make: Callable[[str], Device] = Device,
    count: int = 1,
    on_request: bool = False,
) -> None:
    """Register a type of device. Sessions that are made from now on have `count` devices of it
    (ConfigProto's device_count may ask for another number), after those of earlier types.

    make: called with a device's full name; a subclass of Device, or a function that returns one.
    on_request: whether every session has a further device of this type, which is not listed, for
    operations that ask for the type.
    """
    if device_type in _types:
        raise ValueError(f"device type {device_type} is registered twice")
    DeviceSpec(device_type=device_type)  # raises if the type is not a valid name
    if count < 0:
        raise ValueError(f"count must be at least 0, not {count}")
    _types[device_type] = _Type(make, count, on_request)


def device_types() -> list[str]:
    """Return the registered types of devices."""
    return list(_types)


def local_devices(counts: Mapping[str, int] | None = None) -> tuple[Device, ...]:
    """Return the devices of a session, the preferred ones first.

    counts: how many devices of each type. A session has at least one CPU.
    """
    return tuple(map(find_device, _names(LOCAL, counts)))


def new_devices(
    task: str, incarnation: int, counts: Mapping[str, int] | None = None
) -> tuple[Device, ...]:
    """Return new devices for a server, the preferred ones first.

    task: their name without the device, "/job:ps/replica:0/task:1". incarnation: that of the
    process. counts: as for `local_devices`.
    """
    found = []
    for name in _names(task, counts):
        device = _types[str(DeviceSpec.from_string(name).device_type)].make(name)
        device.incarnation = incarnation
        found.append(device)
    return tuple(found)


def _names(task: str, counts: Mapping[str, int] | None) -> list[str]:
    """Return the names of a task's devices, given how many it has of each type."""
    counts = counts or {}
    found = []
    for device_type, known in _types.items():
        count = counts.get(device_type, known.count)
        count = max(count, 1) if device_type == "CPU" else count
        found += [f"{task}/device:{device_type}:{i}" for i in range(count)]
    return found


def devices_on_request(counts: Mapping[str, int] | None = None) -> tuple[Device, ...]:
    """Return the devices that a session has only for operations that ask for their types, without
    those that `counts` already names.
    """
    found = [t for t, known in _types.items() if known.on_request and t not in (counts or ())]
    return tuple(find_device(f"{LOCAL}/device:{device_type}:0") for device_type in found)


class _Local(threading.local):
    within: Mapping[str, Device] = MappingProxyType({})


_local = _Local()


@contextmanager
def within(devices: Sequence[Device]) -> Iterator[None]:
    """Let `find_device` find these devices before those of the process, in this thread and within
    the with-block.
    """
    outer, _local.within = _local.within, {device.name: device for device in devices}
    try:
        yield
    finally:
        _local.within = outer


def find_device(name: str) -> Device:
    """Return the device with this full name; make it at the first request."""
    found = _local.within.get(name) or _devices.get(name)
    if found is None:
        device_type = str(DeviceSpec.from_string(name).device_type)
        if device_type not in _types:
            raise InvalidArgumentError(None, None, f"there is no device {name}")
        with _lock:
            found = _devices.get(name)
            if found is None:
                found = _devices[name] = _types[device_type].make(name)
    return found


def compiler_of(name: str) -> str | None:
    """Return the compiler of the device with this full name, which may be one of another process:
    none is made.
    """
    found = _devices.get(name)
    if found is not None:
        return found.compiler
    known = _types.get(str(DeviceSpec.from_string(name).device_type))
    return None if known is None else getattr(known.make, "compiler", None)


def known_devices() -> list[Device]:
    """Return all devices that were requested so far."""
    with _lock:
        return list(_devices.values())
