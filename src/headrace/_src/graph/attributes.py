"""Attribute values. In: a value from a caller or a NodeDef. Out: one canonical, immutable Python
value per kind.

Kinds and their values: int, float, bool, string (str, or bytes where it isn't UTF-8), type (DType),
shape (TensorShape), tensor (read-only ndarray), func (FunctionName), list(...) (a tuple of these).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.tensor_proto import to_array, to_proto
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph import default
from headrace._src.graph.schema import Attribute

if TYPE_CHECKING:
    from headrace._src.core import proto

__all__ = ["FunctionName", "as_attribute", "check_limits", "plain", "from_proto", "set_proto"]


@dataclass(frozen=True)
class FunctionName:
    """The value of a `func` attribute: a function of the graph's library, and its attributes."""

    name: str
    attrs: dict[str, Any] = field(default_factory=dict)


def as_attribute(attribute: Attribute, value: Any, op_type: str, *, from_file: bool = False) -> Any:
    """Return `value` as the canonical value of `attribute`; TypeError or ValueError if that's
    impossible.
    """
    convert = _CONVERT[attribute.element]
    try:
        if attribute.is_list:
            if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
                raise TypeError("it must be a list")
            value = tuple(convert(v) for v in value)
        else:
            value = convert(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"Expected {expected(attribute)} for argument '{attribute.name}' not {value!r}. "
            f"(op: '{op_type}': {error})"
        ) from None
    check_limits(attribute, value, op_type, attribute.name, from_file)
    return value


def expected(attribute: Attribute) -> str:
    """Describe the kind of value that an attribute takes, in TensorFlow's words."""
    return attribute.kind.replace("type", "DataType")


def plain(value: Any, attribute: Attribute | None) -> Any:
    """Canonicalise a caller's value or an AttrValue as far as its kind is known."""
    if hasattr(value, "WhichOneof"):
        return from_proto(value, attribute.kind if attribute else None)
    return tuple(value) if isinstance(value, list) else value


def check_limits(
    attribute: Attribute, value: Any, op_type: str, name: str, from_file: bool = False
) -> None:
    """Refuse a canonical value that the attribute may not have; `name` is the user's name of the
    parameter, or, with `from_file`, the attribute of a NodeDef.
    """
    allowed, minimum = attribute.allowed, attribute.minimum
    if allowed is not None:
        for v in value if attribute.is_list else (value,):
            if v in allowed:
                continue
            if attribute.element == "type":
                names = ", ".join(t.name for t in allowed)
                raise TypeError(
                    f"Value passed to parameter '{name}' has DataType {v.name} not in list of "
                    f"allowed values: {names} (op: '{op_type}')"
                )
            choices = '", "'.join(allowed)
            if from_file:
                raise ValueError(
                    f"Value for attr '{name}' of \"{v}\" is not in the list of allowed values: "
                    f'"{choices}"; Op type: {op_type}'
                )
            raise ValueError(
                f"Attr '{name}' of '{op_type}' Op passed string '{v}' not in: \"{choices}\"."
            )
    if minimum is not None:
        size = len(value) if attribute.is_list else value
        if size < minimum:
            passed = f"list of length {size}" if attribute.is_list else size
            raise ValueError(
                f"Attr '{name}' of '{op_type}' Op passed {passed} less than minimum {minimum}."
            )


