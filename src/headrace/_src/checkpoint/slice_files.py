"""V1 checkpoints. In: named tensors. Out: a table file; and back from one or several files.

The empty key holds the names, shapes, dtypes and slices of all tensors; each slice has a key that
holds its values, as protos. A tensor saved as a whole is a slice like any other.
"""

from __future__ import annotations

import glob
import mmap
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from headrace._src.checkpoint.bundle import NamedTensor
from headrace._src.checkpoint.contents import OpenCheckpoint, Stored
from headrace._src.checkpoint.slices import TensorSlice, slice_from_proto, slice_key
from headrace._src.checkpoint.table import Table, encode_table
from headrace._src.core import files, proto
from headrace._src.core.dtypes import DType, as_dtype, bfloat16
from headrace._src.core.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    UnimplementedError,
)
from headrace._src.core.file_errors import file_errors
from headrace._src.core.tensor_proto import from_list_proto, to_list_proto

__all__ = ["SliceFiles", "write_slice_file"]

_VERSION = 1


def write_slice_file(path: str, tensors: Iterable[NamedTensor]) -> None:
    """Save tensors as the V1 checkpoint file `path`; create its directory."""
    meta: Any = proto.SavedTensorSlices()
    meta.meta.versions.producer = _VERSION
    known: dict[str, Any] = {}
    values: dict[bytes, bytes] = {}
    for tensor in sorted(tensors, key=lambda tensor: tensor.name):
        value = np.asarray(tensor.value)
        if as_dtype(value.dtype) is bfloat16:  # no reader would accept it in this format
            raise UnimplementedError(
                None, None, f"{tensor.name}: V1 checkpoints can't hold bfloat16"
            )
        part = tensor.part or TensorSlice.whole(value.ndim)
        _add_slice(meta, known, tensor, value, part)
        values[slice_key(tensor.name, part)] = _encode(tensor.name, value, part)
    head = (b"", meta.SerializeToString(deterministic=True))
    with file_errors(path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    files.replace_file(path, encode_table([head, *sorted(values.items())]))


def _add_slice(
    meta: Any, known: dict[str, Any], tensor: NamedTensor, value: np.ndarray, part: TensorSlice
) -> None:
    shape = value.shape if tensor.shape is None else tensor.shape
    dtype = as_dtype(value.dtype).enum
    found = known.get(tensor.name)
    if found is None:
        found = known[tensor.name] = meta.meta.tensor.add(name=tensor.name, type=dtype)
        found.shape.SetInParent()
        for size in shape:
            found.shape.dim.add(size=size)
    elif found.type != dtype or tuple(dim.size for dim in found.shape.dim) != shape:
        raise InvalidArgumentError(
            None, None, f"Mismatching types or shapes of the slices of {tensor.name}"
        )
    message = part.to_proto()
    if message in found.slice:
        raise InvalidArgumentError(None, None, f"Adding duplicate key: {tensor.name}")
    found.slice.append(message)


def _encode(name: str, value: np.ndarray, part: TensorSlice) -> bytes:
    saved: Any = proto.SavedTensorSlices()
    saved.data.name = name
    saved.data.slice.CopyFrom(part.to_proto())
    saved.data.data.CopyFrom(to_list_proto(value))
    return saved.SerializeToString(deterministic=True)


def no_files(pattern: str) -> OpError:
    """Return the error for a missing checkpoint, or for a missing directory."""
    directory = os.path.dirname(pattern)
    if directory and not os.path.isdir(directory):
        return InvalidArgumentError(
            None,
            None,
            f"Unsuccessful TensorSliceReader constructor: Failed to get matching files on {pattern}"
            f": Not found: {directory}; No such file or directory",
        )
    return NotFoundError(
        None,
        None,
        "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for "
        f"{pattern}",
    )


class SliceFiles(OpenCheckpoint):
    """The V1 checkpoint in all files that match a pattern. State: the memory-mapped files."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        paths = [pattern] if os.path.isfile(pattern) else sorted(glob.glob(pattern))
        paths = [path for path in paths if os.path.isfile(path)]
        if not paths:
            raise no_files(pattern)
        self._homes: dict[tuple[str, TensorSlice], Table] = {}
        self.stored = {}
        for path in paths:
            self._add_file(path)

    def close(self) -> None:
        super().close()
        self._homes.clear()  # the mappings are freed with the tables

    def missing(self, name: str) -> str:
        return f'Tensor name "{name}" not found in checkpoint files {self.pattern}'

    def _add_file(self, path: str) -> None:
        table = Table(_map(path), path)
        meta = _parse(table.get(b""), path).meta
        if meta.versions.min_consumer > _VERSION:
            raise InvalidArgumentError(
                None,
                None,
                f"{path}: its format needs a reader of version {meta.versions.min_consumer}",
            )
        for tensor in meta.tensor:
            parts = tuple(slice_from_proto(part) for part in tensor.slice)
            self._homes.update({(tensor.name, part): table for part in parts})
            self._add_tensor(path, tensor, parts)

    def _add_tensor(self, path: str, tensor: Any, parts: tuple[TensorSlice, ...]) -> None:
        shape = tuple(dim.size for dim in tensor.shape.dim)
        try:
            dtype = DType(tensor.type)
        except TypeError as error:
            raise DataLossError(None, None, f"{path}: {error}") from None
        before = self.stored.get(tensor.name)
        if before is not None:
            if (before.dtype, before.shape) != (dtype, shape):
                raise DataLossError(
                    None, None, f"{self.pattern}: {tensor.name} differs between the files"
                )
            parts = before.parts + parts
        self.stored[tensor.name] = Stored(dtype, shape, parts)

    def read_part(self, name: str, part: TensorSlice | None) -> np.ndarray:
        stored = self.stored[name]
        part = part or TensorSlice.whole(len(stored.shape))
        table = self._homes.get((name, part))
        if table is None:
            raise DataLossError(None, None, f"{self.pattern}: {name} has no data")
        saved = _parse(table.get(slice_key(name, part)), self.pattern)
        lengths = part.within(stored.shape).lengths
        try:
            return from_list_proto(saved.data.data, stored.dtype, lengths)
        except ValueError as error:
            raise DataLossError(None, None, f"{self.pattern}: {name}: {error}") from None


def _map(path: str) -> Any:
    with file_errors(path), open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""  # can't be mapped
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _parse(value: bytes | None, path: str) -> Any:
    if value is None:
        raise DataLossError(None, None, f"{path}: an entry is missing")
    try:
        return proto.SavedTensorSlices.FromString(value)
    except proto.DecodeError as error:
        raise DataLossError(None, None, f"{path}: {error}") from None
