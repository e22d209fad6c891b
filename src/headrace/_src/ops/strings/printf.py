"""Tensors as text. In: tensors of any type. Out: exactly the characters that TF 1.15 writes.

Three writers: `as_string` formats element by element as C's printf does; `print_format` is the
one-line form of the Print op, `[[1 2][3...]...]`; `summarize_nested` is the form of StringFormat
and PrintV2, in rows like NumPy's, with an ellipsis in the middle of long dimensions.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.devices.room import check_text
from headrace._src.lowering import generated
from headrace._src.ops.strings.string_arrays import attr_bytes, of_strings

_FILLS = ("", " ", "+", "-", "0", "#")


def _float_writer(fill: str, width: str, precision: str, verb: str) -> Callable[[Any], str]:
    finite = f"%{fill}{width}{precision}{verb}"
    # C pads infinities and NaNs with blanks where Python would follow the 0 flag, and signs NaNs
    # with their sign bit where Python drops it: these are formatted as strings.
    left = "-" if fill == "-" else ""
    special = f"%{left}{width}s"

    def write(value: Any) -> str:
        number = float(value)
        if math.isfinite(number):
            return finite % number
        sign = "-" if math.copysign(1.0, number) < 0 else fill.strip("-0#")
        return special % (sign + ("nan" if math.isnan(number) else "inf"))

    return write


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind in "fc"


def as_string(
    input: Any,
    *,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str | bytes = "",
) -> np.ndarray:
    """Return every element as text: %d, %f, %e (scientific), %g (shortest), true or false."""
    array = np.asarray(input)
    flag = attr_bytes(fill).decode("latin-1")
    if len(flag) > 1:
        raise ValueError(f"fill must have at most one character, got {flag!r}")
    if flag not in _FILLS:
        raise ValueError(f"fill is one of {_FILLS}, got {flag!r}")
    if scientific and shortest:
        raise ValueError("scientific and shortest exclude each other")
    if not _is_float(array.dtype) and (scientific or shortest):
        raise ValueError(f"scientific and shortest are not for {array.dtype}")
    if not _is_float(array.dtype) and precision >= 0:
        raise ValueError(f"precision is not for {array.dtype}")
    check_text(max(width, precision), "width" if width > precision else "precision")
    if not flag and width <= 0 and not scientific and not shortest:
        found = _plain_texts(array, precision)
        if found is not None:
            return found
    write = _writer(array, flag, precision, width, "e" if scientific else "g" if shortest else "f")
    values = array.ravel().tolist()
    if isinstance(write, str):
        # One format string for all of them takes a third of the time of separate ones.
        text = "\n".join([write] * len(values)) % tuple(values)
        return of_strings(text.encode().split(b"\n") if values else [], array.shape)
    return of_strings((write(value).encode() for value in values), array.shape)


_MOST_DIGITS = 15


def _plain_texts(array: np.ndarray, precision: int) -> np.ndarray | None:
    """Return integers and floats as %d and %f write them, by generated code; None where there is
    none.
    """
    digits = 6 if precision < 0 else precision
    if array.dtype.kind not in "if" or digits > _MOST_DIGITS:
        return None
    if not generated.worthwhile(array.size):
        return None
    write = generated.routine("number_texts", array.dtype.kind == "f")
    if write is None:
        return None
    if array.dtype.kind == "i":
        return write(array.astype(np.int64))
    with np.errstate(over="ignore", invalid="ignore"):
        values = array.astype(np.float64)
        few = np.abs(values) * 10.0**digits < 2**52  # which code needs no more than 64 bits for
    if few.all():
        return write(values, digits)
    texts = np.empty(array.shape, object)
    texts[few] = write(values[few], digits)
    one = _float_writer("", "", f".{digits}", "f")
    texts[~few] = of_strings((one(value).encode() for value in values[~few].tolist()), (-1,))
    return texts


def _writer(
    array: np.ndarray, fill: str, precision: int, width: int, verb: str
) -> Callable[[Any], str] | str:
    """Return the function that formats one element of an array, or a format string if Python's
    operator % does the same.
    """
    dtype = array.dtype
    columns = str(width) if width > 0 else ""
    if dtype.kind == "b":
        return lambda value: "true" if value else "false"
    if dtype.kind == "i":
        # A width of zero after the 0 flag means no width, in C and in Python alike.
        return f"%{fill}{columns}d"
    if _is_float(dtype):
        digits = f".{precision}" if precision >= 0 else ""
        if dtype.kind == "f" and np.isfinite(array).all():
            return f"%{fill}{columns}{digits}{verb}"
        number = _float_writer(fill, columns, digits, verb)
        if dtype.kind == "f":
            return number
        return lambda value: f"({number(value.real)},{number(value.imag)})"
    raise ValueError(f"as_string has no form for {dtype}")


_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_ESCAPES |= {ord(char): "\\" + char for char in "\"'\\"}


def _escape(value: bytes) -> str:
    """Return bytes as printable ASCII with C's escapes, octal for the rest."""
    return "".join(
        _ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in value
    )


