"""Regularizers: functions from a variable to a loss that penalises large values. In: strengths.
Out: functions that get_variable and layers take as `regularizer`; they collect the losses under
GraphKeys.REGULARIZATION_LOSSES, and `tf.losses.get_regularization_loss` adds them up.

There are two families, as programs use both: tf.contrib.layers, whose L2 is half the sum of
squares, and tf.keras.regularizers, whose L2 is the sum.
"""

from __future__ import annotations

import logging
import numbers
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = [
    "L1L2",
    "Regularizer",
    "apply_regularization",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "sum_regularizer",
]

Penalty = Callable[[Any], Any]


# -- tf.contrib.layers -----------------------------------------------------------------------------


def _check_scale(scale: Any, name: str, end: str = "") -> None:
    if isinstance(scale, numbers.Integral):
        raise ValueError(f"{name} cannot be an integer: {scale}")
    if isinstance(scale, numbers.Real) and scale < 0.0:
        raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale:g}{end}")


def _is_off(scale: Any) -> bool:
    """Return whether a regularizer does nothing; if so, log it."""
    if not isinstance(scale, numbers.Real) or scale != 0.0:
        return False
    logging.getLogger("headrace").info("Scale of 0 disables regularizer.")
    return True


def _no_penalty(weights: Any) -> None:
    """The function of a regularizer of strength zero, which returns None."""


def _scaled(scale: Any, measure: Callable[[Any], Tensor], scope: Any, default: str) -> Penalty:
    def penalty(weights: Any) -> Tensor:
        with name_scope(scope, default, [weights]) as name:
            dtype = weights.dtype.base_dtype
            factor = convert_to_tensor(scale, dtype=dtype, name="scale")
            return b.multiply(factor, measure(weights), name=name)

    return penalty


@export("contrib.layers.l1_regularizer", "contrib.slim.l1_regularizer")
def l1_regularizer(scale: Any, scope: Any = None) -> Penalty:
    """Return a function that computes scale * sum(|weights|); it returns None if the scale is
    0.0.
    """
    _check_scale(scale, "scale")
    if _is_off(scale):
        return _no_penalty
    return _scaled(scale, lambda w: b.reduce_sum(b.abs(w)), scope, "l1_regularizer")


@export("contrib.layers.l2_regularizer", "contrib.slim.l2_regularizer")
def l2_regularizer(scale: Any, scope: Any = None) -> Penalty:
    """Return a function that computes scale * sum(weights**2) / 2; it returns None if the scale is
    0.0.
    """
    _check_scale(scale, "scale", ".")
    if _is_off(scale):
        return _no_penalty
    return _scaled(scale, lambda w: b.l2_loss(w), scope, "l2_regularizer")


@export("contrib.layers.l1_l2_regularizer", "contrib.slim.l1_l2_regularizer")
def l1_l2_regularizer(scale_l1: Any = 1.0, scale_l2: Any = 1.0, scope: Any = None) -> Penalty:
    """Return a function that adds the L1 and the L2 penalty."""
    for name, scale in (("scale_l1", scale_l1), ("scale_l2", scale_l2)):
        if isinstance(scale, numbers.Integral):
            raise ValueError(f"{name} cannot be an integer: {scale}")
    scope = scope or "l1_l2_regularizer"
    if scale_l1 == 0.0:
        return l2_regularizer(scale_l2, scope)
    if scale_l2 == 0.0:
        return l1_regularizer(scale_l1, scope)
    return _summed([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope)


@export("contrib.layers.sum_regularizer", "contrib.slim.sum_regularizer")
def sum_regularizer(
    regularizer_list: Iterable[Penalty | None], scope: Any = None
) -> Penalty | None:
    """Return a function that adds up several penalties; it returns None if all of them are None."""
    given = [penalty for penalty in regularizer_list if penalty is not None]
    return _summed(given, scope or "sum_regularizer") if given else None


def _summed(penalties: list[Penalty], scope: Any) -> Penalty:
    def penalty(weights: Any) -> Tensor | None:
        with name_scope(scope, values=[weights]) as name:
            parts = [part for part in (p(weights) for p in penalties) if part is not None]
            return b.add_n(parts, name=name) if parts else None

    return penalty


@export("contrib.layers.apply_regularization", "contrib.slim.apply_regularization")
def apply_regularization(
    regularizer: Penalty | None, weights_list: Iterable[Any] | None = None
) -> Tensor:
    """Return the sum of the penalties of `weights_list` (by default, the collection
    GraphKeys.WEIGHTS), and add it to the graph's regularization losses.
    """
    graph = get_default_graph()
    weights = graph.get_collection(GraphKeys.WEIGHTS) if weights_list is None else weights_list
    weights = list(weights)
    if not weights:
        raise ValueError("No weights to regularize.")
    with name_scope("get_regularization_penalty", values=weights) as name:
        found = [] if regularizer is None else [regularizer(w) for w in weights]
        penalties = [p if p is not None else b.constant(0.0) for p in found] or [b.constant(0.0)]
        for penalty in penalties:
            if penalty.shape.rank != 0:
                raise ValueError(
                    "regularizer must return a scalar Tensor instead of a Tensor with rank "
                    f"{penalty.shape.rank}."
                )
        one = len(penalties) == 1
        total = identity(penalties[0], name=name) if one else b.add_n(penalties, name=name)
    graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, total)
    return total


