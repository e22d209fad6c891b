"""Constants, placeholders and the ops that only pass values on or order the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.core.errors import InvalidArgumentError
from headrace.core.export import export
from headrace.core.shapes import TensorShape
from headrace.graph.definition import NOT_DIFFERENTIABLE, Kind, Sample
from headrace.ops import convert, infer
from headrace.ops.define import composed, define
from headrace.ops.samples import r, unary

__all__ = ["constant", "identity", "placeholder", "placeholder_with_default"]


def _const_infer(c: Any) -> TensorShape:
    return TensorShape.of(c.attrs["value"].shape)


@define(
    "Const",
    "-> output: dtype",
    "value: tensor; dtype: type",
    infer=_const_infer,
    kernel=lambda *, value: value,
    gradient=NOT_DIFFERENTIABLE,
    fold=lambda op: [op._attrs["value"]],
    samples=[Sample(value=np.array([1, 2], np.float32), dtype="float32")],
)
def const(value, dtype, name=None):
    """Return a constant."""


@composed
@export("constant")
def constant(
    value: Any,
    dtype: Any = None,
    shape: Any = None,
    name: str = "Const",
    verify_shape: bool = False,
) -> Any:
    """Return a constant tensor; a value with too few elements for `shape` is filled with its last one."""
    return convert.constant(value, dtype, shape, name, verify_shape)


def _unfed(*, op: Any) -> Any:
    raise InvalidArgumentError(
        None,
        op,
        f"You must feed a value for placeholder tensor '{op.name}' with dtype "
        f"{op._outputs[0].dtype.name} and shape {op._outputs[0].shape}",
    )


@define(
    "Placeholder",
    "-> output: dtype",
    "dtype: type; shape: shape = <unknown>",
    infer=lambda c: c.attrs["shape"],
    kernel=_unfed,
    gradient=NOT_DIFFERENTIABLE,
)
def placeholder_op(dtype, shape=None, name=None):
    """Return a tensor that every step must feed."""


@composed
@export("placeholder")
def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Any:
    """Return a tensor whose value is fed: running it unfed is an error."""
    return placeholder_op(dtype=dtype, shape=TensorShape(shape), name=name)


def _with_default_infer(c: Any, default: TensorShape) -> TensorShape:
    if not default.is_compatible_with(c.attrs["shape"]):
        raise ValueError(f"the default of shape {default} does not fit {c.attrs['shape']}")
    return c.attrs["shape"]


@export("placeholder_with_default")
@define(
    "PlaceholderWithDefault",
    "input: dtype -> output: dtype",
    "dtype: type; shape: shape",
    infer=_with_default_infer,
    kernel=lambda x: x,
    gradient=lambda b, op, dy: dy,
    fold=lambda op: None,
    samples=[Sample(r(2, 3), shape=[None, 3])],
)
def placeholder_with_default(input, shape, name=None):  # noqa: A002
    """Return a tensor that has the value of `input` in steps that don't feed it."""


@export("identity")
@define(
    "Identity",
    "input: T -> output: T",
    "T: type",
    infer=infer.same_as(0),
    kernel=lambda x: x,
    gradient=lambda b, op, dy: dy,
    kind=Kind.MOVEMENT,
    samples=unary(),
)
def identity(input, name=None):  # noqa: A002
    """Return a tensor with the same value."""
