"""Gradient accumulation: one update per several micro-batches, for batches that don't fit at once.

In: an optimizer, and how many gradients make an update. Out: an optimizer whose operation adds up
the gradients of the micro-batches and, after that many runs, hands their mean to the wrapped
optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.control.grouping import group
from headrace._src.train.optimizers.optimizer import Optimizer

__all__ = ["AccumulatingOptimizer"]


@export("contrib.opt.AccumulatingOptimizer")
class AccumulatingOptimizer(Optimizer):
    """Let `optimizer` take one step with the mean of `steps` gradients; `global_step` counts these
    steps.

    Sums are kept in slots of the variables' shapes, so the wrapped optimizer sees dense gradients
    even where the micro-batches have sparse ones.
    """

    def __init__(
        self, optimizer: Optimizer, steps: int, use_locking: bool = False, name: str = "Accumulated"
    ) -> None:
        super().__init__(use_locking, name)
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer is not a tf.train.Optimizer: {optimizer}")
        if steps < 1:
            raise ValueError(f"steps must be positive: {steps}")
        self._optimizer = optimizer
        self._steps = steps

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the result of the wrapped optimizer's compute_gradients."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def variables(self) -> list[Any]:
        """Return the variables of this optimizer and of the wrapped one."""
        return sorted([*super().variables(), *self._optimizer.variables()], key=lambda v: v.name)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Operation:
        """Return an operation that adds up gradients and applies their mean every `steps` runs."""
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        if not pairs:
            raise ValueError("No gradients provided for any variable.")
        graph = get_default_graph()
        variables = [v for _, v in pairs]
        with graph.control_dependencies(None):
            # Created here, not in the branch below: a branch's variables exist only inside it.
            self._optimizer._create_slots(variables)
            self._create_slots(variables)
        count = self._get_non_slot_variable("micro_step")
        with name_scope(name, self._name) as scope:
            added = [self._add(g, self.get_slot(v, "sum")) for g, v in pairs]
            with graph.control_dependencies(added):
                number = b.assign_add(count, 1, use_locking=self._use_locking)
            done = b.equal(number % self._steps, 0)
            updated = b.cond(
                done, lambda: self._apply_mean(variables, global_step), lambda: b.constant(False)
            )
            return group(updated, name=scope)

    def _create_slots(self, var_list: list[Any]) -> None:
        first = min(var_list, key=lambda v: v.name)
        start = b.constant(0, dtypes.int64)
        self._create_non_slot_variable(start, "micro_step", colocate_with=first)
        for var in var_list:
            self._zeros_slot(var, "sum", self._name)

    def _add(self, gradient: Any, total: Any) -> Operation:
        locking = self._use_locking
        if isinstance(gradient, IndexedSlices):
            return b.scatter_add(total, gradient.indices, gradient.values, use_locking=locking).op
        return b.assign_add(total, gradient, use_locking=locking).op

    def _apply_mean(self, variables: list[Any], global_step: Any) -> Any:
        graph = get_default_graph()
        totals = [self.get_slot(v, "sum") for v in variables]
        means = [total.read_value() / self._steps for total in totals]
        pairs = zip(means, variables, strict=True)
        with graph.control_dependencies([self._optimizer.apply_gradients(pairs, global_step)]):
            cleared = [b.assign(total, b.zeros_like(total)).op for total in totals]
        with graph.control_dependencies(cleared):
            return b.constant(True)
