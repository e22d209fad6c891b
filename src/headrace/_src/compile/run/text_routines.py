"""Kernels on strings, for operations that are interpreted (see routines). In: arrays of strings, or
spans: arrays of addresses and sizes (see kernels.text_spans). Out: arrays; None where the generated
code declines, which is never an answer.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from headrace._src.compile.codegen.kernel_spec import Kernel
from headrace._src.compile.kernels.singles.automata_kernel import FullMatches, Replacements
from headrace._src.compile.kernels.singles.changed_texts import (
    ChangedCase,
    JoinedTexts,
    StrippedSpans,
)
from headrace._src.compile.kernels.singles.example_records import (
    KINDS,
    FeaturePlaces,
    FeatureRowsKernel,
    FeatureValues,
)
from headrace._src.compile.kernels.singles.number_texts import NumberTexts
from headrace._src.compile.kernels.singles.split_texts import CsvFields, SplitTexts
from headrace._src.compile.kernels.singles.text_spans import SpanNumbers, SpanTexts, TextSpans
from headrace._src.compile.native import machine_code
from headrace._src.devices.buffers import address

__all__ = ["BYTES_AT", "SIZE_AT", "TEXT_ROUTINES", "TYPE_AT", "knows_bytes"]

# CPython's objects: a header that ends with the type, then a size, then the hash and the bytes.
TYPE_AT, SIZE_AT = object.__basicsize__ - 8, object.__basicsize__
BYTES_AT = bytes.__basicsize__ - 1


@cache
def knows_bytes() -> bool:
    """Whether a `bytes` object of this Python is laid out as the code expects."""
    probe = b"probe of %d" % 5
    if sys.implementation.name != "cpython":
        return False
    words = [ctypes.c_int64.from_address(id(probe) + at).value for at in (TYPE_AT, SIZE_AT)]
    found = ctypes.string_at(id(probe) + BYTES_AT, len(probe))
    return words == [id(bytes), len(probe)] and found == probe


def _caller(spec: Kernel, objects: bool) -> Callable[..., int]:
    """The function of `sizes` and contiguous arrays that runs a kernel in this thread and returns
    its `done`, the argument that comes last. It holds Python's lock if the kernel uses objects.
    """
    (place,) = machine_code.addresses([spec])
    prototype = ctypes.PYFUNCTYPE if objects else ctypes.CFUNCTYPE
    kernel = prototype(None, *machine_code.KERNEL_TYPES)(place)
    count = len(spec.arguments)

    def call(sizes: Sequence[int], *arrays: np.ndarray) -> int:
        words = (ctypes.c_uint64 * len(sizes))(*sizes)
        done = ctypes.c_int64()
        table = (ctypes.c_uint64 * (count + 2))(
            ctypes.addressof(words), *map(address, arrays), ctypes.addressof(done)
        )
        kernel(ctypes.addressof(table), 0, 1, 0)
        return done.value

    return call


def _function_address(name: str) -> int:
    """The address of a function of Python's."""
    found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert found is not None
    return found


