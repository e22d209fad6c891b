"""Unary functions, element by element: signs, powers, rounding, tests and the sigmoid.

Functions whose derivative is cheaper to compute from their result have ops for that (SqrtGrad and
others), as in TensorFlow; those are differentiable too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Kind, Precision, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.pointwise import rounded_once, sign_of
from headrace._src.lowering.rules import Elementwise
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted, is_complex
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import pairs, r, typed, unary
from headrace._src.ops.base.simplify_rules import cancels_itself
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math.arithmetic import zero_where
from headrace._src.ops.math.sum_precision import widened

__all__ = ["FLOAT_OR_COMPLEX", "in_float32", "on_sparse_values", "slope_op", "unary_op"]

FLOAT_OR_COMPLEX = "{float_or_complex}"
_NUMBERS = "{bfloat16|float16|float32|float64|int32|int64|complex64|complex128}"


def unary_op(
    op_type: str,
    types: str,
    kernel: Callable[..., Any],
    gradient: Any,
    *,
    signature: str = "x: T -> y: T",
    samples: Any = None,
    lower: Callable[..., Any] | None = None,
    simplify: Callable[..., Any] | None = None,
    precision: Precision | None = None,
) -> Any:
    """Define an op on one tensor whose result has the same shape."""
    return define(
        op_type,
        signature,
        f"T: {types}",
        infer=infer.same_as(0),
        kernel=kernel,
        gradient=gradient,
        kind=Kind.ELEMENTWISE,
        samples=unary() if samples is None else samples,
        lower=Elementwise(lower) if lower else None,
        simplify=simplify,
        precision=precision,
    )


def on_sparse_values(op_type: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function of one tensor also take a SparseTensor, and apply it to the values."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(x: Any, name: str | None = None) -> Any:
            if not isinstance(x, SparseTensor):
                return function(x, name=name)
            with name_scope(name, op_type, [x]):
                pass  # TensorFlow tries the dense op first, which uses up the name
            return SparseTensor(x.indices, function(x.values, name=name), x.dense_shape)

        return run

    return decorate


def in_float32(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Let a kernel of several steps compute 16-bit floats in float32 and round once."""

    @wraps(kernel)
    def run(*inputs: Any) -> Any:
        dtype = inputs[0].dtype
        if dtype.itemsize > 2:
            return kernel(*inputs)
        return kernel(*[widened(x) for x in inputs]).astype(dtype)

    return run


def _constant(b: OpBuilder, value: float, like: Tensor) -> Tensor:
    return b.constant(value, like.dtype.base_dtype)


# Signs


@export("negative", "math.negative")
@on_sparse_values("Neg")
@unary_op(
    "Neg",
    _NUMBERS,
    np.negative,
    lambda b, op, dy: -dy,  # IndexedSlices stay sparse
    lower=lambda e, x: -x,
    simplify=cancels_itself,
    precision=Precision.EITHER,
)
def negative(x, name=None):
    """Return -x."""


@unary_op(
    "Abs",
    "{bfloat16|float16|float32|float64|int8|int16|int32|int64}",
    np.abs,
    lambda b, op, dy: b.multiply(dy, b.sign(op.inputs[0])),
    lower=lambda e, x: e.abs(x),
    precision=Precision.EITHER,
)
def abs_op(x, name=None):
    """Return the magnitude of x."""


@counted(6)
def _complex_abs_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    """dy * x / |x|, and 0 where x is 0, whatever dy is there."""
    zeros = b.zeros_like(dy)
    scaled = b.multiply(b.complex(dy, zeros), op.inputs[0])
    return b.div_no_nan_op(scaled, b.complex(op.outputs[0], zeros))


@define(
    "ComplexAbs",
    "x: T -> y: Tout",
    "T: {complexes} = complex64; Tout: {float32|float64} = float32",
    infer=infer.same_as(0),
    kernel=lambda x, *, Tout: np.abs(x).astype(Tout.numpy, copy=False),
    gradient=_complex_abs_gradient,
    kind=Kind.ELEMENTWISE,
    samples=[*unary(), Sample(r(3), T="complex128", Tout="float64")],
)
def complex_abs(x, Tout=None, name=None):
    """Return the magnitude of complex numbers."""


