"""StructuredValues: the messages that describe arguments and results of a SavedModel's functions.
In: a message. Out: numbers, strings, lists, tuples, dicts and TypeSpecs, as they were nested; and
back.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from headrace._src.core import dtypes, proto
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite_specs import IndexedSlicesSpec, SparseTensorSpec
from headrace._src.graph.type_spec import TensorSpec, TypeSpec
from headrace._src.ops.control.tensor_array import TensorArraySpec
from headrace._src.ops.ragged.ragged_spec import RaggedTensorSpec

__all__ = ["from_message", "to_message"]

# TypeSpecs by the numbers that messages have for them; the message holds their state.
_SPECS = {
    1: SparseTensorSpec,
    2: IndexedSlicesSpec,
    3: RaggedTensorSpec,
    4: TensorArraySpec,
}
_PLAIN = ("float64_value", "int64_value", "string_value", "bool_value")


def from_message(message: Any) -> Any:
    """Return the value that a StructuredValue describes."""
    kind = message.WhichOneof("kind")
    if kind is None or kind == "none_value":
        return None
    held = getattr(message, kind)
    if kind in _PLAIN:
        return held
    if kind == "tensor_shape_value":
        return TensorShape(held)
    if kind == "tensor_dtype_value":
        return dtypes.as_dtype(held)
    if kind == "tensor_spec_value":
        return TensorSpec(TensorShape(held.shape), held.dtype, held.name or None)
    if kind == "type_spec_value":
        return _spec_from(held)
    if kind == "dict_value":
        return {key: from_message(held.fields[key]) for key in sorted(held.fields)}
    if kind == "named_tuple_value":
        pairs = {pair.key: from_message(pair.value) for pair in held.values}
        return namedtuple(held.name or "Unnamed", pairs)(**pairs)
    values = [from_message(value) for value in held.values]
    return tuple(values) if kind == "tuple_value" else values


def _spec_from(message: Any) -> TypeSpec:
    if message.type_spec_class not in _SPECS:
        raise ValueError(
            f"The SavedModel has a function whose arguments or results are of the type "
            f"{message.type_spec_class_name or message.type_spec_class}, which isn't supported"
        )
    return _SPECS[message.type_spec_class](*from_message(message.type_state))


def to_message(value: Any) -> Any:
    """Return the StructuredValue that describes a value."""
    message: Any = proto.StructuredValue()
    if value is None:
        message.none_value.SetInParent()
    elif isinstance(value, bool):  # before int, whose subclass it is
        message.bool_value = value
    elif isinstance(value, int):
        message.int64_value = value
    elif isinstance(value, float):
        message.float64_value = value
    elif isinstance(value, str):
        message.string_value = value
    elif isinstance(value, TensorShape):
        message.tensor_shape_value.CopyFrom(value.as_proto())
    elif isinstance(value, dtypes.DType):
        message.tensor_dtype_value = value.as_datatype_enum
    elif isinstance(value, TypeSpec):
        _describe_spec(message, value)
    elif isinstance(value, dict):
        message.dict_value.SetInParent()
        for key, item in value.items():
            message.dict_value.fields[key].CopyFrom(to_message(item))
    elif isinstance(value, tuple) and (names := getattr(value, "_fields", None)) is not None:
        message.named_tuple_value.name = type(value).__name__
        for key, item in zip(names, value, strict=True):
            message.named_tuple_value.values.add(key=key, value=to_message(item))
    elif isinstance(value, list | tuple):
        held = message.list_value if isinstance(value, list) else message.tuple_value
        held.SetInParent()
        held.values.extend(to_message(item) for item in value)
    else:
        raise ValueError(f"{value!r} can't be described in a SavedModel")
    return message


def _describe_spec(message: Any, spec: TypeSpec) -> None:
    if isinstance(spec, TensorSpec):
        held = message.tensor_spec_value
        held.name = spec.name or ""
        held.shape.CopyFrom(spec.shape.as_proto())
        held.dtype = spec.dtype.as_datatype_enum
        return
    numbers = {kind: number for number, kind in _SPECS.items()}
    if type(spec) not in numbers:
        raise ValueError(f"{spec!r} can't be described in a SavedModel")
    message.type_spec_value.type_spec_class = numbers[type(spec)]
    message.type_spec_value.type_spec_class_name = type(spec).__name__
    message.type_spec_value.type_state.CopyFrom(to_message(spec._serialize()))
