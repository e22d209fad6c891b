"""Operators that are made of a list of operators."""

from __future__ import annotations

from typing import Any

from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.ops.base.define import b

__all__ = ["check_operator", "checked_operators", "hint_of_all", "log_determinants", "parents_of"]


def check_operator(value: Any) -> None:
    """Raise TypeError unless `value` is an operator."""
    if not isinstance(value, LinearOperator):
        raise TypeError(f"Expected a LinearOperator. Found: {value!r}")


def checked_operators(operators: Any, wanted: str) -> list[Any]:
    """Return a list of operators, `wanted` in an error message, all of one type."""
    b.assert_proper_iterable(operators)
    operators = list(operators)
    if not operators:
        raise ValueError(f"Expected a {wanted}. Found: {operators}")
    for operator in operators:
        check_operator(operator)
    if len({o.dtype for o in operators}) > 1:
        pairs = "   ".join(str((o.name, o.dtype)) for o in operators)
        raise TypeError(f"Expected all operators to have the same dtype.  Found {pairs}")
    return operators


def hint_of_all(operators: list[Any], name: str, hint: bool | None, reason: str) -> bool | None:
    """Return True if the hint `name` of all operators is; ValueError(reason) if ours is False."""
    if not all(getattr(o, name) for o in operators):
        return hint
    if hint is False:
        raise ValueError(reason)
    return True


def log_determinants(operators: list[Any]) -> list[Any]:
    """Return log |det| of the operators in their type; some of complex operators give real ones."""
    return [b.cast(o.log_abs_determinant(), o.dtype) for o in operators]


def parents_of(operators: list[Any]) -> list[Any]:
    """Return the tensors that define the operators."""
    return [parent for o in operators for parent in o.graph_parents]
