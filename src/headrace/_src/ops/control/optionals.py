"""Optionals: one value that holds some tensors, or none. Functional branches use them to save
values for their gradients.

The branch that isn't taken returns an empty one, so that both branches of an If have the same
outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.control.tensor_lists import zeros_of

__all__ = ["Optional"]


class Optional:
    """Values, or None. (Not a tuple: NumPy would turn it into an array.)"""

    __slots__ = ("components",)

    def __init__(self, components: Sequence[Any] | None) -> None:
        self.components = components

    def zeros(self) -> Optional:
        """Return an optional like this one, of zeros."""
        return Optional(self.components and [zeros_of(v) for v in self.components])

    def __add__(self, other: Any) -> Any:
        """Return the optional of the sums; one without values adds nothing."""
        if self.components is None or other.components is None:
            return other if self.components is None else self
        return Optional(
            tuple(x + y for x, y in zip(self.components, other.components, strict=True))
        )


def _as_optional(value: Any) -> Optional:
    if not isinstance(value, Optional):
        raise InvalidArgumentError(
            None, None, f"Input is not an optional. Saw: '{type(value).__name__}'"
        )
    return value


@define(
    "OptionalFromValue",
    "components: *Toutput_types -> optional: variant",
    "Toutput_types: list(type) >= 1",
    infer=infer.scalar,
    kernel=lambda components: Optional(components),
    gradient=lambda b, op, optional: b.optional_get_value(
        optional, [t.dtype.base_dtype for t in op.inputs], [t.shape for t in op.inputs]
    ),
    effect=Effect.LOCAL,
)
def optional_from_value(components, name=None):
    """Return an optional that holds `components`."""


@define(
    "OptionalNone",
    "-> optional: variant",
    infer=infer.scalar,
    kernel=lambda: Optional(None),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.LOCAL,
)
def optional_none(name=None):
    """Return an optional without values."""


@define(
    "OptionalHasValue",
    "optional: variant -> has_value: bool",
    infer=infer.scalar,
    kernel=lambda optional: np.bool_(_as_optional(optional).components is not None),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.LOCAL,
)
def optional_has_value(optional, name=None):
    """Return whether an optional has values."""


def _get_kernel(optional, *, output_types):
    components = _as_optional(optional).components
    if components is None:
        raise InvalidArgumentError(None, None, "The given optional does not have a value.")
    if len(components) != len(output_types):
        raise InvalidArgumentError(
            None,
            None,
            f"The given optional has {len(components)} components, expected {len(output_types)}.",
        )
    return list(components)


@define(
    "OptionalGetValue",
    "optional: variant -> components: *output_types",
    "output_types: list(type) >= 1; output_shapes: list(shape) >= 1",
    infer=lambda c, optional: list(c.attrs["output_shapes"]),
    kernel=_get_kernel,
    gradient=lambda b, op, *gradients: b.optional_from_value(
        [b.zeros_like(t) if g is None else g for g, t in zip(gradients, op.outputs, strict=True)]
    ),
    effect=Effect.LOCAL,
)
def optional_get_value(optional, output_types, output_shapes, name=None):
    """Return the values of an optional; it must have some."""
