"""A session's variables as a safetensors file. In: a session, variables, a path. Out: the file; and
back.

`Saver.restore`, `init_from_checkpoint` and `load_checkpoint` read such files too, by their names,
which end in `.safetensors`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from headrace._src.checkpoint.contents import OpenCheckpoint, Stored
from headrace._src.checkpoint.missing_names import require
from headrace._src.checkpoint.safetensors import SafeTensors, write_safetensors
from headrace._src.checkpoint.slices import TensorSlice, parse_shape_and_slice
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.keys import GraphKeys
from headrace._src.session.session import BaseSession
from headrace._src.train.saving.saveables import saveables_of
from headrace._src.variables.partition import PartitionedVariable
from headrace._src.variables.variable import Variable

__all__ = ["load_safetensors", "save_safetensors"]


class _Values(OpenCheckpoint):
    """The values of variables, presented as a checkpoint."""

    def __init__(self, specs: list[Any], values: list[Any]) -> None:
        self.stored = {}
        self._values: dict[tuple[str, TensorSlice | None], np.ndarray] = {}
        for spec, value in zip(specs, values, strict=True):
            value = np.asarray(value)
            shape, part = value.shape, None
            if spec.slice_spec:
                shape, part = parse_shape_and_slice(spec.slice_spec)
            before = self.stored.get(spec.name)
            parts = () if before is None else before.parts
            parts = parts if part is None else (*parts, part)
            self.stored[spec.name] = Stored(spec.dtype.base_dtype, shape, parts)
            self._values[spec.name, part] = value

    def missing(self, name: str) -> str:
        return f"there is no variable {name}"

    def read_part(self, name: str, part: TensorSlice | None) -> np.ndarray:
        return self._values[name, part]


@export("train.save_safetensors")
def save_safetensors(
    sess: BaseSession,
    path: str | os.PathLike[str],
    var_list: Any = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the values of variables to a safetensors file (not TensorFlow's).

    var_list: variables in a list, or a dict by the names to store them under; None: all of the
    graph's. metadata: strings to put into the file's header.
    """
    specs = [spec for saveable in saveables_of(_chosen(sess, var_list)) for spec in saveable.specs]
    values = _Values(specs, sess.run([spec.tensor for spec in specs]))
    write_safetensors(path, values.stored, values.read, metadata)


@export("train.load_safetensors")
def load_safetensors(
    sess: BaseSession, path: str | os.PathLike[str], var_list: Any = None
) -> dict[str, str]:
    """Restore variables from a safetensors file (not TensorFlow's); return the strings in its
    header. If names are missing, the NotFoundError lists them and the names that are there.

    var_list: as for `save_safetensors`.
    """
    targets = list(_targets(_chosen(sess, var_list)))
    found = SafeTensors(path)
    require(found, [name for name, _ in targets])
    for name, variable in targets:
        _check_type(found, name, variable)
    for name, variable in targets:
        variable.load(found.read(name, _part(variable)), sess)
    return found.metadata


def _chosen(sess: BaseSession, var_list: Any) -> Any:
    return sess.graph.get_collection(GraphKeys.GLOBAL_VARIABLES) if var_list is None else var_list


def _targets(chosen: Any) -> Iterator[tuple[str, Any]]:
    """Return variables by name; each part of a partitioned variable counts separately."""
    pairs = chosen.items() if isinstance(chosen, Mapping) else ((None, v) for v in chosen)
    for name, item in pairs:
        for variable in item if isinstance(item, PartitionedVariable) else [item]:
            if not isinstance(variable, Variable):
                raise TypeError(f"expected variables, got {variable!r}")
            info = variable._get_save_slice_info()
            yield name or (variable.op.name if info is None else info.full_name or ""), variable


def _part(variable: Any) -> TensorSlice | None:
    info = variable._get_save_slice_info()
    return None if info is None else parse_shape_and_slice(info.spec)[1]


def _check_type(found: OpenCheckpoint, name: str, variable: Any) -> None:
    stored, info = found.find(name), variable._get_save_slice_info()
    shape = variable.shape if info is None else TensorShape(info.full_shape)
    if stored.dtype is not variable.dtype.base_dtype or not shape.is_compatible_with(stored.shape):
        raise InvalidArgumentError(
            None,
            variable.op,
            f"{name} is {stored.dtype.name}{list(stored.shape)} in the file, and "
            f"{variable.dtype.base_dtype.name}{shape} in the graph",
        )
