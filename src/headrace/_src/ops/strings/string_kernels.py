"""Joining, splitting, measuring and trimming strings. In: string tensors. Out: as TF 1.15's ops.

Every kernel takes an op's inputs by position and its attributes by name. Bytes are decoded only
where an attribute requests UTF-8; a UTF-8 character is then one byte and the continuation bytes
(10xxxxxx) after it, so malformed text has characters too and never fails.
"""

import itertools
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace._src.devices.room import check_room
from headrace._src.lowering import generated
from headrace._src.ops.array.group_by_key import stable_order
from headrace._src.ops.strings.string_arrays import (
    Spans,
    attr_bytes,
    map_numbers,
    map_strings,
    numbers_of,
    of_strings,
    sizes_of,
    spans_of,
    string_array,
    string_scalar,
)

_WHITESPACE = b" \t\n\v\f\r"
_CONTINUATION = bytes(range(0x80, 0xC0))
_CHARACTER = re.compile(rb"[\x00-\xff][\x80-\xbf]*", re.DOTALL)
_UNITS = ("BYTE", "UTF8_CHAR")


def _is_utf8(unit: str | bytes) -> bool:
    name = attr_bytes(unit).decode()
    if name not in _UNITS:
        raise ValueError(f"unit is one of {_UNITS}, got {name!r}")
    return name == "UTF8_CHAR"


def string_join(*inputs: Any, separator: str | bytes = "") -> np.ndarray:
    """Join the inputs element by element; scalars broadcast."""
    if not inputs:
        raise ValueError("StringJoin needs at least one input")
    arrays = [string_array(value) for value in inputs]
    shapes = {array.shape for array in arrays if array.ndim}
    if len(shapes) > 1:
        raise ValueError(f"input shapes do not match: {sorted(shapes)}")
    shape = shapes.pop() if shapes else ()
    joined = _join_spans(arrays, shape, attr_bytes(separator))
    if joined is not None:
        return joined
    # NumPy adds objects twice as fast as a loop. Scalars become vectors: 0-d sums aren't arrays.
    total, *others = (array.reshape(array.shape or 1) for array in arrays)
    between = np.array([attr_bytes(separator)], object)
    for array in others:
        total = total + between + array if between[0] else total + array
    return total.reshape(shape)


def _join_spans(
    arrays: Sequence[np.ndarray], shape: tuple[int, ...], separator: bytes
) -> np.ndarray | None:
    """Join arrays of one shape and scalars by generated code; None where there is none."""
    spans = [span for array in arrays if (span := spans_of(array)) is not None]
    join = generated.routine("joined_texts") if len(spans) == len(arrays) else None
    if join is None:
        return None
    addresses, sizes = (
        np.stack([np.broadcast_to(span[i], shape).ravel() for span in spans]) for i in range(2)
    )
    return join(addresses, sizes, separator).reshape(shape)


_Sparse = tuple[np.ndarray, np.ndarray, np.ndarray]


def _sparse(values: np.ndarray, counts: np.ndarray) -> _Sparse:
    """Return rows with these numbers of values as (indices, values, shape) of a sparse matrix."""
    rows = np.stack([np.arange(len(counts)), np.cumsum(counts) - counts], axis=1)
    indices = np.repeat(rows, counts, axis=0)
    np.subtract(np.arange(len(values)), indices[:, 1], out=indices[:, 1])
    return indices, values, np.array([len(counts), counts.max(initial=0)], np.int64)


def _ragged(rows: Iterable[Sequence[bytes]]) -> _Sparse:
    """Return rows of pieces as a sparse matrix."""
    table = list(rows)
    counts = np.fromiter(map(len, table), np.int64, count=len(table))
    return _sparse(of_strings(itertools.chain.from_iterable(table), (-1,)), counts)


def _split_at(texts: np.ndarray, marks: bytes, keep_empty: bool) -> _Sparse:
    """Split at each byte that is a mark. All texts are split at once, with a mark between them too:
    where each one ends is known from the sizes.
    """
    if not len(texts):
        return _ragged([])
    found = _split_quickly(texts, marks, keep_empty)
    if found is not None:
        return found
    mark, others = marks[:1], marks[1:]
    joined = mark.join(texts.tolist())
    if others:
        joined = joined.translate(bytes.maketrans(others, mark * len(others)))
    pieces = of_strings(joined.split(mark), (-1,))
    sizes = sizes_of(pieces)
    bounds = np.searchsorted(np.cumsum(sizes + 1), np.cumsum(sizes_of(texts) + 1)) + 1
    if keep_empty or sizes.all():
        return _sparse(pieces, np.diff(bounds, prepend=0))
    kept = sizes > 0
    before = np.concatenate([[0], np.cumsum(kept)])
    return _sparse(pieces[kept], np.diff(before[bounds], prepend=0))


