"""Describe the processor. In: the system's own description of it, settings. Out: one `Target`.

A `Target` decides everything that depends on the processor: layouts, tiles, thresholds, the
candidates among oneDNN's kernels, the keys of caches. `host()` is the only function that asks the
system; all others take a Target, so that a test can name another one. HEADRACE_TARGET narrows
`host()` to one of x86's levels, so that a wide processor can be used like a narrower one.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from headrace._src.core.config import settings
from headrace._src.devices.cgroups import PROC, ROOT, cgroups

__all__ = [
    "LEVELS",
    "NATIVE",
    "SIZES",
    "Target",
    "cores_share_a_cache",
    "describe",
    "for_level",
    "host",
    "narrowed",
    "usable_cores",
]

SIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip

NATIVE = "native"  # the name that stands for the processor of this machine
_CACHES = (1 << 15, 1 << 20, 1 << 24)  # if the system reports no sizes


@dataclass(frozen=True, slots=True)
class Target:
    """A processor to choose kernels and generate code for.

    triple: LLVM's name of the architecture and system
    cpu: LLVM's name of the processor; NATIVE for this machine's
    features: extensions that decisions depend on, as LLVM spells them: "+avx2,+fma"
    vector_bytes, registers: the width of a vector register, and the number of them
    caches: bytes of a core's first-level data cache, of its second level, of the shared third
    cores: how many cores this process may use
    model: identifies processors whose kernels are timed separately
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    caches: tuple[int, int, int] = _CACHES
    cores: int = 1
    model: str = ""

    def lanes(self, dtype: str = "float32") -> int:
        """Return how many elements of a type one vector register holds."""
        return max(1, self.vector_bytes // SIZES[dtype])

    def has(self, feature: str) -> bool:
        """Return whether the processor has an extension."""
        return f"+{feature}" in self.features.split(",")

    @property
    def block(self) -> int:
        """The number of channels in a block of the blocked layout: as many as a vector holds."""
        return self.lanes()

    @property
    def l1(self) -> int:
        """The size of a core's first-level data cache in bytes."""
        return self.caches[0]

    @property
    def l2(self) -> int:
        """The size of a core's second-level cache in bytes."""
        return self.caches[1]

    @property
    def streamed(self) -> int:
        """The size in bytes from which a result does not stay in the caches until it is read."""
        return min(self.caches[2] // 2, 1 << 24)

    @property
    def fma(self) -> bool:
        """Whether one instruction multiplies and adds, with one rounding."""
        return self.has("fma") or self.triple.startswith("aarch64")

    @property
    def bfloat16(self) -> bool:
        """Whether the processor has instructions that multiply bfloat16."""
        return self.has("avx512bf16") or self.has("amx-bf16")

    @property
    def vnni(self) -> bool:
        """Whether the processor has instructions that multiply and accumulate bytes."""
        return self.has("avx512vnni") or self.has("avxvnni")

    @property
    def level(self) -> str:
        """The highest of x86's levels that the processor reaches; "" for other processors."""
        return next((name for name in reversed(LEVELS) if _reaches(self, name)), "")

    def __str__(self) -> str:
        l1, l2, l3 = (f"{size >> 10} KiB" for size in self.caches)
        extras = [name for name in ("fma", "bfloat16", "vnni") if getattr(self, name)]
        described = (
            self.level or self.triple.split("-")[0],
            f"{self.vector_bytes * 8}-bit vectors in {self.registers} registers",
            *([" ".join(extras)] if extras else []),
            f"caches of {l1}, {l2}, {l3}",
            f"{self.cores} core{'s' * (self.cores != 1)}",
        )
        return ", ".join(described)


@dataclass(frozen=True, slots=True)
class _Level:
    """One of x86's microarchitecture levels. features: extensions, as LLVM spells them."""

    features: tuple[str, ...]
    vector_bytes: int
    registers: int


_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")
_V3 = (*_V2, "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
LEVELS: dict[str, _Level] = {
    "x86-64-v2": _Level(_V2, 16, 16),
    "x86-64-v3": _Level(_V3, 32, 16),
    "x86-64-v4": _Level(_V4, 64, 32),
}
_EXTRAS = ("avx512bf16", "avx512vnni", "avxvnni", "amx-bf16", "amx-int8", "amx-tile")
# Linux's names of features, if they differ from LLVM's by more than underscores.
_LINUX_NAMES = {
    "sse3": "pni", "bmi": "bmi1", "lzcnt": "abm", "avx512bf16": "avx512_bf16",
    "avx512vnni": "avx512_vnni", "avxvnni": "avx_vnni",
}  # fmt: skip


def _linux_name(feature: str) -> str:
    return _LINUX_NAMES.get(feature, feature.replace(".", "_").replace("-", "_"))


def _reaches(target: Target, level: str) -> bool:
    return all(map(target.has, LEVELS[level].features))


def narrowed(target: Target, level: str) -> Target:
    """Return a target with the features of a level only; raise ValueError if it lacks any."""
    if level == "host":
        return target
    if not _reaches(target, level):
        found = target.level or f"{target.triple.split('-')[0]}, which has no such levels"
        raise ValueError(
            f"HEADRACE_TARGET={level}: this processor can't run that, it is {found}. "
            "Ask for a lower level, or for host."
        )
    return replace(for_level(level, target.triple), caches=target.caches, cores=target.cores,
                   model=target.model)  # fmt: skip


def for_level(level: str, triple: str = "x86_64-unknown-linux-gnu") -> Target:
    """Return a target for all processors of one of x86's levels."""
    found = LEVELS[level]
    # LLVM prefers 256-bit vectors on some AVX-512 processors; our code chooses its own width.
    wide = ["-prefer-256-bit"] if found.vector_bytes == 64 else []
    features = ",".join([*(f"+{f}" for f in found.features), *wide])
    return Target(triple, level, features, found.vector_bytes, found.registers)


# -- This machine ----------------------------------------------------------------------------------


@cache
def host() -> Target:
    """Return the processor of this machine, narrowed as the settings ask."""
    found = describe(_cpuinfo(), platform.machine(), platform.system())
    found = replace(found, caches=_caches(), cores=usable_cores())
    return narrowed(found, settings().target)


def describe(cpuinfo: Mapping[str, str], machine: str, system: str) -> Target:
    """Return the processor that the system describes by the fields of /proc/cpuinfo, if that
    exists, and by the machine's architecture. Features that aren't reported aren't used.
    """
    triple = _triple(machine, system)
    if triple.startswith("aarch64"):
        model = " ".join(cpuinfo.get(f"CPU {key}", "?") for key in ("implementer", "part"))
        return Target(triple, NATIVE, "+neon", 16, 32, model=model)
    flags = set(cpuinfo.get("flags", "").split())
    wanted = [*_V4, *_EXTRAS] if triple.startswith("x86_64") else []
    found = [f for f in wanted if _linux_name(f) in flags]
    widest = next((v for v in reversed(LEVELS.values()) if set(v.features) <= set(found)), None)
    width, registers = (widest.vector_bytes, widest.registers) if widest else (16, 16)
    keys = ("vendor_id", "cpu family", "model")
    return Target(
        triple,
        NATIVE,
        ",".join(f"+{f}" for f in found),
        width,
        registers,
        model=" ".join(cpuinfo.get(key, "?") for key in keys),
    )


def _triple(machine: str, system: str) -> str:
    architecture = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower(), machine.lower())
    systems = {"Linux": "unknown-linux-gnu", "Darwin": "apple-darwin", "Windows": "pc-windows-msvc"}
    return f"{architecture}-{systems.get(system, 'unknown-unknown')}"


def _cpuinfo() -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    first = text.split("\n\n", 1)[0]
    return {
        k.strip(): v.strip() for k, _, v in (line.partition(":") for line in first.splitlines())
    }


_CPUS = Path("/sys/devices/system/cpu")


@cache
def cores_share_a_cache(cpus: Path = _CPUS) -> bool:
    """Return whether all cores of this machine share a cache, so that what one has written comes
    to another without a way through memory. All processes of a machine get the same answer.
    """
    try:
        online = (cpus / "online").read_text().strip()
        lists = [(e / "shared_cpu_list").read_text() for e in (cpus / "cpu0/cache").glob("index*")]
    except OSError:
        return False
    return online in map(str.strip, lists)


def _caches() -> tuple[int, int, int]:
    """Return the sizes of the three levels of caches in bytes."""
    found: dict[int, int] = dict(enumerate(_CACHES, 1))
    for entry in (_CPUS / "cpu0/cache").glob("index*"):
        try:
            kind, level = ((entry / name).read_text().strip() for name in ("type", "level"))
            size = re.fullmatch(r"(\d+)([KM]?)", (entry / "size").read_text().strip())
        except OSError:
            continue
        if kind != "Instruction" and size and int(level) in found:
            found[int(level)] = int(size[1]) << {"": 0, "K": 10, "M": 20}[size[2]]
    return found[1], found[2], found[3]


def usable_cores() -> int:
    """Return how many cores this process may use: those it may run on, and no more than the quotas
    of its cgroups allow.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min([cores or 1, *map(_whole_cores, _quotas())]))


def _whole_cores(quota: float) -> int:
    """Round a quota: 1.5 cores keep two threads busy most of the time, 1.2 cores do not."""
    return max(1, round(quota))


def _quotas(root: Path = ROOT, proc: Path = PROC) -> Iterable[float]:
    """Yield the quotas, in cores, of this process's cgroups and their parents."""
    return (q for q in map(_quota, cgroups("cpu", root, proc)) if q is not None)


def _quota(folder: Path) -> float | None:
    """Return the quota of one cgroup in cores; None if there is no limit."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period")
            )
        return None if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
