"""Special functions, element by element: error, gamma, incomplete and Bessel functions.

The numbers come from `special`; this module has the ops and derivatives.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Kind, Precision, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.pointwise import rounded_once
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import pairs, r, unary
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math import special_kernels, special_lowered
from headrace._src.ops.math.arithmetic import binary_op
from headrace._src.ops.math.elementwise import on_sparse_values, unary_op

__all__ = ["betainc", "digamma", "erf", "erfc", "igamma", "igammac", "lbeta", "lgamma"]

_TWO = "{float32|float64}"


def _number(b: OpBuilder, value: float, like: Tensor) -> Tensor:
    return b.constant(value, like.dtype.base_dtype)


# Error functions


def _gaussian(b: OpBuilder, op: Any, dy: Any, scale: float) -> Any:
    x = op.inputs[0]
    return b.multiply(b.multiply(dy, _number(b, scale, dy)), b.exp(b.negative(b.square(x))))


@export("erf", "math.erf")
@on_sparse_values("Erf")
@unary_op(
    "Erf",
    "{floats}",
    special_kernels.erf,
    lambda b, op, dy: _gaussian(b, op, dy, 2 / math.sqrt(math.pi)),
    lower=lambda e, x: e.erf(x),
    precision=Precision.EITHER,
)
def erf(x, name=None):
    """Return the error function of x."""


@export("erfc", "math.erfc")
@unary_op(
    "Erfc",
    "{floats}",
    special_kernels.erfc,
    lambda b, op, dy: _gaussian(b, op, dy, -2 / math.sqrt(math.pi)),
    lower=special_lowered.erfc,
)
def erfc(x, name=None):
    """Return 1 - erf(x), accurate for large x too."""


# Gamma functions


@export("lgamma", "math.lgamma")
@unary_op(
    "Lgamma",
    "{floats}",
    special_kernels.lgamma,
    lambda b, op, dy: b.multiply(dy, b.digamma(op.inputs[0])),
    samples=unary(0.3, 5),
    lower=special_lowered.lgamma,
)
def lgamma(x, name=None):
    """Return the logarithm of the magnitude of the gamma function."""


def _digamma_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    x = op.inputs[0]
    if x.dtype.base_dtype.size >= 4:
        return b.multiply(dy, b.polygamma(_number(b, 1, x), x))
    slope = b.polygamma(b.constant(1.0), b.cast(x, "float32"))  # it has no 16-bit kernels
    return b.multiply(dy, b.cast(slope, x.dtype.base_dtype))


@export("digamma", "math.digamma")
@unary_op(
    "Digamma",
    "{floats}",
    special_kernels.digamma,
    _digamma_gradient,
    samples=unary(0.3, 5),
    lower=special_lowered.digamma,
)
def digamma(x, name=None):
    """Return the derivative of lgamma."""


_ORDERS = [Sample([1.0, 2.0, 3.0], r(2, 3, low=0.5, high=4)), Sample([2.0], r(3, low=0.5, high=4))]


@counted(9)
def _polygamma_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    order, x = op.inputs
    slope = b.polygamma(b.add_v2(order, _number(b, 1, order)), x)
    _, to_x = b.unbroadcast(order, x)
    return None, to_x(b.multiply(dz, slope))


@export("polygamma", "math.polygamma")
@binary_op(
    "Polygamma",
    _TWO,
    special_kernels.polygamma,
    _polygamma_gradient,
    signature="a: T, x: T -> z: T",
    samples=_ORDERS,
)
def polygamma(a, x, name=None):
    """Return the a-th derivative of digamma at x."""


@counted(11)
def _zeta_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, q = op.inputs
    slope = b.negative(b.multiply(x, b.zeta(b.add_v2(x, _number(b, 1, x)), q)))
    _, to_q = b.unbroadcast(x, q)
    return None, to_q(b.multiply(dz, slope))


@export("zeta", "math.zeta")
@binary_op(
    "Zeta",
    _TWO,
    special_kernels.zeta,
    _zeta_gradient,
    signature="x: T, q: T -> z: T",
    samples=[
        Sample([1.5, 2.0, 3.0], r(2, 3, low=0.5, high=4)),
        Sample([2.5], r(3, low=0.5, high=4)),
    ],
)
def zeta(x, q, name=None):
    """Return the Hurwitz zeta function, the sum over k >= 0 of (q + k) to the power -x."""


# Incomplete gamma and beta functions


def _igamma_slopes(b: OpBuilder, op: Any, dz: Any) -> tuple[Tensor, Tensor]:
    a, x = op.inputs
    power = b.multiply(b.subtract(a, _number(b, 1, a)), b.log(x))
    density = b.exp(b.subtract(b.subtract(power, x), b.lgamma(a)))
    along_a = b.multiply(dz, b.igamma_grad_a(a, x))
    to_a, to_x = b.unbroadcast(a, x)
    return to_a(along_a), to_x(b.multiply(dz, density))


@export("igamma", "math.igamma")
@binary_op(
    "Igamma",
    _TWO,
    special_kernels.igamma,
    counted(19, _igamma_slopes),
    signature="a: T, x: T -> z: T",
    samples=pairs(0.3, 4)[:3],
)
def igamma(a, x, name=None):
    """Return the lower regularised incomplete gamma function P(a, x)."""


@export("igammac", "math.igammac")
@binary_op(
    "Igammac",
    _TWO,
    special_kernels.igammac,
    counted(21, lambda b, op, dz: _igamma_slopes(b, op, b.negative(dz))),
    signature="a: T, x: T -> z: T",
    samples=pairs(0.3, 4)[:3],
)
def igammac(a, x, name=None):
    """Return the upper regularised incomplete gamma function Q(a, x) = 1 - P(a, x)."""


@binary_op(
    "IgammaGradA",
    _TWO,
    special_kernels.igamma_grad_a,
    NOT_DIFFERENTIABLE,
    signature="a: T, x: T -> z: T",
    samples=pairs(0.3, 4)[:3],
)
def igamma_grad_a(a, x, name=None):
    """Return the derivative of igamma(a, x) in a."""


def _betainc_infer(c: Any, *shapes: TensorShape) -> Any:
    arrays = [shape for shape in shapes if shape.ndims != 0]
    return infer.same_as_all(c, *arrays) if arrays else TensorShape(())


def _betainc(a: Any, b: Any, x: Any) -> Any:
    if len({np.shape(v) for v in (a, b, x) if np.ndim(v)}) > 1:
        raise ValueError(
            "a, b and x must be scalars or of one shape, but have the shapes "
            f"{np.shape(a)}, {np.shape(b)}, {np.shape(x)}"
        )
    return special_kernels.betainc(a, b, x)


@counted(25)
def _betainc_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    p, q, x = op.inputs
    one = _number(b, 1, x)
    logs = b.add_v2(
        b.multiply(b.subtract(p, one), b.log(x)),
        b.multiply(b.subtract(q, one), b.log1p(b.negative(x))),
    )
    scale = b.subtract(b.add_v2(b.lgamma(p), b.lgamma(q)), b.lgamma(b.add_v2(p, q)))
    return None, None, b.sum_to(b.multiply(dz, b.exp(b.subtract(logs, scale))), x)


@export("betainc", "math.betainc")
@define(
    "Betainc",
    "a: T, b: T, x: T -> z: T",
    f"T: {_TWO}",
    infer=_betainc_infer,
    kernel=_betainc,
    gradient=_betainc_gradient,
    kind=Kind.ELEMENTWISE,
    samples=[
        Sample([0.6, 2.0], [1.5, 0.7], r(2, low=0.2, high=0.8)),
        Sample(2.0, 3.0, r(2, 2, low=0.2, high=0.8)),
        Sample([[0.6, 2.0]], 1.5, r(low=0.2, high=0.8)),
    ],
)
def betainc(a, b, x, name=None):
    """Return the regularised incomplete beta function I_x(a, b)."""


# Bessel functions


def _i0e_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    x, y = op.inputs[0], op.outputs[0]
    return b.multiply(dy, b.subtract(b.bessel_i1e(x), b.multiply(b.sign(x), y)))


@export("math.bessel_i0e")
@on_sparse_values("BesselI0e")
@unary_op(
    "BesselI0e",
    "{floats}",
    special_kernels.bessel_i0e,
    _i0e_gradient,
    lower=special_lowered.bessel_i0e,
)
def bessel_i0e(x, name=None):
    """Return exp(-|x|) I0(x), I0 the modified Bessel function of order 0."""


@counted(17)
def _i1e_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    x, y = op.inputs[0], op.outputs[0]
    # I1(x)/x tends to 1/2, which division by a small x would miss.
    far = b.greater(b.abs(x), _number(b, float(np.finfo(np.float32).eps), x))
    safe = b.where(far, x, b.ones_like(x))
    slope = b.subtract(
        b.bessel_i0e(safe), b.multiply(y, b.add_v2(b.sign(safe), b.reciprocal(safe)))
    )
    near = b.multiply(b.ones_like(x), _number(b, 0.5, x))
    return b.multiply(dy, b.where(far, slope, near))


@export("math.bessel_i1e")
@on_sparse_values("BesselI1e")
@unary_op(
    "BesselI1e",
    "{floats}",
    special_kernels.bessel_i1e,
    _i1e_gradient,
    lower=special_lowered.bessel_i1e,
)
def bessel_i1e(x, name=None):
    """Return exp(-|x|) I1(x), I1 the modified Bessel function of order 1."""


@composed
@export("math.bessel_i0")
def bessel_i0(x: Any, name: str | None = None) -> Tensor:
    """Return the modified Bessel function of order 0."""
    with name_scope(name, "bessel_i0", [x]):
        return b.exp(b.abs(x)) * bessel_i0e(x)


@composed
@export("math.bessel_i1")
def bessel_i1(x: Any, name: str | None = None) -> Tensor:
    """Return the modified Bessel function of order 1."""
    with name_scope(name, "bessel_i1", [x]):
        return b.exp(b.abs(x)) * bessel_i1e(x)


# Others


@counted(lambda op, dz: 14 + (dz.dtype is not dtypes.float32))
def _xlogy_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, y = op.inputs
    nonzero = b.cast(b.not_equal(x, b.zeros_like(x)), x.dtype.base_dtype)
    dx = b.multiply(dz, b.conj(b.xlogy(nonzero, y)))
    to_x, to_y = b.unbroadcast(x, y)
    return to_x(dx), to_y(b.multiply(dz, b.conj(b.xdivy(x, y))))


@export("math.xlogy")
@binary_op(
    "Xlogy",
    "{float16|float32|float64|complex64|complex128}",
    special_kernels.xlogy,
    _xlogy_gradient,
    samples=pairs(0.2, 3),
    lower=rounded_once(lambda e, x, y: e.select(e.eq(x, 0), 0, x * e.log(y))),
)
def xlogy(x, y, name=None):
    """Return x log(y), and 0 where x is 0."""


@composed
@export("lbeta", "math.lbeta")
def lbeta(x: Any, name: str | None = None) -> Tensor:
    """Return the logarithm of the beta function's magnitude along the last axis."""
    with name_scope(name, "lbeta", [x]):
        x = convert_to_tensor(x, name="x")
        logs = b.reduce_sum(lgamma(x), axis=[-1])
        return logs - lgamma(b.reduce_sum(x, axis=[-1]))
