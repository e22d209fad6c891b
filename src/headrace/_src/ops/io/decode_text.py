"""Data in text and bytes. In: string tensors. Out: numbers, columns, or the packed bytes.

StringToNumber, DecodeCSV, DecodeRaw, DecodePaddedRaw, DecodeCompressed and base64, with the grammar
of TensorFlow 1.15: text that it rejects is a ValueError here.
"""

import base64
import decimal
import itertools
import math
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace._src.core.dtypes import as_dtype, show_type
from headrace._src.devices.room import check_room
from headrace._src.lowering import generated
from headrace._src.ops.strings.string_arrays import (
    Spans,
    attr_bytes,
    map_numbers,
    map_strings,
    numbers_of,
    numpy_dtype,
    of_strings,
    sizes_of,
    spans_of,
    string_array,
)

_WHITESPACE = b" \t\n\v\f\r"
_INTEGER = re.compile(rb"-?[0-9]+")
_DECIMAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(rb"([+-]?)0[xX]([0-9a-fA-F]+)")
_SPECIAL = re.compile(rb"[+-]?(inf|nan)", re.IGNORECASE)
_FLOAT_TEXT_LIMIT = 32  # TensorFlow parses floats in a buffer of this size, including the final 0.


def _round_to_float32(text: str, value: float) -> float:
    """Return the float32 nearest to the decimal `text`, whose nearest double is `value`.

    Rounding twice is wrong only if the double is exactly between two float32 values: then the text
    itself decides.
    """
    with np.errstate(over="ignore"):
        single = np.float32(value)
        other = np.nextafter(single, np.float32(math.copysign(math.inf, value - float(single))))
    near, far = float(single), float(other)
    if not math.isfinite(value) or near == value or value - near != far - value:
        return near
    exact, half = decimal.Decimal(text), decimal.Decimal(value)
    if exact == half:
        return near
    return far if (exact > half) == (far > near) else near


def _unreadable(text: bytes) -> str:
    return f"StringToNumberOp could not correctly convert string: {_shown(text)}"


def _shown(text: bytes) -> str:
    return text.decode(errors="backslashreplace")


def _parse_float(text: bytes, single: bool) -> float:
    body = text.strip(_WHITESPACE)
    if len(text) >= _FLOAT_TEXT_LIMIT or not text:
        raise ValueError(_unreadable(text))
    if not body:
        return 0.0  # only whitespace: TensorFlow reads zero
    if match := _HEXADECIMAL.fullmatch(body):
        value = float(int(match[2], 16))
        return -value if match[1] == b"-" else value
    if _SPECIAL.fullmatch(body):
        return float(body)
    if not _DECIMAL.fullmatch(body):
        raise ValueError(_unreadable(text))
    value = float(body)
    return _round_to_float32(body.decode(), value) if single else value


def _parse_integer(text: bytes, dtype: np.dtype) -> int:
    body = text.strip(_WHITESPACE)
    limits = np.iinfo(dtype)
    # More digits can't fit in 64 bits, except for zeros: Python refuses to read thousands of them.
    digits = body.lstrip(b"-").lstrip(b"0")
    value = int(body) if _INTEGER.fullmatch(body) and len(digits) < 20 else None
    if value is None or not limits.min <= value <= limits.max:
        raise ValueError(_unreadable(text))
    return value


def number_parser(dtype: np.dtype) -> Callable[[bytes], Any]:
    """Return the function that parses one number of the given type, or raises ValueError."""
    if dtype.kind == "f":
        return lambda text: _parse_float(text, dtype == np.float32)
    if dtype.kind == "i":
        return lambda text: _parse_integer(text, dtype)
    raise ValueError(f"text is read as float32, float64, int32 or int64, not as {dtype}")


_PLAIN_LINES = re.compile(
    rb"(?:[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\n)*", re.ASCII
)


