"""Read the description of a cluster. In: a TOML or JSON file. Out: a ClusterModel.

    [[machines]]
    name = "worker"          # the job; its machines are tasks 0, 1, ...
    count = 4                # 1 by default
    speed = 1.0              # relative to the machine that costs are for, 1 by default
    memory = "16 GiB"        # or bytes; no limit by default
    devices = {CPU = 1}      # how many of each type, one CPU by default

    [network]                # between any two machines
    latency = 50e-6          # seconds per tensor
    bandwidth = "1.25 GB"    # per second, or bytes per second

    [[links]]                # other costs between two machines, in both directions
    between = ["worker:0", "worker:1"]
    latency = 5e-6
    bandwidth = "10 GB"

A machine is called by its job and task ("worker:0"); its devices have TensorFlow's full names.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.device import LinkCost
from headrace._src.place.cost_graph import ClusterModel, DeviceModel

__all__ = ["cluster_of", "one_machine", "read_cluster"]

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZE = re.compile(r"([\d.]+(?:e[+-]?\d+)?) *([kMGT]i?)?B?(?:/s)?")


def read_cluster(path: str | Path) -> ClusterModel:
    """Read a cluster's description; InvalidArgumentError says what is wrong with it."""
    path = Path(path)
    text = path.read_text(encoding="utf-8")
    try:
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(None, None, f"{path}: {error}") from None
    try:
        return cluster_of(content)
    except ValueError as error:
        raise InvalidArgumentError(None, None, f"{path}: {error}") from None


def one_machine() -> ClusterModel:
    """Return a cluster of one machine, like the one that the costs are for."""
    return cluster_of({"machines": [{"name": "worker"}]})


def cluster_of(content: Any) -> ClusterModel:
    """Return the cluster that the content of a file describes; ValueError if it is wrong."""
    _check(content, "the file", {"machines", "network", "links"}, {"machines"})
    if not isinstance(content["machines"], list) or not content["machines"]:
        raise ValueError("machines must be a list of at least one")
    devices = [device for machine in content["machines"] for device in _devices(machine)]
    ports = {device.port for device in devices}
    links: dict[tuple[str, str], LinkCost] = {}
    for entry in content.get("links", []):
        _check(entry, "a link", {"between", "latency", "bandwidth"}, {"between", "bandwidth"})
        ends = entry["between"]
        if not isinstance(ends, list) or len(ends) != 2 or not set(ends) <= ports:
            raise ValueError(f"a link is between two of {', '.join(sorted(ports))}, not {ends}")
        a, b = ends
        links[a, b] = links[b, a] = _link(entry)
    network = None
    if "network" in content:
        _check(content["network"], "network", {"latency", "bandwidth"}, {"bandwidth"})
        network = _link(content["network"])
    elif any((a, b) not in links for a in ports for b in ports if a != b):
        raise ValueError("there are several machines, and no network between them")
    return ClusterModel(tuple(devices), links, network)


def _devices(machine: Any) -> list[DeviceModel]:
    known = {"name", "count", "speed", "memory", "devices"}
    _check(machine, "a machine", known, {"name"})
    name = machine["name"]
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"a machine's name must be small letters, digits and _, not {name!r}")
    count = _count(machine.get("count", 1), f"{name}: count")
    kinds = machine.get("devices", {"CPU": 1})
    if not isinstance(kinds, Mapping) or not kinds:
        raise ValueError(f"{name}: devices must be numbers by types of device, not {kinds!r}")
    speed = machine.get("speed", 1.0)
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not speed > 0:
        raise ValueError(f"{name}: speed must be a number above 0, not {speed!r}")
    memory = machine.get("memory")
    limit = None if memory is None else int(_size(memory, f"{name}: memory"))
    return [
        DeviceModel(
            f"/job:{name}/replica:0/task:{task}/device:{kind}:{n}",
            kind,
            f"{name}:{task}",
            float(speed),
            limit,
        )
        for task in range(count)
        for kind, number in kinds.items()
        for n in range(_count(number, f"{name}: devices of type {kind}"))
    ]


def _link(entry: Mapping[str, Any]) -> LinkCost:
    latency = entry.get("latency", 0.0)
    if isinstance(latency, bool) or not isinstance(latency, int | float) or latency < 0:
        raise ValueError(f"latency must be seconds, at least 0, not {latency!r}")
    rate = _size(entry["bandwidth"], "bandwidth")
    if not rate > 0:
        raise ValueError("bandwidth must be above 0")
    return LinkCost(float(latency), rate)


def _check(entry: Any, what: str, known: set[str], needed: set[str]) -> None:
    if not isinstance(entry, Mapping):
        raise ValueError(f"{what} must be a table, not {entry!r}")
    if unknown := set(entry) - known:
        one = sorted(unknown)[0]
        raise ValueError(f"{what} has no entry {one!r}; there are {', '.join(sorted(known))}")
    if missing := needed - set(entry):
        raise ValueError(f"{what} needs {', '.join(sorted(missing))}")


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{what} must be a whole number, at least 1, not {value!r}")
    return value


def _size(value: Any, what: str) -> float:
    """Return bytes: a number, or a text such as "16 GiB"."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'{what} must be bytes, or a text such as "16 GiB", not {value!r}')
    return float(found[1]) * _UNITS[found[2] or ""]
