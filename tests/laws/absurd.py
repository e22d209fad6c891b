"""Samples that ask for absurd amounts of memory or time. In: an op's sample. Out: the same with one
integer, in an input or in an attribute, that is too large to be meant.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.graph.definition import Definition, Sample
from headrace._src.ops.base.samples import samples_of, type_choices

INT32 = 2**31 - 1
VALUES = (INT32, 2**40, 2**62)
# Windows of 2^20 are absurd already, where the sample's data are small.
ATTRIBUTES = (2**20, INT32, 2**40)


def absurd(definition: Definition) -> Iterator[tuple[str, int, Sample, dict[str, Any]]]:
    """Yield (what is absurd, its value, the sample, its types) for an op's first sample, with
    32-bit integers and, where an input may have them, with values that only 64-bit ones can have.
    """
    for sample in samples_of(definition)[:1]:
        first, *others = type_choices(definition, sample)
        longer = (t for t in others if any(t[k] is dtypes.int64 != first[k] for k in t))
        for types in (first, *list(longer)[:1]):
            for what, value, bad in _inputs(definition, sample, types):
                if types is first or value > INT32:
                    yield f"{what} = {value}", value, bad, types
        for what, value, bad in _attributes(definition, sample):
            yield f"{what} = {value}", value, bad, first


def _inputs(
    definition: Definition, sample: Sample, types: dict[str, Any]
) -> Iterator[tuple[str, int, Sample]]:
    schema = definition.schema
    attrs = {**types, **sample.attrs}
    for k, (argument, given) in enumerate(zip(schema.inputs, sample.inputs, strict=True)):
        if argument.is_ref or argument.type_list_attr:
            continue
        dtype = argument.dtype or dtypes.as_dtype(attrs[argument.type_attr])
        if not dtype.is_integer or dtype.size < 4:
            continue
        pieces = list(given) if argument.is_list else [given]
        for j, piece in enumerate(pieces):
            for where, value, bad in _spoiled(_array(piece, dtype)):
                changed = [bad if i == j else p for i, p in enumerate(pieces)]
                inputs = list(sample.inputs)
                inputs[k] = changed if argument.is_list else bad
                yield f"{argument.name} {j}{where}", value, Sample(*inputs, **sample.attrs)


def _array(piece: Any, dtype: dtypes.DType) -> np.ndarray:
    return piece.array(dtype) if hasattr(piece, "array") else np.asarray(piece, dtype.numpy)


def _spoiled(array: np.ndarray) -> Iterator[tuple[str, int, np.ndarray]]:
    flat = array.reshape(-1)
    for value in VALUES:
        if not array.size or value > np.iinfo(array.dtype).max:
            continue
        yield "", value, np.full_like(array, value)
        for place in sorted({0, 1, array.size - 1}) if array.size > 1 else ():
            one = flat.copy()
            one[place] = value
            yield f"[{place}]", value, one.reshape(array.shape)


def _attributes(definition: Definition, sample: Sample) -> Iterator[tuple[str, int, Sample]]:
    for attribute in definition.schema.attributes.values():
        name = attribute.name
        if name in ("seed", "seed2"):
            continue
        if attribute.kind == "int":
            for value in ATTRIBUTES:
                yield name, value, Sample(*sample.inputs, **{**sample.attrs, name: value})
        elif attribute.kind == "list(int)" and name in sample.attrs:
            held = list(sample.attrs[name])
            for place in range(len(held)):
                for value in ATTRIBUTES:
                    bad = [*held[:place], value, *held[place + 1 :]]
                    changed = {**sample.attrs, name: bad}
                    yield f"{name}[{place}]", value, Sample(*sample.inputs, **changed)
        elif attribute.kind == "shape" and name in sample.attrs:
            for rank in (1, 2):
                changed = {**sample.attrs, name: [2**40] * rank}
                yield f"each of {rank} in {name}", 2**40, Sample(*sample.inputs, **changed)
