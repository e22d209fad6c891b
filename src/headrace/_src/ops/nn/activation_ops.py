"""Activation functions, element by element.

Gradient ops take the incoming gradient first, then the forward op's input (`features`) or, where
that is cheaper, its output.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.graph.definition import Kind, Precision, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.pointwise import rounded_once
from headrace._src.lowering.rules import Elementwise
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r, unary
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math.elementwise import unary_op
from headrace._src.ops.math.sum_precision import widened

__all__ = ["crelu", "elu", "leaky_relu", "relu", "relu6", "selu", "softplus", "softsign"]

_SELU_SCALE = 1.0507009873554805
_SELU_SCALE_ALPHA = 1.7580993408473768  # minus the limit of selu at -infinity


_SIGNATURE = "features: T -> activations: T"


def _pairs(low: float = -2.0, high: float = 2.0) -> list[Sample]:
    """Samples of a gradient op: gradients, and features or outputs of the same shape."""
    return [
        Sample(r(2, 3), r(2, 3, low=low, high=high)),
        Sample(r(), r(low=low, high=high)),
        Sample(r(0, 2), r(0, 2)),
    ]


def _not_broadcasting(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel that requires gradients and values of the same shape."""

    @wraps(kernel)
    def run(gradients: np.ndarray, values: np.ndarray, **attributes: Any) -> Any:
        if np.shape(gradients) != np.shape(values):
            raise ValueError(
                f"the gradients have shape {np.shape(gradients)}, the values {np.shape(values)}"
            )
        return kernel(gradients, values, **attributes)

    return run


def _gradient_op(
    op_type: str,
    values: str,
    types: str,
    kernel: Callable[..., Any],
    gradient: Any,
    samples: list[Sample],
    attributes: str = "",
    *,
    lower: Callable[..., Any],
    precision: Precision | None = None,
) -> Any:
    """Define an op of gradients and `values`: a function's "features" or "outputs"."""
    return define(
        op_type,
        f"gradients: T, {values}: T -> backprops: T",
        f"{attributes}T: {types}",
        infer=infer.same_as_all,
        kernel=_not_broadcasting(kernel),
        gradient=gradient,
        kind=Kind.ELEMENTWISE,
        samples=samples,
        lower=Elementwise(lower),
        precision=precision,
    )


def _piecewise_constant_slope(name: str) -> Any:
    """Return the gradient of `<name>(gradients, features)`, which is linear in its first input and
    piecewise constant in its second.
    """

    @counted(4)
    def gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
        features = op.inputs[1]
        return getattr(b, name)(grad, features), b.zeros_like(features)

    return gradient


# ---- relu and its variants ---------------------------------------------------------------------


@export("nn.relu")
@unary_op(
    "Relu",
    "{reals|qint8}",
    lambda x: np.maximum(x, x.dtype.type(0)),
    lambda b, op, dy: b.relu_grad(dy, op.outputs[0]),
    signature=_SIGNATURE,
    samples=unary(),
    lower=lambda e, x: e.max(x, 0),
    precision=Precision.EITHER,
)
def relu(features, name=None):
    """Return max(features, 0)."""


def _relu_grad_lowered(e: Any, dy: Any, x: Any) -> Any:
    return dy * e.cast(x > 0, dy.dtype)


def _relu6_grad_lowered(e: Any, dy: Any, x: Any) -> Any:
    return dy * e.cast(e.and_(x > 0, x < 6), dy.dtype)


def _leaky_relu_lowered(e: Any, x: Any, *, alpha: float) -> Any:
    return e.max(x, x * alpha) if alpha <= 1 else e.select(x > 0, x, x * alpha)


def _leaky_relu_grad_lowered(e: Any, dy: Any, x: Any, *, alpha: float) -> Any:
    return e.select(x > 0, dy, dy * alpha)


def _relu_grad(gradients: np.ndarray, features: np.ndarray) -> np.ndarray:
    return np.multiply(gradients, features > 0, dtype=features.dtype)


@_gradient_op(
    "ReluGrad",
    "features",
    "{reals}",
    _relu_grad,
    _piecewise_constant_slope("relu_grad"),
    _pairs(),
    lower=_relu_grad_lowered,
    precision=Precision.EITHER,
)
def relu_grad(gradients, features, name=None):
    """Return the gradients where features (or relu's outputs) are positive, else 0."""


@unary_op(
    "Relu6",
    "{reals}",
    lambda x: np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6)),
    lambda b, op, dy: b.relu6_grad(dy, op.outputs[0]),
    signature=_SIGNATURE,
    samples=unary(-3.0, 9.0),
    lower=lambda e, x: e.min(e.max(x, 0), 6),
    precision=Precision.EITHER,
)
def relu6_op(features, name=None):
    """Return min(max(features, 0), 6)."""


@composed
@export("nn.relu6")
def relu6(features: Any, name: str | None = None) -> Tensor:
    """Return min(max(features, 0), 6)."""
    with name_scope(name, "Relu6", [features]) as scope:
        return relu6_op(convert_to_tensor(features, name="features"), name=scope)


