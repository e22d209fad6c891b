"""Opening checkpoints of any format. In: the prefix that a save was given, or the name of a
safetensors file. Out: a Checkpoint, or a consistent result read from one, even while others write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from headrace._src.checkpoint.bundle import Bundle, bundle_exists
from headrace._src.checkpoint.contents import OpenCheckpoint
from headrace._src.checkpoint.safetensors import SUFFIX, SafeTensors
from headrace._src.checkpoint.slice_files import SliceFiles
from headrace._src.core.errors import DataLossError, NotFoundError

__all__ = ["open_checkpoint", "read_checkpoint"]

Result = TypeVar("Result")


def open_checkpoint(prefix: str | os.PathLike[str]) -> OpenCheckpoint:
    """Open the V2 checkpoint at `prefix`, the safetensors file, or the V1 files that match it;
    NotFoundError if there is none.
    """
    path = os.fspath(prefix)
    if bundle_exists(path):
        return Bundle(path)
    return SafeTensors(path) if path.endswith(SUFFIX) else SliceFiles(path)


def read_checkpoint(
    prefix: str | os.PathLike[str], read: Callable[[OpenCheckpoint], Result]
) -> Result:
    """Return `read(checkpoint)` for the checkpoint at `prefix`; repeat it if a save has replaced
    the checkpoint meanwhile.
    """
    while True:
        with open_checkpoint(prefix) as checkpoint:
            try:
                return read(checkpoint)
            except (DataLossError, NotFoundError):
                if not checkpoint.has_moved():
                    raise
