"""Records to columns. In: serialized Examples, and the requested features. Out: for a sparse
feature the indices, values and shape of the records' values; for a dense one an array.

A dense feature whose first size is unknown has as many rows as the longest record's; shorter ones
are padded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.core import proto
from headrace.ops.string_arrays import attr_bytes, numpy_dtype, of_strings

__all__ = ["parse_example", "parse_single_example"]

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
    from google.protobuf.message import DecodeError  # loaded when it's used: import stays cheap

    found = []
    for record in serialized:
        try:
            found.append(proto.Example.FromString(record).features.feature)
        except DecodeError:
            raise ValueError(f"Could not parse example input, value: {record!r:.200}") from None
    return found


def _array(values: Any, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "O":
        return of_strings(values, (len(values),))
    return np.array(values, dtype)


def _sparse(records: _Records, key: str, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    rows = [records.values(i, key, dtype, False) or () for i in range(len(records.features))]
    counts = np.array([len(row) for row in rows], np.int64)
    row_of = np.repeat(np.arange(len(rows)), counts)
    column_of = np.arange(len(row_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    indices = np.stack([row_of, column_of], axis=1).astype(np.int64)
    values = _array([value for row in rows for value in row], dtype)
    return indices, values, np.array([len(rows), counts.max(initial=0)], np.int64)


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
    texts = [bytes(record) for record in rows.tolist()]
    called = np.asarray(names, object).ravel().tolist()
    if called and len(called) != len(texts):
        raise ValueError(
            f"Expected len(names) == len(serialized), but got: {len(called)} vs. {len(texts)}"
        )

    def name(index: int) -> str:
        return f"Name: {_text(called[index]) if called else '<unknown>'}, "

    records = _Records(_parsed(texts), name, lambda i, key: f"{name(i)}Key: {key}, Index: {i}")
    sparse = list(zip(map(_text, sparse_keys), sparse_types, strict=True))
    dense = list(zip(map(_text, dense_keys), dense_defaults, dense_shapes, strict=True))
    return _columns(records, sparse, dense)


def parse_single_example(
    serialized, dense_defaults, *, sparse_keys, dense_keys, sparse_types, dense_shapes, **_
):
    """The columns of one record: as of a batch of one, without the batch's dimension."""
    if np.ndim(serialized):
        shown = _shown(np.shape(serialized))
        raise ValueError(f"Expected serialized to be a scalar, got shape: {shown}")
    records = _Records(
        _parsed([bytes(np.asarray(serialized, object).item())]),
        lambda index: "",
        lambda index, key: f"Key: {key}",
    )
    sparse = list(zip(map(_text, sparse_keys), sparse_types, strict=True))
    dense = list(zip(map(_text, dense_keys), dense_defaults, dense_shapes, strict=True))
    arrays = _columns(records, sparse, dense)
    count = len(sparse)
    indices, values, shapes = (arrays[i * count : (i + 1) * count] for i in range(3))
    return [
        *(index[:, 1:] for index in indices),
        *values,
        *(shape[1:] for shape in shapes),
        *(array[0] for array in arrays[3 * count :]),
    ]
