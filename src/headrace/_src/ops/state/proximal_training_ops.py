"""One step of an optimizer with L1 and L2 penalties, which are part of the step and not of the
loss: weights below a threshold become exactly zero.
"""

from __future__ import annotations

from typing import Any

from headrace._src.ops.state.optimizer_formulas import OptimizerFormula, by_handle, by_reference
from headrace._src.ops.state.training_ops import ANY, POSITIVE, step_samples

__all__ = ["ADAGRAD_DA", "FTRL", "FTRL_V2", "PROXIMAL_ADAGRAD", "PROXIMAL_DESCENT", "apply_ftrl"]


# -- The formulas ----------------------------------------------------------------------------------


def _shrunk(e: Any, x: Any, threshold: Any) -> Any:
    """Return x, moved toward zero by `threshold`, but not beyond."""
    return e.sign(x) * e.max(e.abs(x) - threshold, 0)


def _proximal_descent(e: Any, var: Any, alpha: Any, l1: Any, l2: Any, delta: Any) -> Any:
    return (_shrunk(e, var - delta * alpha, alpha * l1) / (1 + l2 * alpha),)


def _proximal_adagrad(e: Any, var: Any, accum: Any, lr: Any, l1: Any, l2: Any, grad: Any) -> Any:
    accum = accum + grad * grad
    rate = lr / e.sqrt(accum)
    return _shrunk(e, var - grad * rate, rate * l1) / (1 + rate * l2), accum


def _adagrad_da(
    e: Any,
    var: Any,
    gradients: Any,
    squares: Any,
    grad: Any,
    lr: Any,
    l1: Any,
    l2: Any,
    global_step: Any,
) -> Any:
    gradients = gradients + grad
    squares = squares + grad * grad
    down = -_shrunk(e, gradients, l1 * global_step)
    return lr * down / (l2 * global_step * lr + e.sqrt(squares)), gradients, squares


def _ftrl(
    e: Any,
    var: Any,
    accum: Any,
    linear: Any,
    grad: Any,
    lr: Any,
    l1: Any,
    l2: Any,
    lr_power: Any,
) -> Any:
    return _follow_leader(e, var, accum, linear, grad, grad, lr, l1, l2, lr_power)


def _ftrl_v2(
    e: Any,
    var: Any,
    accum: Any,
    linear: Any,
    grad: Any,
    lr: Any,
    l1: Any,
    l2: Any,
    l2_shrinkage: Any,
    lr_power: Any,
) -> Any:
    shrunk = grad + 2 * l2_shrinkage * var
    return _follow_leader(e, var, accum, linear, grad, shrunk, lr, l1, l2, lr_power)


def _follow_leader(
    e: Any,
    var: Any,
    accum: Any,
    linear: Any,
    grad: Any,
    pull: Any,
    lr: Any,
    l1: Any,
    l2: Any,
    lr_power: Any,
) -> Any:
    """Follow the regularized leader; `pull` is the gradient plus the shrinkage's part."""
    new_accum = accum + grad * grad
    scale = e.pow(new_accum, -lr_power)
    linear = linear + pull - (scale - e.pow(accum, -lr_power)) / lr * var
    return -_shrunk(e, linear, l1) / (scale / lr + 2 * l2), new_accum, linear


# -- The ops ---------------------------------------------------------------------------------------

_PENALTIES = {"l1": "non-negative", "l2": "non-negative"}
_LEADER = {**_PENALTIES, "lr": "positive", "lr_power": "non-positive"}
_SMALL = {"low": -0.5, "high": 0.5}

PROXIMAL_DESCENT = OptimizerFormula(_proximal_descent, ["var"], ["alpha", "l1", "l2", "delta"])
_DESCENT_SAMPLES = step_samples(ANY, 0.25, 0.5, 0.25, ANY)


@by_reference("ApplyProximalGradientDescent", PROXIMAL_DESCENT, _DESCENT_SAMPLES)
def apply_proximal_gradient_descent(var, alpha, l1, l2, delta, use_locking=False, name=None):
    """Subtract alpha * delta from a variable, and shrink it."""


@by_handle("ResourceApplyProximalGradientDescent", PROXIMAL_DESCENT, _DESCENT_SAMPLES)
def resource_apply_proximal_gradient_descent(
    var, alpha, l1, l2, delta, use_locking=False, name=None
):
    """Subtract alpha * delta from the variable behind a handle, and shrink it."""


