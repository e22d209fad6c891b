"""Loss scaling, for training in 16 bits: small gradients would become zero, so the loss is
multiplied by a scale before they are computed, and they are divided by it afterwards.

In: an optimizer and a LossScale. Out: an optimizer that scales, and that skips steps whose
gradients aren't finite. State of a dynamic scale: the scale, and the number of good steps since it
last changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.control.grouping import group, no_op
from headrace._src.train.optimizers.optimizer import Optimizer
from headrace._src.train.optimizers.optimizer_wrapper import OptimizerWrapper
from headrace._src.variables.variable import Variable

__all__ = ["DynamicLossScale", "FixedLossScale", "LossScale", "MixedPrecisionLossScaleOptimizer"]


@export("train.experimental.LossScale")
class LossScale:
    """The factor of the loss: call it to get a tensor."""

    def __call__(self) -> Tensor:
        raise NotImplementedError

    def update(self, grads: Iterable[Any]) -> tuple[Any, Any]:
        """Return an operation that changes the scale after a step, and whether to use these
        gradients.
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LossScale:
        """Make a LossScale from the result of get_config."""
        return cls(**config)

    def _variables(self) -> list[Any]:
        return []


@export("train.experimental.FixedLossScale")
class FixedLossScale(LossScale):
    """A constant scale; all gradients are used."""

    def __init__(self, loss_scale_value: float) -> None:
        if not isinstance(loss_scale_value, int | float):
            raise ValueError("loss_scale_value must be a Python int or float.")
        if loss_scale_value < 1:
            raise ValueError("loss_scale_value must be at least 1.")
        self._value = float(loss_scale_value)

    def __call__(self) -> Tensor:
        return b.constant(self._value)

    def update(self, grads: Iterable[Any]) -> tuple[Any, Any]:
        """Return an operation that does nothing, and True."""
        return no_op(), True

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"loss_scale_value": self._value}


@export("train.experimental.DynamicLossScale")
class DynamicLossScale(LossScale):
    """A scale that grows by `multiplier` after `increment_period` good steps in a row, and shrinks
    by it, not below 1, whenever gradients aren't finite; these are not used.
    """

    def __init__(
        self,
        initial_loss_scale: float = 2**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
    ) -> None:
        self._initial_loss_scale = float(initial_loss_scale)
        self._increment_period = int(increment_period)
        self._multiplier = float(multiplier)
        settings: dict[str, Any] = {"trainable": False, "use_resource": True}
        with get_default_graph().control_dependencies(None):
            self._scale = Variable(
                self._initial_loss_scale,
                dtype=dtypes.float32,
                name="current_loss_scale",
                **settings,
            )
            self._good_steps = Variable(0, dtype=dtypes.int64, name="good_steps", **settings)

    @property
    def initial_loss_scale(self) -> float:
        return self._initial_loss_scale

    @property
    def increment_period(self) -> int:
        return self._increment_period

    @property
    def multiplier(self) -> float:
        return self._multiplier

    def __call__(self) -> Tensor:
        return self._scale.value()

    def update(self, grads: Iterable[Any]) -> tuple[Any, Any]:
        """Return an operation that changes the scale, and whether all gradients are finite."""
        checks = [b.reduce_all(b.is_finite(_values(g))) for g in grads if g is not None]
        if not checks:
            raise ValueError("no gradients are given, so the loss scale can't be adjusted")
        finite = b.reduce_all(b.stack(checks))
        scale, good = self._scale.read_value(), self._good_steps.read_value()
        grown = scale * self._multiplier
        due = b.greater_equal(good + 1, self._increment_period)
        # After an overflow, no step would ever be good again.
        larger = b.where(b.logical_and(due, b.is_finite(grown)), grown, scale)
        smaller = b.maximum(scale / self._multiplier, 1.0)
        count = b.where(due, b.zeros_like(good), good + 1)
        changed = group(
            self._scale.assign(b.where(finite, larger, smaller)).op,  # type: ignore[attr-defined]
            self._good_steps.assign(b.where(finite, count, b.zeros_like(good))).op,  # type: ignore[attr-defined]
        )
        return changed, finite

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "initial_loss_scale": self._initial_loss_scale,
            "increment_period": self._increment_period,
            "multiplier": self._multiplier,
        }

    def _variables(self) -> list[Any]:
        return [self._scale, self._good_steps]


def _values(gradient: Any) -> Tensor:
    return gradient.values if isinstance(gradient, IndexedSlices) else gradient


@export("train.experimental.MixedPrecisionLossScaleOptimizer")
class MixedPrecisionLossScaleOptimizer(OptimizerWrapper):
    """An optimizer that scales the loss by `loss_scale` (a LossScale, a number, or "dynamic")
    before it computes gradients, and unscales them. With a dynamic scale, a step whose gradients
    are infinite or NaN changes only the scale.
    """

    def __init__(self, opt: Optimizer, loss_scale: Any) -> None:
        if not isinstance(opt, Optimizer):
            raise ValueError(f'"opt" must be an instance of Optimizer, but got: {type(opt)}')
        super().__init__(opt)
        self._loss_scale = _as_loss_scale(loss_scale)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """Return the gradients of the loss, computed from the scaled loss."""
        loss = loss() if callable(loss) else loss
        scaled = loss * b.cast(self._loss_scale(), loss.dtype)
        pairs = self._optimizer.compute_gradients(
            scaled,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        inverse = 1.0 / self._loss_scale()
        return [(None if g is None else _times(g, inverse), v) for g, v in pairs]

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Operation:
        """Return an operation that updates the variables, if all gradients are finite, and the
        scale.
        """
        pairs = tuple(grads_and_vars)
        changed, use = self._loss_scale.update([g for g, _ in pairs])
        if use is True:
            return group(self._optimizer.apply_gradients(pairs, global_step, name), changed)
        graph = get_default_graph()
        with graph.control_dependencies(None):
            # Created here, not in the branch below: a branch's variables exist only inside it.
            self._optimizer._create_slots([v for g, v in pairs if g is not None])

        def apply() -> Tensor:
            step = self._optimizer.apply_gradients(pairs, global_step, name)
            with graph.control_dependencies([step]):
                return b.constant(True)

        return group(b.cond(use, apply, lambda: b.constant(False)), changed)

    def variables(self) -> list[Any]:
        """Return the variables of the wrapped optimizer and of the scale."""
        return [*self._optimizer.variables(), *self._loss_scale._variables()]


def _times(gradient: Any, factor: Tensor) -> Any:
    values = _values(gradient) * b.cast(factor, gradient.dtype)
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return values


def _as_loss_scale(given: Any) -> LossScale:
    if isinstance(given, LossScale):
        return given
    if given == "dynamic":
        return DynamicLossScale()
    if isinstance(given, int | float):
        return FixedLossScale(given)
    raise ValueError(f"Could not interpret loss scale identifier: {given}")
