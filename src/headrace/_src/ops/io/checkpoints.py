"""Saving and restoring: the ops that tf.train.Saver connects to every variable.

Each string of `shape_and_slices` is empty or describes a slice, such as "4 2 2,2:-": the shape of
the whole tensor, then the start and length in each dimension.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headrace._src.checkpoint.bundle import NamedTensor, merge_bundles, write_bundle
from headrace._src.checkpoint.contents import OpenCheckpoint
from headrace._src.checkpoint.missing_names import require
from headrace._src.checkpoint.open_checkpoint import read_checkpoint
from headrace._src.checkpoint.slice_files import SliceFiles, write_slice_file
from headrace._src.checkpoint.slices import TensorSlice, parse_shape_and_slice
from headrace._src.core import faults
from headrace._src.core.dtypes import DType, string
from headrace._src.core.errors import InvalidArgumentError, OpError
from headrace._src.core.tensor_shape import show_shape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.strings.string_arrays import of_strings, string_array

__all__ = [
    "merge_v2_checkpoints",
    "named_tensors",
    "restore",
    "restore_slice",
    "restore_v2",
    "save",
    "save_slices",
    "save_v2",
    "sharded_filename",
    "sharded_filespec",
]


def _path(value: Any) -> str:
    found = string_array(value)
    if found.size != 1:
        raise InvalidArgumentError(
            None, None, f"the name of a checkpoint must be one string, got {found.size}"
        )
    return os.fsdecode(found.item())


def _texts(value: Any) -> list[str]:
    return [text.decode(errors="surrogateescape") for text in string_array(value).ravel().tolist()]


# -- Saving ----------------------------------------------------------------------------------------


def named_tensors(
    tensor_names: Any, shape_and_slices: Any, values: Sequence[Any], types: Sequence[DType]
) -> list[NamedTensor]:
    """Pair the tensors of a save with their names and slices."""
    names, specs = _texts(tensor_names), _texts(shape_and_slices)
    if not len(names) == len(specs) == len(values):
        raise InvalidArgumentError(
            None,
            None,
            f"{len(names)} names and {len(specs)} slices were given for {len(values)} tensors",
        )
    found = []
    for name, spec, value, dtype in zip(names, specs, values, types, strict=True):
        array = string_array(value) if dtype is string else np.asarray(value)
        shape, part = parse_shape_and_slice(spec) if spec else (None, None)
        if part is not None and part.lengths != array.shape:
            raise InvalidArgumentError(
                None,
                None,
                "Slice in shape_and_slice specification does not match the shape of the tensor to "
                f"save: {spec}, tensor: {list(array.shape)}",
            )
        found.append(NamedTensor(name, array, shape, part))
    return found


def _halfway(point: str, items: Sequence[Any]) -> Iterator[Any]:
    """Yield the items; reach a point of faults in the middle."""
    for number, item in enumerate(items):
        if number == len(items) // 2:
            faults.reach(point)
        yield item


def _save_infer(c: Any, prefix: Any, names: Any, specs: Any, tensors: Any) -> None:
    prefix.with_rank(0)
    for vector in (names, specs):
        vector.with_rank(1)
        if vector.sizes is not None and vector.sizes[0] not in (None, len(tensors)):
            raise ValueError(f"Dimension must be {len(tensors)} but is {vector.sizes[0]}")


def _save_v2_kernel(prefix, tensor_names, shape_and_slices, tensors, *, dtypes):
    found = named_tensors(tensor_names, shape_and_slices, tensors, dtypes)
    write_bundle(_path(prefix), _halfway("save", found) if faults.armed else found)


@define(
    "SaveV2",
    "prefix: string, tensor_names: string, shape_and_slices: string, tensors: *dtypes ->",
    "dtypes: list(type) >= 1",
    infer=_save_infer,
    kernel=_save_v2_kernel,
    effect=Effect.WRITES,
)
def save_v2(prefix, tensor_names, shape_and_slices, tensors, name=None):
    """Save tensors, or slices of tensors, as the V2 checkpoint at `prefix`."""


def _save_slices_kernel(filename, tensor_names, shapes_and_slices, data, *, T):
    write_slice_file(_path(filename), named_tensors(tensor_names, shapes_and_slices, data, T))


@define(
    "SaveSlices",
    "filename: string, tensor_names: string, shapes_and_slices: string, data: *T ->",
    "T: list(type) >= 1",
    infer=_save_infer,
    kernel=_save_slices_kernel,
    effect=Effect.WRITES,
)
def save_slices(filename, tensor_names, shapes_and_slices, data, name=None):
    """Save tensors, or slices of tensors, as a V1 checkpoint file."""


def _save_kernel(filename, tensor_names, data, *, T):
    whole = of_strings([b""] * len(data), (len(data),))
    write_slice_file(_path(filename), named_tensors(tensor_names, whole, data, T))


@define(
    "Save",
    "filename: string, tensor_names: string, data: *T ->",
    "T: list(type) >= 1",
    infer=lambda c, filename, names, data: _save_infer(c, filename, names, names, data),
    kernel=_save_kernel,
    effect=Effect.WRITES,
)
def save(filename, tensor_names, data, name=None):
    """Save tensors as a V1 checkpoint file."""


def _merge_kernel(checkpoint_prefixes, destination_prefix, *, delete_old_dirs):
    prefixes = [os.fsdecode(p) for p in string_array(checkpoint_prefixes).ravel().tolist()]
    merge_bundles(prefixes, _path(destination_prefix), delete_old_dirs)


def _merge_infer(c: Any, prefixes: Any, destination: Any) -> None:
    prefixes.with_rank(1)
    destination.with_rank(0)


@define(
    "MergeV2Checkpoints",
    "checkpoint_prefixes: string, destination_prefix: string ->",
    "delete_old_dirs: bool = True",
    infer=_merge_infer,
    kernel=_merge_kernel,
    effect=Effect.WRITES,
)
def merge_v2_checkpoints(checkpoint_prefixes, destination_prefix, delete_old_dirs=True, name=None):
    """Merge several V2 checkpoints into one by moving their data files."""


# -- Restoring -------------------------------------------------------------------------------------


def _read(checkpoint: OpenCheckpoint, name: str, spec: str, dtype: DType) -> np.ndarray:
    stored = checkpoint.find(name)
    if stored.dtype is not dtype:
        raise InvalidArgumentError(
            None,
            None,
            f"tensor_name = {name}; expected dtype {dtype.name} does not equal original dtype "
            f"{stored.dtype.name}",
        )
    part: TensorSlice | None = None
    if spec:
        shape, part = parse_shape_and_slice(spec)
        if shape != stored.shape:
            raise InvalidArgumentError(
                None,
                None,
                f"tensor_name = {name}; shape in shape_and_slice spec {list(shape)} does not match "
                f"the shape stored in checkpoint: {list(stored.shape)}",
            )
    return checkpoint.read(name, part)


def _restore_v2_kernel(prefix, tensor_names, shape_and_slices, *, dtypes):
    names, specs = _texts(tensor_names), _texts(shape_and_slices)
    if not len(names) == len(specs) == len(dtypes):
        raise InvalidArgumentError(
            None,
            None,
            f"{len(names)} names and {len(specs)} slices were given for {len(dtypes)} types",
        )

    def read(checkpoint: OpenCheckpoint) -> list[np.ndarray]:
        require(checkpoint, names)
        wanted: Any = list(zip(names, specs, dtypes, strict=True))
        if faults.armed:
            wanted = _halfway("restore", wanted)
        return [_read(checkpoint, name, spec, dtype) for name, spec, dtype in wanted]

    return read_checkpoint(_path(prefix), read)


def _slice_sizes(spec: bytes) -> tuple[int, ...] | None:
    """Return the shape of the slice that a specification names; None if it names the
    whole tensor.
    """
    if not spec:
        return None
    try:
        return parse_shape_and_slice(spec.decode(errors="replace"))[1].lengths
    except OpError as error:
        raise ValueError(error.message) from None


def _restore_v2_infer(c: Any, prefix: Any, names: Any, specs: Any) -> Any:
    count = len(c.attrs["dtypes"])
    _save_infer(c, prefix, names, specs, [None] * count)
    known = c.value(2)
    if known is None:
        return [None] * count
    return [_slice_sizes(spec) for spec in known.ravel().tolist()]


@define(
    "RestoreV2",
    "prefix: string, tensor_names: string, shape_and_slices: string -> tensors: *dtypes",
    "dtypes: list(type) >= 1",
    infer=_restore_v2_infer,
    kernel=_restore_v2_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
)
def restore_v2(prefix, tensor_names, shape_and_slices, dtypes, name=None):
    """Return tensors, or slices of tensors, from the V2 or V1 checkpoint at `prefix`."""


def _restore_one(pattern: Any, name: Any, spec: str, dtype: DType) -> np.ndarray:
    (text,) = _texts(name)
    with SliceFiles(_path(pattern)) as checkpoint:
        require(checkpoint, [text])
        return _read(checkpoint, text, spec, dtype)


def _restore_infer(c: Any, pattern: Any, name: Any) -> None:
    pattern.with_rank(0)
    name.with_rank(0)


@define(
    "Restore",
    "file_pattern: string, tensor_name: string -> tensor: dt",
    "dt: type; preferred_shard: int = -1",
    infer=_restore_infer,
    kernel=lambda file_pattern, tensor_name, *, dt: _restore_one(file_pattern, tensor_name, "", dt),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
)
def restore(file_pattern, tensor_name, dt, preferred_shard=-1, name=None):
    """Return a tensor from the V1 checkpoint files that match a pattern. Every file is searched;
    `preferred_shard` is only a hint of where to look first.
    """


def _restore_slice_kernel(file_pattern, tensor_name, shape_and_slice, *, dt):
    (spec,) = _texts(shape_and_slice)
    return _restore_one(file_pattern, tensor_name, spec, dt)


def _restore_slice_infer(c: Any, pattern: Any, name: Any, spec: Any) -> Any:
    for shape in (pattern, name, spec):
        shape.with_rank(0)
    known = c.value(2)
    return None if known is None else _slice_sizes(np.asarray(known, object).item())


@define(
    "RestoreSlice",
    "file_pattern: string, tensor_name: string, shape_and_slice: string -> tensor: dt",
    "dt: type; preferred_shard: int = -1",
    infer=_restore_slice_infer,
    kernel=_restore_slice_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
)
def restore_slice(file_pattern, tensor_name, shape_and_slice, dt, preferred_shard=-1, name=None):
    """Return a slice of a tensor from the V1 checkpoint files that match a pattern."""


# -- File names ------------------------------------------------------------------------------------


def _scalar_name(basename):
    names = string_array(basename)
    if names.ndim:
        raise ValueError(f"basename must be a scalar, got shape {show_shape(names.shape)}")
    return names.item()


def _sharded_filename_kernel(basename, shard, num_shards):
    base = _scalar_name(basename)
    return of_strings([base + b"-%05d-of-%05d" % (int(shard), int(num_shards))], ())


@define(
    "ShardedFilename",
    "basename: string, shard: int32, num_shards: int32 -> filename: string",
    infer=infer.scalar,
    kernel=_sharded_filename_kernel,
    samples=[Sample(b"model", np.int32(1), np.int32(12))],
)
def sharded_filename(basename, shard, num_shards, name=None):
    """Return "basename-00001-of-00012" for shard 1 of 12."""


def _sharded_filespec_kernel(basename, num_shards):
    base = _scalar_name(basename)
    return of_strings([base + b"-?????-of-%05d" % int(num_shards)], ())


@define(
    "ShardedFilespec",
    "basename: string, num_shards: int32 -> filename: string",
    infer=infer.scalar,
    kernel=_sharded_filespec_kernel,
    samples=[Sample(b"model", np.int32(12))],
)
def sharded_filespec(basename, num_shards, name=None):
    """Return the pattern that matches every name of `sharded_filename`."""
