"""One gradient step, longer where the gradient's sign agrees with that of its running mean (Neural
Optimizer Search, Bello et al. 2017).
"""

from __future__ import annotations

from typing import Any

from headrace._src.ops.state.optimizer_formulas import OptimizerFormula, by_handle, by_reference
from headrace._src.ops.state.training_ops import ANY, step_samples

__all__ = ["apply_add_sign", "apply_power_sign"]


def _mean_and_agreement(e: Any, m: Any, beta: Any, grad: Any) -> tuple[Any, Any]:
    """Return the new running mean, and 1 where it has the gradient's sign, -1 where it doesn't."""
    m = m * beta + grad * (1 - beta)
    return m, e.sign(grad) * e.sign(m)


def _add_sign(
    e: Any, var: Any, m: Any, lr: Any, alpha: Any, sign_decay: Any, beta: Any, grad: Any
) -> Any:
    m, agreement = _mean_and_agreement(e, m, beta, grad)
    return var - lr * (alpha + sign_decay * agreement) * grad, m


def _power_sign(
    e: Any, var: Any, m: Any, lr: Any, logbase: Any, sign_decay: Any, beta: Any, grad: Any
) -> Any:
    m, agreement = _mean_and_agreement(e, m, beta, grad)
    return var - lr * e.exp(logbase * sign_decay * agreement) * grad, m


_ADD_SIGN = OptimizerFormula(_add_sign, ["var", "m"], ["lr", "alpha", "sign_decay", "beta", "grad"])
_POWER_SIGN = OptimizerFormula(
    _power_sign, ["var", "m"], ["lr", "logbase", "sign_decay", "beta", "grad"]
)
_SAMPLES = step_samples(ANY, ANY, 0.25, 0.5, 0.75, 0.9, ANY)


@by_reference("ApplyAddSign", _ADD_SIGN, _SAMPLES)
def apply_add_sign(var, m, lr, alpha, sign_decay, beta, grad, use_locking=False, name=None):
    """Subtract lr * (alpha + sign_decay * agreement) * grad; m is the gradients' running mean."""


@by_handle("ResourceApplyAddSign", _ADD_SIGN, _SAMPLES)
def resource_apply_add_sign(
    var, m, lr, alpha, sign_decay, beta, grad, use_locking=False, name=None
):
    """Subtract lr * (alpha + sign_decay * agreement) * grad; m is the gradients' running mean."""


@by_reference("ApplyPowerSign", _POWER_SIGN, _SAMPLES)
def apply_power_sign(var, m, lr, logbase, sign_decay, beta, grad, use_locking=False, name=None):
    """Subtract lr * exp(logbase * sign_decay * agreement) * grad; m is the gradients' mean."""


@by_handle("ResourceApplyPowerSign", _POWER_SIGN, _SAMPLES)
def resource_apply_power_sign(
    var, m, lr, logbase, sign_decay, beta, grad, use_locking=False, name=None
):
    """Subtract lr * exp(logbase * sign_decay * agreement) * grad; m is the gradients' mean."""
