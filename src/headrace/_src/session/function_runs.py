"""Run the functions of a graph as steps. In: a GraphFunction and its arguments. Out: its results.

A function's body is prepared, specialised and compiled like a session's step, once per session. A
call runs in the thread of its caller. Functions may call themselves, up to a depth for which
Python's own stack is large enough.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.core.device_names import matches
from headrace._src.core.errors import InvalidArgumentError, ResourceExhaustedError
from headrace._src.core.locks import RLock
from headrace._src.devices.resources import Resources
from headrace._src.gradients.function_gradients import gradient_of
from headrace._src.graph.graph_functions import GraphFunction
from headrace._src.pipeline import Options, prepare
from headrace._src.session.specialisations import Variants

__all__ = ["FunctionRuns"]

_DEEPEST = 30  # nested calls, each about twenty Python frames


class FunctionRuns:
    """The prepared functions of one session."""

    def __init__(self, options: Callable[[], Options], resources: Resources) -> None:
        self._options = options
        self._resources = weakref.ref(resources)
        self._prepared: weakref.WeakKeyDictionary[GraphFunction, dict[str, Variants]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = RLock()
        self._local = threading.local()

    def call(self, function: GraphFunction, args: Sequence[Any], device: str = "") -> list[Any]:
        """Run the body of a function. device: where its operations go that request no other;
        InvalidArgumentError if the session has no such device.
        """
        variants = self._prepared.get(function, {}).get(device) or self._prepare(function, device)
        depth = getattr(self._local, "depth", 0)
        if depth >= _DEEPEST:
            raise ResourceExhaustedError(
                None, None, f"function '{function.name}' is called {depth} calls deep"
            )
        self._local.depth = depth + 1
        try:
            return variants.run([_as_fed(a) for a in args])
        finally:
            self._local.depth = depth

    def gradient(self, function: GraphFunction) -> GraphFunction:
        """Return the function that computes the gradients of `function`."""
        return gradient_of(function)

    def _prepare(self, function: GraphFunction, device: str) -> Variants:
        with self._lock:
            known = self._prepared.setdefault(function, {})
            found = known.get(device)
            if found is None:
                options = _preferring(device, self._options()) if device else self._options()
                step = prepare(function.outputs, function.targets, function.inputs, options)
                resources = self._resources()
                assert resources is not None
                found = known[device] = Variants(step, options, resources)
            return found


def _preferring(device: str, options: Options) -> Options:
    """Return options whose first device is the one that a name refers to."""
    try:
        wanted = [d for d in options.devices if matches(device, d.name)]
    except ValueError:
        message = f"Could not parse {device} into a device specification."
        raise InvalidArgumentError(None, None, message) from None
    if not wanted:
        available = ", ".join(d.name for d in options.devices)
        raise InvalidArgumentError(
            None, None, f"functions can't run on {device}: available devices are [ {available} ]."
        )
    others = [d for d in options.devices if d is not wanted[0]]
    return replace(options, devices=(wanted[0], *others))


def _as_fed(value: Any) -> Any:
    """Return a kernel's value in the form of a feed: a string becomes an array."""
    return np.array(value, object) if isinstance(value, bytes) else value
