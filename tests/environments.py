"""Virtual environments like this one, but without some packages: no import in any process can find
the omitted ones.

    python -m tests.environments DIRECTORY PACKAGE...
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import sysconfig
import venv
from pathlib import Path

__all__ = ["without"]


def without(directory: Path, *packages: str) -> Path:
    """Make an environment in `directory` that has all that is installed in this one except
    `packages`, given by the names that pip knows. Return its interpreter.

    It consists of links: making it takes a second, and needs no package index.
    """
    venv.create(directory, clear=True, symlinks=True)
    site = Path(sysconfig.get_path("purelib"))
    prefix = Path(sys.prefix)
    copy = directory / site.relative_to(prefix)
    omitted = {site / "__pycache__"}
    for distribution in importlib.metadata.distributions(path=[str(site)]):
        files = [Path(os.path.normpath(site / f)) for f in distribution.files or ()]
        if distribution.name in packages:
            omitted.update(site / f.relative_to(site).parts[0] for f in files if _within(f, site))
            continue
        # Libraries that lie beside Python's. No scripts: they would start the other interpreter.
        for file in files:
            if _within(file, prefix / "lib") and not _within(file, site):
                _link(directory / file.relative_to(prefix), file)
    for entry in set(site.iterdir()) - omitted:
        _link(copy / entry.name, entry)
    return directory / "bin" / "python"


def _within(file: Path, folder: Path) -> bool:
    return file.is_relative_to(folder)


def _link(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


if __name__ == "__main__":
    print(without(Path(sys.argv[1]), *sys.argv[2:]))
