"""Find the cgroups that limit this process. In: a controller. Out: folders that hold its limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["PROC", "ROOT", "cgroups"]

ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc/self/cgroup")


def cgroups(controller: str, root: Path = ROOT, proc: Path = PROC) -> Iterator[Path]:
    """Yield the folders of this process's cgroups (version 1 or 2) with a controller, such as
    "memory", each followed by its parents: their limits hold, too. A folder need not exist.
    """
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / controller if controllers else root
        here = top / path.lstrip("/")
        for folder in (here, *here.parents):
            if not folder.is_relative_to(top):
                break
            yield folder
