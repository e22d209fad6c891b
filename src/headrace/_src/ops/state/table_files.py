"""Ops that fill a lookup table from a text file. In: a path, and the columns of keys and values.

A column is a number, counted from 0, or one of the two constants below. The file is read when the
table is filled for the first time.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.tables import StaticTable
from headrace._src.graph.definition import Effect
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.state.table_ops import table_behind

__all__ = ["LINE_NUMBER", "WHOLE_LINE"]

WHOLE_LINE = -2
LINE_NUMBER = -1


def _text_file_kernel(handle, filename, *, ctx, key_index, value_index, vocab_size, delimiter):
    table = table_behind(ctx, handle)
    if not isinstance(table, StaticTable):
        raise InvalidArgumentError(None, None, f"{table!r} can't be initialized, only inserted to")
    path = filename if isinstance(filename, bytes) else np.asarray(filename).item()
    if len(delimiter) != 1:
        raise InvalidArgumentError(
            None, None, f"delimiter should be only 1 char, not {delimiter!r}"
        )
    separator = delimiter.encode() if isinstance(delimiter, str) else delimiter

    def entries() -> tuple[np.ndarray, np.ndarray]:
        name = path.decode(errors="surrogateescape")
        lines = _lines(name, vocab_size)
        columns = max(key_index, value_index) + 1
        rows = [_fields(name, i, line, columns, separator) for i, line in enumerate(lines)]
        keys = _column(lines, rows, key_index, table.key_dtype)
        return keys, _column(lines, rows, value_index, table.value_dtype)

    table.initialize(entries)


def _lines(name: str, limit: int) -> list[bytes]:
    """Return the lines of a file, or its first `limit` lines if that is not negative."""
    lines = _contents(name).split(b"\n")
    if not lines[-1]:
        lines.pop()  # the empty string after the last line end
    if not lines:
        raise OutOfRangeError(
            None, None, f"Read less bytes than requested: the vocabulary file {name} is empty"
        )
    if limit > len(lines):
        raise InvalidArgumentError(
            None, None, f"Invalid vocab_size in {name}: expected {limit} but got {len(lines)}"
        )
    position, found = 0, []
    for line in lines if limit < 0 else lines[:limit]:
        position += len(line) + 1
        text = line[:-1] if line.endswith(b"\r") else line
        if not text:
            raise InvalidArgumentError(
                None,
                None,
                f"Invalid content in {name}: empty line found at position {position}.",
            )
        found.append(text)
    return found


def _contents(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFoundError(None, None, f"{name}; No such file or directory") from None
    except IsADirectoryError:
        raise FailedPreconditionError(None, None, f"{name}; Is a directory") from None
    except OSError as error:
        raise InvalidArgumentError(None, None, f"{name}; {error.strerror}") from None


def _fields(name: str, number: int, line: bytes, columns: int, separator: bytes) -> list[bytes]:
    """Return the columns of a line, which must have at least as many as are needed."""
    fields = line.split(separator) if columns > 0 else []
    if len(fields) < columns:
        raise InvalidArgumentError(
            None,
            None,
            f"Invalid number of columns in {name} line {number} ({line.decode(errors='replace')}) "
            f": expected {columns} got {len(fields)}",
        )
    return fields


def _column(
    lines: list[bytes], rows: list[list[bytes]], index: int, dtype: dtypes.DType
) -> np.ndarray:
    """Return the values of a column of a file as an array."""
    if index == LINE_NUMBER:
        if dtype not in (dtypes.int64, dtypes.int32):
            raise InvalidArgumentError(None, None, f"line numbers are int64, not {dtype.name}")
        return np.arange(len(lines), dtype=dtype.numpy)
    texts = lines if index == WHOLE_LINE else [fields[index] for fields in rows]
    found = np.empty(len(texts), dtype.numpy)
    for i, text in enumerate(texts):
        found[i] = text if dtype is dtypes.string else _number(text, i, dtype)
    return found


_INTEGER = re.compile(rb"\s*-?[0-9]+\s*")
_C_NAMES = {"float32": "float", "float64": "double"}


def _number(text: bytes, line: int, dtype: dtypes.DType) -> int | float:
    found = _integer(text, dtype) if dtype.is_integer else _floating(text)
    if found is None:
        raise InvalidArgumentError(
            None,
            None,
            f"Field {text.decode(errors='replace')} in line {line} is not a valid "
            f"{_C_NAMES.get(dtype.name, dtype.name)}.",
        )
    return found


def _integer(text: bytes, dtype: dtypes.DType) -> int | None:
    """Parse an integer by C's rules (no underscores, no plus); None if it isn't one or
    doesn't fit.
    """
    if not _INTEGER.fullmatch(text) or not dtype.min <= int(text) <= dtype.max:
        return None
    return int(text)


def _floating(text: bytes) -> float | None:
    if b"_" in text:
        return None
    try:
        return float.fromhex(text.decode()) if b"x" in text.lower() else float(text)
    except ValueError:
        return None


def _text_file_infer(c: Any, handle: TensorShape, filename: TensorShape) -> list[Any]:
    infer.with_rank(filename, 0)
    return []


def _text_file(op_type: str, handle: str) -> Any:
    return define(
        op_type,
        f"table_handle: {handle}, filename: string ->",
        "key_index: int >= -2; value_index: int >= -2; vocab_size: int >= -1 = -1; "
        r"delimiter: string = '\t'",
        infer=_text_file_infer,
        kernel=_text_file_kernel,
        effect=Effect.WRITES,
    )


@_text_file("InitializeTableFromTextFileV2", "resource")
def initialize_table_from_text_file_v2(
    table_handle,
    filename,
    key_index,
    value_index,
    vocab_size=-1,
    delimiter="\t",
    name=None,
):
    """Fill an immutable table from columns of a text file."""


@_text_file("InitializeTableFromTextFile", "Ref(string)")
def initialize_table_from_text_file(
    table_handle,
    filename,
    key_index,
    value_index,
    vocab_size=-1,
    delimiter="\t",
    name=None,
):
    """Fill the immutable table of a reference from columns of a text file."""
