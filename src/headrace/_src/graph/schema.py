"""Op schemas. In: one line of text per op. Out: a `Schema`: arguments, results, attributes.

The text is `inputs -> outputs` and `attributes`, for example

    "values: N*T, axis: Tidx -> output: T"      "N: int >= 2; T: type; Tidx: {index} = int32"

An argument's type is a dtype name, a type attribute (`T`), `N*T` (a list of N tensors of one type),
`*T` (a list of tensors whose types are the list attribute T) or `Ref(...)` of one of these. An
attribute is `name: kind`, with `{a|b}` for a choice among dtypes (or `{'A'|'B'}` among strings),
`list{...}` for a list of such, `>= n` for a minimum and `= value` for a default (of a tensor, with
its type: `uint8[255, 0]`).

Invariant: the schema of an op equals TensorFlow 1.15's OpDef of that name, which makes GraphDefs
interchangeable.
"""

from __future__ import annotations

import ast
import re
from collections import namedtuple
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.errors import ResourceExhaustedError
from headrace._src.core.tensor_shape import TensorShape

__all__ = ["MISSING", "Argument", "Attribute", "Schema"]

_MOST_TENSORS = 1 << 16  # the most tensors of one argument of an operation


class _Missing:
    """The default of an attribute that has none."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()

# Names for the sets of dtypes that many ops share.
TYPE_SETS = {
    "numbers": "float32|float64|int32|uint8|int16|int8|complex64|int64|qint8|quint8|qint32|bfloat16"
    "|uint16|complex128|float16|uint32|uint64",
    "reals": "float32|float64|int32|uint8|int16|int8|int64|bfloat16|uint16|float16|uint32|uint64",
    "floats": "float16|bfloat16|float32|float64",
    "float_or_complex": "bfloat16|float16|float32|float64|complex64|complex128",
    "integers": "int8|int16|int32|int64|uint8|uint16|uint32|uint64",
    "complexes": "complex64|complex128",
    "index": "int32|int64",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """One input or output: `dtype` if fixed, else the names of the attributes that determine it."""

    name: str
    dtype: dtypes.DType | None = None
    type_attr: str = ""  # T in `x: T` and in `x: N*T`
    number_attr: str = ""  # N in `x: N*T`
    type_list_attr: str = ""  # T in `x: *T`
    is_ref: bool = False

    @property
    def is_list(self) -> bool:
        return bool(self.number_attr or self.type_list_attr)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: its kind (`int`, `type`, `list(shape)`, ...), its allowed values and its
    default.
    """

    name: str
    kind: str
    default: Any = MISSING
    allowed: tuple[Any, ...] | None = None
    minimum: int | None = None

    @property
    def element(self) -> str:
        """The kind of one element: `int` of `list(int)`."""
        return self.kind[5:-1] if self.is_list else self.kind

    @property
    def is_list(self) -> bool:
        return self.kind.startswith("list(")


