"""Translate the system's file errors. In: an OSError. Out: the error of core/errors that TensorFlow
raises for that errno.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace._src.core import errors

__all__ = ["as_file_error", "file_errors"]

_CLASSES: dict[int | None, Any] = {
    errno.ENOENT: errors.NotFoundError,
    errno.ENOTDIR: errors.FailedPreconditionError,
    errno.EISDIR: errors.FailedPreconditionError,
    errno.ENOTEMPTY: errors.FailedPreconditionError,
    errno.EEXIST: errors.AlreadyExistsError,
    errno.EACCES: errors.PermissionDeniedError,
    errno.EPERM: errors.PermissionDeniedError,
    errno.EROFS: errors.PermissionDeniedError,
    errno.EINVAL: errors.InvalidArgumentError,
    errno.ENAMETOOLONG: errors.InvalidArgumentError,
    errno.ENOSPC: errors.ResourceExhaustedError,
    errno.EDQUOT: errors.ResourceExhaustedError,
    errno.EMFILE: errors.ResourceExhaustedError,
    errno.ENFILE: errors.ResourceExhaustedError,
    errno.EFBIG: errors.OutOfRangeError,
}


def as_file_error(path: str | os.PathLike[str], error: OSError) -> errors.OpError:
    """Return the error with a message such as `path; No such file or directory`. The path is the
    one that the system names, or else `path`.
    """
    kind = _CLASSES.get(error.errno, errors.UnknownError)
    where = path if error.filename is None else error.filename
    return kind(None, None, f"{os.fsdecode(where)}; {error.strerror or error}")


@contextmanager
def file_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Within the block, turn an OSError into an error about `path`."""
    try:
        yield
    except OSError as error:
        raise as_file_error(path, error) from error