def _parse_floats(texts: list[bytes], dtype: np.dtype) -> np.ndarray | None:
    """Parse all numbers at once, if they are plain decimals; return None if one needs a closer
    look.
    """
    lines = b"\n".join([*texts, b""])
    if lines.count(b"\n") != len(texts) or not _PLAIN_LINES.fullmatch(lines):
        return None
    if max(map(len, texts), default=0) >= _FLOAT_TEXT_LIMIT:
        return None
    wide = np.fromiter(map(float, texts), np.float64, count=len(texts))
    if dtype == np.float64:
        return wide
    with np.errstate(over="ignore", invalid="ignore"):
        near = wide.astype(np.float32)
        far = np.nextafter(near, np.copysign(np.inf, wide - near).astype(np.float32))
        halfway = (near != wide) & (wide - near == far.astype(np.float64) - wide)
    for i in np.flatnonzero(halfway).tolist():
        near[i] = _round_to_float32(texts[i].decode(), float(wide[i]))
    return near


def string_to_number(string_tensor: Any, *, out_type: Any = np.float32) -> np.ndarray:
    """Return every element as a number."""
    dtype = numpy_dtype(out_type)
    array = string_array(string_tensor)
    found = _simple_numbers(lambda function: numbers_of(function, array), dtype)
    if found is not None:
        return found
    if dtype.kind == "f":
        found = _parse_floats(array.ravel().tolist(), dtype)
        if found is not None:
            return found.reshape(array.shape)
    return map_numbers(number_parser(dtype), array, dtype)


def _simple_numbers(
    numbers: Callable[[str], np.ndarray | None], dtype: np.dtype
) -> np.ndarray | None:
    """All numbers by generated code, if they have few digits and nothing but these. `numbers` gives
    those of a function (see numbers_of).
    """
    if dtype.name in ("float32", "float64"):
        return numbers(dtype.name)
    if dtype.name not in ("int32", "int64"):
        return None
    found = numbers("integer")
    if found is None or dtype == found.dtype:
        return found
    limits = np.iinfo(dtype)
    inside = found.size == 0 or (found.min() >= limits.min and found.max() <= limits.max)
    return found.astype(dtype) if inside else None


def encode_base64(input: Any, *, pad: bool = False) -> np.ndarray:
    """Return every element in web-safe base64, with `=` at the end only on request."""

    def encode(text: bytes) -> bytes:
        packed = base64.urlsafe_b64encode(text)
        return packed if pad else packed.rstrip(b"=")

    return map_strings(encode, input)


_BASE64 = re.compile(rb"(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}(?:==)?|[A-Za-z0-9_-]{3}=?)?")


def decode_base64(input: Any) -> np.ndarray:
    """Decode every element from web-safe base64; padding is optional."""

    def decode(text: bytes) -> bytes:
        if not _BASE64.fullmatch(text):
            raise ValueError(f"Invalid character found in base64. It is {text!r}")
        body = text.rstrip(b"=")
        return base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4))

    return map_strings(decode, input)


def _view(buffer: bytes, dtype: np.dtype, little_endian: bool) -> np.ndarray:
    """Return the buffer's numbers, in this machine's byte order."""
    octets = np.frombuffer(buffer, np.uint8).reshape(-1, dtype.itemsize)
    # A complex number is reversed as a whole, including its parts: NumPy's byteswap differs.
    if little_endian != (sys.byteorder == "little"):
        octets = octets[:, ::-1]
    return octets.copy().view(dtype).ravel()