def _relu6_grad(gradients: np.ndarray, features: np.ndarray) -> np.ndarray:
    return np.multiply(gradients, (features > 0) & (features < 6), dtype=features.dtype)


@_gradient_op(
    "Relu6Grad",
    "features",
    "{reals}",
    _relu6_grad,
    _piecewise_constant_slope("relu6_grad"),
    _pairs(-3.0, 9.0),
    lower=_relu6_grad_lowered,
    precision=Precision.EITHER,
)
def relu6_grad(gradients, features, name=None):
    """Return the gradients where features (or relu6's outputs) are between 0 and 6, else 0."""


def _leaky_relu(x: np.ndarray, *, alpha: float) -> np.ndarray:
    scaled = x * x.dtype.type(alpha)
    return np.maximum(x, scaled) if alpha <= 1 else np.where(x > 0, x, scaled)


@define(
    "LeakyRelu",
    "features: T -> activations: T",
    "alpha: float = 0.2; T: {floats} = float32",
    infer=infer.same_as(0),
    kernel=_leaky_relu,
    gradient=lambda b, op, dy: b.leaky_relu_grad(dy, op.inputs[0], alpha=op.get_attr("alpha")),
    kind=Kind.ELEMENTWISE,
    samples=[*unary(), Sample(r(4), alpha=0.5)],
    lower=Elementwise(_leaky_relu_lowered),
    precision=Precision.EITHER,
)
def leaky_relu_op(features, alpha=0.2, name=None):
    """Return features, multiplied by alpha where they are negative."""


@composed
@export("nn.leaky_relu")
def leaky_relu(features: Any, alpha: Any = 0.2, name: str | None = None) -> Tensor:
    """Return features, multiplied by alpha where they are negative; integers become float32."""
    with name_scope(name, "LeakyRelu", [features, alpha]) as scope:
        features = convert_to_tensor(features, name="features")
        if features.dtype.is_integer:
            features = b.cast(features, "float32")
        if isinstance(alpha, np.ndarray):
            alpha = alpha.item()
        return leaky_relu_op(features, alpha=alpha, name=scope)


def _leaky_relu_grad(gradients: np.ndarray, features: np.ndarray, *, alpha: float) -> np.ndarray:
    return np.where(features > 0, gradients, gradients * gradients.dtype.type(alpha))


@counted(4)
def _leaky_relu_grad_gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
    features = op.inputs[1]
    alpha = op.get_attr("alpha")
    return b.leaky_relu_grad(grad, features, alpha=alpha), b.zeros_like(features)


@_gradient_op(
    "LeakyReluGrad",
    "features",
    "{floats} = float32",
    _leaky_relu_grad,
    _leaky_relu_grad_gradient,
    [*_pairs(), Sample(r(4), r(4), alpha=0.5)],
    attributes="alpha: float = 0.2; ",
    lower=_leaky_relu_grad_lowered,
    precision=Precision.EITHER,
)
def leaky_relu_grad(gradients, features, alpha=0.2, name=None):
    """Return the gradients, multiplied by alpha where features are not positive."""


@composed
@export("nn.crelu")
def crelu(features: Any, name: str | None = None, axis: int = -1) -> Tensor:
    """Return relu of features and of their negation, side by side along `axis`."""
    with name_scope(name, "CRelu", [features]) as scope:
        features = convert_to_tensor(features, name="features")
        both = b.concat([features, b.negative(features)], axis, name=scope)
        return relu(both)


# ---- elu and selu ------------------------------------------------------------------------------


def _elu_lowered(e: Any, x: Any) -> Any:
    return e.select(x < 0, e.expm1(x), x)


def _selu_lowered(e: Any, x: Any) -> Any:
    return e.select(x < 0, _SELU_SCALE_ALPHA * e.expm1(x), _SELU_SCALE * x)


def _selu_grad_lowered(e: Any, dy: Any, y: Any) -> Any:
    return e.select(y < 0, dy * (y + _SELU_SCALE_ALPHA), dy * _SELU_SCALE)


def _softplus_lowered(e: Any, x: Any) -> Any:
    return e.max(x, 0) + e.log1p(e.exp(-e.abs(x)))


