"""One step of an optimizer, applied to a variable and its slots: by reference or by handle.

Each optimizer is one formula, from the old values of the variables and the step's numbers to the
new ones. It is written once, with `e` for whatever computes it: NumPy for the kernel, a Recorder of
pointwise programs for the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from typing import Any

import ml_dtypes
import numpy as np

from headrace.core.shapes import TensorShape, show_shape
from headrace.devices.resources import VariableState
from headrace.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace.graph.lowering import Update
from headrace.ops.define import define
from headrace.ops.resource_state import handle_shape, variable_behind
from headrace.ops.samples import r, typed
from headrace.ops.state import equal_shapes, state_of

__all__ = ["apply_adam", "apply_gradient_descent", "apply_momentum"]


# -- The formulas ---------------------------------------------------------------------------------


def _gradient_descent(e: Any, var: Any, alpha: Any, delta: Any) -> Any:
    return (var - delta * alpha,)


def _momentum(
    e: Any, var: Any, accum: Any, lr: Any, grad: Any, momentum: Any, *, use_nesterov: bool
) -> Any:
    accum = accum * momentum + grad
    if use_nesterov:
        return var - (grad * lr + accum * momentum * lr), accum
    return var - accum * lr, accum


def _keras_momentum(
    e: Any, var: Any, accum: Any, lr: Any, grad: Any, momentum: Any, *, use_nesterov: bool
) -> Any:
    accum = accum * momentum - grad * lr
    if use_nesterov:
        return var + (accum * momentum - grad * lr), accum
    return var + accum, accum


def _adam(
    e: Any,
    var: Any,
    m: Any,
    v: Any,
    beta1_power: Any,
    beta2_power: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
    grad: Any,
    *,
    use_nesterov: bool,
) -> Any:
    rate = lr * e.sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    ahead = grad * (1 - beta1) + beta1 * m if use_nesterov else m
    return var - ahead * rate / (e.sqrt(v) + epsilon), m, v


def _ada_max(
    e: Any,
    var: Any,
    m: Any,
    v: Any,
    beta1_power: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
    grad: Any,
) -> Any:
    m = m + (grad - m) * (1 - beta1)
    v = e.max(beta2 * v, e.abs(grad))
    return var - lr / (1 - beta1_power) * (m / (v + epsilon)), m, v


def _adagrad(e: Any, var: Any, accum: Any, lr: Any, grad: Any, *, update_slots: bool) -> Any:
    accum = accum + grad * grad if update_slots else accum
    return var - grad * lr / e.sqrt(accum), accum


def _adagrad_v2(
    e: Any, var: Any, accum: Any, lr: Any, epsilon: Any, grad: Any, *, update_slots: bool
) -> Any:
    accum = accum + grad * grad if update_slots else accum
    return var - grad * lr / (e.sqrt(accum) + epsilon), accum


def _adadelta(
    e: Any, var: Any, accum: Any, accum_update: Any, lr: Any, rho: Any, epsilon: Any, grad: Any
) -> Any:
    accum = accum * rho + grad * grad * (1 - rho)
    update = e.sqrt(accum_update + epsilon) / e.sqrt(accum + epsilon) * grad
    accum_update = accum_update * rho + update * update * (1 - rho)
    return var - update * lr, accum, accum_update


def _rms_prop(
    e: Any,
    var: Any,
    ms: Any,
    mom: Any,
    lr: Any,
    rho: Any,
    momentum: Any,
    epsilon: Any,
    grad: Any,
) -> Any:
    ms = ms + (grad * grad - ms) * (1 - rho)
    mom = mom * momentum + grad * lr / e.sqrt(ms + epsilon)
    return var - mom, ms, mom


def _centered_rms_prop(
    e: Any,
    var: Any,
    mg: Any,
    ms: Any,
    mom: Any,
    lr: Any,
    rho: Any,
    momentum: Any,
    epsilon: Any,
    grad: Any,
) -> Any:
    ms = ms + (grad * grad - ms) * (1 - rho)
    mg = mg + (grad - mg) * (1 - rho)
    mom = mom * momentum + grad * lr / e.sqrt(ms - mg * mg + epsilon)
    return var - mom, mg, ms, mom


class _Arrays:
    """What a formula computes with where its operands are arrays."""

    sqrt = staticmethod(np.sqrt)
    abs = staticmethod(np.abs)
    max = staticmethod(np.maximum)


# -- Ops from formulas ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Optimizer:
    """A formula and what an op's schema says of it: the variables and operands, in its order."""

    formula: Callable[..., Any]
    variables: Sequence[str]
    operands: Sequence[str]
    attributes: str = ""

    @property
    def lower(self) -> Update:
        return Update(self.formula, variables=len(self.variables))

    def schema(self, variable: str, result: str) -> tuple[str, str]:
        """The signature, whose variables are of type `variable`, and the attributes."""
        inputs = [f"{name}: {variable}" for name in self.variables]
        inputs += [f"{name}: T" for name in self.operands]
        attributes = "T: {numbers}; use_locking: bool = False" + self.attributes
        return f"{', '.join(inputs)} -> {result}", attributes


