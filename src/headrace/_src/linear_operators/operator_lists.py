"""Operators that are made of a list of operators."""

from __future__ import annotations

from typing import Any

from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope

__all__ = [
    "OperatorOfSeveral",
    "check_operator",
    "checked_operators",
    "hint_of_all",
    "hints_of_all",
    "log_determinants",
]

Hints = tuple[bool | None, bool | None, bool | None]


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


def hints_of_all(
    operators: list[Any], what: str, hints: Hints, definite: str = "positive definite"
) -> Hints:
    """Return whether a sum or product is non-singular, self-adjoint and positive definite: it is if
    all operators are. hints: ours. what, definite: the words of an error message.
    """
    words = ("non-singular", "self-adjoint", definite)
    reasons = [f"The {what} of {word} operators is always {word}." for word in words]
    return (
        hint_of_all(operators, "is_non_singular", hints[0], reasons[0]),
        hint_of_all(operators, "is_self_adjoint", hints[1], reasons[1]),
        hint_of_all(operators, "is_positive_definite", hints[2], reasons[2]),
    )


def log_determinants(operators: list[Any]) -> list[Any]:
    """Return log |det| of the operators in their type; some of complex operators give real ones."""
    return [b.cast(o.log_abs_determinant(), o.dtype) for o in operators]


def _parents_of(operators: list[Any]) -> list[Any]:
    """Return the tensors that define the operators."""
    return [parent for o in operators for parent in o.graph_parents]


class OperatorOfSeveral(LinearOperator):
    """An operator that is made of others. between: what joins their names to its own."""

    def __init__(
        self,
        operators: list[Any],
        is_non_singular: bool | None,
        is_self_adjoint: bool | None,
        is_positive_definite: bool | None,
        is_square: bool | None,
        between: str,
        name: str | None,
    ) -> None:
        self._operators = operators
        name = name or between.join(o.name for o in operators)
        parents = _parents_of(operators)
        with name_scope(name, values=parents):
            super().__init__(
                operators[0].dtype,
                parents,
                is_non_singular,
                is_self_adjoint,
                is_positive_definite,
                is_square,
                name,
            )

    @property
    def operators(self) -> list[Any]:
        """The operators that it is made of."""
        return self._operators