def _as_int(value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise TypeError("a bool is not an int")
    return operator.index(value.value if hasattr(value, "value") else value)


def _as_float(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError("a string is not a float")
    return float(np.float32(value))  # the precision of a GraphDef


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError("it must be True or False")


def _as_string(value: Any) -> str | bytes:
    if isinstance(value, str):
        return value
    if not isinstance(value, bytes):
        raise TypeError("it must be a string")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _as_tensor(value: Any) -> np.ndarray:
    if hasattr(value, "tensor_shape"):
        array = to_array(value)
    elif isinstance(value, np.ndarray | np.generic):
        array = np.array(value)  # the caller may still write to the original
    else:
        raise TypeError("it must be an array")
    array.flags.writeable = False
    return array


def _as_function(value: Any) -> FunctionName:
    if isinstance(value, FunctionName):
        return value
    if isinstance(value, str):
        return FunctionName(value)
    add_to_graph = getattr(value, "add_to_graph", None)
    if add_to_graph is None:
        raise TypeError("it must be a function, or a function's name")
    add_to_graph(default.get_default_graph())
    return FunctionName(value.name)


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "int": _as_int,
    "float": _as_float,
    "bool": _as_bool,
    "string": _as_string,
    "type": lambda value: dtypes.as_dtype(value).base_dtype,
    "shape": as_shape,
    "tensor": _as_tensor,
    "func": _as_function,
}

# AttrValue's field for each kind; its ListValue uses the same names.
_FIELD = {
    "int": "i",
    "float": "f",
    "bool": "b",
    "string": "s",
    "type": "type",
    "shape": "shape",
    "tensor": "tensor",
    "func": "func",
}
_KIND = {field: kind for kind, field in _FIELD.items()}


def _encode(kind: str, value: Any) -> Any:
    if kind == "string":
        return value.encode() if isinstance(value, str) else value
    if kind == "type":
        return value.enum
    if kind == "shape":
        return value.as_proto()
    if kind == "tensor":
        return to_proto(value)
    return value


def _decode(kind: str, value: Any) -> Any:
    if kind == "func":
        return FunctionName(value.name, {k: from_proto(v) for k, v in value.attr.items()})
    if kind == "shape":
        return TensorShape(value)
    return _CONVERT[kind](value)


def guess_kind(value: Any) -> str:
    """Infer the kind of an attribute that no schema lists (such as `_class` or
    `_output_shapes`).
    """
    if isinstance(value, tuple):
        return f"list({guess_kind(value[0])})" if value else "list(string)"
    for kind, types in (
        ("bool", bool),
        ("int", int),
        ("float", float),
        ("string", str | bytes),
        ("type", dtypes.DType),
        ("shape", TensorShape),
        ("tensor", np.ndarray),
        ("func", FunctionName),
    ):
        if isinstance(value, types):
            return kind
    raise TypeError(f"{value!r} can't be an attribute")


def set_proto(target: proto.AttrValue, kind: str, value: Any) -> None:
    """Write `value` into the AttrValue `target`."""
    if kind.startswith("list("):
        element = kind[5:-1]
        target.list.SetInParent()
        items = getattr(target.list, _FIELD[element])
        for v in value:
            if element == "func":
                _fill_function(items.add(), v)
            else:
                items.append(_encode(element, v))
    elif kind == "func":
        _fill_function(target.func, value)
    elif kind in ("shape", "tensor"):
        getattr(target, _FIELD[kind]).CopyFrom(_encode(kind, value))
    else:
        setattr(target, _FIELD[kind], _encode(kind, value))


def _fill_function(target: Any, value: FunctionName) -> None:
    target.name = value.name
    for name, v in value.attrs.items():
        set_proto(target.attr[name], guess_kind(v), v)


def from_proto(value: proto.AttrValue, kind: str | None = None) -> Any:
    """Read an AttrValue; TypeError if it holds nothing, or not a value of `kind`."""
    which = value.WhichOneof("value")
    if which is None:
        raise TypeError("the attribute has no value")
    if which == "list":
        filled = [name for name in _KIND if len(getattr(value.list, name))]
        found = f"list({_KIND[filled[0]]})" if filled else kind or "list(string)"
        if len(filled) > 1 or not found.startswith("list(") or kind not in (None, found):
            raise TypeError(f"the attribute holds a {found if filled else 'list'}, not a {kind}")
        return tuple(_decode(_KIND[name], v) for name in filled for v in getattr(value.list, name))
    if which not in _KIND or kind not in (None, _KIND[which]):
        raise TypeError(f"the attribute holds a {_KIND.get(which, which)}, not a {kind or 'value'}")
    return _decode(_KIND[which], getattr(value, which))
