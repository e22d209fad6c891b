"""Adam's relatives, from tf.contrib.opt: AdaMax, Nadam, LazyAdam, and decoupled weight decay for
any optimizer.

For a sparse gradient, AdaMax and LazyAdam change only its rows of the variable and its slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace._src.core import nest
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.control.grouping import group
from headrace._src.train.optimizers.adam import AdamOptimizer
from headrace._src.train.optimizers.optimizer import Optimizer
from headrace._src.train.optimizers.step_optimizers import MomentumOptimizer

__all__ = [
    "AdaMaxOptimizer",
    "AdamWOptimizer",
    "DecoupledWeightDecayExtension",
    "LazyAdamOptimizer",
    "MomentumWOptimizer",
    "NadamOptimizer",
    "extend_with_decoupled_weight_decay",
]


@export("contrib.opt.AdaMaxOptimizer")
class AdaMaxOptimizer(AdamOptimizer):
    """Adam scaled by a decaying maximum of the gradients instead of the mean of their squares."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdaMax",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _create_slots(self, var_list: list[Any]) -> None:
        first = min(var_list, key=lambda v: v.name)
        self._create_non_slot_variable(
            self._call_if_callable(self._beta1), "beta1_power", colocate_with=first
        )
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _numbers(self, var: Any) -> list[Tensor]:
        """Return beta1's power, the learning rate, beta1, beta2 and epsilon, in the variable's
        dtype.
        """
        given = (self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        power = self._get_non_slot_variable("beta1_power")
        return [b.cast(x, var.dtype.base_dtype) for x in (power, *given)]

    def _step(self, apply: Any, variables: tuple[Any, ...], grad: Tensor, var: Any) -> Any:
        by_handle = apply is b.resource_apply_adam
        apply = b.resource_apply_ada_max if by_handle else b.apply_ada_max
        return apply(*variables, *self._numbers(var), grad, use_locking=self._use_locking)

    def _step_rows(
        self, grad: Tensor, var: Any, indices: Tensor, add: Callable[..., Any]
    ) -> Operation:
        power, lr, beta1, beta2, epsilon = self._numbers(var)
        m_slot, v_slot = self.get_slot(var, "m"), self.get_slot(var, "v")
        m = b.gather(m_slot, indices) * beta1 + grad * (1 - beta1)
        v = b.maximum(b.gather(v_slot, indices) * beta2, b.abs(grad))
        step = lr / (1 - power) * (m / (v + epsilon))
        return _write_rows(self, indices, (m_slot, m), (v_slot, v), (var, step))

    def _finish(self, update_ops: list[Any], name_scope: str) -> Operation:
        graph = get_default_graph()
        power = self._get_non_slot_variable("beta1_power")
        with graph.control_dependencies(update_ops), graph.colocate_with(power):
            raised = power.assign(power * self._beta1_t, use_locking=self._use_locking)
        return group(*update_ops, raised, name=name_scope)


@export("contrib.opt.NadamOptimizer")
class NadamOptimizer(AdamOptimizer):
    """Adam with Nesterov momentum: the newest gradient counts once more."""

    _use_nesterov = True

    def _step_rows(
        self, grad: Tensor, var: Any, indices: Tensor, add: Callable[..., Any]
    ) -> Operation:
        rate, beta1, beta2, epsilon = self._scalars(var)
        rows = grad * (1 - beta1)
        m = self._faded(self.get_slot(var, "m"), beta1, indices, rows, add)
        ahead = rows + beta1 * b.gather(m, indices)
        rows = grad * grad * (1 - beta2)
        v = self._faded(self.get_slot(var, "v"), beta2, indices, rows, add)
        root = b.sqrt(b.gather(v, indices))
        step = rate * ahead / (root + epsilon)
        moved = b.scatter_sub(var, indices, step, use_locking=self._use_locking)
        return group(moved.op, ahead, v)


@export("contrib.opt.LazyAdamOptimizer")
class LazyAdamOptimizer(AdamOptimizer):
    """Adam whose means of a row decay only when the row gets a gradient: faster on large tables, of
    which a step touches few rows.
    """

    def _step_rows(
        self, grad: Tensor, var: Any, indices: Tensor, add: Callable[..., Any]
    ) -> Operation:
        rate, beta1, beta2, epsilon = self._scalars(var)
        m_slot, v_slot = self.get_slot(var, "m"), self.get_slot(var, "v")
        m = beta1 * b.gather(m_slot, indices) + (1 - beta1) * grad
        v = beta2 * b.gather(v_slot, indices) + (1 - beta2) * b.square(grad)
        step = rate * m / (b.sqrt(v) + epsilon)
        return _write_rows(self, indices, (m_slot, m), (v_slot, v), (var, step))


def _write_rows(optimizer: Optimizer, indices: Tensor, *changes: tuple[Any, Tensor]) -> Operation:
    """Replace rows of slots, and subtract from rows of the variable, which is the last."""
    locking = optimizer._use_locking
    *slots, (var, step) = changes
    written = [b.scatter_update(slot, indices, x, use_locking=locking) for slot, x in slots]
    moved = b.scatter_sub(var, indices, step, use_locking=locking)
    return group(*(changed.op for changed in (*written, moved)))


# -- Weight decay ----------------------------------------------------------------------------------


@export("contrib.opt.DecoupledWeightDecayExtension")
class DecoupledWeightDecayExtension(Optimizer):
    """A mixin that goes before an optimizer's class and shrinks variables by `weight_decay` at
    every step, separately from the gradients: adaptive rates don't scale it, as they scale a
    penalty in the loss.

    `decay_var_list` names the variables to shrink: all that are trained, by default.
    """

    def __init__(self, weight_decay: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._weight_decay = weight_decay
        self._decayed: set[Any] | None = None

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
        decay_var_list: Any = None,
    ) -> Operation:
        """Return an operation that makes one step; see Optimizer.minimize."""
        self._decayed = _as_set(decay_var_list)
        return super().minimize(
            loss,
            global_step,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            name,
            grad_loss,
        )

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
        decay_var_list: Any = None,
    ) -> Operation:
        """Return an operation that updates variables; see Optimizer.apply_gradients."""
        if decay_var_list is not None:
            self._decayed = _as_set(decay_var_list)
        return super().apply_gradients(grads_and_vars, global_step, name)

    def _decay(self, var: Any, indices: Tensor | None = None) -> list[Operation]:
        """Shrink a variable, or rows of it; return the operations that the update must wait for."""
        if self._decayed is not None and var not in self._decayed:
            return []
        share = b.cast(self._call_if_callable(self._weight_decay), var.dtype.base_dtype)
        if indices is None:
            return [b.assign_sub(var, share * var, use_locking=self._use_locking).op]
        rows = share * b.gather(var, indices)
        return [b.scatter_sub(var, indices, rows, use_locking=self._use_locking).op]

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        with get_default_graph().control_dependencies(self._decay(var)):
            return super()._apply_dense(grad, var)

    def _resource_apply_dense(self, grad: Tensor, var: Any) -> Any:
        with get_default_graph().control_dependencies(self._decay(var)):
            return super()._resource_apply_dense(grad, var)

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        with get_default_graph().control_dependencies(self._decay(var, grad.indices)):
            return super()._apply_sparse(grad, var)

    def _resource_apply_sparse(self, grad: Tensor, var: Any, indices: Tensor) -> Any:
        with get_default_graph().control_dependencies(self._decay(var, indices)):
            return super()._resource_apply_sparse(grad, var, indices)


def _as_set(variables: Any) -> set[Any] | None:
    return None if variables is None else set(nest.flatten(variables))


@export("contrib.opt.extend_with_decoupled_weight_decay")
def extend_with_decoupled_weight_decay(base_optimizer: type[Optimizer]) -> type[Optimizer]:
    """Return an optimizer class with weight decay, whose first argument is `weight_decay`."""

    class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecayExtension, base_optimizer):  # type: ignore[misc,valid-type]
        """An optimizer with decoupled weight decay."""

    return OptimizerWithDecoupledWeightDecay


@export("contrib.opt.AdamWOptimizer")
class AdamWOptimizer(DecoupledWeightDecayExtension, AdamOptimizer):
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(
            weight_decay,
            learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
            use_locking=use_locking,
            name=name,
        )


@export("contrib.opt.MomentumWOptimizer")
class MomentumWOptimizer(DecoupledWeightDecayExtension, MomentumOptimizer):
    """Momentum with decoupled weight decay."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "MomentumW",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(
            weight_decay,
            learning_rate,
            momentum=momentum,
            use_locking=use_locking,
            name=name,
            use_nesterov=use_nesterov,
        )
