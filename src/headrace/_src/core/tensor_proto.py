"""Tensors as protocol buffers. In: arrays and Python values. Out: TensorProto, and back.

`to_proto` writes exactly the bytes that TensorFlow 1.15 writes for the same NumPy array: more than
one element of most numeric types become raw little-endian bytes in `tensor_content`; a single
element, and any number of strings, bools, complex, half and uint16 values, go to the list field of
their type. `to_array` reads every form TensorFlow reads: content or list, and a list shorter than
the shape repeats its last value. An inconsistent proto raises ValueError.

Strings are object arrays of bytes; quantized types are the one-field records of `core.dtypes`.
"""

import math
import operator
import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np

from headrace._src.core import dtypes, proto
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.export import export

if TYPE_CHECKING:
    from headrace._src.core.proto import TensorProto

__all__ = [
    "as_array",
    "from_list_proto",
    "make_ndarray",
    "make_tensor_proto",
    "to_array",
    "to_list_proto",
    "to_proto",
]

_MAX_CONTENT_BYTES = 2**31 - 1  # protobuf's limit for one message


class _Encoding(NamedTuple):
    """How a list field stores elements: read as `wire`, narrowed to `bits`, viewed as elements."""

    field: str
    wire: Any
    bits: Any
    raw: bool = True  # several elements are written to tensor_content instead


_ENCODINGS: dict[DType, _Encoding] = {
    dtypes.float32: _Encoding("float_val", np.float32, np.float32),
    dtypes.float64: _Encoding("double_val", np.float64, np.float64),
    dtypes.int8: _Encoding("int_val", np.int32, np.int8),
    dtypes.int16: _Encoding("int_val", np.int32, np.int16),
    dtypes.int32: _Encoding("int_val", np.int32, np.int32),
    dtypes.int64: _Encoding("int64_val", np.int64, np.int64),
    dtypes.uint8: _Encoding("int_val", np.int32, np.uint8),
    dtypes.uint16: _Encoding("int_val", np.int32, np.uint16, raw=False),
    dtypes.uint32: _Encoding("uint32_val", np.uint32, np.uint32),
    dtypes.uint64: _Encoding("uint64_val", np.uint64, np.uint64),
    dtypes.qint8: _Encoding("int_val", np.int32, np.int8),
    dtypes.qint16: _Encoding("int_val", np.int32, np.int16),
    dtypes.qint32: _Encoding("int_val", np.int32, np.int32),
    dtypes.quint8: _Encoding("int_val", np.int32, np.uint8),
    dtypes.quint16: _Encoding("int_val", np.int32, np.uint16),
    dtypes.bool: _Encoding("bool_val", np.bool_, np.bool_, raw=False),
    dtypes.float16: _Encoding("half_val", np.int32, np.uint16, raw=False),
    dtypes.bfloat16: _Encoding("half_val", np.int32, np.uint16, raw=False),
    dtypes.complex64: _Encoding("scomplex_val", np.float32, np.float32, raw=False),
    dtypes.complex128: _Encoding("dcomplex_val", np.float64, np.float64, raw=False),
    dtypes.string: _Encoding("string_val", object, object, raw=False),
}


# ---- arrays to protos


@export("make_tensor_proto", "contrib.util.make_tensor_proto")
def make_tensor_proto(
    values: Any,
    dtype: Any = None,
    shape: Iterable[SupportsIndex] | None = None,
    verify_shape: bool = False,
    allow_broadcast: bool = False,
) -> "TensorProto":
    """Encode a value as TensorFlow does.

    shape: that of the proto; if it has more elements than `values`, the last one fills the rest.
    verify_shape: require `values` to have this shape. allow_broadcast: broadcast `values` to it.
    """
    if allow_broadcast and verify_shape:
        raise ValueError("allow_broadcast and verify_shape are not both allowed.")
    array = as_array(values, dtype)
    if shape is not None:
        sizes = _dimensions(shape)
        if verify_shape and array.shape != sizes:
            raise TypeError(f"Expected Tensor's shape: {sizes}, got {array.shape}.")
        if allow_broadcast:
            array, shape = np.broadcast_to(array, sizes), None
    return to_proto(array, dtype, shape)


