"""Safetensors files. In: named arrays. Out: one file; and back.

The file consists of the header's length in eight bytes; the header, JSON with each tensor's type,
shape and byte range; and the bytes, without gaps. Tensors with larger elements come first, so that
all are aligned. There are no checksums: damage is noticed only if the header and the sizes don't
fit.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from headrace._src.checkpoint.contents import OpenCheckpoint, Stored
from headrace._src.checkpoint.slices import TensorSlice
from headrace._src.core import dtypes, files
from headrace._src.core.dtypes import DType
from headrace._src.core.errors import DataLossError, UnimplementedError
from headrace._src.core.file_errors import file_errors

__all__ = ["SUFFIX", "SafeTensors", "write_safetensors"]

SUFFIX = ".safetensors"

# In the order of the format's own list: tensors are written from its end to its start.
_TYPES: dict[str, DType] = {
    "BOOL": dtypes.bool,
    "U8": dtypes.uint8,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "U16": dtypes.uint16,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "I32": dtypes.int32,
    "U32": dtypes.uint32,
    "F32": dtypes.float32,
    "C64": dtypes.complex64,
    "F64": dtypes.float64,
    "I64": dtypes.int64,
    "U64": dtypes.uint64,
}
_CODES = {dtype: code for code, dtype in _TYPES.items()}
_RANKS = {dtype: rank for rank, dtype in enumerate(_TYPES.values())}
_METADATA = "__metadata__"
_LENGTH = struct.Struct("<Q")
_MOST_HEADER = 100_000_000  # bytes; other readers refuse longer headers
_CHUNK = 1 << 22


def write_safetensors(
    path: str | os.PathLike[str],
    stored: Mapping[str, Stored],
    read: Callable[[str], np.ndarray],
    metadata: Mapping[str, str] | None = None,
    progress: Callable[[int], Any] = lambda count: None,
) -> None:
    """Write the tensors that `stored` describes, each as `read` returns it; the file appears whole
    or not at all. `progress` is called with the number of bytes just written.
    """
    ordered = sorted(stored, key=lambda name: (-_RANKS.get(stored[name].dtype, 0), name))
    header = _header({name: stored[name] for name in ordered}, metadata)

    def pieces() -> Iterator[Any]:
        yield _LENGTH.pack(len(header)) + header
        for name in ordered:
            flat = np.ascontiguousarray(read(name)).reshape(-1).view(np.uint8)
            for start in range(0, flat.size, _CHUNK):
                piece = flat[start : start + _CHUNK]
                yield piece
                progress(piece.size)  # it's written

    with file_errors(path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    files.replace_file(path, pieces())


def _header(stored: Mapping[str, Stored], metadata: Mapping[str, str] | None) -> bytes:
    refused = [f"{n} ({t.dtype.name})" for n, t in stored.items() if t.dtype not in _CODES]
    refused += [name for name in stored if name == _METADATA]
    if refused:
        raise UnimplementedError(
            None, None, f"a safetensors file can't hold these tensors: {', '.join(refused)}"
        )
    found: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name, tensor in stored.items():
        start, end = end, end + math.prod(tensor.shape) * tensor.dtype.size
        found[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()
    return text.ljust(-(-len(text) // 8) * 8)


class SafeTensors(OpenCheckpoint):
    """A safetensors file as a checkpoint. `metadata`: the additional strings in its header."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.metadata: dict[str, str] = {}
        self.stored = {}
        self._offsets: dict[str, int] = {}
        with file_errors(self.path), open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = self._read_header(file, size)
        self._describe(header, size)

    def missing(self, name: str) -> str:
        return f"Tensor {name} not found in {self.path}"

    def _read_header(self, file: Any, size: int) -> dict[str, Any]:
        (length,) = _LENGTH.unpack(file.read(8).ljust(8, b"\xff"))
        if not 2 <= length <= min(_MOST_HEADER, size - 8):
            raise self._lost("the header is longer than the file, or empty")
        self._start = 8 + length
        try:
            header = json.loads(file.read(length).decode(), object_pairs_hook=_without_twins)
        except (ValueError, RecursionError) as error:
            raise self._lost(f"the header can't be read: {error}") from None
        if not isinstance(header, dict):
            raise self._lost("the header is not a JSON object")
        return header

    def _describe(self, header: dict[str, Any], size: int) -> None:
        metadata = header.pop(_METADATA, {})
        if not isinstance(metadata, dict) or not all(
            isinstance(text, str) for text in metadata.values()
        ):
            raise self._lost("the metadata are not strings")
        self.metadata = metadata
        spans = []
        for name, entry in header.items():
            dtype, shape, (start, end) = self._entry(name, entry)
            if end - start != math.prod(shape) * dtype.size:
                raise self._lost(f"{name}: {end - start} bytes can't be {dtype.name}{list(shape)}")
            self.stored[name] = Stored(dtype, shape)
            self._offsets[name] = self._start + start
            spans.append((start, end))
        at = 0
        for start, end in sorted(spans):
            if start != at:
                raise self._lost("the tensors overlap, or there are gaps between them")
            at = end
        if self._start + at != size:
            raise self._lost(f"it should have {self._start + at} bytes, and has {size}")

    def _entry(self, name: str, entry: Any) -> tuple[DType, tuple[int, ...], list[int]]:
        try:
            code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        except (TypeError, KeyError, IndexError):
            raise self._lost(f"{name}: its entry is incomplete") from None
        if not (_is_sizes(shape) and _is_sizes(offsets) and len(offsets) == 2):
            raise self._lost(f"{name}: its shape and its byte range must be numbers")
        dtype = _TYPES.get(code) if isinstance(code, str) else None
        if dtype is None:
            raise UnimplementedError(
                None, None, f"{self.path}: {name}: tensors of type {code} can't be read"
            )
        return dtype, tuple(shape), offsets

    def read_part(self, name: str, part: TensorSlice | None) -> np.ndarray:
        stored = self.stored[name]
        result = np.empty(stored.shape, stored.dtype.numpy)
        flat = result.reshape(-1).view(np.uint8)
        with file_errors(self.path), open(self.path, "rb", buffering=0) as file:
            file.seek(self._offsets[name])
            left = flat.data
            while left:
                count = file.readinto(left)
                if not count:
                    raise self._lost(f"{name}: the file ends too early")
                left = left[count:]
        if stored.dtype is dtypes.bool and flat.size and flat.max() > 1:
            raise self._lost(f"{name}: a truth value that is neither 0 nor 1")
        return result

    def _lost(self, message: str) -> DataLossError:
        return DataLossError(None, None, f"{self.path}: {message}")


def _without_twins(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} occurs twice")
        found[key] = value
    return found


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)
