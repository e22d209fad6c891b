"""Files that exist whole or not at all. In: a path and bytes. Out: a file that is on the disk.

A Draft is written beside its place, under a name of its own. Only when all its bytes are on the
disk (`seal`) is it moved to its place, which is one step for whoever looks. A process that dies
leaves at most drafts behind, which nobody reads, and which a later save removes: a draft is locked
for as long as its process lives.

Every change of the file system goes through the functions of `os` that this module calls: tests
stop the process at each one of them.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

try:
    import fcntl
except ImportError:  # a system without: there nothing is locked, and nothing removed
    fcntl = None

__all__ = [
    "Draft",
    "draft",
    "move",
    "remove",
    "remove_abandoned_drafts",
    "remove_directory",
    "replace_file",
    "sync_directory",
]

_DRAFT = ".tempstate-"  # TensorFlow's own have no dash
_JUST_MADE = 60.0  # seconds for which a draft may not be locked yet


class Draft:
    """A file in the making. State: its descriptor, until it's sealed or discarded."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.temporary = f"{self.path}{_DRAFT}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._descriptor: int | None = os.open(self.temporary, flags, 0o666)
        self._sealed = False
        _lock(self._descriptor)

    def write(self, data: Any) -> None:
        """Append bytes, or the bytes of a contiguous buffer."""
        assert self._descriptor is not None and not self._sealed, "the draft is sealed"
        left = memoryview(data)
        while left.nbytes:
            left = left[os.write(self._descriptor, left) :]

    def seal(self) -> None:
        """Put all bytes on the disk."""
        assert self._descriptor is not None and not self._sealed, "the draft is sealed"
        os.fsync(self._descriptor)
        self._sealed = True
        if fcntl is None:
            self._close()  # systems without locks don't rename files that are open

    def publish(self, path: str | os.PathLike[str] | None = None) -> None:
        """Move the sealed draft to its place, or to another one in the same directory."""
        assert self._sealed, "a draft is sealed before it's published"
        move(self.temporary, self.path if path is None else path)

    def discard(self) -> None:
        """Remove the draft, unless it was published."""
        self._close()
        with suppress(FileNotFoundError):
            os.unlink(self.temporary)

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)


@contextmanager
def draft(path: str | os.PathLike[str]) -> Iterator[Draft]:
    """A draft for `path`, which is gone afterwards if it wasn't published."""
    made = Draft(path)
    try:
        yield made
    finally:
        made.discard()


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file; whoever reads `path` finds what was there before, or all of `data`."""
    with draft(path) as made:
        made.write(data)
        made.seal()
        made.publish()
    sync_directory(path)


def _lock(descriptor: int) -> bool:
    """Lock an open file for this process; False if another one has."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked, or on a file system without locks
        return False
    return True


def remove_abandoned_drafts(directory: str | os.PathLike[str]) -> None:
    """Remove the drafts in a directory whose processes have died; those that aren't surely such
    are left alone.
    """
    try:
        entries = [e for e in os.scandir(directory) if _DRAFT in e.name and e.is_file()]
    except FileNotFoundError:
        return
    for entry in entries:
        with suppress(OSError):  # another process was faster, or it's not ours to remove
            if time.time() - entry.stat().st_mtime > _JUST_MADE and _is_abandoned(entry.path):
                os.unlink(entry.path)


def _is_abandoned(path: str) -> bool:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        return _lock(descriptor)
    finally:
        os.close(descriptor)


def move(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Rename a file; what was at `path` is replaced."""
    os.replace(source, path)


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, if it's there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_directory(path: str | os.PathLike[str]) -> None:
    """Remove a directory, which must be empty."""
    os.rmdir(path)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Put the names in the directory of `path` on the disk, where the system can do that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
