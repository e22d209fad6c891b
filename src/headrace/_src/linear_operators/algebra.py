"""Operations on linear operators that choose by class: the adjoint, the inverse and the Cholesky
factor of an operator, the product and the quotient of two.

`rules` fills these tables. The first rule whose classes fit the operators gives the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.ops.base.to_tensor import name_scope

__all__ = ["ADJOINT", "CHOLESKY", "INVERSE", "PRODUCT", "QUOTIENT", "Rules"]

Rule = Callable[..., Any]


class Rules:
    """The rules of one operation, in the order in which they are tried."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._rules: list[tuple[tuple[type, ...], Rule]] = []

    def of(self, *classes: type) -> Callable[[Rule], Rule]:
        """Decorate a rule for operators of these classes."""

        def add(rule: Rule) -> Rule:
            self._rules.append((classes, rule))
            return rule

        return add

    def __call__(self, *operators: Any) -> Any:
        for classes, rule in self._rules:
            if all(map(isinstance, operators, classes)):
                with name_scope(None, self._scope, []):
                    return rule(*operators)
        raise AssertionError("the last rule is for all operators")


ADJOINT = Rules("Adjoint")
INVERSE = Rules("Inverse")
CHOLESKY = Rules("Cholesky")
PRODUCT = Rules("Matmul")
QUOTIENT = Rules("Solve")