def _split_quickly(texts: np.ndarray, marks: bytes, keep_empty: bool) -> _Sparse | None:
    """Split as _split_at does, by generated code; None where there is none."""
    spans = spans_of(texts)
    split = None if spans is None else generated.routine("split_texts")
    if spans is None or split is None:
        return None
    found = split(spans.addresses, spans.sizes, marks, keep_empty)
    if found is None:
        return None
    addresses, sizes, indices, counts = found
    pieces = Spans(addresses, sizes, spans).texts()
    return indices, pieces, np.array([len(texts), counts.max(initial=0)], np.int64)


def _vector(value: Any) -> np.ndarray:
    array = string_array(value)
    if array.ndim != 1:
        raise ValueError(f"input must be a vector, got shape {list(array.shape)}")
    return array


def string_split(input: Any, delimiter: Any, *, skip_empty: bool = True) -> _Sparse:
    """Split at every byte that is in `delimiter`; an empty delimiter splits into single bytes."""
    marks = string_scalar(delimiter, "delimiter")
    texts = _vector(input)
    if not marks:
        return _ragged([text[i : i + 1] for i in range(len(text))] for text in texts.tolist())
    if skip_empty or sizes_of(texts).all():
        return _split_at(texts, marks, not skip_empty)
    first, others = marks[:1], marks[1:]
    same = bytes.maketrans(others, first * len(others)) if others else None
    whole = (text.translate(same) for text in texts.tolist())
    return _ragged([text.split(first) if text else [] for text in whole])


def string_split_v2(input: Any, sep: Any, *, maxsplit: int = -1) -> _Sparse:
    """Split as Python's str.split does: at `sep`, or at runs of whitespace if it is empty.

    Unlike Python, splitting at whitespace keeps the rest after `maxsplit` words even if it is
    empty, and leaves the text unchanged if `maxsplit` is zero.
    """
    mark = string_scalar(sep, "sep")
    texts = _vector(input)
    if maxsplit < 0 and len(mark) == 1:
        return _split_at(texts, mark, keep_empty=True)
    if maxsplit < 0 and not mark:
        return _split_at(texts, _WHITESPACE, keep_empty=False)

    def pieces(text: bytes) -> list[bytes]:
        if mark:
            return text.split(mark, maxsplit)
        words = text.split(None, maxsplit) if maxsplit else [text]
        return [*words, b""] if len(words) == maxsplit else words

    return _ragged(map(pieces, texts.tolist()))


def string_length(input: Any, *, unit: str | bytes = "BYTE") -> np.ndarray:
    """Return the number of bytes, or of UTF-8 characters, of every element."""
    array, utf8 = string_array(input), _is_utf8(unit)
    found = numbers_of("characters" if utf8 else "size", array)
    if found is not None:
        return found.astype(np.int32)
    if utf8:
        return map_numbers(lambda s: len(s.translate(None, _CONTINUATION)), array, np.int32)
    return map_numbers(len, array, np.int32)


def _cut(text: bytes, pos: int, length: int, utf8: bool) -> bytes | None:
    """Return text[pos : pos + length] in bytes or characters, or None if pos is out of range."""
    units: list[bytes] = _CHARACTER.findall(text) if utf8 else []
    count = len(units) if utf8 else len(text)
    if not -count <= pos <= count:
        return None
    start = pos + count if pos < 0 else pos
    if length < 0:
        # TensorFlow has two ways of iterating here, and their difference is visible to programs.
        if utf8:
            return None if pos < 0 else b""
        return text[start:]
    return b"".join(units[start : start + length]) if utf8 else text[start : start + length]


def _cut_all(array: np.ndarray, pos: int, length: int) -> np.ndarray | None:
    """Return text[pos : pos + length] of all texts, or None if pos is out of range in one."""
    end = pos + length
    if length < 0 or pos < 0 <= end or sizes_of(array.ravel()).min(initial=abs(pos)) < abs(pos):
        return None
    cut = operator.itemgetter(slice(pos, end))
    return map_strings(cut, array)


