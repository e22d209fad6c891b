"""One step of an optimizer, applied to a variable and its slots, by reference or by handle.

Each optimizer is one formula, from the old values of the variables and the step's numbers to the
new ones. It is written once, in terms of `e`, which evaluates it: NumPy for the kernel, a Recorder
of pointwise programs for the compiler. `training_step` makes ops from formulas.
"""

from __future__ import annotations

from typing import Any

from headrace._src.graph.definition import Sample
from headrace._src.ops.base.samples import r, typed
from headrace._src.ops.state.optimizer_formulas import OptimizerFormula, by_handle, by_reference

__all__ = [
    "ADADELTA",
    "ADAGRAD",
    "ADAGRAD_V2",
    "ANY",
    "CENTERED",
    "FLOATS",
    "KERAS",
    "MOMENTUM",
    "POSITIVE",
    "RMS_PROP",
    "apply_adam",
    "apply_gradient_descent",
    "apply_momentum",
    "step_samples",
]


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


# -- The ops --------------------------------------------------------------------------------------

FLOATS = ("float32", "float64", "float16", "bfloat16")
_NESTEROV = "; use_nesterov: bool = False"
_SLOTS = "; update_slots: bool = True"


def step_samples(*inputs: Any, **options: Any) -> list[Sample]:
    """Return samples without options and with each; a dict maps names to arrays of variables'
    shape.
    """

    def arrays(*shape: int) -> list[Any]:
        return [r(*shape, **x) if isinstance(x, dict) else x for x in inputs]

    ways: list[dict[str, Any]] = [{}, *({k: v} for k, v in options.items())]
    plain = typed([Sample(*arrays(2, 3), **way) for way in ways], *FLOATS)
    return [*plain, Sample(*arrays(), T="float32")]


ANY: dict[str, Any] = {}
POSITIVE = {"low": 0.2, "high": 2.0}

_DESCENT = OptimizerFormula(_gradient_descent, ["var"], ["alpha", "delta"])
_DESCENT_SAMPLES = step_samples(ANY, 0.25, ANY)


@by_reference("ApplyGradientDescent", _DESCENT, _DESCENT_SAMPLES)
def apply_gradient_descent(var, alpha, delta, use_locking=False, name=None):
    """Subtract alpha * delta from a variable and return its reference."""


@by_handle("ResourceApplyGradientDescent", _DESCENT, _DESCENT_SAMPLES)
def resource_apply_gradient_descent(var, alpha, delta, use_locking=False, name=None):
    """Subtract alpha * delta from the variable behind a handle."""


MOMENTUM = OptimizerFormula(_momentum, ["var", "accum"], ["lr", "grad", "momentum"], _NESTEROV)
_MOMENTUM_SAMPLES = step_samples(ANY, ANY, 0.25, ANY, 0.9, use_nesterov=True)


@by_reference("ApplyMomentum", MOMENTUM, _MOMENTUM_SAMPLES)
def apply_momentum(
    var, accum, lr, grad, momentum, use_locking=False, use_nesterov=False, name=None
):
    """Follow gradients accumulated with `momentum`."""


@by_handle("ResourceApplyMomentum", MOMENTUM, _MOMENTUM_SAMPLES)
def resource_apply_momentum(
    var, accum, lr, grad, momentum, use_locking=False, use_nesterov=False, name=None
):
    """Follow gradients accumulated with `momentum`."""


KERAS = OptimizerFormula(_keras_momentum, ["var", "accum"], ["lr", "grad", "momentum"], _NESTEROV)


@by_handle("ResourceApplyKerasMomentum", KERAS, _MOMENTUM_SAMPLES)
def resource_apply_keras_momentum(
    var, accum, lr, grad, momentum, use_locking=False, use_nesterov=False, name=None
):
    """As ResourceApplyMomentum, but accumulate steps, including the learning rate."""


_ADAM = OptimizerFormula(
    _adam,
    ["var", "m", "v"],
    ["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"],
    _NESTEROV,
)
_ADAM_SAMPLES = step_samples(
    ANY, ANY, POSITIVE, 0.81, 0.98, 0.25, 0.9, 0.99, 0.01, ANY, use_nesterov=True
)


@by_reference("ApplyAdam", _ADAM, _ADAM_SAMPLES)
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
    """Follow running means of the gradients, m, scaled by running means of their squares, v."""


@by_handle("ResourceApplyAdam", _ADAM, _ADAM_SAMPLES)
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
    """Follow running means of the gradients, m, scaled by running means of their squares, v."""


_ADA_MAX = OptimizerFormula(
    _ada_max, ["var", "m", "v"], ["beta1_power", "lr", "beta1", "beta2", "epsilon", "grad"]
)
_ADA_MAX_SAMPLES = step_samples(ANY, ANY, POSITIVE, 0.81, 0.25, 0.9, 0.99, 0.01, ANY)


@by_reference("ApplyAdaMax", _ADA_MAX, _ADA_MAX_SAMPLES)
def apply_ada_max(
    var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad, use_locking=False, name=None
):
    """As ApplyAdam, scaled by a decaying maximum of the gradients instead of their
    squares' mean.
    """