def text_spans() -> Callable[..., Any] | None:
    """The function of an array of strings that gives addresses and sizes, both of its shape; None
    where an element isn't `bytes`. They hold as long as the strings do.
    """
    if not knows_bytes():
        return None
    run = _caller(TextSpans(TYPE_AT, SIZE_AT, BYTES_AT), objects=True)

    def call(strings: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        addresses, lengths = (np.empty(strings.shape, np.int64) for _ in range(2))
        texts = np.ascontiguousarray(strings)
        done = run([strings.size, id(bytes)], texts, addresses, lengths)
        return (addresses, lengths) if done == strings.size else None

    return call


def span_texts() -> Callable[..., Any] | None:
    """The function of addresses and sizes that gives an array of strings of their shape."""
    if not knows_bytes():
        return None
    run = _caller(SpanTexts(), objects=True)
    make = _function_address("PyBytes_FromStringAndSize")

    def call(addresses: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        texts = np.empty(addresses.shape, object)
        spans = np.ascontiguousarray(addresses), np.ascontiguousarray(lengths)
        run([texts.size, make], *spans, texts)  # raises MemoryError where that is what it met
        return texts

    return call


def span_numbers(function: str) -> Callable[..., Any]:
    """The function of addresses and sizes that gives a number for each span, as string_numbers does
    for strings.
    """
    run = _caller(SpanNumbers(function), objects=False)
    dtype = np.dtype(function if function.startswith("float") else np.int64)

    def call(addresses: np.ndarray, lengths: np.ndarray) -> np.ndarray | None:
        result = np.empty(addresses.shape, dtype)
        spans = np.ascontiguousarray(addresses), np.ascontiguousarray(lengths)
        return result if run([result.size], *spans, result) == result.size else None

    return call


def full_matches() -> Callable[..., Any]:
    """The function of addresses, sizes and an automaton that gives int8 answers: 1 where the whole
    span matches, 0 where it doesn't, 2 where the automaton doesn't know.
    """
    run = _caller(FullMatches(), objects=False)

    def call(addresses: np.ndarray, lengths: np.ndarray, automaton: Any) -> np.ndarray:
        answers = np.empty(addresses.shape, np.int8)
        sizes = [answers.size, automaton.first, automaton.only_ascii]
        run(sizes, addresses, lengths, automaton.following, automaton.accepts, answers)
        return answers

    return call


_LONGEST = 1 << 16  # the bytes of a text that the kernel of replacements takes


def replacements() -> Callable[..., Any] | None:
    """The function of strings (and where they are), an automaton, what replaces its matches and how
    many to replace at most. It gives new strings, and int8 answers: 2 where the automaton doesn't
    know and there is no string.
    """
    if not knows_bytes():
        return None
    run = _caller(Replacements(BYTES_AT), objects=True)
    make, keep = map(_function_address, ("PyBytes_FromStringAndSize", "Py_IncRef"))

    def call(
        strings: np.ndarray,
        addresses: np.ndarray,
        lengths: np.ndarray,
        automaton: Any,
        rewrite: bytes,
        most: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        longest = min(int(lengths.max(initial=0)), _LONGEST)
        matches = np.empty(2 * (longest + 1), np.int64)
        texts, answers = np.empty(strings.shape, object), np.empty(strings.shape, np.int8)
        run(
            [
                strings.size, automaton.first, automaton.later, most, len(rewrite), make, keep,
                longest, automaton.only_ascii,
            ],
            strings,
            addresses,
            lengths,
            automaton.following,
            automaton.accepts,
            np.frombuffer(rewrite or b"\0", np.uint8),
            matches,
            texts,
            answers,
        )  # fmt: skip
        return texts, answers

    return call


def features() -> Callable[..., Any] | None:
    """The function of the addresses and sizes of serialized Examples, keys, and the kind of each
    ("bytes", "float" or "int64"). For each key it gives how many values each record has (less than
    zero where it has no such feature), and all values. None where a record needs a closer look.
    """
    if not knows_bytes():
        return None
    find = _caller(FeaturePlaces(), objects=False)

    def call(
        addresses: np.ndarray, lengths: np.ndarray, keys: Sequence[bytes], kinds: Sequence[str]
    ) -> list[tuple[np.ndarray, np.ndarray]] | None:
        records = len(addresses)
        starts = np.cumsum([0, *map(len, keys)])
        numbers = np.array([KINDS[kind] for kind in kinds], np.int64)
        places, sizes = np.zeros((2, len(keys), records), np.int64)
        counts = np.full((len(keys), records), -1, np.int64)
        names = np.frombuffer(b"".join(keys) or b"\0", np.uint8)
        given = addresses, lengths, names, starts, numbers
        if find([records, len(keys)], *given, places, sizes, counts) != records:
            return None
        columns = []
        for kind, where, size, count in zip(kinds, places, sizes, counts, strict=True):
            take = feature_values(kind)
            if take is None:
                return None
            columns.append((count, take(where, size, int(np.maximum(count, 0).sum()))))
        return columns

    return call


def feature_rows() -> Callable[..., Any] | None:
    """The function of the address and size of a FeatureList, arrays of one, that gives for each of
    its features the number of its kind (0: none; 1, 2, 3: bytes, float, int64), the address and
    size of its values, and how many there are (below zero: none). None where it needs a closer
    look.
    """
    run = _caller(FeatureRowsKernel(), objects=False)

    def call(address: np.ndarray, size: np.ndarray) -> np.ndarray | None:
        found = np.empty((4, int(size[0]) // 2 + 1), np.int64)
        count = run([1], address, size, *found)
        return None if count < 0 else found[:, :count]

    return call


def feature_values(kind: str) -> Callable[..., Any] | None:
    """The function of addresses and sizes of lists of this kind, and how many values they have in
    all, that gives the values.
    """
    if not knows_bytes():
        return None
    make = _function_address("PyBytes_FromStringAndSize")

    def call(places: np.ndarray, sizes: np.ndarray, total: int) -> np.ndarray:
        values = np.empty(total, _VALUE_TYPES[kind])
        lists = np.ascontiguousarray(places), np.ascontiguousarray(sizes)
        _feature_values(kind)([places.size, make], *lists, values)
        return values

    return call


_VALUE_TYPES = {"bytes": np.dtype(object), "float": np.dtype("f"), "int64": np.dtype("q")}


@cache
def _feature_values(kind: str) -> Callable[..., int]:
    return _caller(FeatureValues(kind), objects=kind == "bytes")


def number_texts(is_float: bool) -> Callable[..., Any] | None:
    """The function of int64 or float64 numbers that gives them as strings; for floats also of how
    many digits to write behind the point (15 at most; times that power of ten, they are below
    2^52).
    """
    if not knows_bytes():
        return None
    run = _caller(NumberTexts(is_float), objects=True)
    make = _function_address("PyBytes_FromStringAndSize")

    def call(values: np.ndarray, digits: int = 0) -> np.ndarray:
        texts = np.empty(values.shape, object)
        scale = int(np.float64(10.0**digits).view(np.int64))
        run([texts.size, make, digits, scale], np.ascontiguousarray(values), texts)
        return texts

    return call


def csv_fields() -> Callable[..., Any]:
    """The function of the addresses and sizes of CSV records, a delimiter and a number of columns.
    It gives the addresses and sizes of the fields, [columns, records]; None where a record isn't
    just that many fields with delimiters between them.
    """
    run = _caller(CsvFields(), objects=False)
    special = _byte_table(b'"\n\r')

    def call(
        addresses: np.ndarray, lengths: np.ndarray, delimiter: bytes, columns: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        records = addresses.size
        places, sizes = np.empty((2, columns, records), np.int64)
        given = [records, columns, ord(delimiter)]
        done = run(given, addresses, lengths, special, places, sizes)
        return (places, sizes) if done == records else None

    return call


def split_texts() -> Callable[..., Any]:
    """The function of the addresses and sizes of texts, of the bytes that they are split at, and
    whether empty pieces count. It gives the addresses and sizes of all pieces, (text, place in it)
    for each piece, and the number of pieces of each text. None for very much text.
    """
    run = _caller(SplitTexts(), objects=False)

    def call(
        addresses: np.ndarray, lengths: np.ndarray, marks: bytes, keep_empty: bool
    ) -> tuple[np.ndarray, ...] | None:
        most = int(lengths.sum()) + lengths.size
        if most > _MOST_PIECES:
            return None
        # Memory that isn't written to is never taken.
        places, sizes = np.empty(most, np.int64), np.empty(most, np.int64)
        indices, counts = np.empty((most, 2), np.int64), np.empty(lengths.size, np.int64)
        table = _byte_table(marks)
        given = addresses, lengths, table, places, sizes, indices, counts
        total = run([lengths.size, keep_empty], *given)
        return places[:total], sizes[:total], indices[:total].copy(), counts

    return call


_MOST_PIECES = 1 << 26


def _byte_table(members: bytes) -> np.ndarray:
    """1 for each of these bytes, 0 for the others."""
    table = np.zeros(256, np.uint8)
    table[list(members)] = 1
    return table


def changed_case(lower: bool) -> Callable[..., Any] | None:
    """The function of addresses and sizes that gives strings with ASCII letters in lower (upper)
    case.
    """
    if not knows_bytes():
        return None
    run = _caller(ChangedCase(lower, BYTES_AT), objects=True)
    make = _function_address("PyBytes_FromStringAndSize")

    def call(addresses: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        texts = np.empty(addresses.shape, object)
        run([texts.size, make], addresses, lengths, texts)
        return texts

    return call


def stripped_spans(blanks: bytes) -> Callable[..., Any]:
    """The function of addresses and sizes that gives those without some bytes at their ends."""
    run = _caller(StrippedSpans(), objects=False)
    table = _byte_table(blanks)

    def call(addresses: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places, sizes = np.empty_like(addresses), np.empty_like(lengths)
        run([lengths.size], addresses, lengths, table, places, sizes)
        return places, sizes

    return call


def joined_texts() -> Callable[..., Any] | None:
    """The function of addresses and sizes [parts, texts] and a separator that gives strings."""
    if not knows_bytes():
        return None
    run = _caller(JoinedTexts(BYTES_AT), objects=True)
    make = _function_address("PyBytes_FromStringAndSize")

    def call(addresses: np.ndarray, lengths: np.ndarray, separator: bytes) -> np.ndarray:
        parts, count = addresses.shape
        texts = np.empty(count, object)
        between = np.frombuffer(separator or b"\0", np.uint8)
        run([count, parts, len(separator), make], addresses, lengths, between, texts)
        return texts

    return call


TEXT_ROUTINES: dict[str, Callable[..., Any]] = {
    "changed_case": changed_case,
    "csv_fields": csv_fields,
    "feature_rows": feature_rows,
    "feature_values": feature_values,
    "features": features,
    "full_matches": full_matches,
    "joined_texts": joined_texts,
    "number_texts": number_texts,
    "replacements": replacements,
    "span_numbers": span_numbers,
    "span_texts": span_texts,
    "split_texts": split_texts,
    "stripped_spans": stripped_spans,
    "text_spans": text_spans,
}
