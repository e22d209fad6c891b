"""Activation functions by the names that layers take for them: `activation="relu"`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.ops.base.define import b

__all__ = ["activation_name", "get_activation"]

Activation = Callable[..., Any]


def _linear(x: Any) -> Any:
    return x


def _hard_sigmoid(x: Any) -> Any:
    """Return a piecewise linear sigmoid of three segments."""
    return b.clip_by_value(0.2 * x + 0.5, 0.0, 1.0)


# Name -> the builder's name in `b`, or a function.
_BY_NAME: dict[str, str | Activation] = {
    "elu": "elu",
    "exponential": "exp",
    "hard_sigmoid": _hard_sigmoid,
    "linear": _linear,
    "relu": "relu",
    "selu": "selu",
    "sigmoid": "sigmoid",
    "softmax": "softmax",
    "softplus": "softplus",
    "softsign": "softsign",
    "tanh": "tanh",
}


def get_activation(identifier: Any) -> Activation:
    """Return the function of this name; a function unchanged; for None, the identity."""
    if identifier is None:
        return _linear
    if isinstance(identifier, str):
        found = _BY_NAME.get(identifier)
        if found is None:
            raise ValueError(f"Unknown activation function:{identifier}")
        return getattr(b, found) if isinstance(found, str) else found
    if callable(identifier):
        return identifier
    raise TypeError(f"Could not interpret activation function identifier: {identifier!r}")


def activation_name(function: Activation) -> str:
    """Return the name under which `get_activation` finds a function; its own if it finds none."""
    for name in _BY_NAME:
        if get_activation(name) is function:
            return name
    return function.__name__
