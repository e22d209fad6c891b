"""Checkpoints in another format. In: a checkpoint and where to write. Out: the same tensors there.

The name says the format: one that ends in `.safetensors` is such a file, any other is the prefix of
a V2 checkpoint. Tensors are read one after the other; what was saved in parts becomes whole.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from headrace.checkpoint.bundle import NamedTensor, write_bundle
from headrace.checkpoint.contents import Checkpoint
from headrace.checkpoint.reader import open_checkpoint
from headrace.checkpoint.safetensors import SUFFIX, write_safetensors
from headrace.core.dtypes import string

__all__ = ["convert_checkpoint", "size_of"]


def convert_checkpoint(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    progress: Callable[[int], Any] = lambda count: None,
) -> None:
    """Write what is at `source` to `destination`. `progress` is told how many bytes more are
    written, of `size_of` in all.
    """
    with open_checkpoint(source) as found:
        if os.fspath(destination).endswith(SUFFIX):
            write_safetensors(destination, found.stored, found.read, progress=progress)
            return

        def tensors() -> Any:
            for name in sorted(found.stored):
                value = found.read(name)
                yield NamedTensor(name, value)
                progress(value.nbytes)

        write_bundle(os.fspath(destination), tensors())


def size_of(source: str | os.PathLike[str] | Checkpoint) -> int:
    """How many bytes the numbers of a checkpoint have."""
    if not isinstance(source, Checkpoint):
        with open_checkpoint(source) as found:
            return size_of(found)
    tensors = [t for t in source.stored.values() if t.dtype is not string]
    return sum(math.prod(t.shape) * t.dtype.size for t in tensors)
