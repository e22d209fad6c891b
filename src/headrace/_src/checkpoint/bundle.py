"""V2 checkpoints. In: named tensors. Out: `prefix.index` and data files; and back.

The index is a table: the empty key holds a header with the number of data files; each name holds an
entry with dtype, shape, position and checksum. A tensor saved in parts has one entry that lists the
parts, and one entry per part under a separate key.

A save takes effect in one step:
- If there is no checkpoint at `prefix` yet: when the index, the last file, is moved there.
- If there is one, two names can't change at once. So all new files are first put beside the old
  ones as `*.pending`, the index last: from then on the new checkpoint is the valid one. Readers
  prefer a pending index, and with it the pending data files that exist. Then the new files are
  moved over the old ones, again the index last. A saver that finds a pending index first completes
  the earlier move.
Savers move files one at a time. A reader may open files during a move and find data that doesn't
belong to its index: the checksums reveal this, and `has_moved` tells the reason.
"""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from headrace._src.checkpoint.contents import OpenCheckpoint, Stored
from headrace._src.checkpoint.slices import TensorSlice, slice_from_proto, slice_key
from headrace._src.checkpoint.table import Table, encode_table
from headrace._src.checkpoint.tensor_data import read_array, write_array
from headrace._src.core import files, proto
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from headrace._src.core.file_errors import file_errors

__all__ = [
    "Bundle",
    "NamedTensor",
    "bundle_exists",
    "merge_bundles",
    "remove_abandoned_parts",
    "write_bundle",
]

_VERSION = 1
_PENDING = ".pending"
_PARTS = re.compile(r".*_temp_[0-9a-f]{32}")  # a sharded save's own directory
_ABANDONED = 24 * 3600.0  # seconds without a change
_MOVED = "another checkpoint was saved there since this one was opened: open it again"
_SLICE_MARK = b"\0"  # the prefix of keys of parts


class NamedTensor(NamedTuple):
    """A tensor to save: all of `name`, or only its slice `part`."""

    name: str
    value: np.ndarray
    shape: tuple[int, ...] | None = None
    part: TensorSlice | None = None


def index_name(prefix: str) -> str:
    """The file with the index of the bundle at `prefix`."""
    return f"{prefix}.index"


def data_name(prefix: str, shard: int, count: int) -> str:
    """One of the files with data."""
    return f"{prefix}.data-{shard:05d}-of-{count:05d}"


def bundle_exists(prefix: str) -> bool:
    """Whether there is a V2 checkpoint at `prefix`."""
    return os.path.exists(index_name(prefix)) or os.path.exists(index_name(prefix) + _PENDING)


def bundle_files(prefix: str) -> list[str]:
    """The files of a bundle, the index first: without it, there is no checkpoint."""
    index = index_name(prefix)
    data = glob.glob(f"{glob.escape(prefix)}.data-?????-of-?????*")
    data = [name for name in data if name.removesuffix(_PENDING)[-5:].isdecimal()]
    return [name for name in (index + _PENDING, index) if os.path.exists(name)] + sorted(data)


# -- Writing ---------------------------------------------------------------------------------------


def write_bundle(prefix: str, tensors: Iterable[NamedTensor]) -> None:
    """Save tensors as the bundle at `prefix`, in one data file; create its directory."""
    with file_errors(prefix):
        _prepare(prefix)
        data_path = data_name(prefix, 0, 1)
        with files.draft(data_path) as data:
            entries = _write_tensors(data, tensors)
            data.seal()
            _commit(prefix, [(data.temporary, data_path)], entries, shards=1)


def _prepare(prefix: str) -> None:
    """Make the directory; remove files that dead processes have left."""
    directory = os.path.dirname(os.path.abspath(prefix))
    os.makedirs(directory, exist_ok=True)
    files.remove_abandoned_drafts(directory)
    remove_abandoned_parts(directory)


def _write_tensors(data: files.Draft, tensors: Iterable[NamedTensor]) -> dict[bytes, Any]:
    entries: dict[bytes, Any] = {}
    offset = 0
    for tensor in tensors:
        value = np.asarray(tensor.value)
        key = _key_of(tensor, value, entries)
        if key in entries:
            raise InvalidArgumentError(None, None, f"Adding duplicate key: {tensor.name}")
        size, crc = write_array(value, data.write)
        entry: Any = proto.BundleEntryProto(offset=offset, size=size, crc32c=crc)
        _describe(entry, value, value.shape)
        entries[key] = entry
        offset += size
    return entries


