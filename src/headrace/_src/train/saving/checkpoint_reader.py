"""Checkpoints without a graph. In: a checkpoint's prefix, or a directory. Out: names, shapes and
values.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from headrace._src.checkpoint.missing_names import require
from headrace._src.checkpoint.open_checkpoint import open_checkpoint
from headrace._src.core import proto
from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.train.saving.checkpoint_state import latest_checkpoint

__all__ = ["CheckpointReader", "list_variables", "load_checkpoint", "load_variable"]


@export("train.NewCheckpointReader")
class CheckpointReader:
    """The tensors of one checkpoint, V2 or V1."""

    def __init__(self, filepattern: str | os.PathLike[str]) -> None:
        self._checkpoint = open_checkpoint(filepattern)

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Return the shapes by name."""
        return {name: list(found.shape) for name, found in self._checkpoint.stored.items()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """Return the types by name."""
        return {name: found.dtype for name, found in self._checkpoint.stored.items()}

    def has_tensor(self, tensor_str: str) -> bool:
        """Return whether there is a tensor of that name."""
        return tensor_str in self._checkpoint.stored

    def get_tensor(self, tensor_str: str) -> Any:
        """Return a tensor's value; NotFoundError, with near names, if there is none."""
        require(self._checkpoint, [tensor_str])
        value = self._checkpoint.read(tensor_str)
        return value if value.ndim else value[()]

    def debug_string(self) -> bytes:
        """Return a line per tensor: name, type, shape."""
        lines = []
        for name, found in sorted(self._checkpoint.stored.items()):
            shape = ",".join(map(str, found.shape))
            lines.append(f"{name} ({proto.DataType.Name(found.dtype.enum)}) [{shape}]\n")
        return "".join(lines).encode()


@export("train.load_checkpoint")
def load_checkpoint(ckpt_dir_or_file: str | os.PathLike[str]) -> CheckpointReader:
    """Open a checkpoint, or the latest one of a directory."""
    return CheckpointReader(checkpoint_in(ckpt_dir_or_file))


def checkpoint_in(ckpt_dir_or_file: str | os.PathLike[str]) -> str:
    """The prefix itself, or that of the latest checkpoint if it's a directory."""
    if not os.path.isdir(ckpt_dir_or_file):
        return os.fspath(ckpt_dir_or_file)
    found = latest_checkpoint(ckpt_dir_or_file)
    if found is None:
        raise ValueError(
            "Couldn't find 'checkpoint' file or checkpoints in given directory "
            f"{os.fspath(ckpt_dir_or_file)}"
        )
    return found


@export("train.list_variables")
def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Return the names and shapes of a checkpoint's tensors, sorted by name."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


@export("train.load_variable")
def load_variable(ckpt_dir_or_file: str | os.PathLike[str], name: str) -> np.ndarray:
    """Return the value of one tensor of a checkpoint; `name` may end with ":0"."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


# -- The same functions with the argument names of tf.contrib.framework ----------------------------


@export("contrib.framework.load_checkpoint")
def contrib_load_checkpoint(filepattern: str | os.PathLike[str]) -> CheckpointReader:
    """Open a checkpoint, or the latest one of a directory."""
    return load_checkpoint(filepattern)


@export("contrib.framework.list_variables")
def contrib_list_variables(checkpoint_dir: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Return the names and shapes of a checkpoint's tensors, sorted by name."""
    return list_variables(checkpoint_dir)


@export("contrib.framework.load_variable")
def contrib_load_variable(checkpoint_dir: str | os.PathLike[str], name: str) -> np.ndarray:
    """Return the value of one tensor of a checkpoint; `name` may end with ":0"."""
    return load_variable(checkpoint_dir, name)
