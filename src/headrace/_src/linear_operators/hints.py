"""Hints: what the user, or the kind of an operator, says about its matrices. Each is True, False or
None, which means unknown. A hint promises; nothing checks it at run time.
"""

from __future__ import annotations

from typing import Any

__all__ = ["agreed", "always", "in_product", "never"]

Hint = bool | None


def always(hint: Hint, reason: str) -> bool:
    """Return True; ValueError(reason) if the hint says otherwise."""
    if hint is False:
        raise ValueError(reason)
    return True


def never(hint: Hint, reason: str) -> bool:
    """Return False; ValueError(reason) if the hint says otherwise."""
    if hint is True:
        raise ValueError(reason)
    return False


def agreed(hint: Hint, known: Hint, reason: str) -> Hint:
    """Return a hint that must be what is known; ValueError(reason) if they differ."""
    if hint is not None and known is not None and hint != known:
        raise ValueError(reason)
    return known if hint is None else hint


def in_product(left: Any, right: Any, *, commuting: bool = False) -> dict[str, Any]:
    """Return the hints of left @ right, or of left^-1 @ right. `commuting` operators keep more."""
    square = _is_square(left, right)
    if square is False:
        return dict.fromkeys(
            ("is_non_singular", "is_self_adjoint", "is_positive_definite", "is_square"), False
        )
    self_adjoint = positive = None
    if commuting:
        both = {left.is_self_adjoint, right.is_self_adjoint}
        self_adjoint = True if both == {True} else False if both == {True, False} else None
        if self_adjoint and left.is_positive_definite and right.is_positive_definite:
            positive = True
    singular = {left.is_non_singular, right.is_non_singular}
    return {
        "is_non_singular": False if False in singular else True if singular == {True} else None,
        "is_self_adjoint": self_adjoint,
        "is_positive_definite": positive,
        "is_square": square,
    }


def _is_square(left: Any, right: Any) -> Hint:
    rows, columns = left.range_dimension.value, right.domain_dimension.value
    if rows is not None and columns is not None:
        return rows == columns
    if left.is_square is None or right.is_square is None:
        return None
    return (left.is_square and right.is_square) or None
