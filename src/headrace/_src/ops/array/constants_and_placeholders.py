"""Constants, placeholders and the ops that only pass values on.

Every step must feed a placeholder; its kernel reports the one that was not fed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import show_type
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.resources import ResourceHandle
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.definition import (
    NOT_DIFFERENTIABLE,
    Effect,
    Kind,
    Precision,
    Sample,
    unfolded,
)
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.rules import Pass
from headrace._src.ops.base import infer, to_tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.samples import r, unary
from headrace._src.ops.base.simplify_rules import (
    all_equal_inputs,
    equals_input,
    equals_input_if_same_size,
)

__all__ = [
    "constant",
    "ensure_shape",
    "identity",
    "identity_n",
    "placeholder",
    "placeholder_with_default",
    "sparse_placeholder",
    "stop_gradient",
]


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
) -> Tensor:
    """Return a constant of `value`, which may be a number, a nested list or an array.

    If `shape` has more elements than `value`, the last element is repeated, unless `verify_shape`.
    """
    return to_tensor.constant(value, dtype, shape, name, verify_shape)


def _unfed(*, op: Any) -> Any:
    known = op._outputs[0].shape
    shape = f" and shape {show_shape(known)}" if known.sizes is not None else ""
    raise InvalidArgumentError(
        None,
        op,
        f"You must feed a value for placeholder tensor '{op.name}' with dtype "
        f"{show_type(op._outputs[0].dtype)}{shape}",
        hint=f"session.run(..., feed_dict={{'{op.name}:0': value}}); the key may be the tensor",
    )


def _placeholder_infer(c):
    """Before GraphDef version 22, an unknown shape looked the same as a scalar's."""
    shape = c.attrs["shape"]
    is_old = not c.settled and c.op.graph.producer <= 21
    return TensorShape(None) if is_old and shape.rank == 0 else shape


@define(
    "Placeholder",
    "-> output: dtype",
    "dtype: type; shape: shape = <unknown>",
    infer=_placeholder_infer,
    kernel=_unfed,
    gradient=NOT_DIFFERENTIABLE,
)
def placeholder_op(dtype, shape=None, name=None):
    """Return a tensor that every step must feed."""


@define(
    "PlaceholderV2",
    "-> output: dtype",
    "dtype: type; shape: shape",
    infer=lambda c: c.attrs["shape"],
    kernel=_unfed,
    gradient=NOT_DIFFERENTIABLE,
)
def placeholder_v2(dtype, shape, name=None):
    """Return a tensor that every step must feed; an old form of Placeholder."""


@composed
@export("placeholder")
def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Tensor:
    """Return a tensor whose value every step must feed."""
    return placeholder_op(dtype=dtype, shape=TensorShape(shape), name=name)


@composed
@export("sparse_placeholder", "sparse.placeholder")
def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """Return a sparse tensor that is fed a SparseTensorValue; `shape` may be partly known."""

    def part(which: str) -> str | None:
        return f"{name}/{which}" if name is not None else None

    rank: int | None = None
    if isinstance(shape, Tensor):
        rank = shape.shape.with_rank(1).as_list()[0]
        dense_shape = shape
    else:
        known = TensorShape(shape)
        rank = known.rank
        if known.is_fully_defined():
            sizes = to_tensor.as_array(known.as_list(), dtypes.int64)
            dense_shape = to_tensor.constant(sizes, name=part("shape") or "Const")
        else:
            dense_shape = placeholder(dtypes.int64, [rank], name=part("shape"))
    values = placeholder(dtype, [None], name=part("values"))
    indices = placeholder(dtypes.int64, [None, rank], name=part("indices"))
    return SparseTensor(indices, values, dense_shape)


def _with_default_infer(c: Any, default: TensorShape) -> TensorShape:
    default.merge_with(c.attrs["shape"])  # raises if they contradict each other
    return default if c.settled else c.attrs["shape"]  # it can't be fed any more


