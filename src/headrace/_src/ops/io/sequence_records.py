"""The lists of serialized SequenceExamples, read by generated code. In: a record. Out: for each
list its features, and from these the arrays of values.

The few fields of a record around its lists are read here; whatever isn't as every writer of records
writes it makes the whole answer None.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace._src.lowering import generated
from headrace._src.ops.strings.string_arrays import Spans, of_strings, spans_of

__all__ = ["FeatureRows", "split_record"]

_LEAST = 2048  # bytes of a record that generated code is asked for
_MOST = 1 << 26  # the features of a record take up to 16 times its size meanwhile
_KINDS = {"O": (1, "bytes"), "f": (2, "float"), "i": (3, "int64")}
_CONTEXT, _LISTS = 0x0A, 0x12  # tags of a SequenceExample
_ENTRY, _KEY, _VALUE = 0x0A, 0x0A, 0x12  # tags of FeatureLists and of its map


class FeatureRows(NamedTuple):
    """The features of one list: the numbers of their kinds (0: none), where their values are, and
    how many there are of each (below zero: it has no kind).
    """

    kinds: np.ndarray
    spans: Spans
    counts: np.ndarray

    def dense(self, dtype: np.dtype, size: int) -> np.ndarray | None:
        """All values of a type, if each feature has `size` of them."""
        number, _ = _KINDS[dtype.kind]
        if (self.kinds != number).any() or (self.counts != size).any():
            return None
        return self._values(dtype)

    def sparse(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray] | None:
        """How many values of a type each feature has, and all values; None if one is of another
        type.
        """
        number, _ = _KINDS[dtype.kind]
        if ((self.kinds != number) & (self.kinds != 0)).any():
            return None
        return np.maximum(self.counts, 0), self._values(dtype)

    def _values(self, dtype: np.dtype) -> np.ndarray:
        take = generated.routine("feature_values", _KINDS[dtype.kind][1])
        assert take is not None  # there was code that has found them
        total = int(np.maximum(self.counts, 0).sum())
        return take(self.spans.addresses, self.spans.sizes, total)


def split_record(record: bytes) -> tuple[bytes, dict[str, FeatureRows]] | None:
    """A record without its lists, and the lists; None where there is no generated code for it, or
    where it needs a closer look.
    """
    if not _LEAST <= len(record) <= _MOST:
        return None
    spans = spans_of(of_strings([record], (1,)), each=len(record) // 4)
    find = None if spans is None else generated.routine("feature_rows")
    if spans is None or find is None:
        return None
    lists = _places(record)
    if lists is None:
        return None
    rest, places = lists
    found = {}
    for key, (start, end) in places.items():
        rows = find(spans.addresses + start, np.array([end - start]))
        if rows is None:
            return None
        kinds, addresses, sizes, counts = rows
        found[key] = FeatureRows(kinds, Spans(addresses, sizes, spans), counts)
    return rest, found


_Place = tuple[int, int]


def _places(record: bytes) -> tuple[bytes, dict[str, _Place]] | None:
    """A record without its lists, and where each list is."""
    at, parts = 0, {}
    while at < len(record):
        tag = record[at]
        place = _field(record, at, len(record), tag)
        if tag not in (_CONTEXT, _LISTS) or tag in parts or place is None:
            return None
        parts[tag] = (at, place[1])
        at = place[1]
    start, end = parts.get(_CONTEXT, (0, 0))
    rest = record[start:end]
    if _LISTS not in parts:
        return rest, {}
    found: dict[str, _Place] = {}
    lists = _field(record, parts[_LISTS][0], len(record), _LISTS)
    assert lists is not None  # it was read before
    at, stop = lists
    while at < stop:
        entry = _field(record, at, stop, _ENTRY)
        key = entry and _field(record, *entry, _KEY)
        value = entry and key and _field(record, key[1], entry[1], _VALUE)
        if not entry or not key or not value or value[1] != entry[1]:
            return None
        name = record[slice(*key)]
        if not name.isascii() or name.decode() in found:
            return None
        found[name.decode()] = value
        at = entry[1]
    return rest, found


def _field(record: bytes, at: int, stop: int, tag: int) -> _Place | None:
    """Where the field at a position starts and ends, if it has this tag and ends before `stop`."""
    if at >= stop or record[at] != tag:
        return None
    size = shift = 0
    for position in range(at + 1, min(stop, at + 6)):
        byte = record[position]
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            start = position + 1
            return (start, start + size) if start + size <= stop else None
    return None
