"""Casts between element types."""

from __future__ import annotations

import logging
from typing import Any, overload

import ml_dtypes
import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.errors import UnimplementedError
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices, SparseTensor
from headrace._src.graph.definition import Kind, Sample
from headrace._src.graph.inference import static_by_kernel
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.rules import Elementwise
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.simplify_rules import equals_input
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["cast", "saturate_cast"]

_log = logging.getLogger("headrace")


def _cast(x: Any, *, DstT: DType, Truncate: bool) -> Any:
    target = DstT.numpy
    if x.dtype == target:
        return x.copy()
    if x.dtype.names:  # quantized types are structured dtypes around an integer
        x = x.view(x.dtype[0])
    if target.names:
        return _cast_to(x, target[0], Truncate).view(target)
    if (target.kind in "OV" and target != ml_dtypes.bfloat16) or x.dtype == object:
        source = "string" if x.dtype == object else x.dtype
        hint = "tf.string_to_number reads numbers, tf.as_string writes them"
        raise UnimplementedError(
            None, None, f"Cast {source} to {DstT.name} is not supported", hint=hint
        )
    return _cast_to(x, target, Truncate)


def _cast_to(x: Any, target: np.dtype, truncate: bool) -> Any:
    if x.dtype.kind == "c" and target.kind not in "cb":
        x = x.real
    if truncate:
        x = _without_lowest_bits(x, target)
    return x.astype(target)


def _without_lowest_bits(x: Any, target: np.dtype) -> Any:
    """Clear the bits of `x` that `target` can't hold, so that casting doesn't round up."""
    if not (_is_float(x.dtype) and _is_float(target)):
        return x
    lost = ml_dtypes.finfo(x.dtype).nmant - ml_dtypes.finfo(target).nmant
    if lost <= 0:
        return x
    bits = np.asarray(x).view(f"u{x.dtype.itemsize}")
    mask = bits.dtype.type((1 << lost) - 1)
    return (bits & ~mask).view(x.dtype)


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16


def _cast_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    source, target = op.inputs[0].dtype.base_dtype, dy.dtype.base_dtype
    if all(t.is_floating or t.is_complex for t in (source, target)):
        return b.cast(dy, source)
    return None


def _cast_lowered(e: Any, x: Any, *, DstT: DType, Truncate: bool) -> Any:
    return None if Truncate or DstT.is_quantized else e.cast(x, DstT.name)


_PAIRS = [
    ("float32", "float64"),
    ("float64", "float32"),
    ("float64", "float64"),
    ("float32", "bfloat16"),
    ("bfloat16", "float32"),
    ("float16", "int32"),
    ("int32", "float16"),
    ("int64", "uint8"),
    ("bool", "float32"),
    ("float32", "bool"),
    ("complex64", "complex128"),
    ("float64", "complex64"),
    ("complex64", "bool"),
]


@define(
    "Cast",
    "x: SrcT -> y: DstT",
    "SrcT: type; DstT: type; Truncate: bool = False",
    infer=infer.same_as(0),
    kernel=_cast,
    gradient=_cast_gradient,
    static=static_by_kernel,
    kind=Kind.ELEMENTWISE,
    samples=[
        *[Sample(r(2, 3), SrcT=s, DstT=d) for s, d in _PAIRS],
        Sample(r(), SrcT="float32", DstT="int64"),
        Sample(r(0, 2), SrcT="float64", DstT="float64"),
        Sample([1.999999, -1.999999], SrcT="float32", DstT="bfloat16", Truncate=True),
    ],
    lower=Elementwise(_cast_lowered),
    simplify=lambda node: equals_input(node) if node.attrs["SrcT"] is node.attrs["DstT"] else None,
)
def cast_op(x, DstT, Truncate=None, name=None):
    """Return x cast to another type."""


@overload
def cast(x: SparseTensor, dtype: Any, name: str | None = None) -> SparseTensor: ...
@overload
def cast(x: IndexedSlices, dtype: Any, name: str | None = None) -> IndexedSlices: ...
@overload
def cast(x: Any, dtype: Any, name: str | None = None) -> Tensor: ...
@composed
@dispatched
@export("cast", "dtypes.cast")
def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """Return a tensor, SparseTensor or IndexedSlices cast to another type, or as it is if it has
    it.
    """
    wanted = as_dtype(dtype).base_dtype
    # This includes a resource variable of that type: it is read where it is used, not here.
    if (isinstance(x, Tensor) or hasattr(x, "_gradient_source")) and x.dtype == wanted:
        return x
    with name_scope(name, "Cast", [x]) as scope:
        if isinstance(x, SparseTensor):
            return SparseTensor(x.indices, cast(x.values, wanted, name=scope), x.dense_shape)
        if isinstance(x, IndexedSlices):
            return IndexedSlices(cast(x.values, wanted, name=scope), x.indices, x.dense_shape)
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex and wanted.is_floating:
            _log.warning("Casting complex to real discards imaginary part.")
        return x if x.dtype.base_dtype is wanted else cast_op(x, wanted, name=scope)


@composed
@dispatched
@export("saturate_cast", "dtypes.saturate_cast")
def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor:
    """Return `value` cast to another type, first clipped to that type's range."""
    with name_scope(name, "saturate_cast", [value]) as scope:
        value = convert_to_tensor(value, name="value")
        wanted = as_dtype(dtype).base_dtype
        source = value.dtype.base_dtype
        if source.min < wanted.min:
            low = convert_to_tensor(wanted.min, dtype=source, name="min")
            value = b.maximum(value, low)
        if source.max > wanted.max:
            high = convert_to_tensor(wanted.max, dtype=source, name="max")
            value = b.minimum(value, high)
        return cast(value, wanted, name=scope)


@composed
@export("to_float")
def to_float(x: Any, name: str = "ToFloat") -> Tensor:
    """Return x as float32."""
    return cast(x, dtypes.float32, name=name)


@composed
@export("to_double")
def to_double(x: Any, name: str = "ToDouble") -> Tensor:
    """Return x as float64."""
    return cast(x, dtypes.float64, name=name)


@composed
@export("to_int32")
def to_int32(x: Any, name: str = "ToInt32") -> Tensor:
    """Return x as int32."""
    return cast(x, dtypes.int32, name=name)


@composed
@export("to_int64")
def to_int64(x: Any, name: str = "ToInt64") -> Tensor:
    """Return x as int64."""
    return cast(x, dtypes.int64, name=name)


@composed
@export("to_bfloat16")
def to_bfloat16(x: Any, name: str = "ToBFloat16") -> Tensor:
    """Return x as bfloat16."""
    return cast(x, dtypes.bfloat16, name=name)


@composed
@export("to_complex64")
def to_complex64(x: Any, name: str = "ToComplex64") -> Tensor:
    """Return x as complex64."""
    return cast(x, dtypes.complex64, name=name)


@composed
@export("to_complex128")
def to_complex128(x: Any, name: str = "ToComplex128") -> Tensor:
    """Return x as complex128."""
    return cast(x, dtypes.complex128, name=name)
