"""Exponentials, logarithms, trigonometric and hyperbolic functions, element by element.

Gradients divide by Reciprocal, as TensorFlow's do: its gradient is 0 wherever the incoming gradient
is 0, so that second derivatives behind a mask stay finite at poles.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.graph.definition import Precision
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.pointwise import rounded_once
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted, is_complex
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import typed, unary
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math.elementwise import (
    FLOAT_OR_COMPLEX,
    in_float32,
    on_sparse_values,
    slope_op,
    unary_op,
)

__all__ = ["exp", "log", "sigmoid", "tanh"]

# The schemas of these trigonometric functions list integers too, which no kernel supports.
_WITH_INTEGERS = "{bfloat16|float16|float32|float64|int32|int64|complex64|complex128}"
_FLOATS = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")


def _floating(kernel: Any) -> Any:
    def run(x: Any) -> Any:
        if x.dtype.kind in "iu":
            raise TypeError(f"needs floating-point numbers, not {x.dtype.name}")
        return kernel(x)

    return run


def _one(b: OpBuilder, like: Tensor) -> Tensor:
    return b.constant(1, like.dtype.base_dtype)


# Exponentials and logarithms


@export("exp", "math.exp")
@unary_op(
    "Exp",
    FLOAT_OR_COMPLEX,
    np.exp,
    lambda b, op, dy: b.multiply(dy, b.conj(op.outputs[0])),
    lower=lambda e, x: e.exp(x),
    precision=Precision.WIDE,
)
def exp(x, name=None):
    """Return e to the power x."""


@export("expm1", "math.expm1")
@unary_op(
    "Expm1",
    FLOAT_OR_COMPLEX,
    np.expm1,
    lambda b, op, dy: b.multiply(dy, b.exp(b.conj(op.inputs[0]))),
    lower=lambda e, x: e.expm1(x),
    precision=Precision.WIDE,
)
def expm1(x, name=None):
    """Return e to the power x, minus 1, accurate for small x."""


@export("log", "math.log")
@unary_op(
    "Log",
    FLOAT_OR_COMPLEX,
    np.log,
    lambda b, op, dy: b.multiply(dy, b.reciprocal(b.conj(op.inputs[0]))),
    samples=unary(0.2, 4),
    lower=lambda e, x: e.log(x),
    precision=Precision.WIDE,
)
def log(x, name=None):
    """Return the natural logarithm of x."""


def _log1p_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    x = b.conj(op.inputs[0])
    return b.multiply(dy, b.reciprocal(b.add_v2(_one(b, x), x)))


@export("log1p", "math.log1p")
@unary_op(
    "Log1p",
    FLOAT_OR_COMPLEX,
    np.log1p,
    _log1p_gradient,
    samples=unary(-0.8, 4),
    lower=lambda e, x: e.log1p(x),
    precision=Precision.WIDE,
)
def log1p(x, name=None):
    """Return the natural logarithm of 1 + x, accurate for small x."""


# Trigonometry


@export("sin", "math.sin")
@unary_op(
    "Sin",
    FLOAT_OR_COMPLEX,
    np.sin,
    lambda b, op, dy: b.multiply(dy, b.cos(b.conj(op.inputs[0]))),
    lower=lambda e, x: e.sin(x),
)
def sin(x, name=None):
    """Return the sine of x."""


@export("cos", "math.cos")
@unary_op(
    "Cos",
    FLOAT_OR_COMPLEX,
    np.cos,
    lambda b, op, dy: b.negative(b.multiply(dy, b.sin(b.conj(op.inputs[0])))),
    lower=lambda e, x: e.cos(x),
)
def cos(x, name=None):
    """Return the cosine of x."""


def _tan_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    y = b.conj(op.outputs[0])
    return b.multiply(dy, b.add_v2(b.square(y), _one(b, y)))


@export("tan", "math.tan")
@unary_op(
    "Tan",
    _WITH_INTEGERS,
    _floating(np.tan),
    _tan_gradient,
    samples=typed(unary(-1.2, 1.2), *_FLOATS),
    lower=rounded_once(lambda e, x: e.sin(x) / e.cos(x)),
)
def tan(x, name=None):
    """Return the tangent of x."""


def _asin_slope(b: OpBuilder, op: Any) -> Tensor:
    x = b.conj(op.inputs[0])
    return b.rsqrt(b.subtract(_one(b, x), b.square(x)))


_INSIDE = typed(unary(-0.9, 0.9), *_FLOATS)


@export("asin", "math.asin")
@unary_op(
    "Asin",
    _WITH_INTEGERS,
    _floating(np.arcsin),
    counted(
        lambda op, dy: 6 + is_complex(op),
        lambda b, op, dy: b.multiply(dy, _asin_slope(b, op)),
    ),
    samples=_INSIDE,
    lower=rounded_once(lambda e, x: e.atan2(x, e.sqrt((1 - x) * (1 + x)))),
)
def asin(x, name=None):
    """Return the angle whose sine is x."""


@export("acos", "math.acos")
@unary_op(
    "Acos",
    _WITH_INTEGERS,
    _floating(np.arccos),
    counted(
        lambda op, dy: 7 + is_complex(op),
        lambda b, op, dy: b.negative(b.multiply(dy, _asin_slope(b, op))),
    ),
    samples=_INSIDE,
    lower=rounded_once(lambda e, x: 2 * e.atan2(e.sqrt(1 - x), e.sqrt(1 + x))),
)
def acos(x, name=None):
    """Return the angle whose cosine is x."""


def _atan_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    x = b.conj(op.inputs[0])
    return b.multiply(dy, b.reciprocal(b.add(_one(b, x), b.square(x))))


@export("atan", "math.atan")
@unary_op(
    "Atan",
    _WITH_INTEGERS,
    _floating(np.arctan),
    _atan_gradient,
    samples=typed(unary(), *_FLOATS),
    lower=rounded_once(lambda e, x: e.atan2(x, 1)),
)
def atan(x, name=None):
    """Return the angle whose tangent is x."""


# Hyperbolic functions


def _signed(e: Any, x: Any, size: Any) -> Any:
    """Return `size` with the sign of x; where x is zero or NaN, x itself."""
    return e.select(x < 0, -size, e.select(x > 0, size, x))


def _sinh_lowered(e: Any, x: Any) -> Any:
    """Near 0, use expm1, which is accurate for small x; elsewhere multiply by exp(x/2) twice, which
    is finite even where exp(x) isn't.
    """
    size = e.abs(x)
    t = e.expm1(size)
    small = 0.5 * (t + t / (t + 1))
    root = e.exp(0.5 * size)
    large = (0.5 * root) * root
    result = e.select(size < 20, small, large)
    return _signed(e, x, result)


def _cosh_lowered(e: Any, x: Any) -> Any:
    root = e.exp(0.5 * e.abs(x))
    return (0.5 * root) * root + 0.5 / (root * root)


def _asinh_lowered(e: Any, x: Any) -> Any:
    size = e.abs(x)
    square = size * size
    small = e.log1p(size + square / (1 + e.sqrt(square + 1)))
    large = e.log(size) + math.log(2)
    result = e.select(size < 1e9, small, large)
    return _signed(e, x, result)


def _acosh_lowered(e: Any, x: Any) -> Any:
    over = x - 1
    small = e.log1p(over + e.sqrt(over) * e.sqrt(over + 2))  # either root is NaN for x < 1
    return e.select(x < 1e9, small, e.log(x) + math.log(2))


def _atanh_lowered(e: Any, x: Any) -> Any:
    size = e.abs(x)
    result = 0.5 * e.log1p(2 * size / (1 - size))
    return _signed(e, x, result)


@export("sinh", "math.sinh")
@unary_op(
    "Sinh",
    FLOAT_OR_COMPLEX,
    np.sinh,
    lambda b, op, dy: b.multiply(dy, b.cosh(b.conj(op.inputs[0]))),
    lower=rounded_once(_sinh_lowered),
)
def sinh(x, name=None):
    """Return the hyperbolic sine of x."""


@export("cosh", "math.cosh")
@unary_op(
    "Cosh",
    FLOAT_OR_COMPLEX,
    np.cosh,
    lambda b, op, dy: b.multiply(dy, b.sinh(b.conj(op.inputs[0]))),
    lower=rounded_once(_cosh_lowered),
)
def cosh(x, name=None):
    """Return the hyperbolic cosine of x."""


@export("tanh", "math.tanh", "nn.tanh")
@on_sparse_values("Tanh")
@unary_op(
    "Tanh",
    FLOAT_OR_COMPLEX,
    np.tanh,
    lambda b, op, dy: b.tanh_grad(b.conj(op.outputs[0]), dy),
    lower=lambda e, x: e.tanh(x),
    precision=Precision.EITHER,
)
def tanh(x, name=None):
    """Return the hyperbolic tangent of x."""


@export("asinh", "math.asinh")
@unary_op(
    "Asinh",
    FLOAT_OR_COMPLEX,
    np.arcsinh,
    lambda b, op, dy: b.realdiv(dy, b.cosh(b.conj(op.outputs[0]))),
    lower=rounded_once(_asinh_lowered),
)
def asinh(x, name=None):
    """Return the number whose hyperbolic sine is x."""


@export("acosh", "math.acosh")
@unary_op(
    "Acosh",
    FLOAT_OR_COMPLEX,
    np.arccosh,
    lambda b, op, dy: b.realdiv(dy, b.sinh(b.conj(op.outputs[0]))),
    samples=unary(1.1, 4),
    lower=rounded_once(_acosh_lowered),
)
def acosh(x, name=None):
    """Return the non-negative number whose hyperbolic cosine is x."""


def _atanh_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    x = b.conj(op.inputs[0])
    return b.multiply(dy, b.reciprocal(b.subtract(_one(b, x), b.square(x))))


@export("atanh", "math.atanh")
@unary_op(
    "Atanh",
    FLOAT_OR_COMPLEX,
    np.arctanh,
    _atanh_gradient,
    samples=unary(-0.9, 0.9),
    lower=rounded_once(_atanh_lowered),
)
def atanh(x, name=None):
    """Return the number whose hyperbolic tangent is x."""


def _sigmoid(x: Any) -> Any:
    result = np.asarray(np.negative(x))
    np.exp(result, out=result)
    result += 1
    return np.reciprocal(result, out=result)


@unary_op(
    "Sigmoid",
    FLOAT_OR_COMPLEX,
    in_float32(_sigmoid),
    lambda b, op, dy: b.sigmoid_grad(b.conj(op.outputs[0]), dy),
    lower=rounded_once(lambda e, x: e.sigmoid(x)),
    precision=Precision.EITHER,
)
def sigmoid_op(x, name=None):
    """Return 1 / (1 + exp(-x))."""


@composed
@export("sigmoid", "math.sigmoid", "nn.sigmoid")
def sigmoid(x: Any, name: str | None = None) -> Tensor:
    """Return 1 / (1 + exp(-x))."""
    with name_scope(name, "Sigmoid", [x]) as scope:
        return sigmoid_op(convert_to_tensor(x, name="x"), name=scope)


@composed
@dispatched
@export("log_sigmoid", "math.log_sigmoid")
def log_sigmoid(x: Any, name: str | None = None) -> Tensor:
    """Return the logarithm of the sigmoid of x, accurate where the sigmoid is near 0."""
    with name_scope(name, "LogSigmoid", [x]) as scope:
        return b.negative(b.softplus(b.negative(convert_to_tensor(x, name="x"))), name=scope)


# Derivatives computed from the function's result


def _tanh_grad_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    y, dy = (b.conj(t) for t in op.inputs)
    slope = b.multiply(b.multiply(dy, b.constant(-2, dy.dtype.base_dtype)), y)
    return b.multiply(dz, slope), b.tanh_grad(y, dz)


def _tanh_grad(y: Any, dy: Any) -> Any:
    result = np.asarray(np.square(y))
    np.subtract(1, result, out=result)
    result *= dy
    return result


@slope_op(
    "TanhGrad",
    _tanh_grad,
    _tanh_grad_gradient,
    lower=lambda e, y, dy: (1 - y * y) * dy,
    precision=Precision.EITHER,
)
def tanh_grad(y, dy, name=None):
    """Return dy times the derivative of the hyperbolic tangent whose result is y."""


def _sigmoid_grad_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    y, dy = (b.conj(t) for t in op.inputs)
    slope = b.subtract(_one(b, y), b.add_v2(y, y))
    return b.multiply(dz, b.multiply(dy, slope)), b.sigmoid_grad(y, dz)


def _sigmoid_grad(y: Any, dy: Any) -> Any:
    result = np.asarray(np.subtract(1, y))
    result *= y
    result *= dy
    return result


@slope_op(
    "SigmoidGrad",
    _sigmoid_grad,
    _sigmoid_grad_gradient,
    lower=lambda e, y, dy: (1 - y) * y * dy,
    precision=Precision.EITHER,
)
def sigmoid_grad(y, dy, name=None):
    """Return dy times the derivative of the sigmoid whose result is y."""
