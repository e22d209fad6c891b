"""Text in many encodings. In: string tensors or code points. Out: code points or encoded strings.

UnicodeDecode, UnicodeDecodeWithOffsets, UnicodeEncode and UnicodeTranscode. Python's codecs decode
a string into characters and malformed spans, each with the byte where it starts; the error policy
then keeps, replaces or rejects the spans. ICU's visible behaviour is kept: UTF-16 and UTF-32
without a byte order mark are big-endian, a mark that was read belongs to the first character, and a
C1 control that a Windows code page leaves undefined maps to itself.
"""

import codecs
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace._src.ops.strings.string_arrays import (
    attr_bytes,
    map_strings,
    numpy_dtype,
    of_strings,
    string_array,
)

_BAD = -1  # marks a malformed span among code points
_LAST = 0x10FFFF
_ERRORS = ("strict", "replace", "ignore")
_OUTPUTS = {b"UTF-8": "utf-8", b"UTF-16-BE": "utf-16-be", b"UTF-32-BE": "utf-32-be"}
_MARKED = {
    "utf-16": ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
    "utf-32": ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be")),
}
# Python's codecs that are not character sets, or that only Python has.
_NOT_CHARSETS = ("idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs")
_NOT_CHARSETS += ("utf_8_sig", "oem")
_ALIASES = {"windows-874": "cp874", "windows-31j": "cp932"}


@functools.lru_cache(maxsize=64)
def _codec(encoding: bytes) -> codecs.CodecInfo:
    try:
        name = encoding.decode("ascii").lower()
        info = codecs.lookup(_ALIASES.get(name, name))
        bytes(4).decode(info.name)  # rejects codecs from bytes to bytes
    except (LookupError, UnicodeDecodeError, ValueError) as error:
        raise _unknown(encoding) from error
    if info.name.replace("-", "_") in _NOT_CHARSETS:
        raise _unknown(encoding)
    return info


def _unknown(encoding: bytes) -> ValueError:
    name = encoding.decode(errors="replace")
    return ValueError(f"Could not create converter for input encoding: {name}")


def _unmarked(data: bytes, info: codecs.CodecInfo) -> tuple[int, codecs.CodecInfo]:
    """Return the length of a byte order mark and the codec that it selects."""
    choices = _MARKED.get(info.name, ())
    for mark, name in choices:
        if data.startswith(mark):
            return len(mark), codecs.lookup(name)
    return 0, codecs.lookup(choices[1][1]) if choices else info


def _starts(text: str, data: memoryview, info: codecs.CodecInfo) -> Iterable[int]:
    """Return where each character of well-formed `data` starts."""
    if len(text) == len(data):
        return range(len(text))
    points = np.frombuffer(text.encode("utf-32-le"), "<u4")
    if info.name == "utf-8":
        sizes = 1 + (points > 0x7F).astype(int) + (points > 0x7FF) + (points > 0xFFFF)
    elif info.name.startswith("utf-16"):
        sizes = 2 + 2 * (points > 0xFFFF).astype(int)
    elif info.name.startswith("utf-32"):
        sizes = np.full(len(points), 4)
    else:
        return _observed_starts(data, info)
    return (np.cumsum(sizes) - sizes).tolist()


def _observed_starts(data: memoryview, info: codecs.CodecInfo) -> Iterator[int]:
    """Feed a decoder byte by byte and record when characters come out."""
    assert info.incrementaldecoder is not None
    decoder = info.incrementaldecoder()
    start = 0
    for position in range(len(data)):
        for _ in decoder.decode(bytes(data[position : position + 1])):
            yield start
            start = position + 1


def _decode(data: bytes, encoding: bytes) -> tuple[list[int], list[int]]:
    """Return code points (_BAD for each malformed span) and the byte where each starts."""
    mark, info = _unmarked(data, _codec(encoding))
    view = memoryview(data)
    points: list[int] = []
    starts: list[int] = []
    position = mark
    while position < len(data):
        end, resume, spare = len(data), len(data), None
        try:
            text, _ = info.decode(view[position:])
        except UnicodeDecodeError as error:
            end, resume = position + error.start, position + max(error.end, error.start + 1)
            text, _ = info.decode(view[position:end])
            undefined = info.name.startswith("cp125") and 0x80 <= data[end] < 0xA0
            spare = data[end] if undefined else _BAD
        points += map(ord, text)
        starts += [position + start for start in _starts(text, view[position:end], info)]
        if spare is not None:
            points.append(spare)
            starts.append(end)
        position = resume
    if mark and starts:
        starts[0] = 0
    return points, starts


