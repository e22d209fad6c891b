"""tf.layers.experimental: layers that name and keep their variables as Keras's layers do.

A layer that is made while the style is on makes a resource variable for each weight, named by the
current name scope. Variable scopes mean nothing to it: they neither share variables, nor name
them, nor bring initializers, partitioners or custom getters. Each call opens a name scope of its
own. Updates stay with the layer: they do not join the graph's collection.

State: whether the style is on, for the whole process, as in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import as_shape
from headrace._src.variables.initializers import GlorotUniform, Zeros
from headrace._src.variables.variable import Variable

__all__ = [
    "keras_style_scope",
    "keras_variable",
    "refuse_scope",
    "set_keras_style",
    "style_is_on",
]

_on = False


@export("layers.experimental.set_keras_style")
def set_keras_style() -> None:
    """Make all layers from now on in Keras's style."""
    global _on
    _on = True


@export("layers.experimental.keras_style_scope")
@contextmanager
def keras_style_scope() -> Iterator[None]:
    """Make the layers of a `with` block in Keras's style; they keep it afterwards."""
    global _on
    before, _on = _on, True
    try:
        yield
    finally:
        _on = before


def style_is_on() -> bool:
    return _on


def refuse_scope(scope: Any = None, reuse: Any = None) -> None:
    """Raise ValueError if an argument about variable scopes was given."""
    for name, value in (("scope", scope), ("reuse", reuse)):
        if value is not None:
            raise ValueError(
                f"{name} argument not allowed when keras style layers are enabled, but saw: {value}"
            )


def keras_variable(
    layer: str,
    name: str,
    shape: Any,
    dtype: DType,
    initializer: Any,
    trainable: bool,
    constraint: Any,
    use_resource: bool | None,
) -> Variable:
    """Return a new variable for the weight `name` of a layer."""
    if initializer is None:
        if dtype.is_floating:
            initializer = GlorotUniform()
        elif dtype.is_integer or dtype.is_bool:
            initializer = Zeros()
        else:
            raise ValueError(
                f"An initializer for variable {name} of type {dtype} is required for layer {layer}"
            )
    elif isinstance(initializer, type):
        initializer = initializer()
    shape = as_shape(() if shape is None else shape)
    return Variable(
        partial(initializer, shape, dtype=dtype),
        trainable=trainable,
        name=name,
        dtype=dtype,
        constraint=constraint,
        use_resource=use_resource is None or use_resource,
    )