def _key_of(tensor: NamedTensor, value: np.ndarray, entries: dict[bytes, Any]) -> bytes:
    """Return the key of a tensor's entry; a part is also added to the entry of the whole."""
    name = tensor.name.encode()
    if not name or name.startswith(_SLICE_MARK):
        raise InvalidArgumentError(None, None, f"not a name for a tensor: {tensor.name!r}")
    if tensor.part is None or tensor.shape is None or tensor.part.covers(tensor.shape):
        return name
    whole = entries.get(name)
    if whole is None:
        whole = entries[name] = proto.BundleEntryProto()
        _describe(whole, value, tensor.shape)
    elif not whole.slices or _shape_of(whole) != tensor.shape:
        raise InvalidArgumentError(
            None, None, f"{tensor.name}: slices of {tensor.shape} and of {_shape_of(whole)}"
        )
    whole.slices.append(tensor.part.to_proto())
    return slice_key(tensor.name, tensor.part)


def _describe(entry: Any, value: np.ndarray, shape: tuple[int, ...]) -> None:
    entry.dtype = as_dtype(value.dtype).enum
    entry.shape.SetInParent()
    for size in shape:
        entry.shape.dim.add(size=size)


def _commit(
    prefix: str, data: Sequence[tuple[str, str]], entries: dict[bytes, Any], shards: int
) -> None:
    """Move data files, given with their target paths, and a new index to `prefix`."""
    header = proto.BundleHeaderProto(num_shards=shards)
    header.version.producer = _VERSION
    pairs = [(b"", header), *sorted(entries.items())]
    encoded = ((key, message.SerializeToString(deterministic=True)) for key, message in pairs)
    with files.draft(index_name(prefix)) as index:
        for piece in encode_table(encoded):
            index.write(piece)
        index.seal()
        with files.alone_in_directory(prefix):
            _finish(prefix)
            pending = _PENDING if bundle_exists(prefix) else ""
            for source, place in data:
                files.move(source, place + pending)
            files.sync_directory(prefix)
            index.publish(index.path + pending)
            files.sync_directory(prefix)
            _finish(prefix)


def finish_pending(prefix: str) -> None:
    """Complete the moves of a save that took effect, if its process died before finishing them."""
    if os.path.exists(index_name(prefix) + _PENDING):
        with files.alone_in_directory(prefix):
            _finish(prefix)


def _finish(prefix: str) -> None:
    index = index_name(prefix)
    if not os.path.exists(index + _PENDING):
        return
    shards = _read_index(index + _PENDING).shards
    for shard in range(shards):
        place = data_name(prefix, shard, shards)
        if os.path.exists(place + _PENDING):
            files.move(place + _PENDING, place)
    files.sync_directory(prefix)
    files.move(index + _PENDING, index)
    files.sync_directory(prefix)


def merge_bundles(prefixes: Sequence[str], destination: str, delete_old_dirs: bool) -> None:
    """Merge several bundles into one; their data files are moved, not copied.

    With `delete_old_dirs`, remove the directories of the merged bundles once they are empty.
    """
    if not prefixes:
        raise InvalidArgumentError(None, None, "there are no checkpoints to merge")
    with file_errors(destination):
        _prepare(destination)
        _merge(prefixes, destination)
        _remove_sources(prefixes, destination, delete_old_dirs)


def _merge(prefixes: Sequence[str], destination: str) -> None:
    parts = {prefix: _read_index(index_name(prefix)) for prefix in prefixes}
    total = sum(part.shards for part in parts.values())
    moves: list[tuple[str, str]] = []
    entries: dict[bytes, Any] = {}
    for prefix, part in parts.items():
        first = len(moves)
        for shard in range(part.shards):
            source = data_name(prefix, shard, part.shards)
            moves.append((source, data_name(destination, len(moves), total)))
        for key, entry in part.entries.items():
            _merge_entry(entries, key, entry, first)
    _commit(destination, moves, entries, total)


def remove_abandoned_parts(directory: str, age: float = _ABANDONED) -> None:
    """Remove the directories of parts that haven't changed for `age` seconds: a sharded save died
    before it could merge them.
    """
    for entry in os.scandir(directory):
        if _PARTS.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            with suppress(OSError):  # another process removed it first, or we lack the permission
                inside = list(os.scandir(entry.path))
                newest = max(e.stat().st_mtime for e in (entry, *inside))
                ours = all(part.name.startswith("part-") for part in inside)
                if ours and time.time() - newest > age:
                    for part in inside:
                        files.remove(part.path)
                    files.remove_directory(entry.path)


def _merge_entry(entries: dict[bytes, Any], key: bytes, entry: Any, first: int) -> None:
    known = entries.get(key)
    if known is None:
        if not entry.slices:
            entry.shard_id += first
        entries[key] = entry
    elif known.slices and known.shape == entry.shape and known.dtype == entry.dtype:
        known.slices.extend(entry.slices)
    else:
        raise InvalidArgumentError(
            None, None, f"Duplicate tensor keyed by {key.decode(errors='replace')} encountered"
        )