@export("make_ndarray", "contrib.util.make_ndarray")
def make_ndarray(tensor: "TensorProto") -> np.ndarray:
    """Decode a TensorProto."""
    return to_array(tensor)


def to_proto(
    array: Any, dtype: Any = None, shape: Iterable[SupportsIndex] | None = None
) -> "TensorProto":
    """Encode an array or Python value.

    `dtype` converts first, by the rules of `as_array`. `shape` may ask for more elements than there
    are: the last one then fills the rest.
    """
    dtype = None if dtype is None else as_dtype(dtype).base_dtype
    dims = None if shape is None else _dimensions(shape)
    if dims is not None and 0 in dims and not isinstance(array, np.ndarray | np.generic):
        values = np.empty(dims, (dtype or dtypes.float32).numpy)  # a Python value is discarded
    else:
        values = as_array(array, dtype)
    dtype = dtype or as_dtype(values.dtype)
    dims = values.shape if dims is None else dims
    count = math.prod(dims)
    if values.size > count:
        raise ValueError(
            f"Too many elements provided. Needed at most {count}, but received {values.size}"
        )

    result = proto.TensorProto(dtype=dtype.enum)
    result.tensor_shape.SetInParent()  # a scalar's shape is present, and empty
    for size in dims:
        result.tensor_shape.dim.add(size=size)
    encoding = _ENCODINGS[dtype]
    if encoding.raw and values.size == count > 1:
        result.tensor_content = _content(values)
    else:
        _fill_list(result, values, dtype)
    return result


def _fill_list(result: "TensorProto", values: np.ndarray, dtype: DType) -> None:
    encoding = _ENCODINGS[dtype]
    # tolist() gives Python scalars, which protobuf takes much faster than NumPy's.
    flat = np.ascontiguousarray(values).reshape(-1)
    elements = flat if dtype is dtypes.string else flat.view(encoding.bits)
    getattr(result, encoding.field).extend(elements.tolist())


def to_list_proto(array: np.ndarray) -> "TensorProto":
    """Encode only the values, in the list field of their type, as V1 checkpoints do."""
    dtype = as_dtype(array.dtype)
    if dtype not in _ENCODINGS:
        raise ValueError(f"an array of type {dtype.name} has no form as a TensorProto")
    result = proto.TensorProto()
    _fill_list(result, array, dtype)
    return result