# The operands that have the variable's shape; all others are scalars.
_ARRAYS_BY_NAME = ("grad", "delta")
_NARROW_OR_WIDE = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)


def _checked_shapes(o: Optimizer, shapes: Sequence[TensorShape], operands: Any) -> TensorShape:
    """What the shapes of variables and operands say of the variable's; ValueError if they clash."""
    shape = shapes[0]
    for other in shapes[1:]:
        shape = equal_shapes(shape, other)
    for name, operand in zip(o.operands, operands, strict=True):
        shape = equal_shapes(shape, operand) if name in _ARRAYS_BY_NAME else shape
        if name not in _ARRAYS_BY_NAME:
            operand.with_rank(0)
    return shape


def _by_reference(op_type: str, o: Optimizer, samples: list[Sample]) -> Any:
    """Define an optimizer's op on references."""
    count = len(o.variables)

    @wraps(o.formula)
    def kernel(*inputs: Any, **attributes: Any) -> VariableState:
        states = [state_of(ref) for ref in inputs[:count]]
        _step(o, states, inputs[count:], attributes)
        return states[0]

    return define(
        op_type,
        *o.schema("Ref(T)", "out: Ref(T)"),
        infer=lambda c, *shapes: _checked_shapes(o, shapes[:count], shapes[count:]),
        kernel=kernel,
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.WRITES,
        samples=samples,
        lower=o.lower,
    )


def _by_handle(op_type: str, o: Optimizer, samples: list[Sample]) -> Any:
    """Define an optimizer's op on handles."""
    count = len(o.variables)

    @wraps(o.formula)
    def kernel(*inputs: Any, **attributes: Any) -> None:
        states = [variable_behind(handle) for handle in inputs[:count]]
        _step(o, states, inputs[count:], attributes)

    def rule(c: Any, *shapes: TensorShape) -> list[TensorShape]:
        _checked_shapes(o, [handle_shape(c, i) for i in range(count)], shapes[count:])
        return []

    return define(
        op_type,
        *o.schema("resource", ""),
        infer=rule,
        kernel=kernel,
        effect=Effect.WRITES,
        samples=samples,
        lower=o.lower,
    )


def _step(
    o: Optimizer, states: list[VariableState], operands: Sequence[Any], attributes: dict[str, Any]
) -> None:
    """Replace the variables' values by those of one step."""
    with ExitStack() as locks:
        # In one order everywhere: two steps that share variables must not wait for each other.
        for state in sorted(set(states), key=id):
            locks.enter_context(state.lock)
        old = [state.read() for state in states]
        _check(o, old, operands)
        new = o.formula(_Arrays, *old, *operands, **attributes)
        for state, value in zip(states, new, strict=True):
            state.value = np.asarray(value)


def _check(o: Optimizer, old: list[np.ndarray], operands: Sequence[Any]) -> None:
    var = old[0]
    if var.dtype not in _NARROW_OR_WIDE:
        raise TypeError(f"needs floating-point variables, not {var.dtype.name}")
    for name, slot in zip(o.variables[1:], old[1:], strict=True):
        if slot.dtype != var.dtype:
            raise ValueError(f"var is {var.dtype.name}, but {name} is {slot.dtype.name}")
        _require_shape(name, slot, var)
    for name, operand in zip(o.operands, operands, strict=True):
        if name in _ARRAYS_BY_NAME:
            _require_shape(name, operand, var)
        elif np.ndim(operand):
            raise ValueError(f"{name} is not a scalar: {show_shape(np.shape(operand))}")


def _require_shape(name: str, value: Any, var: np.ndarray) -> None:
    if np.shape(value) != var.shape:
        raise ValueError(
            f"var and {name} do not have the same shape{show_shape(var.shape)} "
            f"{show_shape(np.shape(value))}"
        )


# -- The ops --------------------------------------------------------------------------------------

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_NESTEROV = "; use_nesterov: bool = False"
_SLOTS = "; update_slots: bool = True"


