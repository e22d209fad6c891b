"""Assertions about the values, ranks and types of tensors.

What static values, ranks and types decide is decided at once, by an exception; the rest becomes an
Assert op, which must be made a control input of what depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np

from headrace.core import dtypes
from headrace.core.dtypes import DType, as_dtype
from headrace.core.errors import InvalidArgumentError
from headrace.core.export import export
from headrace.graph.composite import SparseTensor
from headrace.graph.inference import constant_value
from headrace.graph.operation import Operation, Tensor
from headrace.ops import comparisons
from headrace.ops.convert import convert_to_tensor, name_scope
from headrace.ops.define import b, composed

__all__ = ["assert_equal", "assert_less", "assert_non_negative", "assert_rank"]


# Values


def _refuse_if_false(condition: Any, data: list[Any]) -> None:
    """Raise, with `data` as the message, if the condition is known to be false."""
    if condition:
        return
    shown = []
    for item in data:
        value = constant_value(item) if isinstance(item, Tensor) else None
        shown.append(str(item if value is None else value))
    raise InvalidArgumentError(None, None, "\n".join(shown))


def _described(name: str, x: Tensor) -> list[Any]:
    return [f"{name} ({x.name}) = ", x]


def _compare(
    function_name: str,
    symbol: str,
    compare: Callable[..., Tensor],
    given: tuple[Any, Any],
    data: Any,
    summarize: int | None,
    message: str | None,
    name: str | None,
) -> Operation:
    """Assert that a comparison holds for all elements of two tensors."""
    with name_scope(name, function_name, [*given, data]):
        x = convert_to_tensor(given[0], name="x")
        y = convert_to_tensor(given[1], name="y")
        if data is None:
            data = [f"Condition x {symbol} y did not hold element-wise:"]
            data += _described("x", x) + _described("y", y)
            if message is not None:
                data = [message, *data]
        condition = b.reduce_all(compare(x, y))
        known = constant_value(condition)
        if known is not None:
            _refuse_if_false(known, data)
        return b.Assert(condition, data, summarize=summarize)


@composed
@export("assert_equal", "debugging.assert_equal")
def assert_equal(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that x equals y, element by element."""
    with name_scope(name, "assert_equal", [x, y, data]):
        if x is y:
            return b.no_op()
    options = (data, summarize, message, name)
    return _compare("assert_equal", "==", comparisons.equal, (x, y), *options)


