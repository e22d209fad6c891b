"""The cache on disk of machine code and timings. In: a key. Out: bytes that an earlier process
wrote, or None.

Two kinds of entries: `objects`, machine code by the identity of a unit (see `native`), and
`timings`, which candidate was measured to be the fastest. Keys are digests of all that an entry
depends on: the question itself, the processor, LLVM's version and the text of the generator's
sources. An entry is therefore never out of date, only unused.

Invariants
- An entry is one file, written under a temporary name and renamed: readers see all of it or
  nothing, and processes may share a directory. Its checksum covers its key; a damaged, truncated or
  misplaced file counts as absent and is replaced.
- The cache never raises: if a directory can't be read or written, compiling works without it.
- Machine code is loaded only from a directory that no other user could have written to.
- Entries beyond the size limit are removed, the least recently used first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from headrace._src.core.config import settings
from headrace._src.core.locks import Lock
from headrace._src.devices.target import host

__all__ = ["CacheDirectory", "key", "recall", "remember", "store"]

KINDS = ("objects", "timings")
_MAGIC = b"headrace"
_CHECKSUM = 16  # bytes
_TEMPORARY = ".writing-"
_ROOMS = Path(__file__).parents[2]
_GENERATOR = ("compile", "lowering")  # the rooms whose text decides which code is generated
_TOUCH_AFTER = 3600  # seconds; the order of use is not needed more exactly than that


class CacheDirectory:
    """A directory of entries. With `directory` None it is always empty and ignores new entries.
    answers: the measured answers that this process has read or made, by question.
    """

    def __init__(self, directory: Path | None, limit: int) -> None:
        self.directory = directory
        self.answers: dict[str, Any] = {}
        self._limit = limit
        self._lock = Lock()
        self._unchecked = limit  # bytes written since the last count; at first, all
        self.why_not = self._prepare()

    def _prepare(self) -> str | None:
        """Make the directory; return the reason why it can't be used, or None."""
        if self.directory is None:
            return "switched off"
        try:
            for kind in KINDS:
                (self.directory / kind).mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.directory.stat()
        except OSError as error:
            return f"{self.directory}: {error.strerror or error}"
        if hasattr(os, "getuid") and found.st_uid not in (os.getuid(), 0):
            return f"{self.directory} belongs to another user"
        if found.st_mode & stat.S_IWOTH:
            return f"{self.directory} is writable by everyone"
        return None

    def _path(self, kind: str, name: str) -> Path:
        assert self.directory is not None
        return self.directory / kind / name

    def get(self, kind: str, name: str) -> bytes | None:
        """Return the entry's data; None if it is absent or damaged."""
        if self.why_not is not None:
            return None
        try:
            with open(self._path(kind, name), "rb") as file:
                content = file.read()
                used = os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        head = len(_MAGIC) + _CHECKSUM
        data = content[head:]
        if content[:head] != _MAGIC + _checksum(kind, name, data):
            return None
        if time.time() - used > _TOUCH_AFTER:
            with contextlib.suppress(OSError):
                os.utime(self._path(kind, name))
        return data

    def put(self, kind: str, name: str, data: bytes) -> None:
        """Store an entry, if possible."""
        if self.why_not is not None:
            return
        path = self._path(kind, name)
        temporary = None
        try:
            handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
            with open(handle, "wb") as file:
                file.write(_MAGIC + _checksum(kind, name, data) + data)
            os.replace(temporary, path)
        except OSError:  # a full disk, or a directory that became read-only
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            return
        self._count(len(data))

    def _count(self, size: int) -> None:
        """Count the total size at the first entry, and again when it may have grown by a tenth."""
        with self._lock:
            self._unchecked += size
            if self._unchecked < self._limit / 10:
                return
            self._unchecked = 0
        self.trim()

    def trim(self) -> None:
        """Remove the least recently used entries until a tenth of the limit is free again."""
        entries = self._entries()
        total = sum(size for _, size, _ in entries)
        if total <= self._limit:
            return
        for _, size, path in sorted(entries):
            if total <= self._limit * 0.9:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= size

    def usage(self) -> tuple[int, int]:
        """How many entries there are, and their bytes."""
        entries = self._entries()
        return len(entries), sum(size for _, size, _ in entries)

    def _entries(self) -> list[tuple[float, int, str]]:
        """Return (last use, size, path) of all files, including those of writers that died."""
        found = []
        if self.directory is None:
            return found
        for kind in KINDS:
            with contextlib.suppress(OSError), os.scandir(self.directory / kind) as files:
                for file in files:
                    with contextlib.suppress(OSError):
                        about = file.stat()
                        found.append((about.st_mtime, about.st_size, file.path))
        return found


def _checksum(kind: str, name: str, data: bytes) -> bytes:
    digest = hashlib.blake2b(f"{kind}/{name}:".encode(), digest_size=_CHECKSUM)
    digest.update(data)
    return digest.digest()


@cache
def store() -> CacheDirectory:
    """The store that the settings ask for."""
    config = settings()
    off = config.cache == "off"
    directory = None if off else Path(os.path.expanduser(config.cache))
    return CacheDirectory(directory, config.cache_mb * 2**20)


def key(identity: str) -> str:
    """Return the name of the entry for `identity` on this processor with this generator."""
    digest = hashlib.blake2b(_circumstances(), digest_size=20)
    digest.update(identity.encode())
    return digest.hexdigest()


@cache
def _circumstances() -> bytes:
    """Return a digest of everything besides its identity that code depends on."""
    import llvmlite  # an optional dependency, which takes long to load
    import llvmlite.binding as llvm  # likewise

    digest = hashlib.blake2b(digest_size=20)
    target = host()
    processor = (target.triple, target.cpu, target.features, target.model)
    digest.update(repr((processor, llvmlite.__version__, llvm.llvm_version_info)).encode())
    # Reading a megabyte takes a few ms; dates of files say less and differ between installations.
    try:
        sources = [p for room in _GENERATOR for p in sorted((_ROOMS / room).rglob("*.py"))]
        for path in sources:
            digest.update(f"{path.relative_to(_ROOMS)}".encode() + b"\0" + path.read_bytes())
    except OSError:
        sources = []
    if not sources:  # what this process makes is of use to itself alone
        digest.update(os.urandom(20))
    return digest.digest()


# -- Measured choices ------------------------------------------------------------------------------


def recall(question: str) -> Any | None:
    """Return the answer that this process or an earlier one measured; None if there is none.

    question: all that the answer depends on (shapes, candidates, threads) but the processor
    """
    answers = store().answers
    if question not in answers:
        data = store().get("timings", key(question))
        if data is None:
            return None
        answers[question] = json.loads(data)["answer"]
    return answers[question]


def remember(question: str, answer: Any) -> None:
    """Keep a measured answer (anything that JSON can hold) for `recall`."""
    store().answers[question] = answer
    data = json.dumps({"question": question, "answer": answer}).encode()
    store().put("timings", key(question), data)
