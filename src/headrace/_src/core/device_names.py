"""Device names. In: strings such as `/job:ps/task:1/device:CPU:0`. Out: `DeviceSpec`s and strings.

A name may leave fields out; a field left out means "any". `*` in a name says the same thing
explicitly. `/cpu:N` and `/gpu:N`, in any letter case, are short for `/device:CPU:N` and
`/device:GPU:N`.

Invariants: a field that is set is well formed (checked whenever it is set); `to_string` of a parsed
name is its canonical form, and parsing that gives an equal spec.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_JOB = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_FIELDS = ("job", "replica", "task", "device_type", "device_index")


class DeviceSpec:
    """A device name split into fields; a field that is None means "any"."""

    __slots__ = ("_device_index", "_device_type", "_job", "_replica", "_task")

    def __init__(
        self,
        job: str | None = None,
        replica: int | None = None,
        task: int | None = None,
        device_type: str | None = None,
        device_index: int | None = None,
    ):
        self.job = job
        self.replica = replica
        self.task = task
        self.device_type = device_type
        self.device_index = device_index

    @property
    def job(self) -> str | None:
        """The name of the job, such as `worker`."""
        return self._job

    @job.setter
    def job(self, value: str | None) -> None:
        self._job = _checked_name("job", value, _JOB)

    @property
    def replica(self) -> int | None:
        """The index of the replica."""
        return self._replica

    @replica.setter
    def replica(self, value: int | None) -> None:
        self._replica = _checked_index("replica", value)

    @property
    def task(self) -> int | None:
        """The index of the task within its job."""
        return self._task

    @task.setter
    def task(self, value: int | None) -> None:
        self._task = _checked_index("task", value)

    @property
    def device_type(self) -> str | None:
        """The kind of device, such as `CPU`."""
        return self._device_type

    @device_type.setter
    def device_type(self, value: str | None) -> None:
        name = _checked_name("device type", value, _TYPE)
        self._device_type = name.upper() if name in ("cpu", "gpu") else name

    @property
    def device_index(self) -> int | None:
        """The index of the device within its task."""
        return self._device_index

    @device_index.setter
    def device_index(self, value: int | None) -> None:
        self._device_index = _checked_index("device index", value)

    @classmethod
    def from_string(cls, spec: str | None) -> "DeviceSpec":
        """The spec of a device name; ValueError if it is malformed."""
        return cls(**_parse(spec or ""))

    def parse_from_string(self, spec: str | None) -> "DeviceSpec":
        """Replace all fields by those of a device name, and return this spec."""
        parsed = DeviceSpec.from_string(spec)  # first: a malformed name changes nothing
        for field in _FIELDS:
            setattr(self, field, getattr(parsed, field))
        return self

    def merge_from(self, dev: "DeviceSpec") -> None:
        """Copy every field that is set in `dev`."""
        for field in _FIELDS:
            value = getattr(dev, field)
            if value is not None:
                setattr(self, field, value)

    def make_merged_spec(self, dev: "DeviceSpec") -> "DeviceSpec":
        """A new spec with the fields of `dev`, and of this one where `dev` has none."""
        merged = self.replace()
        merged.merge_from(dev)
        return merged

    def replace(self, **fields: Any) -> "DeviceSpec":
        """A new spec that differs in the given fields."""
        return DeviceSpec(**{**dict(zip(_FIELDS, self._key(), strict=True)), **fields})

    def to_string(self) -> str:
        """The canonical name, "" if nothing is set."""
        parts = []
        for field in ("job", "replica", "task"):
            value = getattr(self, field)
            if value is not None:
                parts.append(f"/{field}:{value}")
        if self._device_type is not None or self._device_index is not None:
            index = "*" if self._device_index is None else self._device_index
            parts.append(f"/device:{self._device_type or '*'}:{index}")
        return "".join(parts)

    def _key(self) -> tuple[Any, ...]:
        return self._job, self._replica, self._task, self._device_type, self._device_index

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, DeviceSpec) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"DeviceSpec({self.to_string()!r})"


def _checked_name(what: str, value: Any, pattern: re.Pattern[str]) -> str | None:
    if value is None or value == "*":
        return None
    if not pattern.match(str(value)):
        raise ValueError(
            f"malformed {what}: {value!r}; it must be a letter, then letters, digits and _"
        )
    return str(value)


def _checked_index(what: str, value: Any) -> int | None:
    if value is None or value == "*":
        return None
    try:
        index = int(value)
    except (TypeError, ValueError):
        index = -1
    if index < 0 or (not isinstance(value, str) and index != value):
        raise ValueError(f"malformed {what}: {value!r}; it must be a number, 0 or greater")
    return index


def _parse(name: str) -> dict[str, Any]:
    """Split a device name into unchecked fields."""
    if not isinstance(name, str):
        raise TypeError(f"a device name must be a string, not {type(name).__name__}: {name!r}")
    fields: dict[str, Any] = {}
    for part in name.split("/"):
        match part.split(":"):
            case [""]:
                continue
            case [("job" | "replica" | "task") as field, value]:
                fields[field] = value
            case ["device", kind, index]:
                _set_device(fields, kind, index, name)
            case [kind, *index] if kind.upper() in ("CPU", "GPU") and len(index) < 2:
                _set_device(fields, kind.upper(), index[0] if index else None, name)
            case [attribute, *_]:
                raise ValueError(f"Unknown attribute: {attribute!r} in {name!r}")
    return fields


def _set_device(fields: dict[str, Any], kind: str, index: str | None, name: str) -> None:
    if "device_type" in fields:
        raise ValueError(f"Cannot specify multiple device types: {name}")
    fields["device_type"] = kind
    fields["device_index"] = index


def canonical_name(device: "DeviceSpec | str | None") -> str:
    """The canonical form of a device name or spec; "" for None."""
    if isinstance(device, DeviceSpec):
        return device.to_string()
    return _merge_names("", device or "")


def requested(device: Any, function: Any = None) -> str:
    """The device name that a device function returned for an operation: a string, a DeviceSpec, or
    None for no request; TypeError for anything else.
    """
    if isinstance(device, str):
        return device
    if device is None:
        return ""
    if isinstance(device, DeviceSpec):
        return device.to_string()
    if isinstance(device, bytes):
        return device.decode()
    raise TypeError(
        f"a device function must return a string, a DeviceSpec or None, not {device!r}"
        + (f"; {function!r} returned it" if function is not None else "")
    )


def check_valid(spec: str | None) -> None:
    """Raise ValueError unless `spec` is a well-formed device name."""
    _parse_cached(spec or "")


@lru_cache(maxsize=1024)
def _parse_cached(name: str) -> DeviceSpec:
    """Return the spec of a name. It is shared, so the caller must not change it."""
    return DeviceSpec.from_string(name)


@lru_cache(maxsize=1024)
def _merge_names(outer: str, inner: str) -> str:
    """The canonical name with the fields of `inner`, and of `outer` where `inner` has none."""
    return _parse_cached(outer).make_merged_spec(_parse_cached(inner)).to_string()


def merge_device(spec: "DeviceSpec | str | None") -> Callable[[Any], str]:
    """Return a device function that fills the fields a node's own device leaves unset from `spec`.

    `with device(...)` scopes are applied from the inside out, so the inner scope's fields win.
    """
    outer = canonical_name(spec)

    def fill(node: Any) -> str:
        return _merge_names(outer, node.device or "")

    return fill


def matches(pattern: "DeviceSpec | str | None", full_name: str) -> bool:
    """True if the device `full_name` has every field that `pattern` asks for."""
    wanted = pattern if isinstance(pattern, DeviceSpec) else _parse_cached(pattern or "")
    found = _parse_cached(full_name)
    return all(w is None or w == f for w, f in zip(wanted._key(), found._key(), strict=True))
