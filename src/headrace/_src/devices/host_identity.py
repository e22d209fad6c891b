"""Which host this is. Out: names that two processes have in common if they can share memory."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from headrace._src.core.config import settings

__all__ = ["host_name", "memory_name"]


@cache
def host_name() -> str:
    """Return a name of this host: HEADRACE_RANK_HOST, or the identity of the running system."""
    given = settings().rank_host
    if given:
        return given
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename


def memory_name(process: int) -> str:
    """Return a name that processes have in common if they reach each other by Unix sockets. With
    HEADRACE_TRANSPORT=tcp each process has one of its own.
    """
    if settings().transport == "tcp":
        return f"process {process}"
    try:
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        network = 0
    return f"{host_name()} {network} {os.getuid()}"
