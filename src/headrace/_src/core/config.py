"""Configuration from outside. In: environment variables. Out: one frozen `Settings`.

Invariant: no other module reads the environment. The variables are read once, at the first call of
`settings()`; an invalid value raises a ValueError that names the variable. `tf_config` and
`has_display` are read at each call: programs set those variables themselves.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})
_CACHE, _CACHE_MB = "~/.cache/headrace", 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that the environment asks for.

    dnnl: path of the oneDNN library to load instead of the packaged one (HEADRACE_DNNL).
    no_onednn: use NumPy kernels even where oneDNN could be used (HEADRACE_NO_ONEDNN).
    no_generated: use NumPy kernels where an interpreted operation on large arrays would run code
        generated for that single operation (HEADRACE_NO_GENERATED).
    verify: check the graph after every pass of the pipeline (HEADRACE_VERIFY).
    num_threads: threads of one kernel, None to choose by the machine (HEADRACE_NUM_THREADS).
    cache: directory for compiled code and measured choices, or "off" (HEADRACE_CACHE).
    cache_mb: how large that directory may grow, in MiB (HEADRACE_CACHE_MB).
    jit: when steps are compiled: "off", "auto", "second" (run) or "always" (HEADRACE_JIT).
    accuracy: which kernels may be chosen: "strict" (bit-stable ones, never Winograd's), "default",
        or "fast" (HEADRACE_ACCURACY).
    specialisations: for how many combinations of feed shapes a step is specialised; later
        combinations run unspecialised (HEADRACE_SPECIALISATIONS).
    quiet_seconds: after how many seconds a blocked step reports what it waits for; 0: never
        (HEADRACE_QUIET_SECONDS).
    memory_mb: the working memory that a compiled step should fit into, in MiB; beyond it, cheap
        values are recomputed instead of kept. None: no limit (HEADRACE_MEMORY_MB).
    swap_dir: the folder of the files in which loops with `swap_memory` keep what they save for
        their gradients; None: they keep it in memory (HEADRACE_SWAP_DIR).
    target: the processor to generate code and choose kernels for: "host", or an x86 level that the
        host supports (HEADRACE_TARGET).
    progress: whether a long compilation shows its progress: "auto" (on a terminal), "on" or "off"
        (HEADRACE_PROGRESS).
    check_numerics: stop a step at the first operation that makes a NaN or an infinity of finite
        numbers; steps then run operation by operation (HEADRACE_CHECK_NUMERICS).
    place: how sessions with several devices place operations that may be on more than one of them:
        "first" (TensorFlow's rule: on the first one) or "cost" (where a simulated step is shortest;
        docs/placement.md) (HEADRACE_PLACE).
    key_file: the file with the cluster's key, None for a cluster on this host alone
        (HEADRACE_KEY_FILE).
    transport: how processes of one host are connected: "auto" (Unix sockets and shared memory) or
        "tcp" (HEADRACE_TRANSPORT).
    link_mb: how many MiB of large tensors may be on their way to a process that has not used them;
        further ones wait until it asks for them (HEADRACE_LINK_MB).
    spin_us: for how many microseconds a server looks for the next message before it sleeps; 0: it
        sleeps at once (HEADRACE_SPIN_US).
    heartbeat_ms: milliseconds between two heartbeats of a connection (HEADRACE_HEARTBEAT_MS).
    heartbeats_missed: after how many unanswered heartbeats a process counts as dead
        (HEADRACE_HEARTBEATS_MISSED).
    servers_stay: whether Server.join goes on when all workers have ended (HEADRACE_SERVERS_STAY).
    faults: what is to fail in this process, for tests; see core/faults.py (HEADRACE_FAULTS).
    rendezvous: the address at which ranks meet (HEADRACE_RENDEZVOUS). Rank 0 listens there, unless
        `headrace launch --ranks` does, which also sets HEADRACE_RENDEZVOUS_SERVED.
    rank, ranks: this process's rank, and how many there are (HEADRACE_RANK, HEADRACE_RANKS, or the
        variables of Horovod, Open MPI and MPICH).
    rank_host: ranks with different values share no memory (HEADRACE_RANK_HOST).
    fusion_threshold: how many bytes of gradients are reduced in one exchange, 0: one gradient, None
        to choose by the ranks (HOROVOD_FUSION_THRESHOLD).
    soft_placement: sessions run operations on another device where theirs doesn't exist, whatever
        their ConfigProto says; `headrace run` sets it (HEADRACE_SOFT_PLACEMENT).
    mend: whether programs that run as TensorFlow's are mended where other libraries and Python have
        changed; `headrace run --no-mend` clears it (HEADRACE_MEND).
    full_traceback: show the frames of Headrace in tracebacks of `headrace run`
        (HEADRACE_FULL_TRACEBACK).
    status_fd: the file descriptor that a server reports its state to, given by `headrace launch`
        and `headrace.cluster.local` (HEADRACE_STATUS_FD).
    """

    dnnl: str | None = None
    no_onednn: bool = False
    no_generated: bool = False
    verify: bool = False
    num_threads: int | None = None
    cache: str = _CACHE
    cache_mb: int = _CACHE_MB
    jit: str = "auto"
    accuracy: str = "default"
    specialisations: int = 8
    quiet_seconds: int = 30
    memory_mb: int | None = None
    swap_dir: str | None = None
    target: str = "host"
    progress: str = "auto"
    check_numerics: bool = False
    place: str = "first"
    key_file: str | None = None
    transport: str = "auto"
    link_mb: int = 256
    spin_us: int = 200
    heartbeat_ms: int = 200
    heartbeats_missed: int = 5
    servers_stay: bool = False
    faults: str = ""
    rendezvous: str | None = None
    rendezvous_served: bool = False
    rank: int | None = None
    ranks: int | None = None
    rank_host: str = ""
    fusion_threshold: int | None = None
    soft_placement: bool = False
    mend: bool = True
    full_traceback: bool = False
    status_fd: int | None = None


