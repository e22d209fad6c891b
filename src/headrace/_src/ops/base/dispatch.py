"""Functions on other kinds of values than tensors. In: a call whose arguments can't be converted to
tensors. Out: the result of the rule that a type has registered for the function.

A rule is looked up only after the ordinary call has failed, so tensors pay nothing for it. Builders
of ops consult the rules by themselves (see `define`); other functions are marked `dispatched`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

__all__ = ["dispatched", "is_dispatched", "redirect", "register_rules"]

Function = TypeVar("Function", bound=Callable[..., Any])
Rule = Callable[..., Any]

_RULES: dict[str, list[tuple[Any, Rule]]] = {}  # by the name that the function has in `b`


def register_rules(kind: Any, rules: Mapping[str, Rule]) -> None:
    """Register what to call in place of functions, with their arguments, if one of the arguments,
    or an element of a list among them, is of a type (or one of several types). A rule may return
    NotImplemented.
    """
    for name, rule in rules.items():
        _RULES.setdefault(name, []).append((kind, rule))


def redirect(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the result of a rule for a call that failed; NotImplemented if there is none."""
    for kind, rule in _RULES.get(name, ()):
        for value in (*args, *kwargs.values()):
            if isinstance(value, kind) or (
                isinstance(value, list | tuple) and any(isinstance(v, kind) for v in value)
            ):
                return rule(*args, **kwargs)
    return NotImplemented


def dispatched(function: Function) -> Function:
    """Let types register rules for a function that builds several ops."""
    described: Any = function
    name = described.__name__.rstrip("_")

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError) as error:
            failed = error
        result = redirect(name, args, kwargs)  # not in the handler: its errors are errors alone
        if result is NotImplemented:
            raise failed
        return result

    return call  # type: ignore[return-value]


_CODE = dispatched(lambda: None).__code__  # of all functions that `dispatched` returns


def is_dispatched(function: Any) -> bool:
    """Return whether a function is what `dispatched` returned."""
    return getattr(function, "__code__", None) is _CODE