def _short_float(value: float, digits: int, enough: int, dtype: type[np.floating]) -> str:
    """Return the value with few digits if they read back as the same number, else with enough
    digits.
    """
    text = f"{value:.{digits}g}"
    if value != value or float(dtype(text)) == value:
        return text
    return f"{value:.{enough}g}"


def _element_writer(dtype: np.dtype) -> Callable[[Any], str] | None:
    """Return the formatter of one element, or None for types that are shown as a question mark."""
    if dtype.kind in "iu":
        return str
    if dtype.kind == "b":
        return lambda value: "1" if value else "0"
    if dtype == np.float64:
        return lambda value: _short_float(value, 15, 17, np.float64)
    if dtype in (np.float16, np.float32):
        return lambda value: _short_float(value, 6, 9, np.float32)
    if dtype.kind == "O":
        return _escape
    return None


def _unknown(size: int, limit: int) -> str:
    """Show elements that have no text form: question marks, cut at the limit."""
    shown = size if limit < 0 else min(size, limit)
    return "[" + " ".join("?" * shown) + ("..." if shown < size else "") + "]"


def _tensor(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "S" else array


def print_format(value: Any, *, summarize: int = 3) -> str:
    """Return one tensor as the Print op shows it: on one line, cut after `summarize` elements.

    A negative `summarize` shows everything.
    """
    array = _tensor(value)
    write = _element_writer(array.dtype)
    if write is None:
        return _unknown(array.size, summarize)
    limit = array.size if summarize < 0 else min(summarize, array.size)
    shown = [write(element) for element in array.ravel()[:limit].tolist()]
    if array.ndim > 1:
        body = "".join(_print_rows(array.shape, shown))
    else:
        body = " ".join(shown)
    return "[" + body + ("..." if limit < array.size else "") + "]"


def _print_rows(shape: tuple[int, ...], shown: list[str]) -> list[str]:
    """Return the brackets of the outermost dimension, as far as the shown elements reach."""
    size = math.prod(shape[1:])
    chunks = [shown[start : start + size] for start in range(0, len(shown), size)] if size else []
    if len(shape) > 2:
        return ["[" + "".join(_print_rows(shape[1:], chunk)) + "]" for chunk in chunks]
    return ["[" + " ".join(chunk) + ("..." if len(chunk) < size else "") + "]" for chunk in chunks]


def print_message(*data: Any, message: str | bytes = "", summarize: int = 3) -> np.ndarray:
    """Return the line that the Print op logs: the message, then every tensor of `data`."""
    shown = "".join(print_format(value, summarize=summarize) for value in data)
    return of_strings([attr_bytes(message) + shown.encode()], ())


def summarize_nested(value: Any, *, summarize: int = 3) -> str:
    """Return one tensor as StringFormat and PrintV2 show it: rows on lines, strings in quotes.

    A dimension longer than twice `summarize` shows that many entries at each end; a negative
    `summarize` shows everything.
    """
    array = _tensor(value)
    write = _element_writer(array.dtype)
    if write is None:
        return _unknown(array.size, summarize)
    if array.dtype == object:
        write = _quoted
    if array.ndim == 0:
        return "..." if summarize == 0 else write(array.item())
    if array.shape[0] == 0:
        return "[]"
    if array.size == 0:
        summarize = 0  # TensorFlow opens the outermost rows only when there is an element inside.
    return _nested(array, array.ndim, write, summarize)


def _quoted(value: bytes) -> str:
    return f'"{_escape(value)}"'


def _nested(array: np.ndarray, rank: int, write: Callable[[Any], str], edge: int) -> str:
    """Return the brackets of one sub-array of a tensor of the given rank."""
    count = len(array)
    cut = 0 <= 2 * edge < count
    head, tail = (array[:edge], array[count - edge :]) if cut else (array, array[:0])
    if array.ndim == 1:
        words = [write(element) for element in head.tolist()]
        words += ["..."] if cut else []
        words += [write(element) for element in tail.tolist()]
        return "[" + (" " if cut and not edge else "") + " ".join(words) + "]"
    gap = "\n" * (array.ndim - 1) + " " * (rank - array.ndim + 1)
    rows = [_nested(row, rank, write, edge) for row in head]
    rows += ["..."] if cut else []
    rows += [_nested(row, rank, write, edge) for row in tail]
    return "[" + (gap if cut and not edge else "") + gap.join(rows) + "]"


def string_format(
    *inputs: Any,
    template: str | bytes = "%s",
    placeholder: str | bytes = "%s",
    summarize: int = 3,
) -> np.ndarray:
    """Return the template with every placeholder replaced by the next tensor's text."""
    form, mark = attr_bytes(template), attr_bytes(placeholder)
    parts = form.split(mark) if mark else [form]
    if len(parts) - 1 != len(inputs):
        raise ValueError(
            f"the template has {len(parts) - 1} placeholders {mark!r} for {len(inputs)} inputs"
        )
    text = parts[0]
    for value, part in zip(inputs, parts[1:], strict=True):
        text += summarize_nested(value, summarize=summarize).encode() + part
    return of_strings([text], ())


KERNELS = {"AsString": as_string, "StringFormat": string_format}
