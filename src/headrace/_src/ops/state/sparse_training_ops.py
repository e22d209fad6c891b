"""One step of an optimizer for gradients of some rows of a variable: the formulas of training_ops
and proximal_training_ops, applied only to these rows of the variable and its slots.
"""

from __future__ import annotations

from typing import Any

from headrace._src.graph.definition import Sample
from headrace._src.ops.base.samples import r, typed
from headrace._src.ops.state.optimizer_formulas import (
    OptimizerFormula,
    by_handle,
    by_reference,
    of_rows,
)
from headrace._src.ops.state.proximal_training_ops import (
    ADAGRAD_DA,
    FTRL,
    FTRL_V2,
    PROXIMAL_ADAGRAD,
    PROXIMAL_DESCENT,
)
from headrace._src.ops.state.training_ops import (
    ADADELTA,
    ADAGRAD,
    ADAGRAD_V2,
    ANY,
    CENTERED,
    FLOATS,
    KERAS,
    MOMENTUM,
    POSITIVE,
    RMS_PROP,
)

__all__ = ["sparse_apply_adagrad", "sparse_apply_ftrl", "sparse_apply_momentum"]


def _samples(o: OptimizerFormula, *inputs: Any, **options: Any) -> list[Sample]:
    """Return samples without options and with each, with a row that occurs twice; a dict maps names
    to arrays. Inputs are those of the formula: the row numbers follow the gradient.
    """
    given: list[Any] = []
    for name, value in zip((*o.variables, *o.operands), inputs, strict=True):
        array = r(3, 2, **value) if isinstance(value, dict) else value
        given += [array, [2, 0, 2]] if name in ("grad", "delta") else [array]
    ways: list[dict[str, Any]] = [{}, *({k: v} for k, v in options.items())]
    return typed([Sample(*given, **way) for way in ways], *FLOATS)


_SMALL = {"low": -0.5, "high": 0.5}
_LARGE = {"low": 1.0, "high": 2.0}

_ADADELTA = of_rows(ADADELTA)
_ADADELTA_SAMPLES = _samples(ADADELTA, ANY, POSITIVE, POSITIVE, 0.25, 0.9, 0.01, ANY)


@by_reference("SparseApplyAdadelta", _ADADELTA, _ADADELTA_SAMPLES)
def sparse_apply_adadelta(
    var, accum, accum_update, lr, rho, epsilon, grad, indices, use_locking=False, name=None
):
    """As ApplyAdadelta, for some rows."""


@by_handle("ResourceSparseApplyAdadelta", _ADADELTA, _ADADELTA_SAMPLES)
def resource_sparse_apply_adadelta(
    var, accum, accum_update, lr, rho, epsilon, grad, indices, use_locking=False, name=None
):
    """As ResourceApplyAdadelta, for some rows."""


_ADAGRAD = of_rows(ADAGRAD)
_ADAGRAD_SAMPLES = _samples(ADAGRAD, ANY, POSITIVE, 0.25, ANY, update_slots=False)


@by_reference("SparseApplyAdagrad", _ADAGRAD, _ADAGRAD_SAMPLES)
def sparse_apply_adagrad(
    var, accum, lr, grad, indices, use_locking=False, update_slots=True, name=None
):
    """As ApplyAdagrad, for some rows."""


@by_handle("ResourceSparseApplyAdagrad", _ADAGRAD, _ADAGRAD_SAMPLES)
def resource_sparse_apply_adagrad(
    var, accum, lr, grad, indices, use_locking=False, update_slots=True, name=None
):
    """As ResourceApplyAdagrad, for some rows."""


_ADAGRAD_V2 = of_rows(ADAGRAD_V2)
_ADAGRAD_V2_SAMPLES = _samples(ADAGRAD_V2, ANY, POSITIVE, 0.25, 0.01, ANY, update_slots=False)


@by_reference("SparseApplyAdagradV2", _ADAGRAD_V2, _ADAGRAD_V2_SAMPLES)
def sparse_apply_adagrad_v2(
    var, accum, lr, epsilon, grad, indices, use_locking=False, update_slots=True, name=None
):
    """As ApplyAdagradV2, for some rows."""


