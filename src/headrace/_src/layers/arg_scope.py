"""Argument scopes: default arguments of functions, within a with-block (tf.contrib.framework).

    with arg_scope([conv2d, fully_connected], activation_fn=tf.nn.relu):
        net = conv2d(images, 64, 3)

A scope is a dict from a function's key to its default arguments; scopes nest, and the inner one
wins. State: the current scope of each thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

from headrace._src.core.export import export

__all__ = ["add_arg_scope", "arg_scope", "arg_scoped_arguments", "current_arg_scope"]

Scope = dict[str, dict[str, Any]]
Function = TypeVar("Function", bound=Callable[..., Any])

_open: ContextVar[Scope | None] = ContextVar("arg_scope", default=None)


@export("contrib.framework.add_arg_scope", "contrib.slim.add_arg_scope")
def add_arg_scope(func: Function) -> Function:
    """Return the function with default arguments taken from the current scope."""
    described: Any = func
    key = f"{func.__module__}.{described.__qualname__}"

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **{**current_arg_scope().get(key, {}), **kwargs})

    call._arg_scope_key = key  # type: ignore[attr-defined]
    return cast(Function, call)


@export("contrib.framework.arg_scope", "contrib.slim.arg_scope")
@contextmanager
def arg_scope(
    list_ops_or_scope: Sequence[Callable[..., Any]] | Scope, **kwargs: Any
) -> Iterator[Scope]:
    """Open a scope in which the functions have the defaults `kwargs`, in addition to the outer
    scope's defaults; or reopen a scope that another arg_scope yielded. Yields the scope.
    """
    if isinstance(list_ops_or_scope, Mapping):
        if kwargs:
            raise ValueError(
                "When attempting to re-use a scope by suppling a dictionary, kwargs must be empty."
            )
        scope = dict(list_ops_or_scope)
    elif isinstance(list_ops_or_scope, list | tuple):
        scope = dict(current_arg_scope())
        for function in list_ops_or_scope:
            key = _key(function)
            scope[key] = {**scope.get(key, {}), **kwargs}
    else:
        raise TypeError("list_ops_or_scope must either be a list/tuple or reused scope (i.e. dict)")
    token = _open.set(scope)
    try:
        yield scope
    finally:
        _open.reset(token)


@export("contrib.framework.current_arg_scope", "contrib.slim.current_arg_scope")
def current_arg_scope() -> Scope:
    """Return the current scope; empty if there's none."""
    return _open.get() or {}


@export("contrib.framework.has_arg_scope", "contrib.slim.has_arg_scope")
def has_arg_scope(func: Any) -> bool:
    """Return whether add_arg_scope was applied to a function."""
    return hasattr(func, "_arg_scope_key")


@export("contrib.framework.arg_scoped_arguments", "contrib.slim.arg_scoped_arguments")
def arg_scoped_arguments(func: Any) -> tuple[str, ...]:
    """Return the names of a function's arguments that a scope can set."""
    _key(func)
    code = func.__wrapped__.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names[code.co_argcount - len(func.__wrapped__.__defaults__ or ()) :]


def _key(func: Any) -> str:
    if not has_arg_scope(func):
        raise ValueError(f"{getattr(func, '__name__', func)} is not decorated with @add_arg_scope")
    return func._arg_scope_key
