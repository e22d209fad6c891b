"""The default graph and the default session: a stack of each per thread, above one process-wide
graph.

Both stacks live here, below ops and session, since building an op needs the first and `Tensor.eval`
the second.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from headrace._src.core.locks import Lock

if TYPE_CHECKING:
    from headrace._src.graph.graph import Graph

__all__ = ["default_session", "get_default_graph", "push_graph", "push_session", "reset"]


class _Stacks(threading.local):
    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.sessions: list[Any] = []


_stacks = _Stacks()
_process_graph: Graph | None = None
_lock = Lock()


def get_default_graph() -> Graph:
    """Return the graph that new operations join in this thread."""
    if _stacks.graphs:
        return _stacks.graphs[-1]
    global _process_graph
    if _process_graph is None:
        from headrace._src.graph.graph import Graph  # which imports this module

        with _lock:
            if _process_graph is None:
                _process_graph = Graph()
    return _process_graph


def reset() -> None:
    """Drop the process's default graph, so that the next operation starts a new one."""
    if _stacks.graphs:
        raise AssertionError(
            "Do not use tf.reset_default_graph() to clear nested graphs. If you need a cleared "
            "graph, "
            "exit the nesting and create a new graph."
        )
    global _process_graph
    _process_graph = None


def push_graph(graph: Graph) -> AbstractContextManager[Graph]:
    """Make `graph` the default within a with-block."""
    return _push("graphs", graph)


def push_session(session: Any) -> AbstractContextManager[Any]:
    """Make `session` the default within a with-block."""
    return _push("sessions", session)


@contextmanager
def _push(which: str, item: Any) -> Iterator[Any]:
    stack = getattr(_stacks, which)  # the stack of the thread that enters the block
    stack.append(item)
    try:
        yield item
    finally:
        if not stack or stack[-1] is not item:
            raise AssertionError(
                f"Nesting violated: an as_default() block of {which} ends out of order"
            )
        stack.pop()


def default_session() -> Any | None:
    """Return the innermost default session of this thread, or None."""
    return _stacks.sessions[-1] if _stacks.sessions else None


def session_stack() -> list[Any]:
    """This thread's stack of default sessions, for sessions that enter it without a with-block."""
    return _stacks.sessions


def graph_stack() -> list[Graph]:
    """This thread's stack of default graphs, for sessions that enter it without a with-block."""
    return _stacks.graphs
