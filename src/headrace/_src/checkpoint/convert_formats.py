"""Convert checkpoints to another format. In: a checkpoint and a destination. Out: the same tensors
there.

The name decides the format: one that ends in `.safetensors` is such a file, any other is the prefix
of a V2 checkpoint. Tensors are read one after the other; those saved in parts become whole.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from headrace._src.checkpoint.bundle import NamedTensor, write_bundle
from headrace._src.checkpoint.contents import OpenCheckpoint
from headrace._src.checkpoint.open_checkpoint import open_checkpoint
from headrace._src.checkpoint.safetensors import SUFFIX, write_safetensors
from headrace._src.core.dtypes import string

__all__ = ["convert_checkpoint", "size_of"]


def convert_checkpoint(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    progress: Callable[[int], Any] = lambda count: None,
) -> None:
    """Write the tensors at `source` to `destination`. `progress` is called with the number of bytes
    just written; they add up to `size_of`.
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


def size_of(source: str | os.PathLike[str] | OpenCheckpoint) -> int:
    """Return the number of bytes of a checkpoint's numeric tensors."""
    if not isinstance(source, OpenCheckpoint):
        with open_checkpoint(source) as found:
            return size_of(found)
    tensors = [t for t in source.stored.values() if t.dtype is not string]
    return sum(math.prod(t.shape) * t.dtype.size for t in tensors)
