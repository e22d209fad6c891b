"""Complete attributes. In: a definition, inputs, and the given attributes. Out: all attributes of
the schema: some follow from the inputs' types and number, the rest from defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace._src.graph.attributes import as_attribute
from headrace._src.graph.definition import Definition
from headrace._src.graph.operation import Tensor
from headrace._src.graph.schema import MISSING

__all__ = ["complete_attributes"]


def complete_attributes(
    definition: Definition, inputs: Sequence[Tensor], given: dict[str, Any]
) -> dict[str, Any]:
    """Complete the `given` attributes from the inputs' types and the schema's defaults; TypeError
    if that fails.
    """
    schema = definition.schema
    attrs: dict[str, Any] = {k: v for k, v in given.items() if k not in schema.attributes}
    for attribute in schema.attributes.values():
        value = given.get(attribute.name)
        if value is None and attribute.name not in schema.inferred:
            if attribute.default is MISSING:
                raise ValueError(f"'{schema.op_type}' Op needs attr '{attribute.name}'")
            value = attribute.default
        if value is not None:
            attrs[attribute.name] = as_attribute(attribute, value, schema.op_type, from_file=True)
    position = 0
    single_lists = [a for a in schema.inputs if a.is_list]
    for argument in schema.inputs:
        count = _count_inputs(schema, argument, attrs, len(inputs), len(single_lists))
        taken = inputs[position : position + count]
        if len(taken) != count:
            raise ValueError(
                f"'{schema.op_type}' Op takes more inputs than the {len(inputs)} given: {schema}"
            )
        position += count
        types = [t.dtype.base_dtype for t in taken]
        if argument.type_list_attr:
            attrs.setdefault(argument.type_list_attr, tuple(types))
        if argument.number_attr:
            attrs.setdefault(argument.number_attr, count)
        if argument.type_attr and types:
            attrs.setdefault(argument.type_attr, types[0])
        for t, expected in zip(taken, schema.types(argument, attrs), strict=True):
            if t.dtype.base_dtype != expected.base_dtype:
                raise TypeError(
                    f"Input '{argument.name}' of '{schema.op_type}' Op has type "
                    f"{t.dtype.base_dtype.name} that does not match expected type of "
                    f"{expected.base_dtype.name}."
                )
            if argument.is_ref and not t.dtype._is_ref_dtype:
                raise TypeError(
                    f"'{schema.op_type}' Op requires that input '{argument.name}' be a mutable "
                    "tensor "
                    "(e.g.: a tf.Variable)"
                )
    if position != len(inputs):
        raise ValueError(
            f"'{schema.op_type}' Op takes {position} inputs, not the {len(inputs)} given: {schema}"
        )
    for attribute in schema.attributes.values():
        if attribute.name in schema.inferred:
            if attribute.name not in attrs:
                if attribute.default is MISSING:
                    raise ValueError(f"'{schema.op_type}' Op needs attr '{attribute.name}'")
                attrs[attribute.name] = attribute.default
            as_attribute(attribute, attrs[attribute.name], schema.op_type, from_file=True)
    return attrs


def _count_inputs(schema: Any, argument: Any, attrs: dict[str, Any], given: int, lists: int) -> int:
    known = argument.number_attr or argument.type_list_attr
    if not known:
        return 1
    if known in attrs:
        return schema.count(argument, attrs)
    if lists > 1:
        raise ValueError(f"'{schema.op_type}' Op needs attr '{known}'")
    return given - (len(schema.inputs) - 1)