class Schema:
    """The interface of an op type, independent of what it computes.

    Its text is parsed on first use: of some 700 ops, a program uses few. A mistake in it then
    raises a ValueError that names the op and the wrong part.
    """

    def __init__(self, op_type: str, signature: str, attributes: str) -> None:
        self.op_type = op_type
        self._signature = signature
        self._attributes = attributes

    @classmethod
    def of(
        cls,
        op_type: str,
        inputs: tuple[Argument, ...],
        outputs: tuple[Argument, ...],
        attributes: dict[str, Attribute],
    ) -> Schema:
        """Return a schema made of parsed parts."""
        schema = cls(op_type, "", "")
        schema.inputs, schema.outputs, schema.attributes = inputs, outputs, attributes
        return schema

    def changed(self, op_type: str, inputs: tuple[Argument, ...]) -> Schema:
        """Return the schema of another op, which differs only in its inputs."""
        return Schema.of(op_type, inputs, self.outputs, self.attributes)

    def by_reference(self, inputs: Sequence[int], outputs: Sequence[int]) -> Schema:
        """Return the schema with references for these inputs and outputs."""
        ins, outs = (
            tuple(replace(a, is_ref=True) if i in chosen else a for i, a in enumerate(side))
            for side, chosen in ((self.inputs, inputs), (self.outputs, outputs))
        )
        return Schema.of(self.op_type, ins, outs, self.attributes)

    @cached_property
    def attributes(self) -> dict[str, Attribute]:
        with self._reading():
            texts = filter(None, map(str.strip, self._attributes.split(";")))
            return {attribute.name: attribute for attribute in map(_parse_attribute, texts)}

    @cached_property
    def inputs(self) -> tuple[Argument, ...]:
        return self._side(0)

    @cached_property
    def outputs(self) -> tuple[Argument, ...]:
        return self._side(1)

    @cached_property
    def results(self) -> type[tuple[Any, ...]]:
        """The named tuple of the outputs, which a function that adds such an operation returns if
        there are several.
        """
        return namedtuple(self.op_type, [a.name for a in self.outputs])

    def _side(self, side: int) -> tuple[Argument, ...]:
        attributes = self.attributes
        with self._reading():
            sides = self._signature.split("->")
            if len(sides) != 2:
                raise ValueError(f"no '->' in {self._signature!r}")
            return _parse_arguments(sides[side], attributes)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, SyntaxError, TypeError, KeyError) as error:
            raise ValueError(f"schema of {self.op_type}: {error}") from error

    @cached_property
    def has_list_inputs(self) -> bool:
        return any(a.is_list for a in self.inputs)

    @cached_property
    def has_ref_inputs(self) -> bool:
        return any(a.is_ref for a in self.inputs)

    @cached_property
    def has_list_outputs(self) -> bool:
        return any(a.is_list for a in self.outputs)

    @cached_property
    def inferred(self) -> dict[str, str]:
        """The attributes whose value follows from the inputs, with the first input that determines
        it.
        """
        found: dict[str, str] = {}
        for a in self.inputs:
            for attribute in filter(None, (a.type_attr, a.number_attr, a.type_list_attr)):
                found.setdefault(attribute, a.name)
        return found

    def count(self, argument: Argument, attrs: dict[str, Any]) -> int:
        """Return how many tensors `argument` consists of under `attrs`."""
        if argument.number_attr:
            return attrs[argument.number_attr]
        if argument.type_list_attr:
            return len(attrs[argument.type_list_attr])
        return 1

    def references(self, attrs: dict[str, Any]) -> list[bool]:
        """Return, for each input under `attrs`, whether it must be a reference."""
        return [a.is_ref for a in self.inputs for _ in range(self.count(a, attrs))]

    def types(self, argument: Argument, attrs: dict[str, Any]) -> list[dtypes.DType]:
        """Return the dtypes of the tensors of `argument` under `attrs`."""
        if argument.type_list_attr:
            found = list(attrs[argument.type_list_attr])
        else:
            dtype = argument.dtype or attrs[argument.type_attr]
            count = self.count(argument, attrs)
            if count > _MOST_TENSORS:
                raise ResourceExhaustedError(
                    None,
                    None,
                    f"{self.op_type}: {argument.number_attr} asks for {count:,} tensors "
                    f"{argument.name!r}, more than the {_MOST_TENSORS:,} that there may be",
                )
            found = [dtype] * count
        return [t._as_ref for t in found] if argument.is_ref else found

    def output_types(self, attrs: dict[str, Any]) -> list[dtypes.DType]:
        return [t for a in self.outputs for t in self.types(a, attrs)]

    def input_types(self, attrs: dict[str, Any]) -> list[dtypes.DType]:
        return [t for a in self.inputs for t in self.types(a, attrs)]

    def __str__(self) -> str:
        def show(a: Argument) -> str:
            kind = a.type_attr or (a.dtype.name if a.dtype else "")
            kind = f"{a.number_attr}*{kind}" if a.number_attr else kind
            kind = f"*{a.type_list_attr}" if a.type_list_attr else kind
            return f"{a.name}: Ref({kind})" if a.is_ref else f"{a.name}: {kind}"

        ins, outs = (", ".join(map(show, side)) for side in (self.inputs, self.outputs))
        return f"{self.op_type}({ins}) -> ({outs})"