@by_handle("ResourceSparseApplyAdagradV2", _ADAGRAD_V2, _ADAGRAD_V2_SAMPLES)
def resource_sparse_apply_adagrad_v2(
    var, accum, lr, epsilon, grad, indices, use_locking=False, update_slots=True, name=None
):
    """As ResourceApplyAdagradV2, for some rows."""


_ADAGRAD_DA = of_rows(ADAGRAD_DA)
_ADAGRAD_DA_SAMPLES = _samples(ADAGRAD_DA, ANY, ANY, POSITIVE, ANY, 0.25, 0.125, 0.25, 3)


@by_reference("SparseApplyAdagradDA", _ADAGRAD_DA, _ADAGRAD_DA_SAMPLES)
def sparse_apply_adagrad_da(
    var,
    gradient_accumulator,
    gradient_squared_accumulator,
    grad,
    indices,
    lr,
    l1,
    l2,
    global_step,
    use_locking=False,
    name=None,
):
    """As ApplyAdagradDA, for some rows."""


@by_handle("ResourceSparseApplyAdagradDA", _ADAGRAD_DA, _ADAGRAD_DA_SAMPLES)
def resource_sparse_apply_adagrad_da(
    var,
    gradient_accumulator,
    gradient_squared_accumulator,
    grad,
    indices,
    lr,
    l1,
    l2,
    global_step,
    use_locking=False,
    name=None,
):
    """As ResourceApplyAdagradDA, for some rows."""


_CENTERED = of_rows(CENTERED)
_CENTERED_SAMPLES = _samples(CENTERED, ANY, _SMALL, _LARGE, ANY, 0.25, 0.9, 0.8, 0.01, ANY)


@by_reference("SparseApplyCenteredRMSProp", _CENTERED, _CENTERED_SAMPLES)
def sparse_apply_centered_rms_prop(
    var, mg, ms, mom, lr, rho, momentum, epsilon, grad, indices, use_locking=False, name=None
):
    """As ApplyCenteredRMSProp, for some rows."""


@by_handle("ResourceSparseApplyCenteredRMSProp", _CENTERED, _CENTERED_SAMPLES)
def resource_sparse_apply_centered_rms_prop(
    var, mg, ms, mom, lr, rho, momentum, epsilon, grad, indices, use_locking=False, name=None
):
    """As ResourceApplyCenteredRMSProp, for some rows."""


_FTRL = of_rows(FTRL)
_FTRL_SAMPLES = _samples(FTRL, ANY, POSITIVE, _SMALL, ANY, 0.25, 0.5, 0.25, -0.5)


@by_reference("SparseApplyFtrl", _FTRL, _FTRL_SAMPLES)
def sparse_apply_ftrl(
    var, accum, linear, grad, indices, lr, l1, l2, lr_power, use_locking=False, name=None
):
    """As ApplyFtrl, for some rows."""


@by_handle("ResourceSparseApplyFtrl", _FTRL, _FTRL_SAMPLES)
def resource_sparse_apply_ftrl(
    var, accum, linear, grad, indices, lr, l1, l2, lr_power, use_locking=False, name=None
):
    """As ResourceApplyFtrl, for some rows."""


_FTRL_V2 = of_rows(FTRL_V2)
_FTRL_V2_SAMPLES = _samples(FTRL_V2, ANY, POSITIVE, _SMALL, ANY, 0.25, 0.5, 0.25, 0.125, -0.5)


@by_reference("SparseApplyFtrlV2", _FTRL_V2, _FTRL_V2_SAMPLES)
def sparse_apply_ftrl_v2(
    var,
    accum,
    linear,
    grad,
    indices,
    lr,
    l1,
    l2,
    l2_shrinkage,
    lr_power,
    use_locking=False,
    name=None,
):
    """As ApplyFtrlV2, for some rows."""


@by_handle("ResourceSparseApplyFtrlV2", _FTRL_V2, _FTRL_V2_SAMPLES)
def resource_sparse_apply_ftrl_v2(
    var,
    accum,
    linear,
    grad,
    indices,
    lr,
    l1,
    l2,
    l2_shrinkage,
    lr_power,
    use_locking=False,
    name=None,
):
    """As ResourceApplyFtrlV2, for some rows."""


