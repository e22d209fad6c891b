"""Records to columns. In: serialized Examples, and the requested features. Out: for a sparse
feature the indices, values and shape of the records' values; for a dense one an array.

A dense feature whose first size is unknown has as many rows as the longest record's; shorter ones
are padded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace._src.core import proto
from headrace._src.lowering import generated
from headrace._src.ops.strings.string_arrays import attr_bytes, numpy_dtype, of_strings, spans_of

__all__ = ["parse_example", "parse_single_example", "sparse_rows"]

_KINDS = {"bytes_list": "string", "float_list": "float", "int64_list": "int64"}
_WANTED = {"O": "bytes_list", "f": "float_list", "i": "int64_list"}

Where = Callable[[int, str], str]  # of a record's index and a key: how an error begins


class _Records(NamedTuple):
    """Parsed records, each a mapping from key to feature, and how to say where one is wrong."""

    features: list[Any]
    name: Callable[[int], str]
    where: Where

    def values(self, index: int, key: str, dtype: np.dtype, dense: bool) -> Sequence[Any] | None:
        """The values of one feature of one record; None if it isn't there."""
        features = self.features[index]
        if key not in features:
            return None
        feature = features[key]
        kind = feature.WhichOneof("kind")
        if kind is None:
            return None
        if kind != _WANTED[dtype.kind]:
            actual, expected = _KINDS[kind], _KINDS[_WANTED[dtype.kind]]
            told = (
                f"Data type: {actual} but expected type: {expected}"
                if dense
                else f"Expected type: {expected}, Actual type: {actual}"
            )
            raise ValueError(f"{self.where(index, key)}.  Data types don't match. {told}")
        return getattr(feature, kind).value


def _parsed(serialized: Sequence[bytes]) -> list[Any]:
    found = []
    for record in serialized:
        try:
            found.append(proto.Example.FromString(record).features.feature)
        except proto.DecodeError:
            raise ValueError(f"Could not parse example input, value: {record!r:.200}") from None
    return found


