"""Element types. In: anything that names a type. Out: the one `DType` object of that type.

Invariants:
- Types are interned: two DTypes are the same type exactly when they are the same object, also after
  copying and unpickling, so `is` is the fast comparison inside Headrace.
- Everything about a type is computed once, when this module is imported; reading it is a slot read.
- The numbers (`enum`) are those of TensorFlow's DataType; a reference type is its base plus 100.

This module exports `bool` (as TensorFlow does), so the builtin is spelled `builtins.bool` here.
"""

import builtins
from typing import Any, Final

import ml_dtypes
import numpy as np

_REF_OFFSET: Final = 100


class DType:
    """The element type of a tensor; `DType(number)` finds the type with that DataType number."""

    __slots__ = (
        "_as_ref",
        "_is_ref_dtype",
        "as_numpy_dtype",
        "base_dtype",
        "enum",
        "is_bool",
        "is_complex",
        "is_floating",
        "is_integer",
        "is_numpy_compatible",
        "is_quantized",
        "is_unsigned",
        "name",
        "numpy",
        "real_dtype",
        "size",
    )

    name: str
    enum: int
    numpy: np.dtype
    as_numpy_dtype: Any
    base_dtype: "DType"
    real_dtype: "DType"
    size: int
    is_bool: builtins.bool
    is_complex: builtins.bool
    is_floating: builtins.bool
    is_integer: builtins.bool
    is_numpy_compatible: builtins.bool
    is_quantized: builtins.bool
    is_unsigned: builtins.bool
    _is_ref_dtype: builtins.bool
    _as_ref: "DType"

    def __new__(cls, type_enum: int) -> "DType":
        found = _BY_ENUM.get(type_enum) if isinstance(type_enum, int) else None
        if found is None:
            raise TypeError(f"not the number of a data type: {type_enum!r}")
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a DType cannot be changed: {self.name}.{name}")

    @property
    def as_datatype_enum(self) -> int:
        """The DataType number of this type."""
        return self.enum

    @property
    def min(self) -> Any:
        """The smallest (most negative finite) value of this type."""
        return self._range("minimum").min

    @property
    def max(self) -> Any:
        """The largest finite value of this type."""
        return self._range("maximum").max

    @property
    def limits(self) -> tuple[int, int]:
        """The intensities in an image of this type: 0 to 1 for floats, 0 to max for integers."""
        return (0, 1) if self.is_floating else (0, self._range("maximum").max)

    def _range(self, end: str) -> Any:
        if self.is_integer:
            return np.iinfo(self.numpy)
        if self.is_floating:
            return ml_dtypes.finfo(self.numpy)
        raise TypeError(f"Cannot find {end} value of {self}.")

    def is_compatible_with(self, other: Any) -> builtins.bool:
        """True if a value of type `other` may be used where this type is wanted.

        A reference serves as a plain value; a plain value does not serve as a reference.
        """
        other = as_dtype(other)
        return self is other or self is other.base_dtype

    def __eq__(self, other: object) -> builtins.bool:
        if self is other:
            return True
        if other is None or type(other) is DType:
            return False
        try:
            return self is as_dtype(other)
        except TypeError:
            return False

    def __ne__(self, other: object) -> builtins.bool:
        return not self == other

    def __hash__(self) -> int:
        return self.enum

    def __int__(self) -> int:
        return self.enum

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)


_BY_ENUM: Final[dict[int, DType]] = {}
# The keys that as_dtype accepts besides DTypes: numbers, names, NumPy types and dtypes, Python
# types.
_LOOKUP: Final[dict[Any, DType]] = {}


def _make(name: str, enum: int, numpy_type: Any, base: DType | None, real: DType | None) -> DType:
    """Create and register one type, a reference type if `base` is given."""
    dtype = object.__new__(DType)
    numpy = np.dtype(numpy_type)
    opaque = name.startswith(("resource", "variant"))
    quantized = numpy.names is not None
    bfloat = numpy == ml_dtypes.bfloat16
    values: dict[str, Any] = {
        "name": name,
        "enum": enum,
        "numpy": numpy,
        "as_numpy_dtype": numpy if quantized else object if numpy.kind == "O" else numpy.type,
        "base_dtype": base or dtype,
        "real_dtype": real or dtype,
        "size": 1 if opaque else numpy.itemsize,
        "is_bool": numpy.kind == "b",
        "is_complex": numpy.kind == "c",
        "is_floating": numpy.kind == "f" or bfloat,
        "is_integer": numpy.kind in "iu",
        "is_numpy_compatible": not opaque,
        "is_quantized": quantized,
        "is_unsigned": numpy.kind == "u",
        "_is_ref_dtype": base is not None,
    }
    for key, value in values.items():
        object.__setattr__(dtype, key, value)
    _BY_ENUM[enum] = _LOOKUP[enum] = _LOOKUP[name] = dtype
    return dtype


