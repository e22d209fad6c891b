"""The weights of losses and metrics: a scalar, or a tensor of the values' rank whose sizes are the
values' or 1. Known shapes are checked now, others when the step runs.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["assert_broadcastable", "broadcast_weights", "may_end_in_one"]

_MESSAGE = "weights can not be broadcast to values."


def may_end_in_one(shape: TensorShape) -> bool:
    """Return whether a tensor of this shape may have a last dimension of size 1."""
    return shape.sizes is None or (len(shape.sizes) > 0 and shape.sizes[-1] in (None, 1))


@composed
def assert_broadcastable(weights: Any, values: Any) -> Any:
    """Return an operation that fails a step if weights don't fit values; raise ValueError if that
    is already known.
    """
    with name_scope(None, "assert_broadcastable", (weights, values)) as scope:
        with name_scope(None, "weights", (weights,)) as inner:
            weights = convert_to_tensor(weights, name=inner)
            weights_shape = b.shape(weights, name="shape")
            weights_rank = b.rank(weights, name="rank")
        with name_scope(None, "values", (values,)) as inner:
            values = convert_to_tensor(values, name=inner)
            values_shape = b.shape(values, name="shape")
            values_rank = b.rank(values, name="rank")
        known = _known_to_fit(weights, values)
        if known is not None:
            return b.no_op(name=f"static_{known}_check_success")
        is_scalar = b.equal(0, weights_rank, name="is_scalar")
        fits = b.cond(
            is_scalar,
            lambda: is_scalar,
            lambda: _sizes_fit(weights_shape, weights_rank, values_shape, values_rank),
            name="is_valid_shape",
        )
        data = [_MESSAGE, "weights.shape=", weights.name, weights_shape]
        data += ["values.shape=", values.name, values_shape, "is_scalar=", is_scalar]
        return b.Assert(fits, data, name=scope)


def _known_to_fit(weights: Tensor, values: Tensor) -> str | None:
    """Return the check that passed, if the shapes are known; None if they aren't."""
    rank, expected = weights.shape.ndims, values.shape.ndims
    if rank == 0:
        return "scalar"
    if rank is None or expected is None:
        return None
    if rank != expected:
        raise ValueError(
            f"{_MESSAGE} values.rank={expected}. weights.rank={rank}. "
            f"values.shape={values.shape}. weights.shape={weights.shape}."
        )
    if not (weights.shape.is_fully_defined() and values.shape.is_fully_defined()):
        return None
    given, wanted = weights.shape.as_list(), values.shape.as_list()
    for i, (w, v) in enumerate(zip(given, wanted, strict=True)):
        if w not in (1, v):
            raise ValueError(
                f"{_MESSAGE} Mismatch at dim {i}. values.shape={wanted} weights.shape={given}."
            )
    return "dims"


def _sizes_fit(weights: Tensor, weights_rank: Tensor, values: Tensor, values_rank: Tensor) -> Any:
    """Return whether the ranks agree, and the weights' sizes are 1 or the values'."""
    with name_scope(None, "has_valid_nonscalar_shape") as scope:
        same_rank = b.equal(values_rank, weights_rank, name="is_same_rank")
        return b.cond(
            same_rank, lambda: _each_size_fits(weights, values), lambda: same_rank, name=scope
        )


def _each_size_fits(weights: Tensor, values: Tensor) -> Tensor:
    """Return whether each of the weights' sizes is among the sizes allowed there."""
    with name_scope(None, "has_invalid_dims") as scope:
        columns = b.expand_dims(values, -1)
        allowed = b.concat((columns, b.ones_like(columns)), axis=1)
        missing = b.set_difference(b.expand_dims(weights, -1), allowed)
        count = b.size_op(missing.values, name="num_invalid_dims")
        return b.equal(0, count, name=scope)


@composed
def broadcast_weights(weights: Any, values: Any) -> Tensor:
    """Return weights broadcast to the values' shape."""
    with name_scope(None, "broadcast_weights", (weights, values)) as scope:
        values = convert_to_tensor(values, name="values")
        weights = convert_to_tensor(weights, dtype=values.dtype.base_dtype, name="weights")
        known = values.shape.is_fully_defined() and weights.shape.is_fully_defined()
        if known and values.shape.as_list() == weights.shape.as_list():
            return weights
        with control_dependencies((assert_broadcastable(weights, values),)):
            return b.multiply(weights, b.ones_like(values), name=scope)
