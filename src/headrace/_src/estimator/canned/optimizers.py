"""The optimizer argument of canned estimators: a name, an optimizer, or a function that makes
one.
"""

from __future__ import annotations

from typing import Any

from headrace._src.train.optimizers.adam import AdamOptimizer
from headrace._src.train.optimizers.optimizer import Optimizer
from headrace._src.train.optimizers.step_optimizers import (
    AdagradOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    RMSPropOptimizer,
)

__all__ = ["optimizer_of"]

_BY_NAME = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
}


def optimizer_of(given: Any, learning_rate: float) -> Optimizer:
    """Return the optimizer; `learning_rate` applies to one given by name."""
    if isinstance(given, str):
        if given not in _BY_NAME:
            raise ValueError(
                f"Unsupported optimizer name: {given}. Supported names are: "
                f"{tuple(sorted(_BY_NAME))}"
            )
        return _BY_NAME[given](learning_rate=learning_rate)
    made = given() if callable(given) else given
    if not isinstance(made, Optimizer):
        raise ValueError(f"The given object is not an Optimizer instance. Given: {made}")
    return made