def _samples(*inputs: Any, **options: Any) -> list[Sample]:
    """Samples without options and with each; a dict says what an array of variables' shape is."""

    def arrays(*shape: int) -> list[Any]:
        return [r(*shape, **x) if isinstance(x, dict) else x for x in inputs]

    ways: list[dict[str, Any]] = [{}, *({k: v} for k, v in options.items())]
    plain = typed([Sample(*arrays(2, 3), **way) for way in ways], *_FLOATS)
    return [*plain, Sample(*arrays(), T="float32")]


_ANY: dict[str, Any] = {}
_POSITIVE = {"low": 0.2, "high": 2.0}

_DESCENT = Optimizer(_gradient_descent, ["var"], ["alpha", "delta"])
_DESCENT_SAMPLES = _samples(_ANY, 0.25, _ANY)


@_by_reference("ApplyGradientDescent", _DESCENT, _DESCENT_SAMPLES)
def apply_gradient_descent(var, alpha, delta, use_locking=False, name=None):
    """Subtract alpha * delta from a variable and return its reference."""


@_by_handle("ResourceApplyGradientDescent", _DESCENT, _DESCENT_SAMPLES)
def resource_apply_gradient_descent(var, alpha, delta, use_locking=False, name=None):
    """Subtract alpha * delta from the variable behind a handle."""


_MOMENTUM = Optimizer(_momentum, ["var", "accum"], ["lr", "grad", "momentum"], _NESTEROV)
_MOMENTUM_SAMPLES = _samples(_ANY, _ANY, 0.25, _ANY, 0.9, use_nesterov=True)


@_by_reference("ApplyMomentum", _MOMENTUM, _MOMENTUM_SAMPLES)
def apply_momentum(
    var, accum, lr, grad, momentum, use_locking=False, use_nesterov=False, name=None
):
    """Follow gradients that are accumulated with `momentum`."""


@_by_handle("ResourceApplyMomentum", _MOMENTUM, _MOMENTUM_SAMPLES)
def resource_apply_momentum(
    var, accum, lr, grad, momentum, use_locking=False, use_nesterov=False, name=None
):
    """Follow gradients that are accumulated with `momentum`."""


_KERAS = Optimizer(_keras_momentum, ["var", "accum"], ["lr", "grad", "momentum"], _NESTEROV)


@_by_handle("ResourceApplyKerasMomentum", _KERAS, _MOMENTUM_SAMPLES)
def resource_apply_keras_momentum(
    var, accum, lr, grad, momentum, use_locking=False, use_nesterov=False, name=None
):
    """As ResourceApplyMomentum, but steps, learning rate and all, are what is accumulated."""


_ADAM = Optimizer(
    _adam,
    ["var", "m", "v"],
    ["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"],
    _NESTEROV,
)
_ADAM_SAMPLES = _samples(
    _ANY, _ANY, _POSITIVE, 0.81, 0.98, 0.25, 0.9, 0.99, 0.01, _ANY, use_nesterov=True
)


@_by_reference("ApplyAdam", _ADAM, _ADAM_SAMPLES)
def apply_adam(
    var,
    m,
    v,
    beta1_power,
    beta2_power,
    lr,
    beta1,
    beta2,
    epsilon,
    grad,
    use_locking=False,
    use_nesterov=False,
    name=None,
):
    """Follow running means of the gradients, m, scaled by those of their squares, v."""


@_by_handle("ResourceApplyAdam", _ADAM, _ADAM_SAMPLES)
def resource_apply_adam(
    var,
    m,
    v,
    beta1_power,
    beta2_power,
    lr,
    beta1,
    beta2,
    epsilon,
    grad,
    use_locking=False,
    use_nesterov=False,
    name=None,
):
    """Follow running means of the gradients, m, scaled by those of their squares, v."""


_ADA_MAX = Optimizer(
    _ada_max, ["var", "m", "v"], ["beta1_power", "lr", "beta1", "beta2", "epsilon", "grad"]
)
_ADA_MAX_SAMPLES = _samples(_ANY, _ANY, _POSITIVE, 0.81, 0.25, 0.9, 0.99, 0.01, _ANY)


@_by_reference("ApplyAdaMax", _ADA_MAX, _ADA_MAX_SAMPLES)
def apply_ada_max(
    var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad, use_locking=False, name=None
):
    """As ApplyAdam, scaled by the largest gradients, which fade, instead of their squares' mean."""


@_by_handle("ResourceApplyAdaMax", _ADA_MAX, _ADA_MAX_SAMPLES)
def resource_apply_ada_max(
    var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad, use_locking=False, name=None
):
    """As ResourceApplyAdam, scaled by the largest gradients, which fade."""


