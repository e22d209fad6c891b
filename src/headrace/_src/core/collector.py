"""Pause Python's cycle collector while many long-lived objects are made. In: a function. Out: the
same function, run with the collector paused.

The passes make tens of thousands of objects at a time. Each collection traverses all of them and
the client's graph, and frees nothing.

State: how many threads want it paused, and whether it was enabled before the first one paused it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from headrace._src.core.locks import Lock

__all__ = ["without_collector"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_lock = Lock()
_resting = 0
_was_on = False


def without_collector(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Pause the collector while `function` runs."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        _rest()
        try:
            return function(*args, **kwargs)
        finally:
            _go_on()

    return run


def _rest() -> None:
    global _resting, _was_on
    with _lock:
        if not _resting:
            _was_on = gc.isenabled()
            gc.disable()
        _resting += 1


def _go_on() -> None:
    global _resting
    with _lock:
        _resting -= 1
        if not _resting and _was_on:
            gc.enable()