_CHOICE = re.compile(r"(list)?\{(.*?)\}")
_REF = re.compile(r"Ref\((.*)\)")


def _parse_arguments(text: str, attrs: dict[str, Attribute]) -> tuple[Argument, ...]:
    found = []
    for piece in filter(None, map(str.strip, text.split(","))):
        name, _, kind = (s.strip() for s in piece.partition(":"))
        ref = _REF.fullmatch(kind)
        found.append(_parse_argument(name, ref[1] if ref else kind, ref is not None, attrs))
    return tuple(found)


def _parse_argument(name: str, kind: str, is_ref: bool, attrs: dict[str, Attribute]) -> Argument:
    if kind.startswith("*"):
        _require(kind[1:], "list(type)", attrs)
        return Argument(name, type_list_attr=kind[1:], is_ref=is_ref)
    number, star, element = kind.rpartition("*")
    if star:
        _require(number, "int", attrs)
    if element in attrs:
        _require(element, "type", attrs)
        return Argument(name, type_attr=element, number_attr=number, is_ref=is_ref)
    return Argument(name, dtypes.as_dtype(element), number_attr=number, is_ref=is_ref)


def _require(name: str, kind: str, attrs: dict[str, Attribute]) -> None:
    if attrs[name].kind != kind:
        raise ValueError(f"attribute {name} must be of kind {kind}, not {attrs[name].kind}")


def _parse_attribute(text: str) -> Attribute:
    name, _, rest = (s.strip() for s in text.partition(":"))
    allowed: tuple[Any, ...] | None = None
    choice = _CHOICE.match(rest)
    if choice:
        allowed, kind = _parse_choice(choice[2])
        kind = f"list({kind})" if choice[1] else kind
        rest = rest[choice.end() :]
    else:
        kind = re.match(r"\w+(\(\w+\))?", rest)[0]  # type: ignore[index]
        rest = rest[len(kind) :]
    minimum = re.match(r"\s*>=\s*(-?\d+)", rest)
    if minimum:
        rest = rest[minimum.end() :]
    _, equals, default = rest.partition("=")
    return Attribute(
        name,
        kind,
        _parse_default(kind, default.strip()) if equals else MISSING,
        allowed,
        int(minimum[1]) if minimum else None,
    )


def _parse_choice(text: str) -> tuple[tuple[Any, ...], str]:
    if "'" in text:
        return tuple(ast.literal_eval(s) for s in text.split("|")), "string"
    names = "|".join(TYPE_SETS.get(s.strip(), s.strip()) for s in text.split("|"))
    return tuple(dict.fromkeys(dtypes.as_dtype(s) for s in names.split("|"))), "type"


def _parse_default(kind: str, text: str) -> Any:
    if kind == "type":
        return dtypes.as_dtype(text)
    if kind == "list(type)":
        return tuple(dtypes.as_dtype(s.strip()) for s in text.strip("[]").split(",") if s.strip())
    if kind == "shape":
        return TensorShape(None) if text == "<unknown>" else TensorShape(ast.literal_eval(text))
    if kind == "tensor":
        name, _, elements = text.partition("[")
        array = np.array(ast.literal_eval(f"[{elements}"), dtypes.as_dtype(name).numpy)
        array.flags.writeable = False  # like every tensor attribute
        return array
    value = ast.literal_eval(text)
    if kind == "float":
        return float(np.float32(value))  # the precision of a GraphDef
    return tuple(value) if isinstance(value, list) else value
