"""tf.contrib.layers.optimize_loss: from a loss to a training step in one call. In: a loss, an
optimizer and transformations of the gradients. Out: the loss as a tensor whose evaluation trains.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace._src.core.dtypes import float32
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.io.summary_functions import histogram, scalar
from headrace._src.train.optimizers.adam import AdamOptimizer
from headrace._src.train.optimizers.optimizer import Optimizer
from headrace._src.train.optimizers.step_optimizers import (
    AdagradOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    RMSPropOptimizer,
)
from headrace._src.train.sessions.global_step import assert_global_step, get_global_step
from headrace._src.variables.collections import trainable_variables
from headrace._src.variables.initializers import Constant
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.scope import variable_scope

__all__ = ["optimize_loss"]

_OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": lambda rate: MomentumOptimizer(rate, momentum=0.9),
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
}
_SUMMARIES = ("learning_rate", "loss", "gradients", "gradient_norm", "global_gradient_norm")
_USUAL = ("loss", "learning_rate", "global_gradient_norm")


@export("contrib.layers.optimize_loss", "contrib.slim.optimize_loss")
def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: float | None = None,
    gradient_multipliers: Mapping[Any, Any] | None = None,
    clip_gradients: Any = None,
    learning_rate_decay_fn: Callable[[Any, Any], Any] | None = None,
    update_ops: Iterable[Any] | None = None,
    variables: Sequence[Any] | None = None,
    name: str | None = None,
    summaries: Sequence[str] | None = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> Tensor:
    """Return the loss as a tensor; evaluating it runs a training step.

    global_step      the step counter, the graph's global step if None
    learning_rate    a number (kept in a variable), a scalar tensor, or None if the optimizer has it
    optimizer        a name (Adagrad, Adam, Ftrl, Momentum, RMSProp, SGD), a class, an optimizer, or
                     a function of the learning rate, or of nothing, that returns one
    gradient_noise_scale       the standard deviation of normal noise to add to gradients
    gradient_multipliers       factors, by variables or their names
    clip_gradients   the largest global norm of the gradients, or a function of (gradient, variable)
                     pairs
    learning_rate_decay_fn     a function of the rate and the step
    update_ops       operations to run before the loss, the graph's UPDATE_OPS by default
    variables        the variables to train, all trainable ones by default
    summaries        of learning_rate, loss, gradients, gradient_norm, global_gradient_norm
    """
    loss = convert_to_tensor(loss)
    shown = _USUAL if summaries is None else summaries
    for asked in shown:
        if asked not in _SUMMARIES:
            raise ValueError(
                f"Summaries should be one of [{', '.join(_SUMMARIES)}], you provided {asked}."
            )
    step = get_global_step() if global_step is None else global_step
    if step is not None:
        assert_global_step(step)
    graph = get_default_graph()
    with variable_scope(name, "OptimizeLoss", [loss, step]):
        before = graph.get_collection(GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
        before = list(before)
        if before:
            with graph.control_dependencies(before):
                loss = identity(loss)
        rate = _rate(learning_rate)
        if rate is not None and learning_rate_decay_fn is not None:
            if step is None:
                raise ValueError("global_step is required for learning_rate_decay_fn.")
            rate = learning_rate_decay_fn(rate, step)
            if "learning_rate" in shown:
                scalar("learning_rate", rate)
        chosen = _optimizer(optimizer, rate)
        pairs = chosen.compute_gradients(
            loss,
            trainable_variables() if variables is None else variables,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        pairs = _changed(pairs, gradient_noise_scale, gradient_multipliers)
        with_norms = "global_gradient_norm" in shown or "gradient_norm" in shown
        if with_norms:
            scalar("global_norm/gradient_norm", b.global_norm([g for g, _ in pairs]))
        pairs = _clipped(pairs, clip_gradients)
        if "loss" in shown:
            scalar("loss", loss)
        _summarize(pairs, shown)
        if clip_gradients is not None and with_norms:
            scalar("global_norm/clipped_gradient_norm", b.global_norm([g for g, _ in pairs]))
        counted = step if increment_global_step else None
        train = chosen.apply_gradients(pairs, global_step=counted, name="train")
        with graph.control_dependencies([train]):
            return identity(loss, name="control_dependency")


def _rate(given: Any) -> Any:
    """The learning rate as a tensor or variable."""
    if given is None or (isinstance(given, Tensor) and given.shape.ndims == 0):
        return given
    if not isinstance(given, float):
        raise ValueError(
            f"Learning rate should be 0d Tensor or float. Got {given} of type {type(given)}"
        )
    if given < 0.0:
        raise ValueError(f"Invalid learning_rate {given}.")
    return get_variable("learning_rate", [], float32, initializer=Constant(given), trainable=False)


def _optimizer(given: Any, rate: Any) -> Optimizer:
    if isinstance(given, str):
        if given not in _OPTIMIZERS:
            names = ", ".join(_OPTIMIZERS)
            raise ValueError(f"Optimizer name should be one of [{names}], you provided {given}.")
        if rate is None:
            raise ValueError(
                f"Learning rate is None, but should be specified if optimizer is string ({given})."
            )
        return _OPTIMIZERS[given](rate)
    if isinstance(given, Optimizer):
        return given
    if isinstance(given, type) and issubclass(given, Optimizer):
        if rate is None:
            raise ValueError(
                f"Learning rate is None, but should be specified if optimizer is class ({given})."
            )
        return given(learning_rate=rate)  # type: ignore[call-arg]
    if callable(given):
        made = given(rate) if inspect.signature(given).parameters else given()
        if isinstance(made, Optimizer):
            return made
        raise ValueError(
            f"Unrecognized optimizer: function should return subclass of Optimizer. Got {made!r}."
        )
    raise ValueError(
        "Unrecognized optimizer: should be string, subclass of Optimizer, instance of subclass of "
        f"Optimizer or function with one argument. Got {given}."
    )


def _changed(
    pairs: list[tuple[Any, Any]], noise: float | None, multipliers: Mapping[Any, Any] | None
) -> list[tuple[Any, Any]]:
    """Return the gradients with noise, times their factors."""
    found = []
    for gradient, variable in pairs:
        if gradient is not None and noise is not None:
            values = _values(gradient)
            noisy = values + noise * b.truncated_normal(b.shape(values), dtype=values.dtype)
            gradient = _with_values(gradient, noisy)
        if gradient is not None and multipliers:
            factor = multipliers.get(variable, multipliers.get(variable.op.name))
            if factor is not None:
                values = _values(gradient)
                gradient = _with_values(gradient, values * b.cast(factor, values.dtype))
        found.append((gradient, variable))
    return found


def _clipped(pairs: list[tuple[Any, Any]], how: Any) -> list[tuple[Any, Any]]:
    if how is None:
        return pairs
    if isinstance(how, int | float):
        clipped, _ = b.clip_by_global_norm([g for g, _ in pairs], how)
        return list(zip(clipped, (v for _, v in pairs), strict=True))
    if not callable(how):
        raise ValueError(f"Unknown type {type(how)} for clip_gradients")
    found: Any = how(pairs)
    return list(found)


def _summarize(pairs: list[tuple[Any, Any]], shown: Sequence[str]) -> None:
    for gradient, variable in pairs:
        if gradient is None:
            continue
        values, name = _values(gradient), variable.name.replace(":", "_")
        if "gradients" in shown:
            histogram(f"gradients/{name}", values)
        if "gradient_norm" in shown:
            scalar(f"gradient_norm/{name}", b.global_norm([values]))


def _values(gradient: Any) -> Tensor:
    return gradient.values if isinstance(gradient, IndexedSlices) else gradient


def _with_values(gradient: Any, values: Tensor) -> Any:
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return values
