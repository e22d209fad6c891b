"""Optimizers for large batches: each variable's step is scaled by its norm (LARS, You et al. 2017;
LAMB, You et al. 2020), so that no layer moves much faster than the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.control.grouping import group
from headrace._src.train.optimizers.adam import AdamOptimizer
from headrace._src.train.optimizers.optimizer import Optimizer

__all__ = ["LAMBOptimizer", "LARSOptimizer"]


def _ratio(weights: Tensor, step: Tensor, ratio: Tensor) -> Tensor:
    """Return the `ratio` of two norms; 1 where one of them is zero, so that the variable still
    moves.
    """
    return b.where(b.greater(weights, 0.0), b.where(b.greater(step, 0.0), ratio, 1.0), 1.0)


@export("contrib.opt.LARSOptimizer")
class LARSOptimizer(Optimizer):
    """Momentum whose learning rate, per variable, is scaled by eeta * |var| / (|grad| +
    weight_decay * |var| + epsilon), with weight_decay * var added to the gradient.

    skip_list    substrings of names: variables whose name contains one get the plain rate and no
                 decay, as is usual for biases and normalisation parameters
    Sparse gradients are applied with plain momentum, as in TensorFlow 1.15.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any = 0.9,
        weight_decay: float = 0.0001,
        eeta: float = 0.001,
        epsilon: float = 0.0,
        name: str = "LARSOptimizer",
        skip_list: Sequence[str] | None = None,
        use_nesterov: bool = False,
    ) -> None:
        if momentum < 0.0:
            raise ValueError(f"momentum should be positive: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"weight_decay should be positive: {weight_decay}")
        super().__init__(use_locking=False, name=name)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._eeta = eeta
        self._epsilon = epsilon
        self._skip_list = skip_list
        self._use_nesterov = use_nesterov
        self._learning_rate_tensor: Any = None
        self._momentum_tensor: Any = None

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "momentum", self._name)

    def _prepare(self) -> None:
        rate = self._call_if_callable(self._learning_rate)
        self._learning_rate_tensor = convert_to_tensor(rate, name="learning_rate")
        momentum = self._call_if_callable(self._momentum)
        self._momentum_tensor = convert_to_tensor(momentum, name="momentum")

    def compute_lr(self, grad: Tensor, var: Any) -> tuple[Any, Tensor]:
        """Return the learning rate of a variable, and its gradient with the weight decay in it."""
        rate = self._call_if_callable(self._learning_rate)
        if self._skip_list is not None and any(part in var.name for part in self._skip_list):
            return rate, grad
        weights, step = b.norm(var), b.norm(grad)
        bound = step + self._weight_decay * weights + self._epsilon
        ratio = _ratio(weights, step, self._eeta * weights / bound)
        return rate * ratio, grad + self._weight_decay * var

    def _apply_dense(self, grad: Tensor, var: Any) -> Operation:
        slot = self.get_slot(var, "momentum")
        return self._step(b.apply_momentum, var._ref(), slot._ref(), grad, var).op

    def _resource_apply_dense(self, grad: Tensor, var: Any) -> Operation:
        slot = self.get_slot(var, "momentum")
        return self._step(b.resource_apply_momentum, var.handle, slot.handle, grad, var)

    def _step(self, apply: Callable[..., Any], target: Any, slot: Any, grad: Tensor, var: Any):
        rate, pull = self.compute_lr(grad, var)
        dtype = var.dtype.base_dtype
        # The rate is part of the accumulated value, since it changes from step to step.
        return apply(
            target,
            slot,
            b.cast(1.0, dtype),
            pull * b.cast(rate, dtype),
            b.cast(self._momentum_tensor, dtype),
            use_locking=False,
            use_nesterov=self._use_nesterov,
        )

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Operation:
        slot = self.get_slot(var, "momentum")
        rows = grad.values, grad.indices
        return self._step_rows(b.sparse_apply_momentum, var._ref(), slot._ref(), rows, var).op

    def _resource_apply_sparse(self, grad: Tensor, var: Any, indices: Tensor) -> Operation:
        slot, rows = self.get_slot(var, "momentum"), (grad, indices)
        return self._step_rows(b.resource_sparse_apply_momentum, var.handle, slot.handle, rows, var)

    def _step_rows(
        self, apply: Callable[..., Any], target: Any, slot: Any, rows: Sequence[Tensor], var: Any
    ) -> Any:
        dtype = var.dtype.base_dtype
        return apply(
            target,
            slot,
            b.cast(self._learning_rate_tensor, dtype),
            *rows,
            b.cast(self._momentum_tensor, dtype),
            use_locking=False,
            use_nesterov=self._use_nesterov,
        )


