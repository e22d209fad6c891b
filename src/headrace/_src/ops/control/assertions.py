"""Assertions on values and types. In: tensors and the conditions they must meet. Out: an operation
that fails the step if a condition is not met; or an exception at once, if that is known already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices, SparseTensor
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = [
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_integer",
    "assert_less",
    "assert_less_equal",
    "assert_near",
    "assert_negative",
    "assert_non_negative",
    "assert_non_positive",
    "assert_none_equal",
    "assert_positive",
    "assert_proper_iterable",
    "assert_same_float_dtype",
    "assert_type",
    "is_numeric_tensor",
]


# -- Two tensors, element by element


def _shown(item: Any) -> str:
    """Return a piece of a message, with a tensor's value where it is known."""
    value = constant_value(item) if isinstance(item, Tensor) else item
    return str(item if value is None else value)


def _compare(
    symbol: str,
    build: Callable[..., Tensor],
    known: Callable[..., Any],
    x: Any,
    y: Any,
    data: Any,
    summarize: int | None,
    message: str | None,
    scope_name: str,
    default: str,
) -> Operation:
    """Assert that build(x, y) holds everywhere; `known` is its equivalent for arrays."""
    with name_scope(scope_name, default, [x, y, data]):
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y")
        if data is None:
            data = [
                f"Condition x {symbol} y did not hold element-wise:",
                f"x ({x.name}) = ",
                x,
                f"y ({y.name}) = ",
                y,
            ]
        if message is not None:
            data = [message, *data]
        condition = b.reduce_all(build(x, y))
        left, right = constant_value(x), constant_value(y)
        if left is not None and right is not None and not np.all(known(left, right)):
            raise InvalidArgumentError(None, None, "\n".join(map(_shown, data)))
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
    """Assert x == y, everywhere.

    data: tensors to print if the assertion fails, by default x and y. summarize: the number of
    elements to print of each. message: the beginning of the error message.
    """
    scope_name = name or "assert_equal"
    with name_scope(name, "assert_equal", [x, y, data]):
        if x is y:
            return b.no_op()
    return _compare(
        "==", b.equal, np.equal, x, y, data, summarize, message, scope_name, "assert_equal"
    )


def _comparison(
    function_name: str, symbol: str, build_name: str, known: Callable[..., Any]
) -> Callable[..., Operation]:
    def check(
        x: Any,
        y: Any,
        data: Any = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Operation:
        build = getattr(b, build_name)
        scope_name = name or function_name
        return _compare(
            symbol, build, known, x, y, data, summarize, message, scope_name, function_name
        )

    check.__name__ = check.__qualname__ = function_name
    check.__doc__ = f"Assert x {symbol} y, everywhere."
    return composed(export(function_name, f"debugging.{function_name}")(check))


assert_none_equal = _comparison("assert_none_equal", "!=", "not_equal", np.not_equal)
assert_less = _comparison("assert_less", "<", "less", np.less)
assert_less_equal = _comparison("assert_less_equal", "<=", "less_equal", np.less_equal)
assert_greater = _comparison("assert_greater", ">", "greater", np.greater)
assert_greater_equal = _comparison("assert_greater_equal", ">=", "greater_equal", np.greater_equal)


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
    """Assert |x - y| < atol + rtol * |y|, everywhere; both default to 10 epsilons.

    data, summarize and message are those of assert_equal.
    """
    with name_scope(name, "assert_near", [x, y, rtol, atol, data]):
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype)
        kind = x.dtype.real_dtype.base_dtype
        if not kind.is_floating:
            raise ValueError(f"data type {x.dtype.name} not inexact")
        epsilon = 10 * float(ml_dtypes.finfo(kind.numpy).eps)
        rtol = convert_to_tensor(epsilon if rtol is None else rtol, kind, "rtol")
        atol = convert_to_tensor(epsilon if atol is None else atol, kind, "atol")
        if data is None:
            data = [
                message or "",
                f"x and y not equal to tolerance rtol = {rtol}, atol = {atol}",
                f"x ({x.name}) = ",
                x,
                f"y ({y.name}) = ",
                y,
            ]
        tolerance = atol + rtol * b.abs(y)
        difference = b.abs(x - y)
        condition = b.reduce_all(b.less(difference, tolerance))
        return b.Assert(condition, data, summarize=summarize)


# -- One tensor and zero