def _remove_sources(prefixes: Sequence[str], destination: str, directories: bool) -> None:
    for prefix in prefixes:
        if prefix != destination:
            files.remove(index_name(prefix))
    if directories:
        kept = os.path.dirname(os.path.abspath(destination))
        for directory in {os.path.dirname(os.path.abspath(prefix)) for prefix in prefixes} - {kept}:
            with suppress(OSError):  # it still has other files
                files.remove_directory(directory)


# -- Reading ---------------------------------------------------------------------------------------


class _Index(NamedTuple):
    """The entries of an index, the number of data files, and the path and identity of the index
    file.
    """

    entries: dict[bytes, Any]
    shards: int
    origin: tuple[Any, ...]


def _read_index(path: str) -> _Index:
    with file_errors(path), open(path, "rb") as file:
        origin = _origin(path, os.fstat(file.fileno()))
        table = Table(file.read(), path)
    items = table.items()
    try:
        key, value = next(items, (None, b""))
        if key != b"":
            raise DataLossError(None, None, f"{path}: the index has no header")
        header = proto.BundleHeaderProto.FromString(value)
        entries = {key: proto.BundleEntryProto.FromString(value) for key, value in items}
    except proto.DecodeError as error:
        raise DataLossError(None, None, f"{path}: {error}") from None
    _check_header(header, path)
    return _Index(entries, header.num_shards, origin)


def _origin(path: str, status: os.stat_result) -> tuple[Any, ...]:
    return path, status.st_dev, status.st_ino, status.st_mtime_ns


def _check_header(header: Any, path: str) -> None:
    if header.endianness != proto.BundleHeaderProto.LITTLE:
        raise UnimplementedError(None, None, f"{path}: big-endian checkpoints can't be read")
    if header.version.min_consumer > _VERSION:
        raise InvalidArgumentError(
            None,
            None,
            f"{path}: its format needs a reader of version {header.version.min_consumer}",
        )
    if header.num_shards < 0:
        raise DataLossError(None, None, f"{path}: it has {header.num_shards} data files")


def _shape_of(entry: Any) -> tuple[int, ...]:
    return tuple(dim.size for dim in entry.shape.dim)


class Bundle(OpenCheckpoint):
    """A V2 checkpoint: its entries; the data files are opened when they are read."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        index = index_name(prefix)
        try:
            found, self._pending = _read_index(index + _PENDING), True
        except NotFoundError:  # it doesn't exist, or no longer
            found, self._pending = _read_index(index), False
        self._entries, self._shards, self._origin = found
        self.stored = dict(self._described())

    def has_moved(self) -> bool:
        index = index_name(self.prefix)
        for path in (index + _PENDING, index):
            with suppress(FileNotFoundError):
                return _origin(path, os.stat(path)) != self._origin
        return True

    def missing(self, name: str) -> str:
        return f"Key {name} not found in checkpoint"

    def _described(self) -> Iterator[tuple[str, Stored]]:
        for key, entry in self._entries.items():
            if key.startswith(_SLICE_MARK):
                continue
            shape = _shape_of(entry)
            if any(size < 0 for size in shape):
                raise DataLossError(None, None, f"{self.prefix}: a shape with negative sizes")
            parts = tuple(slice_from_proto(part) for part in entry.slices)
            yield key.decode(errors="replace"), Stored(self._dtype(entry), shape, parts)

    def _dtype(self, entry: Any) -> DType:
        try:
            return DType(entry.dtype)
        except TypeError as error:
            raise DataLossError(None, None, f"{self.prefix}: {error}") from None

    def read_part(self, name: str, part: TensorSlice | None) -> np.ndarray:
        key = name.encode() if part is None else slice_key(name, part)
        entry = self._entries.get(key)
        if entry is None:
            raise DataLossError(None, None, f"{self.prefix}: {name} has no data for slice {part}")
        path = self._path(entry.shard_id)
        try:
            with file_errors(path), open(path, "rb", buffering=0) as file:
                file.seek(entry.offset)
                return read_array(
                    file.readinto, entry.size, entry.crc32c, self._dtype(entry), _shape_of(entry)
                )
        except DataLossError as error:
            hint = _MOVED if self.has_moved() else None
            message = f"{self.prefix}: {name}: {error.message}"
            raise DataLossError(None, None, message, hint=hint) from None

    def _path(self, shard: int) -> str:
        path = data_name(self.prefix, shard, self._shards)
        pending = self._pending and os.path.exists(path + _PENDING)
        return path + _PENDING if pending else path