def _elu(x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    return np.where(wide < 0, np.expm1(wide), wide).astype(x.dtype, copy=False)


@export("nn.elu")
@unary_op(
    "Elu",
    "{floats}",
    _elu,
    lambda b, op, dy: b.elu_grad(dy, op.outputs[0]),
    signature=_SIGNATURE,
    samples=unary(),
    lower=rounded_once(_elu_lowered),
    precision=Precision.EITHER,
)
def elu(features, name=None):
    """Return exp(features) - 1 where features are negative, else features."""


def _elu_grad(gradients: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    return np.where(outputs < 0, (outputs + outputs.dtype.type(1)) * gradients, gradients)


def _exponential_grad_gradient(name: str) -> Any:
    """The gradient of elu_grad and selu_grad: left of 0 the derivative changes with the output."""

    def gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
        gradients, outputs = op.inputs
        curved = b.where(b.less(outputs, 0), b.multiply(grad, gradients), b.zeros_like(outputs))
        return getattr(b, name)(grad, outputs), curved

    return gradient


@_gradient_op(
    "EluGrad",
    "outputs",
    "{floats}",
    _elu_grad,
    _exponential_grad_gradient("elu_grad"),
    _pairs(),
    lower=lambda e, dy, y: e.select(y < 0, (y + 1) * dy, dy),
    precision=Precision.EITHER,
)
def elu_grad(gradients, outputs, name=None):
    """Return the gradients times the derivative of elu, computed from elu's outputs."""


def _selu(x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    result = np.where(wide < 0, _SELU_SCALE_ALPHA * np.expm1(wide), _SELU_SCALE * wide)
    return result.astype(x.dtype, copy=False)


@export("nn.selu")
@unary_op(
    "Selu",
    "{floats}",
    _selu,
    lambda b, op, dy: b.selu_grad(dy, op.outputs[0]),
    signature=_SIGNATURE,
    samples=unary(),
    lower=rounded_once(_selu_lowered),
    precision=Precision.EITHER,
)
def selu(features, name=None):
    """Return the scaled exponential linear function, which keeps activations near mean 0 and
    variance 1.
    """


def _selu_grad(gradients: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    y, dy = widened(outputs), widened(gradients)
    return np.where(y < 0, dy * (y + _SELU_SCALE_ALPHA), dy * _SELU_SCALE).astype(
        gradients.dtype, copy=False
    )


@_gradient_op(
    "SeluGrad",
    "outputs",
    "{floats}",
    _selu_grad,
    _exponential_grad_gradient("selu_grad"),
    _pairs(),
    lower=rounded_once(_selu_grad_lowered),
    precision=Precision.EITHER,
)
def selu_grad(gradients, outputs, name=None):
    """Return the gradients times the derivative of selu, computed from selu's outputs."""


# ---- softplus and softsign ---------------------------------------------------------------------


def _softplus(x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    return np.logaddexp(wide, wide.dtype.type(0)).astype(x.dtype, copy=False)


@export("nn.softplus", "math.softplus")
@unary_op(
    "Softplus",
    "{floats}",
    _softplus,
    lambda b, op, dy: b.multiply(dy, b.sigmoid(op.inputs[0])),
    signature=_SIGNATURE,
    samples=unary(),
    lower=rounded_once(_softplus_lowered),
    precision=Precision.EITHER,
)
def softplus(features, name=None):
    """Return log(exp(features) + 1)."""


def _softplus_grad(gradients: np.ndarray, features: np.ndarray) -> np.ndarray:
    return (widened(gradients) / (np.exp(-widened(features)) + 1)).astype(
        gradients.dtype, copy=False
    )


def _softplus_grad_gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
    gradients, features = op.inputs
    width = b.add(b.add(b.exp(b.negative(features)), 2.0), b.exp(features))
    return b.softplus_grad(grad, features), b.divide(b.multiply(grad, gradients), width)


@_gradient_op(
    "SoftplusGrad",
    "features",
    "{floats}",
    _softplus_grad,
    _softplus_grad_gradient,
    _pairs(),
    lower=rounded_once(lambda e, dy, x: dy / (e.exp(-x) + 1)),
    precision=Precision.EITHER,
)
def softplus_grad(gradients, features, name=None):
    """Return the gradients times the derivative of softplus at features."""


@export("nn.softsign", "math.softsign")
@unary_op(
    "Softsign",
    "{floats}",
    lambda x: x / (np.abs(x) + x.dtype.type(1)),
    lambda b, op, dy: b.softsign_grad(dy, op.inputs[0]),
    signature=_SIGNATURE,
    samples=unary(),
    lower=lambda e, x: x / (e.abs(x) + 1),
    precision=Precision.EITHER,
)
def softsign(features, name=None):
    """Return features / (|features| + 1)."""


def _softsign_grad(gradients: np.ndarray, features: np.ndarray) -> np.ndarray:
    return gradients / np.square(np.abs(features) + features.dtype.type(1))


def _softsign_grad_gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
    gradients, features = op.inputs
    slope = b.softsign_grad(grad, features)
    bend = b.divide(b.multiply(b.sign(features), -2.0), b.add(b.abs(features), 1.0))
    return slope, b.multiply(b.multiply(slope, gradients), bend)


@_gradient_op(
    "SoftsignGrad",
    "features",
    "{floats}",
    _softsign_grad,
    _softsign_grad_gradient,
    _pairs(),
    lower=lambda e, dy, x: dy / e.square(e.abs(x) + 1),
    precision=Precision.EITHER,
)
def softsign_grad(gradients, features, name=None):
    """Return the gradients times the derivative of softsign at features."""