@export("contrib.opt.LAMBOptimizer")
class LAMBOptimizer(AdamOptimizer):
    """Adam's bias-corrected step plus `weight_decay_rate` * var; per variable, it is rescaled to
    the variable's norm, then multiplied by the learning rate.

    exclude_from_weight_decay       patterns (of `re.search`) of names of variables without decay
    exclude_from_layer_adaptation   patterns of variables whose step isn't rescaled;
                                    exclude_from_weight_decay by default
    Headrace's own: TensorFlow 1.15 has none. A sparse gradient is applied as the dense gradient
    would be, since norms are of whole variables.
    """

    def __init__(
        self,
        learning_rate: Any,
        weight_decay_rate: Any = 0.0,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-6,
        exclude_from_weight_decay: Sequence[str] | None = None,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        use_locking: bool = False,
        name: str = "LAMB",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)
        self._weight_decay_rate = weight_decay_rate
        self._undecayed = list(exclude_from_weight_decay or ())
        given = exclude_from_layer_adaptation
        self._unscaled = self._undecayed if given is None else list(given)

    def _apply_dense(self, grad: Tensor, var: Any) -> Operation:
        return self._step_whole(grad, var)

    def _resource_apply_dense(self, grad: Tensor, var: Any) -> Operation:
        return self._step_whole(grad, var)

    def _step_whole(self, grad: Tensor, var: Any) -> Operation:
        _, beta1, beta2, _ = self._scalars(var)
        m_slot, v_slot = self.get_slot(var, "m"), self.get_slot(var, "v")
        m = m_slot * beta1 + grad * (1 - beta1)
        v = v_slot * beta2 + b.square(grad) * (1 - beta2)
        locking = self._use_locking
        kept = [
            b.assign(m_slot, m, use_locking=locking).op,
            b.assign(v_slot, v, use_locking=locking).op,
        ]
        return group(*kept, self._move(var, m, v))

    def _step_rows(
        self, grad: Tensor, var: Any, indices: Tensor, add: Callable[..., Any]
    ) -> Operation:
        _, beta1, beta2, _ = self._scalars(var)
        m = self._faded(self.get_slot(var, "m"), beta1, indices, grad * (1 - beta1), add)
        rows = b.square(grad) * (1 - beta2)
        v = self._faded(self.get_slot(var, "v"), beta2, indices, rows, add)
        return group(self._move(var, m, v), m, v)

    def _move(self, var: Any, m: Tensor, v: Tensor) -> Operation:
        """Update a variable from its new running means m and v."""
        dtype = var.dtype.base_dtype
        powers = (b.cast(power, dtype) for power in self._get_beta_accumulators())
        m, v = (mean / (1 - power) for mean, power in zip((m, v), powers, strict=True))
        step = m / (b.sqrt(v) + b.cast(self._epsilon_t, dtype))
        if not _matches(self._undecayed, var):
            decay = self._call_if_callable(self._weight_decay_rate)
            step += b.cast(decay, dtype) * var
        rate = b.cast(self._lr_t, dtype)
        if not _matches(self._unscaled, var):
            weights, length = b.norm(var), b.norm(step)
            rate *= _ratio(weights, length, weights / length)
        return b.assign_sub(var, rate * step, use_locking=self._use_locking).op


def _matches(patterns: Sequence[str], var: Any) -> bool:
    return any(re.search(pattern, var.op.name) for pattern in patterns)
