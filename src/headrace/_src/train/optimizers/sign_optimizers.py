"""Optimizers of tf.contrib.opt that take larger steps where the signs of the gradient and its
running mean agree (Neural Optimizer Search, Bello et al. 2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.control.grouping import group
from headrace._src.train.optimizers.step_optimizers import StepOptimizer

__all__ = ["AddSignOptimizer", "PowerSignOptimizer"]


class _SignOptimizer(StepOptimizer):
    """The base class of both: the slot "m", and the agreement's decay as a function of the global
    step.
    """

    _slot_arguments = (("m", "m"),)

    def __init__(
        self,
        use_locking: bool,
        name: str,
        settings: dict[str, Any],
        sign_decay_fn: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(use_locking, name, settings)
        self._sign_decay_fn = sign_decay_fn
        self._global_step: Any = None

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Operation:
        """Return an operation that updates variables; the sign's decay depends on `global_step`."""
        self._global_step = global_step
        return super().apply_gradients(grads_and_vars, global_step, name)

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "m", self._name)

    def _prepare(self) -> None:
        decay = 1.0 if self._sign_decay_fn is None else self._sign_decay_fn(self._global_step)
        self._settings["sign_decay"] = decay
        super()._prepare()

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Operation:
        return self._step_rows(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, var: Any, indices: Tensor) -> Operation:
        return self._step_rows(grad, var, indices)

    def _step_rows(self, grad: Tensor, var: Any, indices: Tensor) -> Operation:
        """Decay the whole mean; update the variable in the rows that have a gradient."""
        numbers = self._operands(var)
        slot, beta = self.get_slot(var, "m"), numbers["beta"]
        locking = self._use_locking
        faded = b.assign(slot, slot * beta, use_locking=locking)
        with get_default_graph().control_dependencies([faded.op]):
            mean = b.scatter_add(slot, indices, grad * (1 - beta), use_locking=locking)
        agreement = b.sign(b.gather(mean, indices)) * b.sign(grad)
        step = numbers["lr"] * self._stretch(numbers, agreement) * grad
        moved = b.scatter_sub(var, indices, step, use_locking=locking)
        return group(moved.op, mean.op)

    def _stretch(self, numbers: dict[str, Any], agreement: Tensor) -> Tensor:
        raise NotImplementedError


@export("contrib.opt.AddSignOptimizer")
class AddSignOptimizer(_SignOptimizer):
    """Step along (alpha + sign_decay * agreement) * grad. The agreement, the product of the signs
    of the gradient and of its running mean, which decays by `beta`, is 1, 0 or -1.

    sign_decay_fn    the factor of the agreement as a function of the global step; 1 by default
    """

    _step = "add_sign"
    _numbers = (
        ("lr", "learning_rate"),
        ("alpha", "alpha"),
        ("sign_decay", "sign_decay"),
        ("beta", "beta"),
    )

    def __init__(
        self,
        learning_rate: Any = 0.1,
        alpha: Any = 1.0,
        beta: Any = 0.9,
        sign_decay_fn: Callable[[Any], Any] | None = None,
        use_locking: bool = False,
        name: str = "AddSignOptimizer",
    ) -> None:
        settings = {"learning_rate": learning_rate, "beta": beta, "alpha": alpha}
        super().__init__(use_locking, name, settings, sign_decay_fn)

    def _stretch(self, numbers: dict[str, Any], agreement: Tensor) -> Tensor:
        return numbers["alpha"] + numbers["sign_decay"] * agreement


@export("contrib.opt.PowerSignOptimizer")
class PowerSignOptimizer(_SignOptimizer):
    """Step along base ** (sign_decay * agreement) * grad; see AddSignOptimizer."""

    _step = "power_sign"
    _numbers = (
        ("lr", "learning_rate"),
        ("logbase", "logbase"),
        ("sign_decay", "sign_decay"),
        ("beta", "beta"),
    )

    def __init__(
        self,
        learning_rate: Any = 0.1,
        base: float = math.e,
        beta: Any = 0.9,
        sign_decay_fn: Callable[[Any], Any] | None = None,
        use_locking: bool = False,
        name: str = "PowerSignOptimizer",
    ) -> None:
        settings = {"learning_rate": learning_rate, "beta": beta, "logbase": math.log(base)}
        super().__init__(use_locking, name, settings, sign_decay_fn)

    def _stretch(self, numbers: dict[str, Any], agreement: Tensor) -> Tensor:
        return b.exp(numbers["logbase"] * numbers["sign_decay"] * agreement)