@composed
@export("assert_none_equal", "debugging.assert_none_equal")
def assert_none_equal(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that x differs from y, element by element."""
    options = (data, summarize, message, name)
    return _compare("assert_none_equal", "!=", comparisons.not_equal, (x, y), *options)


@composed
@export("assert_less", "debugging.assert_less")
def assert_less(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that x is less than y, element by element."""
    options = (data, summarize, message, name)
    return _compare("assert_less", "<", comparisons.less, (x, y), *options)


@composed
@export("assert_less_equal", "debugging.assert_less_equal")
def assert_less_equal(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that x is less than or equal to y, element by element."""
    options = (data, summarize, message, name)
    return _compare("assert_less_equal", "<=", comparisons.less_equal, (x, y), *options)


@composed
@export("assert_greater", "debugging.assert_greater")
def assert_greater(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that x is greater than y, element by element."""
    options = (data, summarize, message, name)
    return _compare("assert_greater", ">", comparisons.greater, (x, y), *options)


@composed
@export("assert_greater_equal", "debugging.assert_greater_equal")
def assert_greater_equal(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that x is greater than or equal to y, element by element."""
    options = (data, summarize, message, name)
    return _compare("assert_greater_equal", ">=", comparisons.greater_equal, (x, y), *options)


@composed
@export("assert_negative", "debugging.assert_negative")
def assert_negative(
    x: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that all elements of x are negative."""
    with name_scope(name, "assert_negative", [x, data]):
        x = convert_to_tensor(x, name="x")
        if data is None:
            data = [
                message or "",
                "Condition x < 0 did not hold element-wise:",
                *_described("x", x),
            ]
        zero = convert_to_tensor(0, dtype=x.dtype)
        return assert_less(x, zero, data=data, summarize=summarize)


@composed
@export("assert_positive", "debugging.assert_positive")
def assert_positive(
    x: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that all elements of x are positive."""
    with name_scope(name, "assert_positive", [x, data]):
        x = convert_to_tensor(x, name="x")
        if data is None:
            data = [
                message or "",
                "Condition x > 0 did not hold element-wise:",
                *_described("x", x),
            ]
        zero = convert_to_tensor(0, dtype=x.dtype)
        return assert_less(zero, x, data=data, summarize=summarize)


@composed
@export("assert_non_negative", "debugging.assert_non_negative")
def assert_non_negative(
    x: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that all elements of x are zero or positive."""
    with name_scope(name, "assert_non_negative", [x, data]):
        x = convert_to_tensor(x, name="x")
        if data is None:
            data = [
                message or "",
                "Condition x >= 0 did not hold element-wise:",
                *_described("x", x),
            ]
        zero = convert_to_tensor(0, dtype=x.dtype)
        return assert_less_equal(zero, x, data=data, summarize=summarize)


@composed
@export("assert_non_positive", "debugging.assert_non_positive")
def assert_non_positive(
    x: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that all elements of x are zero or negative."""
    with name_scope(name, "assert_non_positive", [x, data]):
        x = convert_to_tensor(x, name="x")
        if data is None:
            data = [message or "", f"Condition x <= 0 did not hold element-wise:x ({x.name}) = ", x]
        zero = convert_to_tensor(0, dtype=x.dtype)
        return assert_less_equal(x, zero, data=data, summarize=summarize)


@composed
@export("assert_near", "debugging.assert_near")
def assert_near(
    x: Any,
    y: Any,
    rtol: Any = None,
    atol: Any = None,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that |x - y| < atol + rtol |y|, element by element (by default 10 rounding errors)."""
    with name_scope(name, "assert_near", [x, y, rtol, atol, data]):
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y")
        step = 10 * float(ml_dtypes.finfo(x.dtype.as_numpy_dtype).eps)
        rtol = convert_to_tensor(step if rtol is None else rtol, dtype=x.dtype, name="rtol")
        atol = convert_to_tensor(step if atol is None else atol, dtype=x.dtype, name="atol")
        if data is None:
            what = f"x and y not equal to tolerance rtol = {rtol}, atol = {atol}"
            data = [message or "", what, *_described("x", x), *_described("y", y)]
        tolerance = atol + rtol * b.abs(y)
        difference = b.abs(x - y)
        condition = b.reduce_all(comparisons.less(difference, tolerance))
        return b.Assert(condition, data, summarize=summarize)


# Ranks


def _check_ranks(
    x: Tensor,
    ranks: list[Tensor],
    holds: Callable[[int, list[int]], bool],
    condition: Callable[[Tensor, list[Tensor]], Tensor],
    wanted: str,
    data: list[Any],
    summarize: int | None,
    message: str,
) -> Operation:
    """Assert something about x's rank and scalars `ranks`: now if all are known, else in a step."""
    for rank in ranks:
        assert_type(rank, dtypes.int32)
    static = [constant_value(rank) for rank in ranks]
    if any(r is not None and r.ndim for r in static):
        raise ValueError("Rank must be a scalar.")
    if x.shape.ndims is not None and all(r is not None for r in static):
        known = [int(r) for r in static]  # type: ignore[arg-type]
        if not holds(x.shape.ndims, known):
            shown = known[0] if len(known) == 1 and not wanted.endswith("in") else tuple(known)
            raise ValueError(
                f"{message}.  Tensor {x.name} must have {wanted} {shown}.  Received rank "
                f"{x.shape.ndims}, shape {x.shape}"
            )
        return b.no_op(name="static_checks_determined_all_ok")
    return b.Assert(condition(b.rank(x), ranks), data, summarize=summarize)


def _rank_data(x: Tensor, ranks: list[Tensor], wanted: str, message: str) -> list[Any]:
    return [message, f"Tensor {x.name} must have {wanted}", *ranks, "Received shape: ", b.shape(x)]


@composed
@export("assert_rank", "debugging.assert_rank")
def assert_rank(
    x: Any,
    rank: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that x has the given rank."""
    with name_scope(name, "assert_rank", [x, rank, *(data or [])]):
        x = convert_to_tensor(x, name="x")
        ranks = [convert_to_tensor(rank, name="rank")]
        message = message or ""
        if data is None:
            data = _rank_data(x, ranks, "rank", message)
        return _check_ranks(
            x,
            ranks,
            lambda actual, given: actual == given[0],
            lambda actual, given: comparisons.equal(actual, given[0]),
            "rank",
            data,
            summarize,
            message,
        )


@composed
@export("assert_rank_at_least", "debugging.assert_rank_at_least")
def assert_rank_at_least(
    x: Any,
    rank: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that x has the given rank or a higher one."""
    with name_scope(name, "assert_rank_at_least", [x, rank, *(data or [])]):
        x = convert_to_tensor(x, name="x")
        ranks = [convert_to_tensor(rank, name="rank")]
        message = message or ""
        if data is None:
            data = _rank_data(x, ranks, "rank at least", message)
        return _check_ranks(
            x,
            ranks,
            lambda actual, given: actual >= given[0],
            lambda actual, given: comparisons.greater_equal(actual, given[0]),
            "rank at least",
            data,
            summarize,
            message,
        )


def _equals_any(actual: Tensor, given: list[Tensor]) -> Tensor:
    result = comparisons.equal(given[0], actual)
    for rank in given[1:]:
        result = comparisons.logical_or(result, comparisons.equal(rank, actual))
    return result


@composed
@export("assert_rank_in", "debugging.assert_rank_in")
def assert_rank_in(
    x: Any,
    ranks: Iterable[Any],
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that x has one of the given ranks."""
    ranks = list(ranks)
    with name_scope(name, "assert_rank_in", [x, *ranks, *(data or [])]):
        x = convert_to_tensor(x, name="x")
        tensors = [convert_to_tensor(rank, name="rank") for rank in ranks]
        message = message or ""
        if data is None:
            data = _rank_data(x, tensors, "rank in", message)
        return _check_ranks(
            x,
            tensors,
            lambda actual, given: actual in given,
            _equals_any,
            "rank in",
            data,
            summarize,
            message,
        )


@composed
@export("assert_scalar", "debugging.assert_scalar")
def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Tensor:
    """Return the tensor, which must be known to be a scalar."""
    with name_scope(name, "assert_scalar", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name=scope)
        if tensor.shape.ndims != 0:
            raise ValueError(
                f"{message or ''}Expected scalar shape for {tensor.name}, saw shape: "
                f"{tensor.shape}."
            )
        return tensor


# Types


@composed
@export("assert_type", "debugging.assert_type")
def assert_type(
    tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None
) -> Operation:
    """Check that a tensor has the given type."""
    with name_scope(name, "assert_type", [tensor]):
        tensor = convert_to_tensor(tensor, name="tensor")
        wanted = as_dtype(tf_type)
        if tensor.dtype != wanted:
            raise TypeError(f"{message or ''}  {tensor.name} must be of type {wanted}")
        return b.no_op(name="statically_determined_correct_type")


@composed
@export("assert_integer", "debugging.assert_integer")
def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Operation:
    """Check that x is of an integer type."""
    with name_scope(name, "assert_integer", [x]):
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_integer:
            raise TypeError(
                f'{message or ""}  Expected "x" to be integer type.  Found: {x.name} of dtype '
                f"{x.dtype}"
            )
        return b.no_op(name="statically_determined_was_integer")


@composed
@export("assert_same_float_dtype", "debugging.assert_same_float_dtype")
def assert_same_float_dtype(tensors: Any = None, dtype: Any = None) -> DType:
    """Return the one floating-point type of the tensors, which `dtype`, if given, must be."""
    wanted = None if dtype is None else as_dtype(dtype).base_dtype
    first = ""
    for tensor in tensors or ():
        found = tensor.dtype.base_dtype
        if wanted is None:
            wanted, first = found, f" as {tensor.name}"
        elif found is not wanted:
            raise ValueError(
                f"{tensor.name}, type={found}, must be of the same type ({wanted}){first}."
            )
    if wanted is None:
        return dtypes.float32
    if not wanted.is_floating:
        raise ValueError(f"Expected floating point type, got {wanted}.")
    return wanted


@composed
@export("assert_proper_iterable", "debugging.assert_proper_iterable")
def assert_proper_iterable(values: Any) -> None:
    """Check that `values` is iterable, and meant so: not text, nor a tensor or an array."""
    if isinstance(values, Tensor | SparseTensor | np.ndarray | str | bytes):
        raise TypeError(
            f'Expected argument "values" to be a "proper" iterable.  Found: {type(values)}'
        )
    if not hasattr(values, "__iter__"):
        raise TypeError(f'Expected argument "values" to be iterable.  Found: {type(values)}')


_NUMERIC = frozenset(
    map(
        as_dtype,
        [
            "float32",
            "float64",
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "qint8",
            "qint32",
            "quint8",
            "complex64",
        ],
    )
)


@composed
@export("is_numeric_tensor", "debugging.is_numeric_tensor")
def is_numeric_tensor(tensor: Any) -> bool:
    """Return whether `tensor` is a tensor of numbers."""
    return isinstance(tensor, Tensor) and tensor.dtype.base_dtype in _NUMERIC