def decode_raw(bytes: Any, *, out_type: Any, little_endian: bool = True) -> np.ndarray:
    """Return the numbers in each element's bytes, as a new last dimension."""
    array, dtype = string_array(bytes), numpy_dtype(out_type)
    sizes = sizes_of(array).ravel()
    size = int(sizes[0]) if len(sizes) else 0
    if (sizes != size).any():
        raise ValueError(
            f"DecodeRaw needs strings of one size, got sizes {np.unique(sizes).tolist()}"
        )
    if size % dtype.itemsize:
        raise ValueError(
            f"Input to DecodeRaw has length {size} that is not a multiple of {dtype.itemsize}, the "
            f"size of {show_type(as_dtype(dtype))}"
        )
    numbers = _view(b"".join(array.ravel().tolist()), dtype, little_endian)
    return numbers.reshape(*array.shape, size // dtype.itemsize)


def decode_padded_raw(
    input_bytes: Any, fixed_length: Any, *, out_type: Any, little_endian: bool = True
) -> np.ndarray:
    """As decode_raw, after truncating or zero-padding every element to `fixed_length` bytes."""
    array, dtype, wanted = (
        string_array(input_bytes),
        numpy_dtype(out_type),
        np.asarray(fixed_length),
    )
    if wanted.ndim:
        raise ValueError(f"fixed_length must be a scalar, got shape {list(wanted.shape)}")
    size = int(wanted)
    if size <= 0 or size % dtype.itemsize:
        raise ValueError(
            f"fixed_length must be a positive multiple of {dtype.itemsize}, got {size}"
        )
    check_room((*array.shape, size), np.uint8, "fixed_length")
    rows = (text[:size].ljust(size, b"\0") for text in array.ravel().tolist())
    numbers = _view(b"".join(rows), dtype, little_endian)
    return numbers.reshape(*array.shape, size // dtype.itemsize)


_WINDOW_BITS = {b"ZLIB": zlib.MAX_WBITS, b"GZIP": zlib.MAX_WBITS | 16}


def decode_compressed(bytes: Any, *, compression_type: str | bytes = "") -> np.ndarray:
    """Return every element decompressed; only the first member of a gzip stream counts."""
    kind = attr_bytes(compression_type)
    if kind == b"":
        return string_array(bytes).copy()
    if kind not in _WINDOW_BITS:
        raise ValueError(f"compression_type is '', 'ZLIB' or 'GZIP', got {kind!r}")

    def inflate(text: Any) -> Any:
        try:
            return zlib.decompressobj(_WINDOW_BITS[kind]).decompress(text)
        except zlib.error as error:
            raise ValueError(f"cannot decompress {kind.decode()} data: {error}") from error

    return map_strings(inflate, bytes)


_CSV_MARKS = (b'"', b"\n", b"\r")  # which mean something in a CSV record


class _Record:
    """One CSV record being read: `fields` returns its columns."""

    def __init__(self, text: bytes, delimiter: bytes, quoting: bool):
        self.text, self.delimiter, self.quoting = text, delimiter, quoting
        self.position = 0

    def fields(self, wanted: Sequence[int] | None) -> list[bytes]:
        """Return the wanted columns, or all; reading stops after the last wanted one."""
        found: list[bytes] = []
        column = 0
        open_end = False  # a delimiter was read last: one more field follows, possibly empty
        while self.position < len(self.text) or open_end:
            if self.text[self.position : self.position + 1] in (b"\n", b"\r"):
                self.position += 1
                open_end = False
                continue
            field, open_end = self._next()
            if wanted is None or column in wanted:
                found.append(field)
            column += 1
            if wanted is not None and len(found) == len(wanted):
                break
        return found

    def _next(self) -> tuple[bytes, bool]:
        """Read one field; also return whether a delimiter ended it."""
        if self.quoting and self.text.startswith(b'"', self.position):
            field = self._quoted()
        else:
            field = self._plain()
        ended = self.position < len(self.text)
        self.position += ended
        return field, ended

    def _plain(self) -> bytes:
        end = self.text.find(self.delimiter, self.position)
        end = len(self.text) if end < 0 else end
        field = self.text[self.position : end]
        if b"\n" in field or b"\r" in field or (self.quoting and b'"' in field):
            raise ValueError(f"unquoted fields cannot have quotes or line ends inside: {field!r}")
        self.position = end
        return field

    def _quoted(self) -> bytes:
        start = self.position + 1
        pieces = []
        while True:
            end = self.text.find(b'"', start)
            if end < 0:
                raise ValueError(f"a quoted field does not end: {self.text!r}")
            pieces.append(self.text[start:end])
            after = self.text[end + 1 : end + 2]
            if after in (b"", self.delimiter):
                self.position = end + 1
                return b'"'.join(pieces)
            if after != b'"':
                raise ValueError(f"a quote inside a field must be doubled: {self.text!r}")
            start = end + 2


def _check_columns(select_cols: Sequence[int], count: int) -> Sequence[int] | None:
    """Return the wanted columns, None for all."""
    if not select_cols:
        return None
    if len(select_cols) != count:
        raise ValueError(f"{len(select_cols)} select_cols for {count} outputs")
    if select_cols[0] < 0:
        raise ValueError("select_cols must not be negative")
    if any(a >= b for a, b in itertools.pairwise(select_cols)):
        raise ValueError(f"select_cols must increase strictly, got {list(select_cols)}")
    return select_cols


def _check_default(index: int, value: Any) -> np.ndarray:
    default = np.asarray(value)
    if default.ndim > 1:
        raise ValueError(f"record default {index} must have rank 0 or 1, got {default.ndim}")
    if default.size > 1:
        raise ValueError(f"record default {index} has {default.size} values instead of at most 1")
    return string_array(default) if default.dtype.kind in "OSU" else default


def _column(
    index: int, column: np.ndarray | Spans, default: np.ndarray, na_value: bytes
) -> np.ndarray:
    """Return one column's values: missing fields take the default, if there is one."""
    is_text = default.dtype == object
    if isinstance(column, Spans):
        if not is_text and not na_value:  # an empty field isn't a number
            found = _simple_numbers(column.numbers, default.dtype)
            if found is not None:
                return found
        column = column.texts()
    fields = column.tolist()
    if sizes_of(column).all() and (not na_value or na_value not in fields):
        found = (
            column.copy()
            if is_text
            else _simple_numbers(lambda function: numbers_of(function, column), default.dtype)
        )
        if found is not None:
            return found
    parse = (lambda text: text) if is_text else number_parser(default.dtype)
    values = []
    for record, field in enumerate(fields):
        if field and field != na_value:
            try:
                values.append(parse(field))
            except ValueError:
                kind = show_type(as_dtype(default.dtype))
                raise ValueError(
                    f"Field {index} in record {record} is not a valid {kind}: {_shown(field)}"
                ) from None
        elif default.size:
            values.append(default.item())
        else:
            raise ValueError(f"Field {index} is required but missing in record {record}!")
    return of_strings(values, (-1,)) if is_text else np.array(values, default.dtype)


def decode_csv(
    records: Any,
    *record_defaults: Any,
    field_delim: str | bytes = ",",
    use_quote_delim: bool = True,
    na_value: str | bytes = "",
    select_cols: Sequence[int] = (),
) -> tuple[np.ndarray, ...]:
    """Return one tensor per record default, each of the records' shape and the default's type."""
    delimiter = attr_bytes(field_delim)
    if len(delimiter) != 1:
        raise ValueError(f"field_delim must be one character, got {delimiter!r}")
    array = string_array(records)
    wanted = _check_columns(select_cols, len(record_defaults))
    defaults = [_check_default(i, value) for i, value in enumerate(record_defaults)]
    texts = array.ravel()
    columns = None if wanted else _plain_columns(texts, delimiter, len(defaults))
    if columns is None:
        table = []
        for index, text in enumerate(texts.tolist()):
            fields = _Record(text, delimiter, use_quote_delim).fields(wanted)
            if len(fields) != len(defaults):
                raise ValueError(
                    f"Expect {len(defaults)} fields but have {len(fields)} in record {index}"
                )
            table.append(fields)
        columns = list(of_strings(itertools.chain(*table), (len(table), len(defaults))).T)
    missing = attr_bytes(na_value)
    return tuple(
        _column(index, column, default, missing).reshape(array.shape)
        for index, (column, default) in enumerate(zip(columns, defaults, strict=True))
    )


def _plain_columns(
    texts: np.ndarray, delimiter: bytes, count: int
) -> list[np.ndarray] | list[Spans] | None:
    """Return the columns of records that consist only of `count` fields with delimiters between
    them; None if one of them needs a closer look.
    """
    spans = None if delimiter in _CSV_MARKS else spans_of(texts)
    find = None if spans is None else generated.routine("csv_fields")
    if spans is not None and find is not None:
        found = find(spans.addresses, spans.sizes, delimiter, count)
        if found is None:
            return None
        return [Spans(places, sizes, spans) for places, sizes in zip(*found, strict=True)]
    joined = delimiter.join(texts.tolist())
    if any(mark in joined for mark in _CSV_MARKS):
        return None
    fields = of_strings(joined.split(delimiter), (-1,))
    sizes = sizes_of(texts)
    if not sizes.all() or len(fields) != count * len(texts):
        return None
    table = fields.reshape(-1, count)
    # If the records are of equal size and contiguous, each row of the table is a record.
    if (sizes_of(table).sum(axis=1) + count - 1 != sizes).any():
        return None
    return list(table.T)


KERNELS = {
    "DecodeBase64": decode_base64,
    "DecodeCSV": decode_csv,
    "DecodeCompressed": decode_compressed,
    "DecodePaddedRaw": decode_padded_raw,
    "DecodeRaw": decode_raw,
    "EncodeBase64": encode_base64,
    "StringToNumber": string_to_number,
}
