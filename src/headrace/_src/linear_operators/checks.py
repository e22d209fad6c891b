"""Assertions about the elements that define an operator."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.graph.operation import Operation
from headrace._src.linear_operators.shapes import constant_of
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["assert_no_zeros", "assert_zero_imag_part", "checked_size", "checked_sizes"]


def assert_no_zeros(x: Any, message: str) -> Operation:
    """Return an operation that fails if an element is zero."""
    with name_scope(None, "assert_no_entries_with_modulus_zero", [x]):
        x = convert_to_tensor(x, name="x")
        zero = convert_to_tensor(0, x.dtype.real_dtype)
        return b.assert_less(zero, b.abs(x), message=message)


def assert_zero_imag_part(x: Any, message: str) -> Operation:
    """Return an operation that fails if an element is not real."""
    with name_scope(None, "assert_zero_imag_part", [x]):
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_complex:
            return b.no_op()
        zero = convert_to_tensor(0, x.dtype.real_dtype)
        return b.assert_equal(zero, b.imag(x), message=message)


def checked_size(value: Any, name: str, check_later: bool) -> Any:
    """Return a number of rows or columns as a tensor. `check_later` checks what is not known yet
    at run time.
    """
    size = convert_to_tensor(value, name=name)
    if not size.dtype.is_integer:
        raise TypeError(f"Argument {name} must be integer type.  Found: {size}")
    known = constant_of(size)
    if known is None:
        return _asserted(size, name, 0) if check_later else size
    if known.ndim:
        raise ValueError(f"Argument {name} must be a 0-D Tensor.  Found: {known}")
    if known < 0:
        raise ValueError(f"Argument {name} must be non-negative.  Found: {known}")
    return size


def checked_sizes(value: Any, check_later: bool) -> Any:
    """Return the shape of a batch as a tensor."""
    sizes = convert_to_tensor(value, name="batch_shape_arg")
    if not value_is_integer(sizes, value):
        raise TypeError(f"Argument batch_shape must be integer type.  Found: {sizes}")
    if sizes.dtype.is_floating:  # an empty list
        sizes = b.cast(sizes, dtypes.int32)
    known = constant_of(sizes)
    if known is None:
        return _asserted(sizes, "batch_shape", 1) if check_later else sizes
    if known.ndim != 1:
        raise ValueError(f"Argument batch_shape must be a 1-D Tensor.  Found: {known}")
    if (known < 0).any():
        raise ValueError(f"Argument batch_shape must be non-negative.  Found:{known}")
    return sizes


def value_is_integer(sizes: Any, value: Any) -> bool:
    return sizes.dtype.is_integer or (isinstance(value, list | tuple) and not value)


def _asserted(x: Any, name: str, rank: int) -> Any:
    assertions = [
        b.assert_rank(x, rank, message=f"Argument {name} must be a {rank}-D Tensor."),
        b.assert_non_negative(x, message=f"Argument {name} must be non-negative."),
    ]
    return b.with_dependencies(assertions, x)