@by_handle("ResourceApplyAdaMax", _ADA_MAX, _ADA_MAX_SAMPLES)
def resource_apply_ada_max(
    var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad, use_locking=False, name=None
):
    """As ResourceApplyAdam, scaled by a decaying maximum of the gradients."""


ADAGRAD = OptimizerFormula(_adagrad, ["var", "accum"], ["lr", "grad"], _SLOTS)
_ADAGRAD_SAMPLES = step_samples(ANY, POSITIVE, 0.25, ANY, update_slots=False)


@by_reference("ApplyAdagrad", ADAGRAD, _ADAGRAD_SAMPLES)
def apply_adagrad(var, accum, lr, grad, use_locking=False, update_slots=True, name=None):
    """Follow gradients scaled by the root of the sum of all their squares so far."""


@by_handle("ResourceApplyAdagrad", ADAGRAD, _ADAGRAD_SAMPLES)
def resource_apply_adagrad(var, accum, lr, grad, use_locking=False, update_slots=True, name=None):
    """Follow gradients scaled by the root of the sum of all their squares so far."""


ADAGRAD_V2 = OptimizerFormula(_adagrad_v2, ["var", "accum"], ["lr", "epsilon", "grad"], _SLOTS)
_ADAGRAD_V2_SAMPLES = step_samples(ANY, POSITIVE, 0.25, 0.01, ANY, update_slots=False)


@by_reference("ApplyAdagradV2", ADAGRAD_V2, _ADAGRAD_V2_SAMPLES)
def apply_adagrad_v2(
    var, accum, lr, epsilon, grad, use_locking=False, update_slots=True, name=None
):
    """As ApplyAdagrad, with epsilon added to the root."""


@by_handle("ResourceApplyAdagradV2", ADAGRAD_V2, _ADAGRAD_V2_SAMPLES)
def resource_apply_adagrad_v2(
    var, accum, lr, epsilon, grad, use_locking=False, update_slots=True, name=None
):
    """As ResourceApplyAdagrad, with epsilon added to the root."""


ADADELTA = OptimizerFormula(
    _adadelta, ["var", "accum", "accum_update"], ["lr", "rho", "epsilon", "grad"]
)
_ADADELTA_SAMPLES = step_samples(ANY, POSITIVE, POSITIVE, 0.25, 0.9, 0.01, ANY)


@by_reference("ApplyAdadelta", ADADELTA, _ADADELTA_SAMPLES)
def apply_adadelta(var, accum, accum_update, lr, rho, epsilon, grad, use_locking=False, name=None):
    """Follow gradients scaled by the ratio of the recent magnitudes of steps and gradients."""


@by_handle("ResourceApplyAdadelta", ADADELTA, _ADADELTA_SAMPLES)
def resource_apply_adadelta(
    var, accum, accum_update, lr, rho, epsilon, grad, use_locking=False, name=None
):
    """Follow gradients scaled by the ratio of the recent magnitudes of steps and gradients."""


RMS_PROP = OptimizerFormula(
    _rms_prop, ["var", "ms", "mom"], ["lr", "rho", "momentum", "epsilon", "grad"]
)
_RMS_PROP_SAMPLES = step_samples(ANY, POSITIVE, ANY, 0.25, 0.9, 0.8, 0.01, ANY)


@by_reference("ApplyRMSProp", RMS_PROP, _RMS_PROP_SAMPLES)
def apply_rms_prop(var, ms, mom, lr, rho, momentum, epsilon, grad, use_locking=False, name=None):
    """Follow, with momentum, gradients scaled by the root of their squares' running mean."""


@by_handle("ResourceApplyRMSProp", RMS_PROP, _RMS_PROP_SAMPLES)
def resource_apply_rms_prop(
    var, ms, mom, lr, rho, momentum, epsilon, grad, use_locking=False, name=None
):
    """Follow, with momentum, gradients scaled by the root of their squares' running mean."""


CENTERED = OptimizerFormula(
    _centered_rms_prop, ["var", "mg", "ms", "mom"], ["lr", "rho", "momentum", "epsilon", "grad"]
)
_CENTERED_SAMPLES = step_samples(
    ANY, {"low": -0.5, "high": 0.5}, {"low": 1.0, "high": 2.0}, ANY, 0.25, 0.9, 0.8, 0.01, ANY
)


@by_reference("ApplyCenteredRMSProp", CENTERED, _CENTERED_SAMPLES)
def apply_centered_rms_prop(
    var, mg, ms, mom, lr, rho, momentum, epsilon, grad, use_locking=False, name=None
):
    """As ApplyRMSProp, scaled by the gradients' running standard deviation."""


@by_handle("ResourceApplyCenteredRMSProp", CENTERED, _CENTERED_SAMPLES)
def resource_apply_centered_rms_prop(
    var, mg, ms, mom, lr, rho, momentum, epsilon, grad, use_locking=False, name=None
):
    """As ResourceApplyRMSProp, scaled by the gradients' running standard deviation."""