_ADAGRAD = Optimizer(_adagrad, ["var", "accum"], ["lr", "grad"], _SLOTS)
_ADAGRAD_SAMPLES = _samples(_ANY, _POSITIVE, 0.25, _ANY, update_slots=False)


@_by_reference("ApplyAdagrad", _ADAGRAD, _ADAGRAD_SAMPLES)
def apply_adagrad(var, accum, lr, grad, use_locking=False, update_slots=True, name=None):
    """Follow gradients, scaled by the root of the sum of all their squares so far."""


@_by_handle("ResourceApplyAdagrad", _ADAGRAD, _ADAGRAD_SAMPLES)
def resource_apply_adagrad(var, accum, lr, grad, use_locking=False, update_slots=True, name=None):
    """Follow gradients, scaled by the root of the sum of all their squares so far."""


_ADAGRAD_V2 = Optimizer(_adagrad_v2, ["var", "accum"], ["lr", "epsilon", "grad"], _SLOTS)
_ADAGRAD_V2_SAMPLES = _samples(_ANY, _POSITIVE, 0.25, 0.01, _ANY, update_slots=False)


@_by_reference("ApplyAdagradV2", _ADAGRAD_V2, _ADAGRAD_V2_SAMPLES)
def apply_adagrad_v2(
    var, accum, lr, epsilon, grad, use_locking=False, update_slots=True, name=None
):
    """As ApplyAdagrad, with epsilon added to the root."""


@_by_handle("ResourceApplyAdagradV2", _ADAGRAD_V2, _ADAGRAD_V2_SAMPLES)
def resource_apply_adagrad_v2(
    var, accum, lr, epsilon, grad, use_locking=False, update_slots=True, name=None
):
    """As ResourceApplyAdagrad, with epsilon added to the root."""


_ADADELTA = Optimizer(_adadelta, ["var", "accum", "accum_update"], ["lr", "rho", "epsilon", "grad"])
_ADADELTA_SAMPLES = _samples(_ANY, _POSITIVE, _POSITIVE, 0.25, 0.9, 0.01, _ANY)


@_by_reference("ApplyAdadelta", _ADADELTA, _ADADELTA_SAMPLES)
def apply_adadelta(var, accum, accum_update, lr, rho, epsilon, grad, use_locking=False, name=None):
    """Follow gradients, scaled by the ratio of what steps and gradients were of late."""


@_by_handle("ResourceApplyAdadelta", _ADADELTA, _ADADELTA_SAMPLES)
def resource_apply_adadelta(
    var, accum, accum_update, lr, rho, epsilon, grad, use_locking=False, name=None
):
    """Follow gradients, scaled by the ratio of what steps and gradients were of late."""


_RMS_PROP = Optimizer(_rms_prop, ["var", "ms", "mom"], ["lr", "rho", "momentum", "epsilon", "grad"])
_RMS_PROP_SAMPLES = _samples(_ANY, _POSITIVE, _ANY, 0.25, 0.9, 0.8, 0.01, _ANY)


@_by_reference("ApplyRMSProp", _RMS_PROP, _RMS_PROP_SAMPLES)
def apply_rms_prop(var, ms, mom, lr, rho, momentum, epsilon, grad, use_locking=False, name=None):
    """Follow, with momentum, gradients scaled by the root of their squares' running mean."""


@_by_handle("ResourceApplyRMSProp", _RMS_PROP, _RMS_PROP_SAMPLES)
def resource_apply_rms_prop(
    var, ms, mom, lr, rho, momentum, epsilon, grad, use_locking=False, name=None
):
    """Follow, with momentum, gradients scaled by the root of their squares' running mean."""


_CENTERED = Optimizer(
    _centered_rms_prop, ["var", "mg", "ms", "mom"], ["lr", "rho", "momentum", "epsilon", "grad"]
)
_CENTERED_SAMPLES = _samples(
    _ANY, {"low": -0.5, "high": 0.5}, {"low": 1.0, "high": 2.0}, _ANY, 0.25, 0.9, 0.8, 0.01, _ANY
)


@_by_reference("ApplyCenteredRMSProp", _CENTERED, _CENTERED_SAMPLES)
def apply_centered_rms_prop(
    var, mg, ms, mom, lr, rho, momentum, epsilon, grad, use_locking=False, name=None
):
    """As ApplyRMSProp, scaled by the gradients' running deviation."""


@_by_handle("ResourceApplyCenteredRMSProp", _CENTERED, _CENTERED_SAMPLES)
def resource_apply_centered_rms_prop(
    var, mg, ms, mom, lr, rho, momentum, epsilon, grad, use_locking=False, name=None
):
    """As ResourceApplyRMSProp, scaled by the gradients' running deviation."""
