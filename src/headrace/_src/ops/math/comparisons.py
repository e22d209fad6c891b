"""Comparisons and logic, element by element with broadcasting. Out: booleans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Kind, Sample
from headrace._src.graph.inference import static_by_kernel
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.rules import Elementwise
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import pairs, r, unary
from headrace._src.ops.base.simplify_rules import cancels_itself
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["equal", "less", "logical_xor"]

_COMPARABLE = (
    "{bfloat16|float16|float32|float64|uint8|int8|int16|int32|int64|complex64|quint8|qint8|qint32"
    "|string|bool|complex128}"
)


def _equality_infer(c: Any, x: TensorShape, y: TensorShape) -> Any:
    if c.attrs["incompatible_shape_error"]:
        return infer.broadcasting(c, x, y)
    if not x.is_fully_defined() or not y.is_fully_defined():
        return None
    try:
        return infer.broadcasting(c, x, y)
    except ValueError:
        return ()


def _equality(ufunc: Callable[..., Any], if_incompatible: bool) -> Callable[..., Any]:
    def kernel(x: Any, y: Any, *, incompatible_shape_error: bool) -> Any:
        if not incompatible_shape_error:
            try:
                np.broadcast_shapes(np.shape(x), np.shape(y))
            except ValueError:
                return np.bool_(if_incompatible)
        return ufunc(x, y, dtype=bool) if x.dtype == object else ufunc(x, y)

    return kernel


def _equality_op(op_type: str, kernel: Callable[..., Any], lower: Callable[..., Any]) -> Any:
    different = Sample(r(2), r(3), T="float32", incompatible_shape_error=False)
    return define(
        op_type,
        "x: T, y: T -> z: bool",
        f"T: {_COMPARABLE}; incompatible_shape_error: bool = True",
        infer=_equality_infer,
        kernel=kernel,
        static=static_by_kernel,
        kind=Kind.ELEMENTWISE,
        samples=[*pairs(), different],
        commutative=True,
        lower=Elementwise(lower),
    )


@export("equal", "math.equal")
@_equality_op("Equal", _equality(np.equal, False), lower=lambda e, x, y: e.eq(x, y))
def equal(x, y, name=None):
    """Return where x equals y."""


@export("not_equal", "math.not_equal")
@_equality_op("NotEqual", _equality(np.not_equal, True), lower=lambda e, x, y: e.ne(x, y))
def not_equal(x, y, name=None):
    """Return where x differs from y."""


def _order_op(op_type: str, kernel: Callable[..., Any], lower: Callable[..., Any]) -> Any:
    return define(
        op_type,
        "x: T, y: T -> z: bool",
        "T: {reals}",
        infer=infer.broadcasting,
        kernel=kernel,
        kind=Kind.ELEMENTWISE,
        samples=pairs(),
        lower=Elementwise(lower),
    )


@export("less", "math.less")
@_order_op("Less", np.less, lower=lambda e, x, y: x < y)
def less(x, y, name=None):
    """Return where x is less than y."""


@export("less_equal", "math.less_equal")
@_order_op("LessEqual", np.less_equal, lower=lambda e, x, y: x <= y)
def less_equal(x, y, name=None):
    """Return where x is less than or equal to y."""


@export("greater", "math.greater")
@_order_op("Greater", np.greater, lower=lambda e, x, y: x > y)
def greater(x, y, name=None):
    """Return where x is greater than y."""


@export("greater_equal", "math.greater_equal")
@_order_op("GreaterEqual", np.greater_equal, lower=lambda e, x, y: x >= y)
def greater_equal(x, y, name=None):
    """Return where x is greater than or equal to y."""


def _approximate_equal(x: Any, y: Any, *, tolerance: float) -> Any:
    if np.shape(x) != np.shape(y):
        raise ValueError(f"x and y must be of the same shape, but are {x.shape} and {y.shape}")
    apart = np.where(x > y, x - y, y - x) if x.dtype.kind == "u" else np.abs(x - y)
    return apart < np.asarray(tolerance, np.result_type(apart.dtype, np.float32))


def _approximate_equal_lowered(e: Any, x: Any, y: Any, *, tolerance: float) -> Any:
    return e.wide(e.abs(x - y)) < tolerance if x.is_floating else None


def _approximate_infer(c: Any, x: TensorShape, y: TensorShape) -> TensorShape:
    x.merge_with(y)
    return x


@define(
    "ApproximateEqual",
    "x: T, y: T -> z: bool",
    "T: {numbers}; tolerance: float = 1e-05",
    infer=_approximate_infer,
    kernel=_approximate_equal,
    kind=Kind.ELEMENTWISE,
    samples=[Sample(r(2, 3), r(2, 3), tolerance=0.7), Sample(r(), r()), Sample(r(0), r(0))],
    commutative=True,
    lower=Elementwise(_approximate_equal_lowered),
)
def approximate_equal(x, y, tolerance=None, name=None):
    """Return where x and y differ by less than the tolerance."""


def _logical_op(op_type: str, kernel: Callable[..., Any], lower: Callable[..., Any]) -> Any:
    return define(
        op_type,
        "x: bool, y: bool -> z: bool",
        infer=infer.broadcasting,
        kernel=kernel,
        kind=Kind.ELEMENTWISE,
        samples=pairs(),
        commutative=True,
        lower=Elementwise(lower),
    )


@export("logical_and", "math.logical_and")
@_logical_op("LogicalAnd", np.logical_and, lower=lambda e, x, y: e.and_(x, y))
def logical_and(x, y, name=None):
    """Return where both x and y are true."""


@export("logical_or", "math.logical_or")
@_logical_op("LogicalOr", np.logical_or, lower=lambda e, x, y: e.or_(x, y))
def logical_or(x, y, name=None):
    """Return where x or y is true."""


@export("logical_not", "math.logical_not")
@define(
    "LogicalNot",
    "x: bool -> y: bool",
    infer=infer.same_as(0),
    kernel=np.logical_not,
    kind=Kind.ELEMENTWISE,
    samples=unary(),
    lower=Elementwise(lambda e, x: e.not_(x)),
    simplify=cancels_itself,
)
def logical_not(x, name=None):
    """Return where x is false."""


@composed
@dispatched
@export("logical_xor", "math.logical_xor")
def logical_xor(x: Any, y: Any, name: str = "LogicalXor") -> Tensor:
    """Return where exactly one of x and y is true."""
    return logical_and(logical_or(x, y), logical_not(logical_and(x, y)), name=name)


def _differences(x: Any) -> Tensor:
    """Return the difference of each element of the flattened tensor to the previous one."""
    x = b.reshape(x, [-1])
    return x[1:] - x[:-1]


@composed
@export("is_non_decreasing", "math.is_non_decreasing", "debugging.is_non_decreasing")
def is_non_decreasing(x: Any, name: str | None = None) -> Tensor:
    """Return whether no element of x is smaller than the one before it."""
    with name_scope(name, "is_non_decreasing", [x]):
        steps = _differences(x)
        zero = convert_to_tensor(0, dtype=steps.dtype)
        return b.reduce_all(less_equal(zero, steps))


@composed
@export("is_strictly_increasing", "math.is_strictly_increasing", "debugging.is_strictly_increasing")
def is_strictly_increasing(x: Any, name: str | None = None) -> Tensor:
    """Return whether every element of x is larger than the one before it."""
    with name_scope(name, "is_strictly_increasing", [x]):
        steps = _differences(x)
        zero = convert_to_tensor(0, dtype=steps.dtype)
        return b.reduce_all(less(zero, steps))
