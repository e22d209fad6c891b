"""`tensorflow.python.util.deprecation`: notices about functions that are going to be removed.

Headrace itself prints none; these are for a program's own functions. A program that sets the
module's `_PRINT_DEPRECATION_WARNINGS` to False, as many do, sees none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import headrace as tf
from headrace.python._functions import make_decorator

PRINT_DEPRECATION_WARNINGS = True
_FLAG = "_PRINT_DEPRECATION_WARNINGS"


def _module() -> Any:
    return import_module("headrace.python.util.deprecation")


def deprecated(
    date: str | None, instructions: str, warn_once: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator whose function logs that it will be removed, and what to do instead.

    date: when, as "YYYY-MM-DD"; None: at some time.
    warn_once: whether only the first call says so.
    """
    if not instructions:
        raise ValueError("Don't deprecate things without conversion instructions!")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        warned = False

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal warned
            if getattr(_module(), _FLAG) and not (warned and warn_once):
                warned = True
                frame = inspect.stack()[1]
                when = "in a future version" if date is None else f"after {date}"
                tf.logging.warning(
                    "From %s:%s: %s (from %s) is deprecated and will be removed %s.\n"
                    "Instructions for updating:\n%s",
                    *(frame.filename, frame.lineno, function.__name__, function.__module__),
                    *(when, instructions),
                )
            return function(*args, **kwargs)

        return make_decorator(function, call, "deprecated")

    return decorate


@contextmanager
def silence() -> Iterator[None]:
    """Print no notices inside the with-block."""
    module = _module()
    before = getattr(module, _FLAG)
    setattr(module, _FLAG, False)
    try:
        yield
    finally:
        setattr(module, _FLAG, before)
