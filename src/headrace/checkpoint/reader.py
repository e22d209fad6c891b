"""Opening checkpoints of any format. In: the prefix that a save was given, or the name of a
safetensors file. Out: a Checkpoint.
"""

from __future__ import annotations

import os

from headrace.checkpoint.bundle import Bundle, bundle_exists
from headrace.checkpoint.contents import Checkpoint
from headrace.checkpoint.safetensors import SUFFIX, SafeTensors
from headrace.checkpoint.slice_files import SliceFiles

__all__ = ["open_checkpoint"]


def open_checkpoint(prefix: str | os.PathLike[str]) -> Checkpoint:
    """Open the V2 checkpoint at `prefix`, the safetensors file, or the V1 files that match it;
    NotFoundError if there is none.
    """
    path = os.fspath(prefix)
    if bundle_exists(path):
        return Bundle(path)
    return SafeTensors(path) if path.endswith(SUFFIX) else SliceFiles(path)