@composed
@dispatched
@export("abs", "math.abs")
@on_sparse_values("Abs")
def abs(x: Any, name: str | None = None) -> Tensor:
    """Return the magnitude of real or complex numbers."""
    with name_scope(name, "Abs", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            return complex_abs(x, Tout=x.dtype.real_dtype, name=scope)
        return abs_op(x, name=scope)


@export("sign", "math.sign")
@on_sparse_values("Sign")
@unary_op(
    "Sign",
    _NUMBERS,
    sign_of,
    counted(3, lambda b, op, dy: b.zeros_like(op.inputs[0])),
    lower=lambda e, x: e.sign(x),
)
def sign(x, name=None):
    """Return -1, 0 or 1 (0 for NaN), or, for complex numbers, x / |x| (0 for 0)."""


# Powers


def _square_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    x = op.inputs[0]
    return b.multiply(dy, b.multiply(b.conj(x), _constant(b, 2, x)))


@export("square", "math.square")
@on_sparse_values("Square")
@unary_op(
    "Square",
    _NUMBERS,
    np.square,
    _square_gradient,
    lower=lambda e, x: x * x,
    precision=Precision.WIDE,
)
def square(x, name=None):
    """Return x²."""


@export("sqrt", "math.sqrt")
@on_sparse_values("Sqrt")
@unary_op(
    "Sqrt",
    FLOAT_OR_COMPLEX,
    np.sqrt,
    lambda b, op, dy: b.sqrt_grad(op.outputs[0], dy),
    samples=unary(0.2, 4),
    lower=lambda e, x: e.sqrt(x),
    precision=Precision.WIDE,
)
def sqrt(x, name=None):
    """Return the square root of x."""


@export("rsqrt", "math.rsqrt")
@unary_op(
    "Rsqrt",
    FLOAT_OR_COMPLEX,
    in_float32(lambda x: np.reciprocal(np.sqrt(x))),
    lambda b, op, dy: b.rsqrt_grad(op.outputs[0], dy),
    samples=unary(0.2, 4),
    lower=rounded_once(lambda e, x: e.rsqrt(x)),
    precision=Precision.WIDE,
)
def rsqrt(x, name=None):
    """Return 1 / √x."""


def _reciprocal(x: Any) -> Any:
    if x.dtype.kind == "i" and not np.all(x):
        raise ValueError("Integer division by zero")
    return np.reciprocal(x)


def _reciprocal_lowered(e: Any, x: Any) -> Any:
    return 1 / x if x.is_floating else None  # integers: a step must fail where x is 0


@export("reciprocal", "math.reciprocal")
@unary_op(
    "Reciprocal",
    _NUMBERS,
    _reciprocal,
    lambda b, op, dy: b.reciprocal_grad(op.outputs[0], dy),
    samples=unary(1, 3),
    lower=_reciprocal_lowered,
)
def reciprocal(x, name=None):
    """Return 1 / x."""


@unary_op(
    "Inv",
    _NUMBERS,
    _reciprocal,
    lambda b, op, dy: b.inv_grad(op.outputs[0], dy),
    samples=unary(1, 3),
    lower=_reciprocal_lowered,
)
def inv(x, name=None):
    """Return 1 / x."""


# Derivatives computed from the function's result


def slope_op(
    op_type: str,
    kernel: Callable[..., Any],
    gradient: Any,
    low: float = -2.0,
    *,
    lower: Callable[..., Any],
    masked: bool = False,
    precision: Precision | None = None,
) -> Any:
    """Define an op of a function's result `y` and the gradient `dy` of that result.

    masked: the result is 0 wherever dy is 0, even where the derivative is infinite or NaN.
    """

    def checked(y: Any, dy: Any) -> Any:
        if np.shape(y) != np.shape(dy):
            raise ValueError(f"y and dy must have one shape, not {np.shape(y)} and {np.shape(dy)}")
        return zero_where(dy == 0, kernel(y, dy)) if masked else kernel(y, dy)

    def lowered(e: Any, y: Any, dy: Any) -> Any:
        return e.select(e.eq(dy, 0), 0, lower(e, y, dy)) if masked else lower(e, y, dy)

    return define(
        op_type,
        "y: T, dy: T -> z: T",
        f"T: {FLOAT_OR_COMPLEX}",
        infer=infer.same_as(0),
        kernel=in_float32(checked),
        gradient=gradient,
        kind=Kind.ELEMENTWISE,
        samples=[Sample(r(2, 3, low=low), r(2, 3)), Sample(r(low=low), r())],
        lower=Elementwise(rounded_once(lowered)),
        precision=precision,
    )


@counted(lambda op, dz: 5 + is_complex(op))
def _sqrt_grad_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    y, dy = op.inputs
    cy = b.conj(y)
    slope = b.realdiv(b.multiply(dy, _constant(b, -0.5, dy)), b.square(cy))
    return b.multiply(b.conj(dz), slope), b.sqrt_grad(cy, dz)


@slope_op(
    "SqrtGrad",
    lambda y, dy: 0.5 * dy / np.conj(y),
    _sqrt_grad_gradient,
    low=0.2,
    lower=lambda e, y, dy: 0.5 * dy / y,
    masked=True,
    precision=Precision.WIDE,
)
def sqrt_grad(y, dy, name=None):
    """Return dy times the derivative of the square root whose result is y."""


def _rsqrt_grad_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    y, dy = op.inputs
    cy = b.conj(y)
    slope = b.multiply(b.multiply(dy, _constant(b, -1.5, dy)), b.square(cy))
    return b.multiply(b.conj(dz), slope), b.rsqrt_grad(cy, dz)


def _rsqrt_grad(y: Any, dy: Any) -> Any:
    y = np.conj(y)
    return dy * (y * y * y) * y.dtype.type(-0.5)


@slope_op(
    "RsqrtGrad",
    _rsqrt_grad,
    _rsqrt_grad_gradient,
    lower=lambda e, y, dy: dy * (y * y * y) * -0.5,
    masked=True,
    precision=Precision.WIDE,
)
def rsqrt_grad(y, dy, name=None):
    """Return dy times the derivative of the reciprocal square root whose result is y."""


def _reciprocal_grad(y: Any, dy: Any) -> Any:
    y = np.conj(y)
    return -dy * y * y


def _reciprocal_grad_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    y, dy = op.inputs
    cy = b.conj(y)
    slope = b.multiply(b.multiply(dy, _constant(b, -2, dy)), cy)
    return b.multiply(b.conj(dz), slope), b.reciprocal_grad(cy, dz)


@slope_op(
    "ReciprocalGrad",
    _reciprocal_grad,
    _reciprocal_grad_gradient,
    lower=lambda e, y, dy: -dy * y * y,
    masked=True,
)
def reciprocal_grad(y, dy, name=None):
    """Return dy times the derivative of the reciprocal whose result is y."""


@slope_op(
    "InvGrad",
    _reciprocal_grad,
    _reciprocal_grad_gradient,
    lower=lambda e, y, dy: -dy * y * y,
    masked=True,
)
def inv_grad(y, dy, name=None):
    """Return dy times the derivative of the reciprocal whose result is y."""


# Rounding


def _flat(b: OpBuilder, op: Any, dy: Any) -> Any:
    """The gradient of a step function: none."""
    return None


@export("ceil", "math.ceil")
@unary_op("Ceil", "{floats}", np.ceil, _flat, lower=lambda e, x: e.ceil(x))
def ceil(x, name=None):
    """Return x rounded up to a whole number."""


@export("floor", "math.floor")
@unary_op("Floor", "{floats}", np.floor, _flat, lower=lambda e, x: e.floor(x))
def floor(x, name=None):
    """Return x rounded down to a whole number."""


@export("rint", "math.rint")
@unary_op("Rint", "{floats}", np.rint, _flat, lower=lambda e, x: e.rint(x))
def rint(x, name=None):
    """Return x rounded to the nearest whole number, halves to the even one."""


@unary_op(
    "Round",
    _NUMBERS,
    lambda x: x.copy() if x.dtype.kind == "i" else np.rint(x),
    _flat,
    lower=lambda e, x: e.rint(x) if x.is_floating else x,
)
def round_op(x, name=None):
    """Return x rounded to the nearest whole number, halves to the even one."""


@composed
@dispatched
@export("round", "math.round")
def round(x: Any, name: str | None = None) -> Tensor:
    """Return x rounded to the nearest whole number, halves to even; integers as they are."""
    x = convert_to_tensor(x, name="x")
    return x if x.dtype.is_integer else round_op(x, name=name)


@counted(13)
def _nextafter_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, direction = op.inputs
    return b.sum_to(dz, x), b.zeros_like(direction)


@export("math.nextafter")
@define(
    "NextAfter",
    "x1: T, x2: T -> output: T",
    "T: {float64|float32} = float32",
    infer=infer.broadcasting,
    kernel=np.nextafter,
    gradient=_nextafter_gradient,
    kind=Kind.ELEMENTWISE,
    samples=pairs(),
)
def nextafter(x1, x2, name=None):
    """Return the number next to x1 in the direction of x2."""


# Tests


def _test_op(op_type: str, kernel: Callable[..., Any], lower: Callable[..., Any]) -> Any:
    samples = [*unary(), *typed([Sample([np.nan, np.inf, -np.inf, 0.0])], "float32", "bfloat16")]
    return unary_op(
        op_type,
        "{floats}",
        kernel,
        NOT_DIFFERENTIABLE,
        signature="x: T -> y: bool",
        samples=samples,
        lower=lower,
    )


@export("is_nan", "math.is_nan", "debugging.is_nan")
@_test_op("IsNan", np.isnan, lower=lambda e, x: e.isnan(x))
def is_nan(x, name=None):
    """Return where x is not a number."""


@export("is_inf", "math.is_inf", "debugging.is_inf")
@_test_op("IsInf", np.isinf, lower=lambda e, x: e.isinf(x))
def is_inf(x, name=None):
    """Return where x is infinite."""


@export("is_finite", "math.is_finite", "debugging.is_finite")
@_test_op("IsFinite", np.isfinite, lower=lambda e, x: e.isfinite(x))
def is_finite(x, name=None):
    """Return where x is neither infinite nor NaN."""
