"""Adam: running means of gradients and of their squares, corrected for their start at zero.

The corrections are powers of the decay rates, kept in two variables that all updates share. Rows
without a gradient still move: their means decay like all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.control.grouping import group
from headrace._src.train.optimizers.optimizer import Optimizer

__all__ = ["AdamOptimizer"]


@export("train.AdamOptimizer")
class AdamOptimizer(Optimizer):
    """Step along the running mean of gradients (slot "m"), divided by the square root of the
    running mean of their squares ("v").
    """

    _use_nesterov = False

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon
        self._lr_t: Any = None
        self._beta1_t: Any = None
        self._beta2_t: Any = None
        self._epsilon_t: Any = None

    def _get_beta_accumulators(self) -> tuple[Any, Any]:
        """The variables that hold the powers of beta1 and beta2."""
        first = self._get_non_slot_variable("beta1_power")
        return first, self._get_non_slot_variable("beta2_power")

    def _create_slots(self, var_list: list[Any]) -> None:
        # The first by name, so that the graph doesn't depend on the order of the gradients.
        first = min(var_list, key=lambda v: v.name)
        self._create_non_slot_variable(
            self._call_if_callable(self._beta1), "beta1_power", colocate_with=first
        )
        self._create_non_slot_variable(
            self._call_if_callable(self._beta2), "beta2_power", colocate_with=first
        )
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _prepare(self) -> None:
        self._lr_t = convert_to_tensor(self._call_if_callable(self._lr), name="learning_rate")
        self._beta1_t = convert_to_tensor(self._call_if_callable(self._beta1), name="beta1")
        self._beta2_t = convert_to_tensor(self._call_if_callable(self._beta2), name="beta2")
        self._epsilon_t = convert_to_tensor(self._call_if_callable(self._epsilon), name="epsilon")

    def _apply_dense(self, grad: Tensor, var: Any) -> Operation:
        m, v = self.get_slot(var, "m")._ref(), self.get_slot(var, "v")._ref()
        return self._step(b.apply_adam, (var._ref(), m, v), grad, var).op

    def _resource_apply_dense(self, grad: Tensor, var: Any) -> Operation:
        m, v = self.get_slot(var, "m").handle, self.get_slot(var, "v").handle
        return self._step(b.resource_apply_adam, (var.handle, m, v), grad, var)

    def _step(self, apply: Any, variables: tuple[Any, ...], grad: Tensor, var: Any) -> Any:
        numbers = (*self._get_beta_accumulators(), self._lr_t)
        numbers = (*numbers, self._beta1_t, self._beta2_t, self._epsilon_t)
        dtype = var.dtype.base_dtype
        scalars = [b.cast(x, dtype) for x in numbers]
        return apply(
            *variables,
            *scalars,
            grad,
            use_locking=self._use_locking,
            use_nesterov=self._use_nesterov,
        )

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Operation:
        def add(slot: Any, indices: Any, rows: Any) -> Any:
            return b.scatter_add(slot, indices, rows, use_locking=self._use_locking)

        return self._step_rows(grad.values, var, grad.indices, add)

    def _resource_apply_sparse(self, grad: Tensor, var: Any, indices: Tensor) -> Operation:
        def add(slot: Any, indices: Any, rows: Any) -> Any:
            with get_default_graph().control_dependencies(
                [b.resource_scatter_add(slot.handle, indices, rows)]
            ):
                return slot.value()

        return self._step_rows(grad, var, indices, add)

    def _step_rows(
        self, grad: Tensor, var: Any, indices: Tensor, add: Callable[..., Any]
    ) -> Operation:
        """Decay all of the means, add the rows' gradients, then update the whole variable.

        `add(slot, indices, rows)` returns the slot's value with the rows added.
        """
        rate, beta1, beta2, epsilon = self._scalars(var)
        rows = grad * (1 - beta1)
        m = self._faded(self.get_slot(var, "m"), beta1, indices, rows, add)
        rows = grad * grad * (1 - beta2)
        v = self._faded(self.get_slot(var, "v"), beta2, indices, rows, add)
        root = b.sqrt(v)
        moved = b.assign_sub(var, rate * m / (root + epsilon), use_locking=self._use_locking)
        return group(moved, m, v)

    def _scalars(self, var: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the corrected learning rate, beta1, beta2 and epsilon, in a variable's dtype."""
        dtype = var.dtype.base_dtype
        beta1_power, beta2_power = (b.cast(p, dtype) for p in self._get_beta_accumulators())
        lr, beta1, beta2, epsilon = (
            b.cast(x, dtype) for x in (self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        )
        return lr * b.sqrt(1 - beta2_power) / (1 - beta1_power), beta1, beta2, epsilon

    def _faded(
        self, slot: Any, beta: Tensor, indices: Tensor, rows: Tensor, add: Callable[..., Any]
    ) -> Any:
        """Return a slot's value after it was decayed by `beta` and `rows` were added."""
        faded = b.assign(slot, slot * beta, use_locking=self._use_locking)
        with get_default_graph().control_dependencies([faded.op]):
            return add(slot, indices, rows)

    def _finish(self, update_ops: list[Any], name_scope: str) -> Operation:
        graph = get_default_graph()
        with graph.control_dependencies(update_ops):
            first, second = self._get_beta_accumulators()
            with graph.colocate_with(first):
                raised = [
                    power.assign(power * beta, use_locking=self._use_locking)
                    for power, beta in ((first, self._beta1_t), (second, self._beta2_t))
                ]
        return group(*update_ops, *raised, name=name_scope)
