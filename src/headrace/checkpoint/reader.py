"""Opening checkpoints of either format. In: the prefix that a save was given. Out: a Checkpoint."""

from __future__ import annotations

import os

from headrace.checkpoint.bundle import Bundle, bundle_exists
from headrace.checkpoint.contents import Checkpoint
from headrace.checkpoint.slice_files import SliceFiles

__all__ = ["open_checkpoint"]


def open_checkpoint(prefix: str | os.PathLike[str]) -> Checkpoint:
    """Open the V2 checkpoint at `prefix`, or the V1 files that match it; NotFoundError if there is
    neither.
    """
    path = os.fspath(prefix)
    return Bundle(path) if bundle_exists(path) else SliceFiles(path)
