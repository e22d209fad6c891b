"""Functions of tf.strings with ragged results: the pieces, characters or n-grams of each string."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.ragged.ragged_conversion import convert_to_tensor_or_ragged_tensor
from headrace._src.ops.ragged.ragged_tensor import RaggedTensor

__all__ = ["bytes_split", "ngrams", "unicode_decode", "unicode_split"]


def _rows(values: Any, splits: Tensor) -> RaggedTensor:
    return RaggedTensor.from_row_splits(values, splits, validate=False)


def _parts(value: Any) -> list[Any]:
    return value.components() if isinstance(value, RaggedTensor) else [value]


# -- Splitting -------------------------------------------------------------------------------------


@composed
def ragged_pieces(indices: Tensor, pieces: Tensor, shape: Tensor) -> RaggedTensor:
    """Return the sparse result of a split as a ragged tensor."""
    return RaggedTensor.from_value_rowids(pieces, indices[:, 0], shape[0], validate=False)


def _split_each(texts: Any, split: Any) -> Any:
    """Return the pieces of each string, in a new last dimension; `split` takes a vector."""
    if isinstance(texts, RaggedTensor):
        return texts.with_flat_values(_split_each(texts.flat_values, split))
    if texts.shape.ndims == 0:
        return split(b.stack([texts]))[0]
    rows = _all_ragged(texts)
    return rows.with_flat_values(split(rows.flat_values)) if rows is not texts else split(texts)


@composed
@export("strings.bytes_split")
def bytes_split(input: Any, name: str | None = None) -> Any:
    """Return the bytes of each string, as strings of length 1, in a new, ragged last dimension."""
    with name_scope(name, "StringsByteSplit", _parts(input)):
        texts = convert_to_tensor_or_ragged_tensor(input, name="input")
        if _flat(texts).shape.ndims is None:
            raise ValueError("input must have a statically-known rank.")
        return _split_each(
            texts, lambda x: ragged_pieces(*b.string_split_op(x, "", skip_empty=False))
        )


def _flat(value: Any) -> Tensor:
    return value.flat_values if isinstance(value, RaggedTensor) else value


@composed
def ragged_split(texts: Any, sep: Any, maxsplit: int) -> Any:
    """Return the pieces of each string between `sep`, in a new, ragged last dimension. Strings of
    unknown rank are a vector.
    """
    return _split_each(texts, lambda x: ragged_pieces(*b.string_split_v2_op(x, sep, maxsplit)))


# -- n-grams ---------------------------------------------------------------------------------------


@composed
@export("strings.ngrams")
def ngrams(
    data: Any,
    ngram_width: Any,
    separator: str = " ",
    pad_values: Any = None,
    padding_width: int | None = None,
    preserve_short_sequences: bool = False,
    name: str | None = None,
) -> Any:
    """Return the n-grams of the last dimension: `ngram_width` strings in a row, joined.

    ngram_width: a number or several. pad_values: what to put before and after each sequence, one
    string or two; padding_width: how often, at most and by default width - 1 times.
    preserve_short_sequences: whether a sequence without n-grams gives itself.
    """
    with name_scope(name, "StringNGrams", _parts(data)):
        left, right = _paddings(pad_values)
        if padding_width is not None and padding_width < 1:
            raise ValueError("padding_width must be greater than 0.")
        if padding_width is not None and pad_values is None:
            raise ValueError("pad_values must be provided if padding_width is set.")
        words = convert_to_tensor_or_ragged_tensor(data, dtypes.string, "data")
        rank = words.shape.ndims
        if rank is None:
            raise ValueError("Rank of data must be known.")
        if rank == 0:
            raise ValueError("Data must have rank>0")
        if rank == 1:
            flat = words.flat_values if isinstance(words, RaggedTensor) else words
            return ngrams(
                b.expand_dims(flat, 0),
                ngram_width,
                separator,
                pad_values,
                padding_width,
                preserve_short_sequences,
            )[0]
        dense = not isinstance(words, RaggedTensor)
        rows: Any = RaggedTensor.from_tensor(words, ragged_rank=rank - 1) if dense else words
        result = _each_row(
            rows,
            separator=separator,
            ngram_widths=_widths(ngram_width),
            left_pad=left,
            right_pad=right,
            pad_width=_pad_width(pad_values, padding_width),
            preserve_short_sequences=preserve_short_sequences,
        )
        return result.to_tensor() if dense else result


def _each_row(rows: RaggedTensor, **attributes: Any) -> RaggedTensor:
    if isinstance(rows.values, RaggedTensor):
        return rows.with_values(_each_row(rows.values, **attributes))
    return _rows(*b.string_n_grams(rows.values, rows.row_splits, **attributes))


def _paddings(pad_values: Any) -> tuple[str, str]:
    if pad_values is None:
        return "", ""
    if isinstance(pad_values, str | bytes):
        pad_values = pad_values, pad_values
    if (
        not isinstance(pad_values, list | tuple)
        or len(pad_values) != 2
        or not all(isinstance(v, str | bytes) for v in pad_values)
    ):
        raise TypeError("pad_values must be a string, tuple of strings, or None.")
    return pad_values[0], pad_values[1]


def _widths(ngram_width: Any) -> list[int]:
    widths = list(ngram_width) if isinstance(ngram_width, list | tuple) else [ngram_width]
    for width in widths:
        if width < 1:
            raise ValueError(f"All ngram_widths must be greater than 0. Got {ngram_width}")
    return widths


def _pad_width(pad_values: Any, padding_width: int | None) -> int:
    if pad_values is None:
        return 0
    return -1 if padding_width is None else padding_width


# -- Unicode ---------------------------------------------------------------------------------------


@composed
@export("strings.unicode_decode")
def unicode_decode(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Any:
    """Return the code points of each string, in a new, ragged last dimension.

    errors: what to do with malformed input: 'replace' it by replacement_char, 'ignore' it or fail
    ('strict'). replace_control_characters: whether to replace these too.
    """
    with name_scope(name, "UnicodeDecode", _parts(input)):
        options = (input_encoding, errors, replacement_char, replace_control_characters)
        return _decoded(input, options, offsets=False)[0]


@composed
@export("strings.unicode_decode_with_offsets")
def unicode_decode_with_offsets(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return the code points of each string, and the byte at which each begins."""
    with name_scope(name, "UnicodeDecodeWithOffsets", _parts(input)):
        options = (input_encoding, errors, replacement_char, replace_control_characters)
        points, starts = _decoded(input, options, offsets=True)
        return points, starts


