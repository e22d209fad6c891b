"""The cluster's key. In: a file that only its owner can read. Out: bytes.

Processes that do not have the key cannot connect. A key is never an argument of a command, which
every user of the host could see.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from headrace._src.core import errors
from headrace._src.core.config import settings

__all__ = ["MIN_KEY", "configured_key", "give_key", "how_to_make_one", "read_key"]

MIN_KEY: Final = 16  # bytes
MAX_KEY: Final = 4096
_given: bytes | None = None


def configured_key() -> bytes | None:
    """Return the key in the file that HEADRACE_KEY_FILE names, or the one that this process was
    given; None if there is neither.
    """
    path = settings().key_file
    return _given if path is None else read_key(path)


def give_key(key: bytes | None) -> None:
    """Let this process use a key that has no file, such as that of a cluster on Ray."""
    global _given
    _given = key


def read_key(path: str) -> bytes:
    """Return the key in a file; refuse a file that other users can read."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            key = file.read(MAX_KEY + 1)
    except OSError as error:
        raise errors.NotFoundError(
            None, None, f"cannot read the key file: {error}", hint=how_to_make_one(path)
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise errors.PermissionDeniedError(None, None, f"the key file is not a file: {path}")
    if status.st_mode & 0o077 or status.st_uid not in (os.getuid(), 0):
        raise errors.PermissionDeniedError(
            None,
            None,
            f"other users can read or change the key file: {path} has mode "
            f"{stat.S_IMODE(status.st_mode):04o} and belongs to user {status.st_uid}",
            hint=f"chmod 600 {path}, and make a new key if it may have been read",
        )
    if not MIN_KEY <= len(key) <= MAX_KEY:
        raise errors.InvalidArgumentError(
            None,
            None,
            f"a key has {MIN_KEY} to {MAX_KEY} bytes: {path}",
            hint=how_to_make_one(path),
        )
    return key


def how_to_make_one(path: str = "FILE") -> str:
    """Return the command that makes a key."""
    return (
        f"make a key, and copy it to every host of the cluster: "
        f"(umask 077; head -c 32 /dev/urandom > {path}; chmod 600 {path}); "
        f"export HEADRACE_KEY_FILE={path}"
    )
