"""Files that exist whole or not at all. In: a path and bytes. Out: a file that is on the disk.

A Draft is written next to its final path, under a temporary name. Once all its bytes are on the
disk (`seal`), it is renamed to its final path, which readers see as one step. A process that dies
leaves only drafts behind. Nothing reads them, and a later save removes them: a draft stays locked
as long as its process lives.

Every change of the file system goes through the functions of `os` that this module calls: tests
stop the process at each one of them.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from headrace._src.core.file_errors import file_errors

try:
    import fcntl
except ImportError:  # no fcntl on this system: nothing is locked or removed
    fcntl = None

__all__ = [
    "Draft",
    "alone_in_directory",
    "draft",
    "move",
    "remove",
    "remove_abandoned_drafts",
    "remove_directory",
    "replace_file",
    "sync_directory",
]

_DRAFT = ".tempstate-"  # TensorFlow's temporary names have no dash
GATHERED = 1 << 22  # bytes per write; whole pages
_LARGE = 1 << 20  # from this size on, whole pages are written without copying
_JUST_MADE = 60.0  # seconds during which a new draft may not be locked yet


class Draft:
    """A file being written. State: its descriptor, until it's published or discarded; how much is
    written; the bytes gathered for the next write.

    Large files bypass the system's page cache where possible: this costs far less processor time
    and evicts nothing for data that won't be read soon. Such writes consist of whole pages:
    page-aligned data is written from where it is, and other data is gathered first.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.temporary = f"{self.path}{_DRAFT}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._descriptor: int | None = os.open(self.temporary, flags, 0o666)
        self._sealed = False
        self._written = 0
        self._gathered = np.frombuffer(mmap.mmap(-1, GATHERED), np.uint8)  # page-aligned
        self._count = 0
        _lock(self._descriptor)

    def write(self, data: Any) -> None:
        """Append bytes, or the bytes of a contiguous buffer."""
        assert self._descriptor is not None and not self._sealed, "the draft is sealed"
        left = np.frombuffer(data, np.uint8)
        if left.size >= _LARGE and self._lies_as_in_the_file(left):
            left = self._write_pages(left)
        while left.size:
            left = self._gather(left)
            if self._count == self._gathered.size:
                _bypass_cache(self._descriptor, True)
                self._flush()

    def _lies_as_in_the_file(self, data: np.ndarray) -> bool:
        return (data.ctypes.data - self._written - self._count) % mmap.PAGESIZE == 0

    def _write_pages(self, data: np.ndarray) -> np.ndarray:
        """Write all whole pages without copying them; return the rest."""
        assert self._descriptor is not None
        first = -self._count % mmap.PAGESIZE  # bytes that the last gathered page lacks
        self._gather(data[:first])
        _bypass_cache(self._descriptor, True)
        self._flush()
        data = data[first:]
        end = data.size - data.size % mmap.PAGESIZE
        self._put(data[:end])
        return data[end:]

    def _gather(self, data: np.ndarray) -> np.ndarray:
        """Gather as much as there is room for; return the rest."""
        piece = data[: self._gathered.size - self._count]
        self._gathered[self._count : self._count + piece.size] = piece
        self._count += piece.size
        return data[piece.size :]

    def seal(self) -> None:
        """Put all bytes on the disk."""
        assert self._descriptor is not None and not self._sealed, "the draft is sealed"
        _bypass_cache(self._descriptor, False)  # the rest is not a whole number of blocks
        self._flush()
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

    def _flush(self) -> None:
        self._put(self._gathered[: self._count])
        self._count = 0

    def _put(self, data: np.ndarray) -> None:
        assert self._descriptor is not None
        left = data.data
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except OSError as error:
                # The file system accepts the flag, but then refuses writes, perhaps only from here
                # on.
                if error.errno != errno.EINVAL or not _bypass_cache(self._descriptor, False):
                    raise
        self._written += data.size

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)


def _bypass_cache(descriptor: int, wanted: bool) -> bool:
    """Make writes bypass the cache, or use it again; return whether the mode changed."""
    direct = getattr(os, "O_DIRECT", 0)
    if fcntl is None or not direct:
        return False
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if bool(flags & direct) == wanted:
        return False
    with suppress(OSError):  # the file system doesn't support it
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags ^ direct)
        return True
    return False


@contextmanager
def draft(path: str | os.PathLike[str]) -> Iterator[Draft]:
    """Yield a draft for `path`; remove it afterwards if it wasn't published."""
    made = Draft(path)
    try:
        yield made
    finally:
        made.discard()


def replace_file(path: str | os.PathLike[str], pieces: Iterable[Any]) -> None:
    """Write a whole file of bytes or arrays, one after the other. A reader of `path` finds either
    the old contents or all of the new ones.
    """
    with file_errors(path):
        with draft(path) as made:
            for piece in pieces:
                made.write(piece)
            made.seal()
            made.publish()
        sync_directory(path)


def _lock(descriptor: int) -> bool:
    """Lock an open file for this process; return False if another process holds the lock."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked, or on a file system without locks
        return False
    return True


@contextmanager
def alone_in_directory(path: str | os.PathLike[str]) -> Iterator[None]:
    """Exclude other processes and threads that enter with a path in the same directory. On a system
    without such locks, nothing waits.
    """
    if fcntl is None:
        yield
        return
    descriptor = _open_directory(path)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_abandoned_drafts(directory: str | os.PathLike[str]) -> None:
    """Remove the drafts in a directory whose processes have died; doubtful ones stay."""
    try:
        entries = [e for e in os.scandir(directory) if _DRAFT in e.name and e.is_file()]
    except FileNotFoundError:
        return
    for entry in entries:
        with suppress(OSError):  # another process removed it first, or we lack the permission
            if time.time() - entry.stat().st_mtime > _JUST_MADE and _is_abandoned(entry.path):
                os.unlink(entry.path)


def _is_abandoned(path: str) -> bool:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        return _lock(descriptor)
    finally:
        os.close(descriptor)


def move(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Rename a file, replacing any file at `path`."""
    os.replace(source, path)


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, if it's there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_directory(path: str | os.PathLike[str]) -> None:
    """Remove a directory, which must be empty."""
    os.rmdir(path)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Flush the directory of `path` to the disk, where the system supports it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = _open_directory(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_directory(path: str | os.PathLike[str]) -> int:
    return os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