class _Policy:
    """How to treat malformed text and control characters."""

    def __init__(
        self,
        errors: str | bytes,
        replacement_char: int,
        replace_control: bool,
        strict_control: bool = False,
    ):
        self.errors = attr_bytes(errors).decode()
        if self.errors not in _ERRORS:
            raise ValueError(f"errors is one of {_ERRORS}, got {self.errors!r}")
        if not 0 <= replacement_char <= _LAST:
            raise ValueError(f"replacement_char {replacement_char} is not a code point")
        self.replacement = replacement_char
        self.replace_control = replace_control
        self.strict_control = strict_control  # a control character to replace is an error too

    def apply(self, points: Sequence[int], starts: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the remaining points and starts, with replacements made."""
        kept: list[int] = []
        places: list[int] = []
        for point, start in zip(points, starts, strict=True):
            bad = not 0 <= point <= _LAST
            replaced = bad or (self.replace_control and point < 0x20)
            if self.errors == "strict" and (bad or (replaced and self.strict_control)):
                raise ValueError("invalid formatting of the input")
            if replaced and self.errors == "ignore":
                continue
            kept.append(self.replacement if replaced else point)
            places.append(start)
        return kept, places


def unicode_decode_with_offsets(
    input: Any,
    *,
    input_encoding: str | bytes,
    errors: str | bytes = "replace",
    replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False,
    Tsplits: Any = np.int64,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (row_splits, code points, byte where each starts) of the flattened input."""
    policy = _Policy(errors, replacement_char, replace_control_characters)
    encoding = attr_bytes(input_encoding)
    _codec(encoding)
    points: list[int] = []
    starts: list[int] = []
    splits = [0]
    for text in string_array(input).ravel().tolist():
        kept, places = policy.apply(*_decode(text, encoding))
        points += kept
        starts += places
        splits.append(len(points))
    return (
        np.array(splits, numpy_dtype(Tsplits)),
        np.array(points, np.int32),
        np.array(starts, np.int64),
    )


def unicode_decode(
    input: Any,
    *,
    input_encoding: str | bytes,
    errors: str | bytes = "replace",
    replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False,
    Tsplits: Any = np.int64,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (row_splits, code points) of the flattened input."""
    return unicode_decode_with_offsets(
        input,
        input_encoding=input_encoding,
        errors=errors,
        replacement_char=replacement_char,
        replace_control_characters=replace_control_characters,
        Tsplits=Tsplits,
    )[:2]


def _encoder(output_encoding: str | bytes) -> Callable[[Iterable[int]], bytes]:
    """Return the function that writes code points in the given encoding.

    Surrogates are paired if possible. A lone one can't be encoded in UTF-8 and becomes U+FFFD
    there; the other encodings write it as it is.
    """
    name = attr_bytes(output_encoding)
    if name not in _OUTPUTS:
        raise ValueError(f"output_encoding is one of {list(_OUTPUTS)}, got {name!r}")
    codec = _OUTPUTS[name]
    lone = "replace" if codec == "utf-8" else "surrogatepass"

    def encode(points: Iterable[int]) -> bytes:
        units = "".join(map(chr, points)).encode("utf-16-le", "surrogatepass")
        return units.decode("utf-16-le", lone).encode(codec, "surrogatepass")

    return encode


def unicode_transcode(
    input: Any,
    *,
    input_encoding: str | bytes,
    output_encoding: str | bytes,
    errors: str | bytes = "replace",
    replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False,
) -> np.ndarray:
    """Return every element in another encoding."""
    policy = _Policy(errors, replacement_char, replace_control_characters, strict_control=True)
    encode, encoding = _encoder(output_encoding), attr_bytes(input_encoding)
    _codec(encoding)
    return map_strings(lambda text: encode(policy.apply(*_decode(text, encoding))[0]), input)


def unicode_encode(
    input_values: Any,
    input_splits: Any,
    *,
    errors: str | bytes = "replace",
    output_encoding: str | bytes,
    replacement_char: int = 0xFFFD,
) -> np.ndarray:
    """Return one string per ragged row of code points; the first row starts at the first value."""
    policy, encode = _Policy(errors, replacement_char, False), _encoder(output_encoding)
    values, splits = np.asarray(input_values).tolist(), np.asarray(input_splits).tolist()
    ends = splits[1:]
    if not splits or splits != sorted(splits) or splits[0] < 0 or splits[-1] > len(values):
        raise ValueError(f"input_splits {splits} do not cut {len(values)} values into rows")
    rows = (values[first:last] for first, last in zip([0, *ends], ends, strict=False))
    texts = (encode(policy.apply(row, range(len(row)))[0]) for row in rows)
    return of_strings(texts, (len(ends),))


KERNELS = {
    "UnicodeDecode": unicode_decode,
    "UnicodeDecodeWithOffsets": unicode_decode_with_offsets,
    "UnicodeEncode": unicode_encode,
    "UnicodeTranscode": unicode_transcode,
}
