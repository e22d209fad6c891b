"""Loops that ask for `swap_memory`. In: the nodes of a region. Out: a warning, once per session.

`swap_memory` asks that what a loop saves for its gradient be kept in the next tier of memory: the
host's, or on a CPU that of files (`devices.swap_files`). In a region these values are arrays that
the loop carries, in the memory of the JAX device. The request has no effect there, and the session
says so, except on JAX's CPU where no folder for files was given: there, it has none on any device.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from headrace._src.core.locks import Lock
from headrace._src.devices.swap_files import swaps
from headrace._src.graph.dataflow import Node
from headrace._src.graph.structured import is_loop, parts_of

__all__ = ["report_swapping"]

_lock = Lock()
_told: WeakSet[Any] = WeakSet()


def report_swapping(nodes: Iterable[Node], platform: str, session: Any) -> None:
    """Log that `swap_memory` has no effect if a loop asks for it and a CPU device, or a platform
    with memory of its own, could do as it asks; once for each `session`, which may be any object.
    """
    if platform == "cpu" and not swaps():
        return
    name = _first_swapping(nodes)
    if name is None:
        return
    with _lock:
        if session in _told:
            return
        _told.add(session)
    logging.getLogger("headrace").warning(
        "swap_memory=True of loop '%s' has no effect on XLA devices: what it saves for its "
        "gradient stays in the memory of the %s",
        name,
        platform,
    )


def _first_swapping(nodes: Iterable[Node]) -> str | None:
    """Return the name of a loop that asks for `swap_memory`, at any depth."""
    for node in nodes:
        parts = parts_of(node)
        if parts and is_loop(node):
            get = getattr(node.origin, "_get_control_flow_context", None)
            context = None if get is None else get()
            if context is not None and getattr(context, "swap_memory", False):
                return str(context.name)
        for part in parts.values():
            found = _first_swapping(part.nodes)
            if found is not None:
                return found
    return None