def _array(values: Any, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "O":
        return of_strings(values, (len(values),))
    return np.array(values, dtype)


def _sparse(records: _Records, key: str, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    rows = [records.values(i, key, dtype, False) or () for i in range(len(records.features))]
    counts = np.array([len(row) for row in rows], np.int64)
    return sparse_rows(counts, _array([value for row in rows for value in row], dtype))


def sparse_rows(counts: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Indices, values and shape of rows that have so many values each."""
    row_of = np.repeat(np.arange(len(counts)), counts)
    column_of = np.arange(len(row_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    indices = np.stack([row_of, column_of], axis=1).astype(np.int64)
    return indices, values, np.array([len(counts), counts.max(initial=0)], np.int64)


def _fixed(
    records: _Records, key: str, dtype: np.dtype, shape: tuple[int, ...], default: np.ndarray
) -> np.ndarray:
    size = int(np.prod(shape))
    blank = None
    if default.size or not size:
        if default.size != size:
            raise ValueError(
                f"dense_defaults of {key} has {default.size} elements, but its shape is "
                f"{list(shape)}"
            )
        blank = default.ravel().tolist()
    found: list[Any] = []
    for index in range(len(records.features)):
        values = records.values(index, key, dtype, True)
        if values is None:
            if blank is None:
                kind = _KINDS[_WANTED[dtype.kind]]
                raise ValueError(
                    f"{records.name(index)}Feature: {key} (data type: {kind}) is required but "
                    "could not be found."
                )
            values = blank
        elif len(values) != size:
            kind = _KINDS[_WANTED[dtype.kind]]
            raise ValueError(
                f"{records.where(index, key)}.  Number of {kind} values != expected.  Values size: "
                f"{len(values)} but output shape: {_shown(shape)}"
            )
        found += values
    return _array(found, dtype).reshape((len(records.features), *shape))


def _ragged(
    records: _Records, key: str, dtype: np.dtype, row: tuple[int, ...], default: np.ndarray
) -> np.ndarray:
    stride = int(np.prod(row))
    rows = []
    for index in range(len(records.features)):
        values = records.values(index, key, dtype, True) or ()
        if len(values) % stride:
            kind = _KINDS[_WANTED[dtype.kind]]
            raise ValueError(
                f"{records.where(index, key)}.  Number of {kind} values is not a multiple of "
                f"stride length. Saw {len(values)} values but output shape is: "
                f"{_shown((None, *row))}"
            )
        rows.append(values)
    longest = max(map(len, rows), default=0)
    filler = default.ravel()[0] if default.size else (b"" if dtype.kind == "O" else 0)
    array = np.full((len(rows), longest), filler, dtype)
    for index, values in enumerate(rows):
        array[index, : len(values)] = values
    return array.reshape((len(rows), longest // stride, *row))


def _shown(shape: tuple[int | None, ...]) -> str:
    return "[" + ",".join("?" if n is None else str(n) for n in shape) + "]"


def _columns(
    records: _Records,
    sparse: Sequence[tuple[str, Any]],
    dense: Sequence[tuple[str, Any, Any]],
) -> list[np.ndarray]:
    """All outputs, in the op's order: sparse indices, values, shapes, then dense values."""
    parts = [_sparse(records, key, numpy_dtype(dtype)) for key, dtype in sparse]
    arrays = [part[i] for i in range(3) for part in parts]
    for key, default, shape in dense:
        default = np.asarray(default)
        sizes = tuple(shape.sizes)
        column = _fixed if None not in sizes else _ragged
        if column is _ragged and default.size != 1:
            raise ValueError(
                f"dense_shape of {key} is a variable length shape: {_shown(sizes)}, therefore its "
                "default must contain a single element (the padding element).  But its shape is: "
                f"{_shown(default.shape)}"
            )
        row = sizes if column is _fixed else sizes[1:]
        arrays.append(column(records, key, default.dtype, row, default))
    return arrays


_LEAST = 2048  # bytes of records that generated code is asked for

_Column = tuple[
    np.ndarray, np.ndarray
]  # how many values each record has (< 0: none), and all values


def _simple_columns(
    rows: np.ndarray,
    sparse: Sequence[tuple[str, Any]],
    dense: Sequence[tuple[str, Any, Any]],
) -> list[np.ndarray] | None:
    """The same outputs by generated code; None where there is none, and wherever a record isn't as
    it should be: it's left to others to say what is wrong.
    """
    defaults = [np.asarray(default) for _, default, _ in dense]
    dtypes = [numpy_dtype(dtype) for _, dtype in sparse] + [default.dtype for default in defaults]
    keys = [key.encode("utf-8", "replace") for key, *_ in (*sparse, *dense)]
    if len(set(keys)) < len(keys) or not all(dtype.char in _GENERATED for dtype in dtypes):
        return None
    spans = spans_of(rows, each=64)
    if spans is None or spans.sizes.sum() < _LEAST:
        return None
    find = generated.routine("features")
    kinds = [_GENERATED[dtype.char] for dtype in dtypes]
    columns = None if find is None else find(spans.addresses, spans.sizes, keys, kinds)
    if columns is None:
        return None
    parts = [sparse_rows(np.maximum(n, 0), values) for n, values in columns[: len(sparse)]]
    arrays: list[np.ndarray] = [part[i] for i in range(3) for part in parts]
    given = zip(columns[len(sparse) :], defaults, dense, strict=True)
    for column, default, (_, _, shape) in given:
        sizes = tuple(shape.sizes)
        fill = _simple_fixed if None not in sizes else _simple_ragged
        array = fill(column, sizes, default)
        if array is None:
            return None
        arrays.append(array)
    return arrays


_GENERATED = {"O": "bytes", "f": "float", "q": "int64", "l": "int64"}


def _simple_fixed(
    column: _Column, shape: tuple[int, ...], default: np.ndarray
) -> np.ndarray | None:
    counts, values = column
    size = int(np.prod(shape))
    is_there = counts >= 0
    if (counts[is_there] != size).any() or (default.size and default.size != size):
        return None
    if is_there.all():
        return values.reshape((len(counts), *shape))
    if default.size != size:
        return None
    array = np.empty((len(counts), size), values.dtype)
    array[is_there] = values.reshape(int(is_there.sum()), size)
    array[~is_there] = default.ravel()
    return array.reshape((len(counts), *shape))


def _simple_ragged(
    column: _Column, shape: tuple[int, ...], default: np.ndarray
) -> np.ndarray | None:
    counts, values = np.maximum(column[0], 0), column[1]
    row = shape[1:]
    stride = int(np.prod(row))
    if default.size != 1 or not stride or (counts % stride).any():
        return None
    longest = int(counts.max(initial=0))
    array = np.full((len(counts), longest), default.item(), values.dtype)
    array[np.arange(longest) < counts[:, np.newaxis]] = values
    return array.reshape((len(counts), longest // stride, *row))


def _text(key: Any) -> str:
    """A key, be it an attribute's string or a scalar tensor."""
    return attr_bytes(np.asarray(key, object).item()).decode("utf-8", "replace")


def parse_example(
    serialized, names, sparse_keys, dense_keys, dense_defaults, *, sparse_types, dense_shapes, **_
):
    """The columns of a batch of records."""
    rows = np.asarray(serialized, object)
    if rows.ndim != 1:
        raise ValueError(f"Expected serialized to be a vector, got shape: {_shown(rows.shape)}")
    called = np.asarray(names, object).ravel().tolist()
    if called and len(called) != len(rows):
        raise ValueError(
            f"Expected len(names) == len(serialized), but got: {len(called)} vs. {len(rows)}"
        )
    sparse = list(zip(map(_text, sparse_keys), sparse_types, strict=True))
    dense = list(zip(map(_text, dense_keys), dense_defaults, dense_shapes, strict=True))
    columns = _simple_columns(rows, sparse, dense)
    if columns is not None:
        return columns

    def name(index: int) -> str:
        return f"Name: {_text(called[index]) if called else '<unknown>'}, "

    texts = [bytes(record) for record in rows.tolist()]
    records = _Records(_parsed(texts), name, lambda i, key: f"{name(i)}Key: {key}, Index: {i}")
    return _columns(records, sparse, dense)


def parse_single_example(
    serialized, dense_defaults, *, sparse_keys, dense_keys, sparse_types, dense_shapes, **_
):
    """The columns of one record: as of a batch of one, without the batch's dimension."""
    if np.ndim(serialized):
        shown = _shown(np.shape(serialized))
        raise ValueError(f"Expected serialized to be a scalar, got shape: {shown}")
    sparse = list(zip(map(_text, sparse_keys), sparse_types, strict=True))
    dense = list(zip(map(_text, dense_keys), dense_defaults, dense_shapes, strict=True))
    record = bytes(np.asarray(serialized, object).item())
    arrays = None
    if len(record) >= _LEAST:
        arrays = _simple_columns(of_strings([record], (1,)), sparse, dense)
    if arrays is None:
        records = _Records(_parsed([record]), lambda index: "", lambda index, key: f"Key: {key}")
        arrays = _columns(records, sparse, dense)
    count = len(sparse)
    indices, values, shapes = (arrays[i * count : (i + 1) * count] for i in range(3))
    return [
        *(index[:, 1:] for index in indices),
        *values,
        *(shape[1:] for shape in shapes),
        *(array[0] for array in arrays[3 * count :]),
    ]
