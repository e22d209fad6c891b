"""Which tasks of a step need not say that they have ended. In: the shares of a step's tasks. Out:
for tasks, the others that have ended when they have.

A task whose share ends with nothing but tensors for one other task is *covered* by that one, which
cannot end before it has them. This holds whatever order each task chooses for its share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace._src.graph.definition import Effect
from headrace._src.graph.state_sources import is_source
from headrace._src.ops.base.transfers import is_recv, is_send
from headrace._src.partition.shares import Share

__all__ = ["covers", "joined"]


def covers(shares: Sequence[Share], task_of: Callable[[str], str]) -> dict[str, tuple[str, ...]]:
    """Return for tasks the others that they cover."""
    ends = {share.task: _end_of(share, task_of) for share in shares}
    return joined({task: end for task, end in ends.items() if end is not None})


def joined(by: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return for tasks all that they cover. by: the task that covers another, by that one; it may
    itself be covered.
    """
    found: dict[str, tuple[str, ...]] = {}
    for task, last in by.items():
        while last in by:
            last = by[last]
        found[last] = (*found.get(last, ()), task)
    return found


def _end_of(share: Share, task_of: Callable[[str], str]) -> str | None:
    """Return the task to which all goes that a share ends with; None if there is no such task, or
    if the share has more to tell: it returns values, may block on a queue, or has control flow.
    """
    if share.fetches or len(share.parts) != 1:
        return None
    nodes = [node for node in share.parts[0].flow.nodes if node.constant is None]
    used: set[object] = set()
    for node in nodes:
        used.update(value.producer for value in node.inputs)
        used.update(node.controls)
        blocks = node.definition.effect is Effect.BLOCKS and not is_recv(node)
        if blocks or node.definition.flow is not None:
            return None
        if (is_send(node) or is_recv(node)) and node.attrs["stage"] < 0:
            return None
    last = [node for node in nodes if node not in used and not is_source(node)]
    ends = {task_of(node.attrs["recv_device"]) if is_send(node) else "" for node in last}
    return ends.pop() or None if len(ends) == 1 else None