def _against_zero(
    function_name: str, symbol: str, comparison: Callable[..., Operation], zero_first: bool
) -> Callable[..., Operation]:
    def check(
        x: Any,
        data: Any = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Operation:
        with name_scope(name, function_name, [x, data]):
            x = convert_to_tensor(x, name="x")
            if data is None:
                lines = [f"Condition x {symbol} 0 did not hold element-wise:", f"x ({x.name}) = "]
                if symbol == "<=":
                    lines = ["".join(lines)]  # TensorFlow prints one line
                data = [message or "", *lines, x]
            zero = convert_to_tensor(0, dtype=x.dtype)
            pair = (zero, x) if zero_first else (x, zero)
            return comparison(*pair, data=data, summarize=summarize)

    check.__name__ = check.__qualname__ = function_name
    check.__doc__ = f"Assert x {symbol} 0, everywhere."
    return composed(export(function_name, f"debugging.{function_name}")(check))


assert_negative = _against_zero("assert_negative", "<", assert_less, False)
assert_positive = _against_zero("assert_positive", ">", assert_less, True)
assert_non_negative = _against_zero("assert_non_negative", ">=", assert_less_equal, True)
assert_non_positive = _against_zero("assert_non_positive", "<=", assert_less_equal, False)


# -- Types


@composed
@export("assert_integer", "debugging.assert_integer")
def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Operation:
    """Raise TypeError unless `x` is of an integer type."""
    with name_scope(name, "assert_integer", [x]):
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_integer:
            raise TypeError(
                f'{message or ""}  Expected "x" to be integer type.  Found: {x.name} of dtype '
                f"{_type(x.dtype)}"
            )
        return b.no_op(name="statically_determined_was_integer")


def _type(dtype: DType) -> str:
    return f"<dtype: '{dtype.name}'>"


@composed
@export("assert_type", "debugging.assert_type")
def assert_type(
    tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None
) -> Operation:
    """Raise TypeError unless `tensor` is of type `tf_type`."""
    wanted = as_dtype(tf_type)
    with name_scope(name, "assert_type", [tensor]):
        if not isinstance(tensor, SparseTensor):
            tensor = convert_to_tensor(tensor, name="tensor")
        if tensor.dtype != wanted:
            shown = getattr(tensor, "name", tensor)
            raise TypeError(f"{message or ''}  {shown} must be of type {_type(wanted)}")
        return b.no_op(name="statically_determined_correct_type")


@composed
@export("assert_same_float_dtype", "debugging.assert_same_float_dtype")
def assert_same_float_dtype(tensors: Any = None, dtype: Any = None) -> DType:
    """Return the common floating type of `tensors` (and `dtype`); float32 if there are none."""
    expected = None if dtype is None else as_dtype(dtype).base_dtype
    first = None
    for tensor in tensors or ():
        if tensor is None:
            continue
        found = tensor.dtype.base_dtype
        if expected is None:
            expected, first = found, tensor
        elif found is not expected:
            shown = getattr(tensor, "name", tensor)
            other = f" as {first.name}" if first is not None else ""
            raise ValueError(
                f"{shown}, type={_type(found)}, must be of the same type "
                f"({_type(expected)}){other}."
            )
    if expected is None:
        return dtypes.float32
    if not expected.is_floating:
        raise ValueError(f"Expected floating point type, got {_type(expected)}.")
    return expected


# TensorFlow's list of types, which lacks the narrow floats and complex128.
_NUMERIC = {
    as_dtype(name)
    for name in (
        *("float32", "float64", "int8", "int16", "int32", "int64", "uint8"),
        *("qint8", "qint32", "quint8", "complex64"),
    )
}


@composed
@export("is_numeric_tensor", "debugging.is_numeric_tensor")
def is_numeric_tensor(tensor: Any) -> bool:
    """Return whether `tensor` is a dense tensor of numbers."""
    return isinstance(tensor, Tensor) and tensor.dtype.base_dtype in _NUMERIC


@composed
@export("assert_proper_iterable", "debugging.assert_proper_iterable")
def assert_proper_iterable(values: Any) -> None:
    """Raise TypeError for values that aren't iterable, and for tensors, arrays and strings, which
    aren't lists of arguments.
    """
    if isinstance(values, Tensor | SparseTensor | IndexedSlices | np.ndarray | str | bytes):
        raise TypeError(
            f'Expected argument "values" to be a "proper" iterable.  Found: {type(values)}'
        )
    if not hasattr(values, "__iter__"):
        raise TypeError(f'Expected argument "values" to be iterable.  Found: {type(values)}')