PROXIMAL_ADAGRAD = OptimizerFormula(
    _proximal_adagrad,
    ["var", "accum"],
    ["lr", "l1", "l2", "grad"],
    limits={**_PENALTIES, "lr": "positive"},
)
_ADAGRAD_SAMPLES = step_samples(ANY, POSITIVE, 0.25, 0.5, 0.25, ANY)


@by_reference("ApplyProximalAdagrad", PROXIMAL_ADAGRAD, _ADAGRAD_SAMPLES)
def apply_proximal_adagrad(var, accum, lr, l1, l2, grad, use_locking=False, name=None):
    """As ApplyAdagrad, then shrink the variable."""


@by_handle("ResourceApplyProximalAdagrad", PROXIMAL_ADAGRAD, _ADAGRAD_SAMPLES)
def resource_apply_proximal_adagrad(var, accum, lr, l1, l2, grad, use_locking=False, name=None):
    """As ResourceApplyAdagrad, then shrink the variable."""


ADAGRAD_DA = OptimizerFormula(
    _adagrad_da,
    ["var", "gradient_accumulator", "gradient_squared_accumulator"],
    ["grad", "lr", "l1", "l2", "global_step"],
)
_ADAGRAD_DA_SAMPLES = step_samples(ANY, ANY, POSITIVE, ANY, 0.25, 0.125, 0.25, 3)


@by_reference("ApplyAdagradDA", ADAGRAD_DA, _ADAGRAD_DA_SAMPLES)
def apply_adagrad_da(
    var,
    gradient_accumulator,
    gradient_squared_accumulator,
    grad,
    lr,
    l1,
    l2,
    global_step,
    use_locking=False,
    name=None,
):
    """Set a variable from the sums of all gradients and of their squares: dual averaging."""


@by_handle("ResourceApplyAdagradDA", ADAGRAD_DA, _ADAGRAD_DA_SAMPLES)
def resource_apply_adagrad_da(
    var,
    gradient_accumulator,
    gradient_squared_accumulator,
    grad,
    lr,
    l1,
    l2,
    global_step,
    use_locking=False,
    name=None,
):
    """Set a variable from the sums of all gradients and of their squares: dual averaging."""


FTRL = OptimizerFormula(
    _ftrl, ["var", "accum", "linear"], ["grad", "lr", "l1", "l2", "lr_power"], limits=_LEADER
)
_FTRL_SAMPLES = step_samples(ANY, POSITIVE, _SMALL, ANY, 0.25, 0.5, 0.25, -0.5)


@by_reference("ApplyFtrl", FTRL, _FTRL_SAMPLES)
def apply_ftrl(var, accum, linear, grad, lr, l1, l2, lr_power, use_locking=False, name=None):
    """Follow the regularized leader."""


@by_handle("ResourceApplyFtrl", FTRL, _FTRL_SAMPLES)
def resource_apply_ftrl(
    var, accum, linear, grad, lr, l1, l2, lr_power, use_locking=False, name=None
):
    """Follow the regularized leader."""


FTRL_V2 = OptimizerFormula(
    _ftrl_v2,
    ["var", "accum", "linear"],
    ["grad", "lr", "l1", "l2", "l2_shrinkage", "lr_power"],
    limits={**_LEADER, "l2_shrinkage": "non-negative"},
)
_FTRL_V2_SAMPLES = step_samples(ANY, POSITIVE, _SMALL, ANY, 0.25, 0.5, 0.25, 0.125, -0.5)


@by_reference("ApplyFtrlV2", FTRL_V2, _FTRL_V2_SAMPLES)
def apply_ftrl_v2(
    var, accum, linear, grad, lr, l1, l2, l2_shrinkage, lr_power, use_locking=False, name=None
):
    """As ApplyFtrl, with an L2 penalty that is also added to the gradient."""


@by_handle("ResourceApplyFtrlV2", FTRL_V2, _FTRL_V2_SAMPLES)
def resource_apply_ftrl_v2(
    var, accum, linear, grad, lr, l1, l2, l2_shrinkage, lr_power, use_locking=False, name=None
):
    """As ResourceApplyFtrl, with an L2 penalty that is also added to the gradient."""