@export("placeholder_with_default")
@define(
    "PlaceholderWithDefault",
    "input: dtype -> output: dtype",
    "dtype: type; shape: shape",
    infer=_with_default_infer,
    kernel=lambda x: x,
    gradient=lambda b, op, dy: dy,
    fold=unfolded,
    samples=[Sample(r(2, 3), shape=[None, 3]), Sample(r(2), shape=[2])],
    lower=Pass(),
    simplify=equals_input,
)
def placeholder_with_default(input, shape, name=None):
    """Return a tensor that has the value of `input` unless a step feeds it."""


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
    lower=Pass(),
    simplify=equals_input,
    precision=Precision.EITHER,
)
def identity(input, name=None):
    """Return a tensor with the same value."""


@export("identity_n")
@define(
    "IdentityN",
    "input: *T -> output: *T",
    "T: list(type) >= 1",
    infer=lambda c, shapes: shapes,
    kernel=lambda inputs: inputs,
    gradient=lambda b, op, *grads: grads,
    kind=Kind.MOVEMENT,
    samples=[Sample([r(2), r(3)], T=["float64", "int32"])],
    lower=Pass(),
    simplify=all_equal_inputs,
    precision=Precision.EITHER,
)
def identity_n(input, name=None):
    """Return tensors with the same values; each is available only once all inputs are."""


@export("stop_gradient")
@define(
    "StopGradient",
    "input: T -> output: T",
    "T: type",
    infer=infer.same_as(0),
    kernel=lambda x: x,
    gradient=NOT_DIFFERENTIABLE,
    kind=Kind.MOVEMENT,
    samples=unary(),
    lower=Pass(),
    simplify=equals_input,
    precision=Precision.EITHER,
)
def stop_gradient(input, name=None):
    """Return the same value, through which no gradient flows."""


def _prevented(b: OpBuilder, op: Any, dy: Any) -> Any:
    raise LookupError(f"Gradient explicitly disabled. Reason: {op._attrs['message']}")


@define(
    "PreventGradient",
    "input: T -> output: T",
    "T: type; message: string = ''",
    infer=infer.same_as(0),
    kernel=lambda x: x,
    gradient=_prevented,
    kind=Kind.MOVEMENT,
    samples=[Sample([1.5, 2.5], message="not here", T="float32")],
    lower=Pass(),
    simplify=equals_input,
    precision=Precision.EITHER,
)
def prevent_gradient(input, message=None, name=None):
    """Return the same value; a gradient through it is an error with this `message`."""


def _guaranteed(x: Any) -> Any:
    if isinstance(x, ResourceHandle):
        raise ValueError("Input tensor cannot be a resource variable handle.")
    return x


@export("guarantee_const")
@define(
    "GuaranteeConst",
    "input: T -> output: T",
    "T: type",
    infer=infer.same_as(0),
    kernel=_guaranteed,
    gradient=lambda b, op, dy: dy,
    effect=Effect.READS,
    samples=unary(),
    simplify=lambda node: None if node.attrs["T"].name == "resource" else equals_input(node),
)
def guarantee_const(input, name=None):
    """Return the same value; the caller promises that it is the same in every step."""


def _ensure_kernel(x: Any, *, shape: TensorShape, op: Any) -> Any:
    if not shape.is_compatible_with(np.shape(x)):
        name = op._inputs[0].op.name if op._inputs else op.name  # it may check a source's shape
        raise ValueError(
            f"Shape of tensor {name} {list(np.shape(x))} is not compatible with "
            f"expected shape {show_shape(shape)}."
        )
    return x


@define(
    "EnsureShape",
    "input: T -> output: T",
    "shape: shape; T: type",
    infer=lambda c, x: c.attrs["shape"].merge_with(x),
    kernel=_ensure_kernel,
    gradient=lambda b, op, dy: dy,
    samples=[Sample(r(2, 3), shape=[None, 3]), Sample(r(), shape=[])],
    lower=Pass(),
    simplify=equals_input_if_same_size,
)
def ensure_shape_op(input, shape, name=None):
    """Return the input after checking its shape; the static shape is refined by it too."""


@composed
@export("ensure_shape")
def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Tensor:
    """Return `x`; the step fails if its shape doesn't match `shape`, which may be partly known."""
    return ensure_shape_op(input=x, shape=TensorShape(shape), name=name)