# -- tf.keras.regularizers -------------------------------------------------------------------------


@export("keras.regularizers.Regularizer")
class Regularizer:
    """A function of weights, or of an output, that returns a loss."""

    def __call__(self, x: Any) -> Any:
        return 0.0

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Regularizer:
        """Make a regularizer from the result of get_config."""
        return cls(**config)


@export("keras.regularizers.L1L2")
class L1L2(Regularizer):
    """l1 * sum(|x|) + l2 * sum(x**2)."""

    def __init__(self, l1: float = 0.0, l2: float = 0.0) -> None:
        self.l1 = np.float32(l1)
        self.l2 = np.float32(l2)

    def __call__(self, x: Any) -> Tensor:
        if not self.l1 and not self.l2:
            return b.constant(0.0)
        total: Any = 0.0
        if self.l1:
            total += float(self.l1) * b.reduce_sum(b.abs(x))
        if self.l2:
            total += float(self.l2) * b.reduce_sum(b.square(x))
        return total

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"l1": float(self.l1), "l2": float(self.l2)}


@export("keras.regularizers.l1")
def l1(l: float = 0.01) -> L1L2:  # noqa: E741
    """Return the regularizer l * sum(|x|)."""
    return L1L2(l1=l)


@export("keras.regularizers.l2")
def l2(l: float = 0.01) -> L1L2:  # noqa: E741
    """Return the regularizer l * sum(x**2)."""
    return L1L2(l2=l)


def _l1_l2(l1: float = 0.01, l2: float = 0.01) -> L1L2:
    """Return the regularizer l1 * sum(|x|) + l2 * sum(x**2)."""
    return L1L2(l1=l1, l2=l2)


l1_l2 = export("keras.regularizers.l1_l2")(_l1_l2)

_KNOWN: dict[str, Any] = {"L1L2": L1L2, "l1": l1, "l2": l2, "l1_l2": l1_l2}


@export("keras.regularizers.serialize")
def serialize(regularizer: Any) -> dict[str, Any]:
    """Return a regularizer's class and arguments, as `deserialize` takes them."""
    return {"class_name": type(regularizer).__name__, "config": regularizer.get_config()}


@export("keras.regularizers.deserialize")
def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Return the regularizer for a name or a result of `serialize`."""
    is_name = isinstance(config, str)
    name = config if is_name else config["class_name"]
    made = {**_KNOWN, **(custom_objects or {})}.get(name)
    if made is None:
        raise ValueError(f"Unknown regularizer:{name}")
    if is_name:
        return made()
    given = config.get("config", {})
    return made.from_config(given) if hasattr(made, "from_config") else made(**given)


@export("keras.regularizers.get")
def get(identifier: Any) -> Any:
    """Return the regularizer for a name, a configuration or a function; None for None."""
    if identifier is None:
        return None
    if isinstance(identifier, dict | str):
        return deserialize(identifier)
    if callable(identifier):
        return identifier
    raise ValueError("Could not interpret regularizer identifier:", identifier)