def from_list_proto(tensor: "TensorProto", dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Decode what `to_list_proto` encodes; ValueError unless there is one value per element."""
    encoding = _ENCODINGS.get(dtype)
    if encoding is None:
        raise ValueError(f"a TensorProto of type {dtype.name} has no form as an array")
    flat = _from_list(getattr(tensor, encoding.field), dtype, encoding)
    if flat.size != math.prod(shape):
        raise ValueError(f"TensorProto has {flat.size} values for the shape {list(shape)}")
    return flat.reshape(shape)


def _dimensions(shape: Iterable[SupportsIndex]) -> tuple[int, ...]:
    dims = tuple(operator.index(size) for size in shape)
    if any(size < 0 for size in dims):
        raise ValueError(f"a tensor's shape has no negative dimensions: {list(dims)}")
    return dims


def _content(values: np.ndarray) -> bytes:
    if values.nbytes > _MAX_CONTENT_BYTES:
        raise ValueError("Cannot create a tensor proto whose content is larger than 2GB.")
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


# ---- protos to arrays


def to_array(tensor: "TensorProto") -> np.ndarray:
    """Decode `tensor` to a new, writable array."""
    dtype, encoding = _encoding_of(tensor)
    shape = _shape_of(tensor)
    count = math.prod(shape)
    if tensor.tensor_content:
        flat = _from_content(tensor.tensor_content, dtype, count)
    else:
        flat = _extend(_from_list(getattr(tensor, encoding.field), dtype, encoding), dtype, count)
    return flat.reshape(shape)


def _encoding_of(tensor: "TensorProto") -> tuple[DType, _Encoding]:
    try:
        dtype = as_dtype(tensor.dtype)
    except TypeError:
        raise ValueError(f"TensorProto has an unknown dtype: {tensor.dtype}") from None
    encoding = _ENCODINGS.get(dtype)
    if encoding is None:
        raise ValueError(f"a TensorProto of type {dtype.name} has no form as an array")
    for field, _ in tensor.ListFields():
        if field.name.endswith("_val") and field.name != encoding.field:
            raise ValueError(f"TensorProto of type {dtype.name} has values in {field.name}")
    return dtype, encoding


def _shape_of(tensor: "TensorProto") -> tuple[int, ...]:
    if tensor.tensor_shape.unknown_rank:
        raise ValueError("TensorProto has a shape of unknown rank")
    try:
        return _dimensions(dim.size for dim in tensor.tensor_shape.dim)
    except ValueError as error:
        raise ValueError(f"TensorProto: {error}") from None


def _from_content(content: bytes, dtype: DType, count: int) -> np.ndarray:
    if dtype is dtypes.string:
        return _strings_from_content(content, count)
    if len(content) != count * dtype.numpy.itemsize:
        raise ValueError(
            f"TensorProto has {len(content)} bytes of content,"
            f" but {count} elements of type {dtype.name} need {count * dtype.numpy.itemsize}"
        )
    if dtype is dtypes.bool:  # any nonzero byte is true; NumPy relies on 0 and 1
        return np.frombuffer(content, np.uint8) != 0
    little = np.frombuffer(content, dtype.numpy.newbyteorder("<"))
    return little.astype(dtype.numpy)  # a copy: the buffer of bytes is read-only


def _strings_from_content(content: bytes, count: int) -> np.ndarray:
    """All lengths as varints, then all strings."""
    lengths = []
    position = 0
    for _ in range(min(count, len(content) + 1)):  # a malicious count must not cost time
        length = shift = 0
        while True:
            if position == len(content) or shift > 63:
                raise ValueError("TensorProto's string content has a malformed length")
            byte = content[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        lengths.append(length)
    if position + sum(lengths) != len(content):
        raise ValueError(
            f"TensorProto's string content has {len(content)} bytes,"
            f" but its lengths ask for {position + sum(lengths)}"
        )
    result = np.empty(count, object)
    for index, length in enumerate(lengths):
        result[index] = content[position : position + length]
        position += length
    return result


def _from_list(values: Any, dtype: DType, encoding: _Encoding) -> np.ndarray:
    read = np.array(values, encoding.wire)
    if dtype.is_complex and read.size % 2:
        raise ValueError(f"TensorProto's {encoding.field} ends with half a complex number")
    if dtype is dtypes.string:
        return read
    return read.astype(encoding.bits, copy=False).view(dtype.numpy)


def _extend(values: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """Repeat the last value up to `count` elements; no value at all means zeros."""
    if values.size == count:
        return values
    if values.size > count:
        raise ValueError(f"TensorProto has {values.size} values for a shape of {count} elements")
    if values.size == 0:
        return (
            np.full(count, b"", object) if dtype is dtypes.string else np.zeros(count, dtype.numpy)
        )
    result = np.empty(count, dtype.numpy)
    result[: values.size] = values
    result[values.size :] = values[-1]
    return result


# ---- Python values to arrays


def as_array(value: Any, dtype: Any = None) -> np.ndarray:
    """Return `value` as an array that a tensor can hold.

    An array keeps its type, or is cast to `dtype`. Python numbers become float32, int32 (int64 if
    they need it), bool or complex128 by default; `dtype` may widen their kind (int to float) but
    not narrow it, and must be able to represent them.
    """
    dtype = None if dtype is None else as_dtype(dtype).base_dtype
    if value is None:
        raise ValueError("None values not supported.")
    if dtype is not None and dtype not in _ENCODINGS:
        raise TypeError(f"a value of type {dtype.name} cannot be made from {reprlib.repr(value)}")
    if hasattr(value, "__array__"):
        return _cast(np.asarray(value), dtype)
    return _from_python(value, dtype)


def _cast(array: np.ndarray, dtype: DType | None) -> np.ndarray:
    if dtype is dtypes.string or (dtype is None and array.dtype.kind in "OSU"):
        return _as_strings(array)
    if dtype is None:
        dtype = as_dtype(array.dtype.newbyteorder("="))
    if array.dtype == dtype.numpy:
        return array
    if array.dtype.names is not None:
        raise TypeError(f"Expected {dtype.name}, got an array of {array.dtype}")
    target = _ENCODINGS[dtype].bits if dtype.is_quantized else dtype.numpy
    with np.errstate(over="ignore", invalid="ignore"):  # the caller asked for this cast
        return array.astype(target, copy=False).view(dtype.numpy)


def _as_strings(array: np.ndarray) -> np.ndarray:
    """An object array of bytes, text encoded as UTF-8."""
    if array.dtype.kind == "S":
        return array.astype(object)
    if array.dtype.kind == "U":
        return np.asarray(np.char.encode(array, "utf-8")).astype(object)
    result = np.empty(array.size, object)
    result[:] = [_as_bytes(element) for element in array.ravel().tolist()]
    return result.reshape(array.shape)


def _as_bytes(element: Any) -> bytes:
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytes):
        return bytes(element)
    if isinstance(element, list | tuple):
        raise ValueError(f"Argument must be a dense tensor, but has a part {reprlib.repr(element)}")
    raise TypeError(f"Expected binary or unicode string, got {element!r}")


# Python's tower of numbers; a value may be widened along it but not narrowed.
_KINDS = ("is_bool", "is_integer", "is_floating", "is_complex")


def _rank(dtype: DType) -> int:
    """Return the position of a dtype in the tower, or -1 if it is not numeric."""
    return next((rank for rank, kind in enumerate(_KINDS) if getattr(dtype, kind)), -1)


def _first_sizes(value: Any) -> list[int]:
    """The sizes of a list, of its first element, of that one's first element ..."""
    sizes = []
    while isinstance(value, list | tuple):
        sizes.append(len(value))
        value = value[0] if value else None
    return sizes


def _from_python(value: Any, dtype: DType | None) -> np.ndarray:
    try:
        natural = np.array(value)
    except UnicodeDecodeError:  # NumPy decodes bytes that are mixed with text
        natural = np.array("")
    except ValueError:
        raise ValueError(
            f"Argument must be a dense tensor: {reprlib.repr(value)} - got shape "
            f"{list(np.array(value, object).shape)}, but wanted {_first_sizes(value)}."
        ) from None
    if natural.size == 0:
        return np.empty(natural.shape, (dtype or dtypes.float32).numpy)
    if natural.dtype.kind in "SU":
        if dtype not in (None, dtypes.string):
            raise _misfit(value, dtype)
        return _as_strings(np.array(value, object))  # as objects, trailing NULs survive
    try:
        source = as_dtype(natural.dtype)
    except TypeError:
        source = None
    if source is None or natural.dtype == object:
        raise TypeError(
            f"Failed to convert object of type {type(value)} to Tensor."
            f" Contents: {reprlib.repr(value)}. Consider casting elements to a supported type."
        )
    if dtype is None:
        return _default_type(natural)
    if dtype is source:
        return natural
    if _rank(source) > _rank(dtype):
        raise _misfit(value, dtype)
    return _wrapping_cast(natural, dtype)


def _default_type(natural: np.ndarray) -> np.ndarray:
    """Return float32 and int32 for Python's floats and ints; int64 only for values beyond int32."""
    if natural.dtype == np.float64:
        return _cast(natural, dtypes.float32)
    if natural.dtype == np.int64:
        narrow = natural.astype(np.int32)
        return narrow if np.array_equal(narrow, natural) else natural
    return natural


def _wrapping_cast(natural: np.ndarray, dtype: DType) -> np.ndarray:
    """Convert Python numbers as TensorFlow's NumPy does: an integer out of range for `dtype` wraps
    around, unless it doesn't fit into 64 bits either.
    """
    if natural.dtype == np.uint64 and dtype.is_integer and dtype is not dtypes.uint64:
        raise OverflowError(f"{natural.max()} is out of the range of {dtype.name}")
    return _cast(natural, dtype)


def _misfit(value: Any, dtype: DType) -> TypeError:
    """Return an error that names the first element that `dtype` cannot hold."""
    for element in np.array(value, object).flat:
        kind = np.asarray(element).dtype
        if kind.kind in "SUO" or _rank(as_dtype(kind)) > _rank(dtype):
            return TypeError(
                f"Expected {dtype.name}, got {element!r} of type"
                f" {type(element).__name__!r} instead."
            )
    return TypeError(f"Expected {dtype.name}, got {reprlib.repr(value)}")