def _cut_spans(texts: np.ndarray, pos: np.ndarray, length: np.ndarray) -> np.ndarray | None:
    """Return text[pos : pos + length] of all texts by generated code; None where there is none, or
    if pos is outside of a text.
    """
    spans = spans_of(texts)
    if spans is None:
        return None
    sizes, pos, length = np.broadcast_arrays(spans.sizes, pos, length)
    if ((pos < -sizes) | (pos > sizes)).any():
        return None
    start = np.where(pos < 0, pos + sizes, pos)
    rest = sizes - start
    length = np.where(length < 0, rest, np.minimum(length, rest))
    return Spans(spans.addresses + start, length, spans).texts()


def substr(input: Any, pos: Any, len: Any, *, unit: str | bytes = "BYTE") -> np.ndarray:
    """Return `len` units starting at `pos` of every element; a negative pos counts from the end.

    `pos` and `len` have the same shape, which broadcasts with the input's.
    """
    utf8 = _is_utf8(unit)
    texts, starts, counts = string_array(input), np.asarray(pos), np.asarray(len)
    if starts.shape != counts.shape:
        raise ValueError(f"pos and len differ in shape: {starts.shape} and {counts.shape}")
    if not utf8:
        found = _cut_spans(texts, starts, counts)
        if found is not None:
            return found
    if starts.size == 1 and starts.ndim <= texts.ndim and not utf8:
        found = _cut_all(texts, int(starts.item()), int(counts.item()))
        if found is not None:
            return found
    texts, starts, counts = np.broadcast_arrays(texts, starts, counts)
    triples = zip(texts.ravel().tolist(), starts.ravel().tolist(), counts.ravel().tolist())
    pieces = []
    for index, (text, start, count) in enumerate(triples):
        piece = _cut(text, start, count, utf8)
        if piece is None:
            where = [int(i) for i in np.unravel_index(index, texts.shape)]
            raise ValueError(f"pos {start} out of range for string {text!r} at index {where}")
        pieces.append(piece)
    return of_strings(pieces, texts.shape)


def _check_case_encoding(encoding: str | bytes) -> bool:
    """Return whether to change case as Unicode does; plain bytes change only ASCII letters."""
    name = attr_bytes(encoding)
    if name not in (b"", b"utf-8"):
        raise ValueError(f"encoding is '' or 'utf-8', got {name!r}")
    return name == b"utf-8"


def _change_case(input: Any, lower: bool) -> np.ndarray:
    """Change the case of ASCII letters, by generated code where there is some."""
    spans = spans_of(string_array(input))
    change = None if spans is None else generated.routine("changed_case", lower)
    if spans is None or change is None:
        return map_strings(bytes.lower if lower else bytes.upper, input)
    return change(spans.addresses, spans.sizes)


def string_lower(input: Any, *, encoding: str | bytes = "") -> np.ndarray:
    """Return every element in lower case."""
    if _check_case_encoding(encoding):
        return map_strings(lambda s: s.decode("utf-8", "replace").lower().encode(), input)
    return _change_case(input, lower=True)


def string_upper(input: Any, *, encoding: str | bytes = "") -> np.ndarray:
    """Return every element in upper case."""
    if _check_case_encoding(encoding):
        return map_strings(lambda s: s.decode("utf-8", "replace").upper().encode(), input)
    return _change_case(input, lower=False)


def string_strip(input: Any) -> np.ndarray:
    """Return every element without ASCII whitespace at its ends."""
    spans = spans_of(string_array(input))
    strip = None if spans is None else generated.routine("stripped_spans", _WHITESPACE)
    if spans is None or strip is None:
        return map_strings(bytes.strip, input)  # the same bytes as C's isspace
    addresses, sizes = strip(spans.addresses, spans.sizes)
    return Spans(addresses, sizes, spans).texts()


def _axes(indices: np.ndarray, rank: int) -> list[int]:
    """Return distinct axes counted from zero, in the order given."""
    axes: list[int] = []
    for index in indices.ravel().tolist():
        if not -rank <= index < rank:
            raise ValueError(f"reduction dimension {index} is outside an input of rank {rank}")
        if index % rank in axes:
            raise ValueError(f"duplicate reduction dimension {index}")
        axes.append(index % rank)
    return axes


