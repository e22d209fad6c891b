"""The file beside a checkpoint that holds a session's other state. In: arrays by name. Out: a file
that belongs to one checkpoint; and back.

`PREFIX.session` is a table (as a checkpoint's index is) of TensorProtos, and the checksum of the
index of the checkpoint that it belongs to. It's written after the checkpoint and before the state
file that names it. A process that dies in between leaves a complete checkpoint without its session
file: if an older session file is still there, the checksum reveals that it doesn't belong.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headrace._src.checkpoint.bundle import finish_pending, index_name
from headrace._src.checkpoint.table import Table, encode_table
from headrace._src.core import files, proto
from headrace._src.core.checksum import masked
from headrace._src.core.errors import DataLossError, NotFoundError
from headrace._src.core.file_errors import file_errors
from headrace._src.core.tensor_proto import to_array, to_proto

__all__ = ["read_session_file", "remove_session_file", "session_name", "write_session_file"]

_OWNER = b""  # the key of the checkpoint's checksum; array names aren't empty


def session_name(prefix: str) -> str:
    """The file that belongs to the checkpoint at `prefix`."""
    return f"{prefix}.session"


def write_session_file(prefix: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Store arrays beside the V2 checkpoint at `prefix`."""
    encoded = {_OWNER: to_proto(np.array(_checksum(prefix), np.int64))}
    encoded |= {name.encode(): to_proto(array) for name, array in arrays.items()}
    pairs = ((key, message.SerializeToString()) for key, message in sorted(encoded.items()))
    files.replace_file(session_name(prefix), encode_table(pairs))


def read_session_file(prefix: str) -> dict[str, np.ndarray]:
    """Read the arrays stored beside the V2 checkpoint at `prefix`; raise NotFoundError if there are
    none, or if they belong to an earlier checkpoint.
    """
    path = session_name(prefix)
    with file_errors(path), open(path, "rb") as file:
        table = Table(file.read(), path)
    arrays = {key: _decode(value, path) for key, value in table.items()}
    owner = arrays.pop(_OWNER, None)
    if owner is None or owner.shape:
        raise DataLossError(None, None, f"{path}: it doesn't say which checkpoint it belongs to")
    if int(owner) != _checksum(prefix):
        raise NotFoundError(None, None, f"{path} belongs to an earlier checkpoint of that name")
    return {key.decode(errors="replace"): array for key, array in arrays.items()}


def remove_session_file(prefix: str) -> None:
    """Remove the file, if there is one."""
    files.remove(session_name(prefix))


def _checksum(prefix: str) -> int:
    """The checksum of a checkpoint's index, which has the checksums of all its tensors."""
    finish_pending(prefix)
    path = index_name(prefix)
    with file_errors(path), open(path, "rb") as file:
        return masked(file.read())


def _decode(value: bytes, path: str) -> np.ndarray:
    try:
        return to_array(proto.TensorProto.FromString(value))
    except (proto.DecodeError, ValueError, TypeError) as error:
        raise DataLossError(None, None, f"{path}: {error}") from None
