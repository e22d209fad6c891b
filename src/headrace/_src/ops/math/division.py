"""Division and remainders, element by element with broadcasting, in each of the usual roundings."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Definition, Precision, Sample
from headrace._src.graph.internal_definitions import register_internal
from headrace._src.graph.operation import Tensor
from headrace._src.graph.schema import Schema
from headrace._src.lowering.anchors import Divisor
from headrace._src.lowering.pointwise import rounded_once
from headrace._src.lowering.rules import Anchor, Elementwise
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted, is_complex
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import r, typed
from headrace._src.ops.base.simplify_rules import neutral, one
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math import special_kernels
from headrace._src.ops.math.arithmetic import binary_op, zero_where

__all__ = ["DIVISOR", "divide", "floordiv", "truediv"]

_MOST_NUMBERS = (
    "{bfloat16|float16|float32|float64|uint8|int8|uint16|int16|int32|int64|complex64|complex128}"
)
_SIGNED_REALS = "{int32|int64|bfloat16|float16|float32|float64}"
_NO_NAN_TYPES = "{float16|float32|float64|complex64|complex128}"

# Divisors that are nonzero, and not close enough to a discontinuity to disturb finite differences.
_SAMPLES = [
    Sample(r(2, 3), r(2, 3, low=1, high=3)),
    Sample(r(2, 1), r(3, low=1, high=3)),
    Sample(r(), r(4, low=1, high=3)),
    Sample(r(0, 2), r(2, low=1, high=3)),
]
_REAL_SAMPLES = typed(_SAMPLES, "float32", "float64", "bfloat16", "int32", "int8", "uint16")
_BY_CONSTANTS = [Sample(r(2, 3, low=-9, high=9), 4), Sample(r(5, low=-9, high=9), [-3])]
_SIGNED_BY_CONSTANTS = typed(_BY_CONSTANTS, "int32", "int64")


def _divisor(x: Any, y: Any) -> Any:
    """Return `y` after checking that no integer is divided by zero."""
    if y.dtype.kind in "iu" and not np.all(y) and np.size(x):
        raise ValueError("Integer division by zero")
    return y


def _truncate_mod(x: Any, y: Any) -> Any:
    return np.fmod(x, _divisor(x, y))


def _floor_div(x: Any, y: Any) -> Any:
    if x.dtype.kind in "iu":
        return np.floor_divide(x, _divisor(x, y))
    return np.floor(np.divide(x, y))


def _floor_mod(x: Any, y: Any) -> Any:
    return np.remainder(x, _divisor(x, y))


def _div(x: Any, y: Any) -> Any:
    if x.dtype.kind == "u":
        return np.floor_divide(x, _divisor(x, y))
    if x.dtype.kind == "i":
        return np.floor_divide(x - _truncate_mod(x, y), y)
    return np.divide(x, y)


def _div_lowered(e: Any, x: Any, y: Any) -> Any:
    return x / y if x.is_floating else None  # integers: a step must fail where y is 0


# How the compiler treats a divisor inside a loop, where it can't be checked in advance.
DIVISOR = Definition(
    schema=Schema("_Divisor", "y: T -> divisor: T", "T: type"),
    infer=infer.same_as(0),
    kernel=lambda y: y,
    gradient=NOT_DIFFERENTIABLE,
    lower=Anchor("divisor", Divisor.of),
    doc="Return integers; if one is 0, native code ends the step and the division fails.",
)
register_internal(DIVISOR)


def _integers(opcode: str, e: Any, x: Any, y: Any, site: Any) -> Any:
    """Lower integer division by a constant, or by a divisor that native code checks first; None
    otherwise, because a step must fail where the divisor is 0.
    """
    divisor = site.constant_input(1)
    if divisor is None:
        if getattr(site.inputs[1].producer, "definition", None) is not DIVISOR:
            return None
    elif not divisor.size or not divisor.all():
        return None
    elif (divisor == divisor.flat[0]).all() and divisor.flat[0] != -1:
        return getattr(e, opcode)(x, e.const(int(divisor.flat[0]), x.dtype))
    # Division traps at 0, and at -1 where the quotient overflows.
    signed = site.input_dtypes[1].startswith("int")
    minus = e.eq(y, -1) if signed else e.const(False, "bool")
    found = getattr(e, opcode)(x, e.select(e.or_(e.eq(y, 0), minus), 1, y))
    return e.select(minus, -x, found) if opcode == "quotient" and signed else found


def _floor_div_lowered(e: Any, x: Any, y: Any, *, site: Any) -> Any:
    return e.floor(x / y) if x.is_floating else _integers("quotient", e, x, y, site)


def _floor_mod_lowered(e: Any, x: Any, y: Any, *, site: Any) -> Any:
    return None if x.is_floating else _integers("remainder", e, x, y, site)


@counted(lambda op, dz: 12 + 2 * is_complex(op))
def _quotient_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, y = op.inputs
    dx = b.realdiv(dz, b.conj(y))
    dy = b.negative(b.multiply(dx, b.conj(op.outputs[0])))
    to_x, to_y = b.unbroadcast(x, y)
    return to_x(dx), to_y(dy)


@counted(10)
def _floor_mod_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    """The gradient of x - floor(x / y) y: the quotient is constant nearly everywhere."""
    x, y = op.inputs
    dy = b.multiply(dz, b.negative(b.floor_div(x, y)))
    to_x, to_y = b.unbroadcast(x, y)
    return to_x(dz), to_y(dy)


@counted(10)
def _truncate_mod_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    """The gradient of x - k y, where k, a whole number, is constant nearly everywhere."""
    x, y = op.inputs
    k = b.realdiv(b.subtract(x, op.outputs[0]), y)
    to_x, to_y = b.unbroadcast(x, y)
    return to_x(dz), to_y(b.negative(b.multiply(dz, k)))


@export("realdiv")
@binary_op(
    "RealDiv",
    _MOST_NUMBERS,
    _div,
    _quotient_gradient,
    samples=_SAMPLES,
    lower=_div_lowered,
    simplify=neutral(right=one),
    precision=Precision.EITHER,
)
def realdiv(x, y, name=None):
    """Return x / y, element by element."""


@binary_op(
    "Div",
    _MOST_NUMBERS,
    _div,
    _quotient_gradient,
    samples=_SAMPLES,
    lower=_div_lowered,
    simplify=neutral(right=one),
)
def div_op(x, y, name=None):
    """Return x / y, element by element; integers are rounded towards zero."""


@export("truncatediv")
@binary_op(
    "TruncateDiv", _MOST_NUMBERS, _div, NOT_DIFFERENTIABLE, samples=_SAMPLES, lower=_div_lowered
)
def truncatediv(x, y, name=None):
    """Return x / y, element by element; integers are rounded towards zero."""


@export("floor_div")
@binary_op(
    "FloorDiv",
    _MOST_NUMBERS,
    _floor_div,
    NOT_DIFFERENTIABLE,
    samples=[*_REAL_SAMPLES, *_SIGNED_BY_CONSTANTS],
    lower=Elementwise(_floor_div_lowered, divisor=1),
    simplify=neutral(right=lambda y: y.dtype.is_integer and one(y)),
)
def floor_div(x, y, name=None):
    """Return x / y rounded down, element by element."""


@export("mod", "floormod", "math.mod", "math.floormod")
@binary_op(
    "FloorMod",
    _SIGNED_REALS,
    _floor_mod,
    _floor_mod_gradient,
    samples=[*_SAMPLES, *_SIGNED_BY_CONSTANTS],
    lower=Elementwise(_floor_mod_lowered, divisor=1),
)
def floormod(x, y, name=None):
    """Return the remainder of x / y rounded down: it has the sign of y."""


@export("truncatemod")
@binary_op("TruncateMod", _SIGNED_REALS, _truncate_mod, _truncate_mod_gradient, samples=_SAMPLES)
def truncatemod(x, y, name=None):
    """Return the remainder of x / y rounded towards zero: it has the sign of x."""


@binary_op("Mod", _SIGNED_REALS, _truncate_mod, _truncate_mod_gradient, samples=_SAMPLES)
def mod_op(x, y, name=None):
    """Return the remainder of x / y rounded towards zero: it has the sign of x."""


def _div_no_nan(x: Any, y: Any) -> Any:
    return zero_where(y == 0, np.divide(x, y))


@counted(lambda op, dz: 12 + 2 * is_complex(op))
def _div_no_nan_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, y = op.inputs
    dx = b.div_no_nan_op(dz, b.conj(y))
    dy = b.negative(b.multiply(dx, b.conj(op.outputs[0])))
    to_x, to_y = b.unbroadcast(x, y)
    return to_x(dx), to_y(dy)


@binary_op(
    "DivNoNan",
    _NO_NAN_TYPES,
    _div_no_nan,
    _div_no_nan_gradient,
    samples=_SAMPLES,
    lower=lambda e, x, y: e.select(e.eq(y, 0), 0, x / y),
    simplify=neutral(right=one),
)
def div_no_nan_op(x, y, name=None):
    """Return x / y, and 0 where y is 0."""


@counted(lambda op, dz: 17 + (dz.dtype is not dtypes.float32))
def _xdivy_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, y = op.inputs
    nonzero = b.cast(b.not_equal(x, b.zeros_like(x)), x.dtype.base_dtype)
    dx = b.multiply(dz, b.conj(b.xdivy(nonzero, y)))
    dy = b.multiply(dz, b.conj(b.xdivy(b.negative(x), b.square(y))))
    to_x, to_y = b.unbroadcast(x, y)
    return to_x(dx), to_y(dy)


@export("math.xdivy")
@binary_op(
    "Xdivy",
    _NO_NAN_TYPES,
    special_kernels.xdivy,
    _xdivy_gradient,
    samples=_SAMPLES,
    lower=rounded_once(lambda e, x, y: e.select(e.eq(x, 0), 0, x / y)),
)
def xdivy(x, y, name=None):
    """Return x / y, and 0 where x is 0."""


# Public functions


@composed
@dispatched
@export("truediv", "math.truediv")
def truediv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return x / y as Python 3 divides: integers as floating-point numbers."""
    with name_scope(name, "truediv", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y")
        dtype = x.dtype.base_dtype
        if y.dtype.base_dtype is not dtype:
            raise TypeError(
                f"x and y must have the same dtype, got {dtype!r} != {y.dtype.base_dtype!r}"
            )
        if dtype.is_integer:
            wide = dtypes.float32 if dtype.size <= 2 else dtypes.float64
            x, y = b.cast(x, wide), b.cast(y, wide)
        elif not (dtype.is_floating or dtype.is_complex):
            raise TypeError(f"Invalid dtype {dtype!r} in __truediv__.")
        return realdiv(x, y, name=scope)


@composed
@dispatched
@export("divide", "math.divide")
def divide(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return x / y by Python's rules, whichever of them is a tensor."""
    return x / y if name is None else truediv(x, y, name=name)


@composed
@export("div")
def div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return x / y as Python 2 divides: integers are rounded down."""
    with name_scope(name, "div", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        if x.dtype.is_floating or x.dtype.is_complex:
            return realdiv(x, y, name=scope)
        return floor_div(x, y, name=scope)


@composed
@dispatched
@export("div_no_nan", "math.divide_no_nan")
def div_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return x / y, and 0 where y is 0."""
    with name_scope(name, "div_no_nan", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return div_no_nan_op(x, y, name=scope)


@composed
@export("math.reciprocal_no_nan")
def reciprocal_no_nan(x: Any, name: str | None = None) -> Tensor:
    """Return 1 / x, and 0 where x is 0."""
    with name_scope(name, "reciprocal_no_nan", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        one = b.constant(1, x.dtype.base_dtype, name="one")
        return div_no_nan_op(one, x, name=scope)


@composed
@dispatched
@export("floordiv", "math.floordiv")
def floordiv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return x / y rounded down."""
    with name_scope(name, "floordiv", [x, y]) as scope:
        return floor_div(x, y, name=scope)
