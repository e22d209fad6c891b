"""Test inputs of ops. In: the `samples` of a definition. Out: operations with arrays to run them
on, for each dtype.

A sample's inputs are `Random(...)` (an array of the input's dtype, the same in every run), literal
lists or arrays (converted to the input's dtype), or lists of these for list inputs. Attributes that
the inputs determine need not be given.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.definition import Definition, Sample
from headrace._src.graph.fill_attributes import complete_attributes
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.graph.schema import MISSING, Argument, Schema
from headrace._src.ops.base.define import build
from headrace._src.ops.base.to_tensor import as_array, constant

__all__ = [
    "RandomSample",
    "Sample",
    "calls",
    "pairs",
    "r",
    "type_choices",
    "typed",
    "unary",
]

# The dtypes to try for an attribute of kind `type` without a list of choices.
_ANY = (
    dtypes.float32,
    dtypes.float64,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.int32,
    dtypes.int64,
    dtypes.uint8,
    dtypes.complex64,
    dtypes.bool,
    dtypes.string,
)


class RandomSample:
    """An array of random numbers in [low, high) of the dtype that the op requires.

    Reals are kept `apart` from integers and half-integers, so that finite differences don't
    straddle a kink.
    """

    __slots__ = ("high", "low", "shape")

    def __init__(self, *shape: int, low: float = -2.0, high: float = 2.0) -> None:
        self.shape = shape
        self.low = low
        self.high = high

    def __repr__(self) -> str:
        return f"r{self.shape}"

    def array(self, dtype: DType, salt: int = 0) -> np.ndarray:
        """Make the array; the same shape, dtype class and salt give the same numbers."""
        seed = zlib.crc32(repr((self.shape, self.low, self.high, salt)).encode())
        rng = np.random.default_rng(seed)
        low, high = self.low, self.high
        if dtype.is_bool:
            return np.asarray(rng.random(self.shape) < 0.5)
        if dtype is dtypes.string:
            words = np.empty(self.shape, object)
            for i in np.ndindex(self.shape):
                words[i] = b"w%d" % rng.integers(0, 9)
            return words
        if dtype.is_quantized:
            whole = rng.integers(int(np.ceil(low)), int(np.ceil(high)), self.shape)
            return np.asarray(whole).astype(dtype.numpy[0]).view(dtype.numpy)
        if dtype.is_unsigned:
            low, high = max(low, 0), max(high, 2)
        if dtype.is_integer:
            return np.asarray(
                rng.integers(int(np.ceil(low)), int(np.ceil(high)), self.shape)
            ).astype(dtype.numpy)
        values = _apart(rng.uniform(low, high, self.shape), low, high)
        if dtype.is_complex:
            values = values + 1j * _apart(rng.uniform(low, high, self.shape), low, high)
        return np.asarray(values).astype(dtype.numpy)


def _apart(values: Any, low: float, high: float) -> Any:
    """Move values that are near a multiple of one half a little away from it."""
    near = np.round(np.asarray(values) * 2) / 2
    close = np.abs(values - near) < 0.05
    moved = np.where(close, near + 0.06, values)
    return np.where(moved >= high, np.asarray(values), moved) if high > low else values


r = RandomSample


def unary(low: float = -2.0, high: float = 2.0) -> list[Sample]:
    """Return samples for an element-wise op of one input."""
    return [Sample(r(2, 3, low=low, high=high)), Sample(r(low=low, high=high)), Sample(r(0, 2))]


def pairs(low: float = -2.0, high: float = 2.0) -> list[Sample]:
    """Return samples for an element-wise op of two inputs that broadcast."""
    return [
        Sample(r(2, 3, low=low, high=high), r(2, 3, low=low, high=high)),
        Sample(r(2, 1, low=low, high=high), r(3, low=low, high=high)),
        Sample(r(low=low, high=high), r(4, low=low, high=high)),
        Sample(r(0, 2), r(2)),
    ]


def typed(samples: Sequence[Sample], *types: str, attr: str = "T") -> list[Sample]:
    """Restrict samples to some dtypes: for schemas that list more than any kernel supports."""
    return [Sample(*s.inputs, **s.attrs, **{attr: t}) for t in types for s in samples]


def samples_of(definition: Definition) -> Sequence[Sample]:
    """Return the samples of a definition, which may be given as a function so that import doesn't
    compute them.
    """
    samples = definition.samples
    return samples() if callable(samples) else samples


def type_choices(definition: Definition, sample: Sample) -> Iterator[dict[str, DType]]:
    """Return the assignments of dtypes to type attributes that the laws try: each choice of each
    attribute once.
    """
    schema = definition.schema
    free = [
        a for a in schema.attributes.values() if a.kind == "type" and a.name not in sample.attrs
    ]
    choices = {a.name: _supported(a.allowed) for a in free}
    base = {a.name: a.default if a.default is not MISSING else choices[a.name][0] for a in free}
    yield base
    for name, options in choices.items():
        for option in options:
            if option != base[name]:
                yield {**base, name: option}


def _supported(allowed: tuple[DType, ...] | None) -> list[DType]:
    if allowed is None:
        return list(_ANY)
    order = {t: i for i, t in enumerate(_ANY)}
    kept = [t for t in allowed if not t.is_quantized and t.name not in ("variant", "resource")]
    return sorted(kept or allowed, key=lambda t: order.get(t, len(order)))


def calls(
    definition: Definition, sample: Sample, types: dict[str, DType], *, static: bool = True
) -> tuple[Operation, list[np.ndarray]]:
    """Build one operation of a fresh graph on placeholders; return it with the arrays for its flat
    inputs.

    With `static`, the placeholders have known shapes and literal inputs are constants; otherwise
    nothing is known. A reference or resource input is a variable; the operation that assigns the
    array to it is in the graph's collection `initializers`.
    """

    schema = definition.schema
    arrays: list[np.ndarray] = []
    tensors: list[Tensor] = []
    attrs = {**types, **sample.attrs}
    graph = Graph()
    with graph.as_default():
        for argument, spec in zip(schema.inputs, sample.inputs, strict=True):
            specs = list(spec) if argument.is_list else [spec]
            for k, (piece, dtype) in enumerate(zip(specs, _types(schema, argument, specs, attrs))):
                if argument.is_ref or dtype is dtypes.resource:
                    value_type = _variable_type(dtype, attrs)
                    arrays.append(_array(piece, value_type, len(arrays)))
                    tensors.append(_variable(arrays[-1], value_type, argument, static))
                    continue
                array = _array(piece, dtype, len(arrays))
                arrays.append(array)
                if static and not isinstance(piece, RandomSample):
                    tensors.append(constant(array, dtype, name=f"{argument.name}_{k}"))
                else:
                    shape = array.shape if static else None
                    tensors.append(build("Placeholder", dtype=dtype, shape=shape))
        given = {k: v for k, v in attrs.items() if k in schema.attributes}
        full = complete_attributes(definition, tensors, given)
        op = graph.add_operation(definition, tensors, full, graph.unique_name("op"))
    return op, arrays


def _variable_type(dtype: DType, attrs: dict[str, Any]) -> DType:
    """Return the value dtype of the variable that an input of `dtype` stands for."""
    if dtype is not dtypes.resource:
        return dtype
    return dtypes.as_dtype(attrs.get("dtype", attrs.get("T", dtypes.float32)))


def _variable(array: np.ndarray, dtype: DType, argument: Argument, static: bool) -> Tensor:

    shape = array.shape if static else None
    value = constant(array, dtype, name=f"{argument.name}_value")
    if argument.is_ref:
        tensor = build("VariableV2", shape=shape, dtype=dtype, name=argument.name)
        initializer = build("Assign", ref=tensor, value=value, validate_shape=static).op
    else:
        tensor = build("VarHandleOp", shape=shape, dtype=dtype, name=argument.name)
        initializer = build("AssignVariableOp", resource=tensor, value=value)
    get_default_graph().add_to_collection("initializers", initializer)
    return tensor


def _types(
    schema: Schema, argument: Argument, specs: list[Any], attrs: dict[str, Any]
) -> list[DType]:
    if argument.type_list_attr:
        return [dtypes.as_dtype(t) for t in attrs[argument.type_list_attr]]
    dtype = argument.dtype or dtypes.as_dtype(attrs[argument.type_attr])
    return [dtype] * len(specs)


def _array(spec: Any, dtype: DType, salt: int) -> np.ndarray:
    if isinstance(spec, RandomSample):
        return spec.array(dtype, salt)
    if dtype is dtypes.string:
        return as_array(spec, dtype)
    return np.asarray(spec, dtype.numpy)
