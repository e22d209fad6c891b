"""Gradient functions by op type: those of the op definitions, and those that users register by
name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, definitions
from headrace._src.graph.operation import Operation
from headrace._src.graph.schema import MISSING
from headrace._src.ops.base.define import b

__all__ = ["NotDifferentiable", "RegisterGradient", "gradient_function"]

Gradient = Callable[..., Any]
_registered: dict[str, Gradient | None] = {}


@export("RegisterGradient")
class RegisterGradient:
    """Decorator that registers a gradient function `(op, *output gradients)` under an op type or
    any other name.
    """

    def __init__(self, op_type: str) -> None:
        if not isinstance(op_type, str):
            raise TypeError("op_type must be a string")
        self._op_type = op_type

    def __call__(self, f: Gradient) -> Gradient:
        _register(self._op_type, f)
        return f


@export("NotDifferentiable", "NoGradient", "no_gradient")
def NotDifferentiable(op_type: str) -> None:
    """Declare that no gradient flows through ops of this type."""
    if not isinstance(op_type, str):
        raise TypeError("op_type must be a string")
    _register(op_type, None)


def _register(op_type: str, function: Gradient | None) -> None:
    known = definitions().get(op_type)
    if op_type in _registered or (known is not None and known.gradient is not MISSING):
        raise KeyError(f"Registering two gradient with name '{op_type}'!")
    _registered[op_type] = function


def gradient_function(op: Operation) -> Gradient | None:
    """Return the gradient of `op` as a function of (op, *output gradients), or None if no gradient
    flows; LookupError if unknown.
    """
    name = op._attrs.get("_gradient_op_type", op.type)
    if name in op.graph._gradient_functions:
        return op.graph._gradient_functions[name]
    if name in _registered:
        return _registered[name]
    definition = op.definition if name == op.type else definitions().get(name)
    gradient: Any = MISSING if definition is None else definition.gradient
    if gradient is NOT_DIFFERENTIABLE:
        return None
    if gradient is MISSING:
        if not any(t.dtype.is_floating or t.dtype.is_complex for t in op._outputs):
            return None
        raise LookupError(
            f"No gradient defined for operation '{op.name}' (op type: {name}). "
            "tf.RegisterGradient can give it one, tf.stop_gradient can cut it off."
        )
    return lambda op, *grads: gradient(b, op, *grads)