def reduce_join(
    inputs: Any, reduction_indices: Any, *, keep_dims: bool = False, separator: str | bytes = ""
) -> np.ndarray:
    """Join along the given axes; the first of them varies fastest."""
    array = string_array(inputs)
    axes = _axes(np.asarray(reduction_indices, np.int64), array.ndim)
    if not axes:
        return array.copy()
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    shape = [array.shape[axis] for axis in kept]
    count = int(np.prod([array.shape[axis] for axis in axes], dtype=np.int64))
    rows = array.transpose(kept + axes[::-1]).reshape(int(np.prod(shape, dtype=np.int64)), count)
    if keep_dims:
        shape = [1 if axis in axes else size for axis, size in enumerate(array.shape)]
    return of_strings(map(attr_bytes(separator).join, rows.tolist()), tuple(shape))


def unsorted_segment_join(
    inputs: Any, segment_ids: Any, num_segments: Any, *, separator: str | bytes = ""
) -> np.ndarray:
    """Join the elements of each segment in input order; empty segments give empty strings."""
    array, ids = string_array(inputs), np.asarray(segment_ids)
    count = int(np.asarray(num_segments).item())
    if not ids.ndim:
        raise ValueError("Segment_id cannot have rank 0")
    if count < 0:
        raise ValueError(f"num_segments must not be negative, got {count}")
    if array.shape[: ids.ndim] != ids.shape:
        raise ValueError(f"segment_ids {ids.shape} is not a prefix of the input's {array.shape}")
    if ids.size and (ids.min() < 0 or ids.max() >= count):
        raise ValueError(f"segment_ids must be in [0, {count})")
    rest = array.shape[ids.ndim :]
    check_room((count, *rest), object, "num_segments")
    order = stable_order(ids.ravel())
    rows = array.reshape(ids.size, int(np.prod(rest, dtype=np.int64)))[order]
    bounds = np.searchsorted(ids.ravel()[order], np.arange(count + 1))
    glue = attr_bytes(separator).join
    joined = (
        glue(column)
        for first, last in itertools.pairwise(bounds)
        for column in rows[first:last].T.tolist()
    )
    return of_strings(joined, (count, *rest))


def _ngrams(
    tokens: list[bytes], width: int, pads: tuple[bytes, bytes], pad_width: int, glue: bytes
) -> Iterator[bytes]:
    """Yield the n-grams of one width; padding is never wider than needed to include a token."""
    padding = width - 1 if pad_width < 0 else min(pad_width, width - 1)
    count = max(len(tokens) + 2 * padding - width + 1, 0)
    check_room([count, width], object, "ngram_widths")
    padded = [pads[0]] * padding + tokens + [pads[1]] * padding
    for start in range(len(padded) - width + 1):
        yield glue.join(padded[start : start + width])


def string_n_grams(
    data: Any,
    data_splits: Any,
    *,
    separator: str | bytes,
    ngram_widths: Sequence[int],
    left_pad: str | bytes,
    right_pad: str | bytes,
    pad_width: int,
    preserve_short_sequences: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the n-grams of every ragged row, width by width, and their row splits."""
    tokens, splits = string_array(data).ravel().tolist(), np.asarray(data_splits)
    if any(width < 1 for width in ngram_widths):
        raise ValueError(f"ngram_widths must be at least 1, got {list(ngram_widths)}")
    bounds = splits.tolist()
    if bounds != sorted(bounds) or (bounds and not (bounds[0] >= 0 and bounds[-1] <= len(tokens))):
        raise ValueError(f"data_splits {bounds} do not cut {len(tokens)} strings into rows")
    pads, glue = (attr_bytes(left_pad), attr_bytes(right_pad)), attr_bytes(separator)
    grams: list[bytes] = []
    ends = [0] if bounds else []
    for first, last in itertools.pairwise(bounds):
        row = tokens[first:last]
        found = [g for width in ngram_widths for g in _ngrams(row, width, pads, pad_width, glue)]
        if not found and row and preserve_short_sequences:
            whole = len(row) + 2 * max(pad_width, 0)
            found = list(_ngrams(row, whole, pads, pad_width, glue))[:1]
        grams += found
        ends.append(len(grams))
    return of_strings(grams, (-1,)), np.array(ends, splits.dtype)


KERNELS = {
    "ReduceJoin": reduce_join,
    "StringJoin": string_join,
    "StringLength": string_length,
    "StringLower": string_lower,
    "StringNGrams": string_n_grams,
    "StringSplit": string_split,
    "StringSplitV2": string_split_v2,
    "StringStrip": string_strip,
    "StringUpper": string_upper,
    "Substr": substr,
    "UnsortedSegmentJoin": unsorted_segment_join,
}