@composed
@export("strings.unicode_split")
def unicode_split(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    name: str | None = None,
) -> Any:
    """Return the characters of each string, as strings, in a new, ragged last dimension."""
    with name_scope(name, "UnicodeSplit", _parts(input)):
        options = (input_encoding, errors, replacement_char, False)
        (points,) = _decoded(input, options, offsets=False)
        return _characters(points, input_encoding, replacement_char)


@composed
@export("strings.unicode_split_with_offsets")
def unicode_split_with_offsets(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return the characters of each string, and the byte at which each begins."""
    with name_scope(name, "UnicodeSplitWithOffsets", _parts(input)):
        options = (input_encoding, errors, replacement_char, False)
        points, starts = _decoded(input, options, offsets=True)
        return _characters(points, input_encoding, replacement_char), starts


def _decoded(input: Any, options: tuple[Any, ...], offsets: bool) -> tuple[Any, ...]:
    """Return code points, and the bytes where they begin if asked for."""
    texts = convert_to_tensor_or_ragged_tensor(input, name="input")
    rank = texts.shape.ndims
    if rank is None:
        raise ValueError("Rank of `input` must be statically known.")
    rows: Any = _all_ragged(texts)
    decode = b.unicode_decode_with_offsets_op if offsets else b.unicode_decode_op
    splits, *found = decode(b.reshape(_flat(rows), [-1]), *options)
    if rank == 0:
        return tuple(found)
    results = [_rows(values, splits) for values in found]
    if isinstance(rows, RaggedTensor):
        results = [rows.with_flat_values(r) for r in results]
    return tuple(results)


def _all_ragged(texts: Any) -> Any:
    """Return strings as rows of a vector, unless they are a vector or a scalar."""
    if isinstance(texts, RaggedTensor):
        return texts.with_values(_all_ragged(texts.values))
    rank = texts.shape.ndims
    return (
        texts if rank is None or rank < 2 else RaggedTensor.from_tensor(texts, ragged_rank=rank - 1)
    )


def _characters(points: Any, encoding: str, replacement_char: int) -> Any:
    """Return each code point as a string."""
    flat = points.flat_values if isinstance(points, RaggedTensor) else points
    texts = b.unicode_encode(b.expand_dims(flat, -1), encoding, "replace", replacement_char)
    return points.with_flat_values(texts) if isinstance(points, RaggedTensor) else texts


def ragged_unicode_encode(
    input: Any,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    name: str | None = None,
) -> Any:
    """tf.strings.unicode_encode of ragged code points."""
    with name_scope(name, "UnicodeEncode", _parts(input)):
        points = convert_to_tensor_or_ragged_tensor(input)
        return _encoded(points, output_encoding, errors, replacement_char)


def _encoded(points: Any, *options: Any) -> Any:
    if not isinstance(points, RaggedTensor):
        return b.unicode_encode(points, *options)
    if isinstance(points.values, RaggedTensor) or (points.values.shape.ndims or 1) > 1:
        return points.with_values(_encoded(points.values, *options))
    return b.unicode_encode_op(points.values, points.row_splits, *options)


def ragged_strings_split(
    input: Any = None,
    sep: Any = None,
    maxsplit: int = -1,
    result_type: str = "SparseTensor",
    source: Any = None,
    name: str | None = None,
) -> Any:
    """tf.strings.split of ragged strings."""
    given = source if input is None else input
    with name_scope(name, "StringSplit", _parts(given)):
        texts = convert_to_tensor_or_ragged_tensor(given, dtypes.string)
        pieces = ragged_split(texts, "" if sep is None else sep, maxsplit)
        return pieces if result_type == "RaggedTensor" else pieces.to_sparse()