# The variables that launchers of ranks set, ours first: rank, number of ranks.
_LAUNCHERS = (
    ("HEADRACE_RANK", "HEADRACE_RANKS"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def read(environment: Mapping[str, str]) -> Settings:
    """Read the settings from a mapping of environment variables."""
    return Settings(
        dnnl=environment.get("HEADRACE_DNNL") or None,
        no_onednn=_flag(environment, "HEADRACE_NO_ONEDNN"),
        no_generated=_flag(environment, "HEADRACE_NO_GENERATED"),
        verify=_flag(environment, "HEADRACE_VERIFY"),
        cache=_cache(environment),
        cache_mb=_count(environment, "HEADRACE_CACHE_MB", 1, _CACHE_MB),
        num_threads=_count(environment, "HEADRACE_NUM_THREADS", 1),
        jit=_choice(environment, "HEADRACE_JIT", "auto", ("off", "auto", "second", "always")),
        accuracy=_choice(
            environment, "HEADRACE_ACCURACY", "default", ("strict", "default", "fast")
        ),
        specialisations=_count(environment, "HEADRACE_SPECIALISATIONS", 0, 8),
        quiet_seconds=_count(environment, "HEADRACE_QUIET_SECONDS", 0, 30),
        memory_mb=_count(environment, "HEADRACE_MEMORY_MB", 1),
        swap_dir=environment.get("HEADRACE_SWAP_DIR", "").strip() or None,
        target=_choice(
            environment, "HEADRACE_TARGET", "host", ("host", "x86-64-v2", "x86-64-v3", "x86-64-v4")
        ),
        progress=_choice(environment, "HEADRACE_PROGRESS", "auto", ("auto", "on", "off")),
        check_numerics=_flag(environment, "HEADRACE_CHECK_NUMERICS"),
        place=_choice(environment, "HEADRACE_PLACE", "first", ("first", "cost")),
        key_file=environment.get("HEADRACE_KEY_FILE") or None,
        transport=_choice(environment, "HEADRACE_TRANSPORT", "auto", ("auto", "tcp")),
        link_mb=_count(environment, "HEADRACE_LINK_MB", 1, 256),
        spin_us=_count(environment, "HEADRACE_SPIN_US", 0, 200),
        heartbeat_ms=_count(environment, "HEADRACE_HEARTBEAT_MS", 1, 200),
        heartbeats_missed=_count(environment, "HEADRACE_HEARTBEATS_MISSED", 1, 5),
        servers_stay=_flag(environment, "HEADRACE_SERVERS_STAY"),
        faults=environment.get("HEADRACE_FAULTS", "").strip(),
        rendezvous=environment.get("HEADRACE_RENDEZVOUS", "").strip() or None,
        rendezvous_served=_flag(environment, "HEADRACE_RENDEZVOUS_SERVED"),
        **_ranks(environment),
        rank_host=environment.get("HEADRACE_RANK_HOST", "").strip(),
        fusion_threshold=_count(environment, "HOROVOD_FUSION_THRESHOLD", 0),
        soft_placement=_flag(environment, "HEADRACE_SOFT_PLACEMENT"),
        mend=_choice(environment, "HEADRACE_MEND", "1", ("1", "0")) == "1",
        full_traceback=_flag(environment, "HEADRACE_FULL_TRACEBACK"),
        status_fd=_count(environment, "HEADRACE_STATUS_FD", 0),
    )


@cache
def settings() -> Settings:
    """The settings of this process."""
    return read(os.environ)


def _cache(environment: Mapping[str, str]) -> str:
    value = environment.get("HEADRACE_CACHE", "").strip()
    if value in ("off", "0"):
        return "off"
    home = environment.get("XDG_CACHE_HOME")  # the system's cache directory, if it names one
    default = os.path.join(home, "headrace") if home else _CACHE
    return value or default


def _ranks(environment: Mapping[str, str]) -> dict[str, int]:
    """Return `rank` and `ranks`, by the first launcher whose variables are set."""
    for rank, ranks in _LAUNCHERS:
        if environment.get(rank, "").strip():
            found = _count(environment, rank, 0), _count(environment, ranks, 1)
            if found[1] is None or found[0] >= found[1]:
                raise ValueError(f"{rank} is {found[0]}, and {ranks} {found[1]}")
            return {"rank": found[0], "ranks": found[1]}
    return {}


def _flag(environment: Mapping[str, str], name: str) -> bool:
    value = environment.get(name, "").strip().lower()
    if value not in _TRUE | _FALSE:
        raise ValueError(f"{name} must be 1 or 0 (or true/false, yes/no, on/off): {value!r}")
    return value in _TRUE


def _count(
    environment: Mapping[str, str], name: str, least: int, default: int | None = None
) -> Any:
    value = environment.get(name, "").strip()
    if not value:
        return default
    if not value.isdecimal() or int(value) < least:
        raise ValueError(f"{name} must be a whole number, {least} or greater: {value!r}")
    return int(value)


def _choice(
    environment: Mapping[str, str], name: str, default: str, choices: tuple[str, ...]
) -> str:
    value = environment.get(name, "").strip().lower() or default
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}: {value!r}")
    return value


def child_environment(given: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process to start: this process's own, with the variables that are
    given, and with `defaults` for those that are not set.
    """
    return {**defaults, **os.environ, **given}


def set_tf_config(text: str) -> None:
    """Set TF_CONFIG for this process, which runs a script as a task of a cluster."""
    os.environ["TF_CONFIG"] = text


def set_variables(values: Mapping[str, str], path: str) -> None:
    """Set variables of this process and of those that it starts, and let Python look for modules in
    the directory `path` first when they start.
    """
    os.environ.update(values)
    others = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != path]
    os.environ["PYTHONPATH"] = os.pathsep.join([path, *others])
    settings.cache_clear()


def has_display() -> bool:
    """Return whether a program can open windows: there is a display, and no choice against it."""
    if os.environ.get("MPLBACKEND"):
        return True  # the user chose how figures are shown
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def tf_config() -> dict[str, Any]:
    """Return the JSON object in TF_CONFIG, which configures estimators; an empty dict if it isn't
    set.
    """
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"TF_CONFIG is not JSON: {error}: {text!r}") from None
    if not isinstance(found, dict):
        raise ValueError(f"TF_CONFIG has to be a JSON object, but is {text!r}")
    return found