_KERAS = of_rows(KERAS)
_KERAS_SAMPLES = _samples(KERAS, ANY, ANY, 0.25, ANY, 0.9, use_nesterov=True)


@by_handle("ResourceSparseApplyKerasMomentum", _KERAS, _KERAS_SAMPLES)
def resource_sparse_apply_keras_momentum(
    var, accum, lr, grad, indices, momentum, use_locking=False, use_nesterov=False, name=None
):
    """As ResourceApplyKerasMomentum, for some rows."""


_MOMENTUM = of_rows(MOMENTUM)
_MOMENTUM_SAMPLES = _samples(MOMENTUM, ANY, ANY, 0.25, ANY, 0.9, use_nesterov=True)


@by_reference("SparseApplyMomentum", _MOMENTUM, _MOMENTUM_SAMPLES)
def sparse_apply_momentum(
    var, accum, lr, grad, indices, momentum, use_locking=False, use_nesterov=False, name=None
):
    """As ApplyMomentum, for some rows."""


@by_handle("ResourceSparseApplyMomentum", _MOMENTUM, _MOMENTUM_SAMPLES)
def resource_sparse_apply_momentum(
    var, accum, lr, grad, indices, momentum, use_locking=False, use_nesterov=False, name=None
):
    """As ResourceApplyMomentum, for some rows."""


_PROXIMAL_ADAGRAD = of_rows(PROXIMAL_ADAGRAD)
_PROXIMAL_ADAGRAD_SAMPLES = _samples(PROXIMAL_ADAGRAD, ANY, POSITIVE, 0.25, 0.5, 0.25, ANY)


@by_reference("SparseApplyProximalAdagrad", _PROXIMAL_ADAGRAD, _PROXIMAL_ADAGRAD_SAMPLES)
def sparse_apply_proximal_adagrad(
    var, accum, lr, l1, l2, grad, indices, use_locking=False, name=None
):
    """As ApplyProximalAdagrad, for some rows."""


@by_handle("ResourceSparseApplyProximalAdagrad", _PROXIMAL_ADAGRAD, _PROXIMAL_ADAGRAD_SAMPLES)
def resource_sparse_apply_proximal_adagrad(
    var, accum, lr, l1, l2, grad, indices, use_locking=False, name=None
):
    """As ResourceApplyProximalAdagrad, for some rows."""


_PROXIMAL_DESCENT = of_rows(PROXIMAL_DESCENT)
_PROXIMAL_DESCENT_SAMPLES = _samples(PROXIMAL_DESCENT, ANY, 0.25, 0.5, 0.25, ANY)


@by_reference("SparseApplyProximalGradientDescent", _PROXIMAL_DESCENT, _PROXIMAL_DESCENT_SAMPLES)
def sparse_apply_proximal_gradient_descent(
    var, alpha, l1, l2, grad, indices, use_locking=False, name=None
):
    """As ApplyProximalGradientDescent, for some rows."""


@by_handle(
    "ResourceSparseApplyProximalGradientDescent", _PROXIMAL_DESCENT, _PROXIMAL_DESCENT_SAMPLES
)
def resource_sparse_apply_proximal_gradient_descent(
    var, alpha, l1, l2, grad, indices, use_locking=False, name=None
):
    """As ResourceApplyProximalGradientDescent, for some rows."""


_RMS_PROP = of_rows(RMS_PROP)
_RMS_PROP_SAMPLES = _samples(RMS_PROP, ANY, POSITIVE, ANY, 0.25, 0.9, 0.8, 0.01, ANY)


@by_reference("SparseApplyRMSProp", _RMS_PROP, _RMS_PROP_SAMPLES)
def sparse_apply_rms_prop(
    var, ms, mom, lr, rho, momentum, epsilon, grad, indices, use_locking=False, name=None
):
    """As ApplyRMSProp, for some rows."""


@by_handle("ResourceSparseApplyRMSProp", _RMS_PROP, _RMS_PROP_SAMPLES)
def resource_sparse_apply_rms_prop(
    var, ms, mom, lr, rho, momentum, epsilon, grad, indices, use_locking=False, name=None
):
    """As ResourceApplyRMSProp, for some rows."""