def _define(name: str, enum: int, numpy_type: Any, real: DType | None = None) -> DType:
    """Create a type together with its reference type."""
    base = _make(name, enum, numpy_type, None, real)
    reference = _make(f"{name}_ref", enum + _REF_OFFSET, numpy_type, base, real)
    for dtype in (base, reference):
        object.__setattr__(dtype, "_as_ref", reference)
    if base.numpy.kind != "O":
        _LOOKUP[base.numpy] = _LOOKUP[base.as_numpy_dtype] = base
    return base


float32 = _define("float32", 1, np.float32)
float64 = double = _define("float64", 2, np.float64)
int32 = _define("int32", 3, np.int32)
uint8 = _define("uint8", 4, np.uint8)
int16 = _define("int16", 5, np.int16)
int8 = _define("int8", 6, np.int8)
string = _define("string", 7, object)
complex64 = _define("complex64", 8, np.complex64, float32)
int64 = _define("int64", 9, np.int64)
bool_ = bool = _define("bool", 10, np.bool_)
# As in TensorFlow, quantized values are one-field records, so that no arithmetic mistakes them for
# integers; kernels look at the bytes with ndarray.view.
qint8 = _define("qint8", 11, [("qint8", np.int8)])
quint8 = _define("quint8", 12, [("quint8", np.uint8)])
qint32 = _define("qint32", 13, [("qint32", np.int32)])
bfloat16 = _define("bfloat16", 14, ml_dtypes.bfloat16)
qint16 = _define("qint16", 15, [("qint16", np.int16)])
quint16 = _define("quint16", 16, [("quint16", np.uint16)])
uint16 = _define("uint16", 17, np.uint16)
complex128 = _define("complex128", 18, np.complex128, float64)
float16 = half = _define("float16", 19, np.float16)
resource = _define("resource", 20, object)
variant = _define("variant", 21, object)
uint32 = _define("uint32", 22, np.uint32)
uint64 = _define("uint64", 23, np.uint64)

float32_ref = float32._as_ref
float64_ref = double_ref = float64._as_ref
int32_ref = int32._as_ref
uint8_ref = uint8._as_ref
int16_ref = int16._as_ref
int8_ref = int8._as_ref
string_ref = string._as_ref
complex64_ref = complex64._as_ref
int64_ref = int64._as_ref
bool_ref = bool._as_ref
qint8_ref = qint8._as_ref
quint8_ref = quint8._as_ref
qint32_ref = qint32._as_ref
bfloat16_ref = bfloat16._as_ref
qint16_ref = qint16._as_ref
quint16_ref = quint16._as_ref
uint16_ref = uint16._as_ref
complex128_ref = complex128._as_ref
float16_ref = half_ref = float16._as_ref
resource_ref = resource._as_ref
variant_ref = variant._as_ref
uint32_ref = uint32._as_ref
uint64_ref = uint64._as_ref

QUANTIZED_DTYPES: Final = frozenset(t for t in _BY_ENUM.values() if t.is_quantized)

for _alias, _dtype in (("float", float32), ("double", float64), ("half", float16)):
    _LOOKUP[_alias] = _dtype
    _LOOKUP[f"{_alias}_ref"] = _dtype._as_ref
# `int`, `str`, `bytes` and `complex` are not here: TensorFlow 1.15 refuses them.
_LOOKUP.update({builtins.float: float32, builtins.bool: bool})
_LOOKUP.update(dict.fromkeys((object, np.dtype(object), np.object_, np.str_, np.bytes_), string))
for _c_type in (np.intc, np.uintc, np.long, np.ulong, np.longlong, np.ulonglong):
    # C has more names for integers than there are widths; NumPy keeps a class for each name.
    _LOOKUP[_c_type] = _LOOKUP[np.dtype(np.dtype(_c_type).str)]
del _alias, _dtype, _c_type


def as_dtype(type_value: Any) -> DType:
    """The DType that `type_value` names: a DType, number, name, NumPy dtype, or Python type."""
    if type(type_value) is DType:
        return type_value
    try:
        found = _LOOKUP.get(type_value)
    except TypeError:  # unhashable, so not a key
        found = None
    if found is None and isinstance(type_value, np.dtype):
        # Any byte order, and text of any length, have the same element type.
        found = _LOOKUP.get(type_value.type)
    if found is None:
        raise TypeError(f"Cannot convert value {type_value!r} to a TensorFlow DType.")
    return found


def of_array(array: np.ndarray) -> DType:
    """The DType of an array's elements; arrays of text or of Python objects hold strings."""
    return _LOOKUP.get(array.dtype) or as_dtype(array.dtype)


_CPP_NAMES: Final = {"float32": "float", "float64": "double", "float16": "half"}


def show_type(dtype: DType) -> str:
    """Return a dtype's name as TensorFlow's kernel messages spell it."""
    return _CPP_NAMES.get(dtype.name, dtype.name)
