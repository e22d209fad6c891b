"""Optimizers of tf.contrib.opt that wrap another one: one keeps averages of the variables, one
clips the variables' norms after each step.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.control.grouping import group
from headrace._src.train.optimizers.moving_averages import ExponentialMovingAverage
from headrace._src.train.optimizers.optimizer import Optimizer
from headrace._src.train.optimizers.optimizer_wrapper import OptimizerWrapper
from headrace._src.train.saving.saveables import by_name, name_and_value
from headrace._src.train.saving.saver import Saver
from headrace._src.variables.collections import global_variables

__all__ = [
    "MovingAverageOptimizer",
    "VariableClippingOptimizer",
    "clip_gradients_by_global_norm",
]


@export("contrib.opt.MovingAverageOptimizer")
class MovingAverageOptimizer(OptimizerWrapper):
    """An optimizer that also keeps moving averages of the variables that it trains, and makes
    savers that store the averages under the variables' names: restoring such a checkpoint gives the
    averages.

    sequential_update    whether averages are updated after the step, or may see the values before
                         it
    """

    def __init__(
        self,
        opt: Optimizer,
        average_decay: Any = 0.9999,
        num_updates: Any = None,
        sequential_update: bool = True,
    ) -> None:
        super().__init__(opt)
        self._ema = ExponentialMovingAverage(average_decay, num_updates=num_updates)
        self._sequential_update = sequential_update
        self._averaged: list[Any] = []

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Operation:
        """Return an operation that takes the wrapped optimizer's step and updates averages."""
        pairs = list(grads_and_vars)
        step = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        self._averaged = [v for g, v in pairs if g is not None]
        first = [step] if self._sequential_update else []
        with get_default_graph().control_dependencies(first):
            averaged = self._ema.apply(self._averaged)
        return group(step, averaged, name="train_with_avg")

    def swapping_saver(
        self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any
    ) -> Saver:
        """Return a Saver of `var_list` (all global variables by default), in which a variable and
        its average have swapped names. `kwargs` are passed to Saver.
        """
        if not self._averaged:
            raise RuntimeError(
                "Must call apply_gradients or minimize before creating the swapping_saver"
            )
        given = global_variables() if var_list is None else var_list
        saved = dict(given) if isinstance(given, Mapping) else by_name(given)
        # By names: parts of a partitioned variable share one.
        swapped = {_stored_name(v): _stored_name(self._ema.average(v)) for v in self._averaged}
        for stored in (*swapped, *swapped.values()):
            if stored not in saved:
                raise ValueError(
                    f"Variable to swap {stored} is not part of variables to save. This breaks "
                    "MovingAverageOptimizer."
                )
        for one, other in swapped.items():
            saved[one], saved[other] = saved[other], saved[one]
        return Saver(saved, name=name, **kwargs)


def _stored_name(var: Any) -> str:
    return name_and_value(var)[0]


@export("contrib.opt.VariableClippingOptimizer")
class VariableClippingOptimizer(OptimizerWrapper):
    """An optimizer that clips the norms of variables to `max_norm` after each step.

    vars_to_clip_dims    variables, each with the axes over which its norms are taken
    colocate_clip_ops_with_vars    whether the clipping runs where the variable is

    After a sparse gradient, only its rows are clipped, unless the norms are taken over axis 0.
    """

    def __init__(
        self,
        opt: Optimizer,
        vars_to_clip_dims: Mapping[Any, Sequence[int]],
        max_norm: float,
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:
        super().__init__(opt, use_locking, name)
        self._dims = {var: list(dims) for var, dims in vars_to_clip_dims.items()}
        self._max_norm = max_norm
        self._colocate = colocate_clip_ops_with_vars

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Operation:
        """Return an operation that takes the wrapped optimizer's step, then clips."""
        pairs = list(grads_and_vars)
        with name_scope(name, self._name) as scope:
            step = self._optimizer.apply_gradients(pairs, global_step=global_step)
            clipped = []
            with get_default_graph().control_dependencies([step]):
                for gradient, var in pairs:
                    if gradient is not None and var in self._dims:
                        with name_scope(f"clip_{var.op.name}"):
                            clipped.append(self._clip(gradient, var))
            return group(step, *clipped, name=scope)

    def _clip(self, gradient: Any, var: Any) -> Operation:
        if not isinstance(gradient, IndexedSlices):
            return self._clip_all(var)
        if 0 in self._dims[var]:
            logging.getLogger("headrace").warning(
                "Clipping norms of %s over axis 0 goes over all of it, though gradients are of "
                "rows.",
                var.op.name,
            )
            return self._clip_all(var)
        return self._clip_rows(var, gradient.indices)

    def _clip_all(self, var: Any) -> Operation:
        with get_default_graph().colocate_with(var):
            value = var.read_value()
        with self._beside(var):
            excess = value - b.clip_by_norm(value, self._max_norm, self._dims[var])
        return b.assign_sub(var, excess, use_locking=self._use_locking).op

    def _clip_rows(self, var: Any, indices: Any) -> Operation:
        with get_default_graph().colocate_with(var):
            rows = b.gather(var.read_value(), indices)
        with self._beside(var):
            clipped = b.clip_by_norm(rows, self._max_norm, self._dims[var])
        return b.scatter_update(var, indices, clipped, use_locking=self._use_locking).op

    def _beside(self, var: Any) -> AbstractContextManager[Any]:
        return get_default_graph().colocate_with(var) if self._colocate else nullcontext()


@export("contrib.opt.clip_gradients_by_global_norm")
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Any, Any]], clip_norm: Any = 20.0
) -> list[tuple[Any, Any]]:
    """Return (gradient, variable) pairs whose gradients together have at most this norm."""
    pairs = list(gradients_variables)
    clipped, _ = b.clip_by_global_norm([g for g, _ in pairs], clip_norm)
    return list(zip(clipped, (v for _, v in pairs), strict=True))
