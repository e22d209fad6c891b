"""A watch over graphs that grow inside a loop of runs: the commonest way to make a TF1 program slow
and then run out of memory.
"""

from __future__ import annotations

import warnings

from headrace._src.core.source import user_line
from headrace._src.graph.graph import Graph

__all__ = ["GrowthWatch", "GraphGrowthWarning"]

_RUNS = 20  # Set-up code may add operations between some runs; a loop does so each time.


class GraphGrowthWarning(UserWarning):
    """Operations are added to the graph between runs, again and again."""


class GrowthWatch:
    """Warns once, naming the line, when the graph grew before each of many consecutive runs."""

    __slots__ = ("_warned", "streak", "version")

    def __init__(self) -> None:
        self.version = -1  # the graph's, at the last run
        self.streak = 0  # runs in a row before which it had grown; a run where it had not ends it
        self._warned = False

    def grew(self, graph: Graph) -> None:
        """Take note of a run before which the graph had grown; call only when `version` differs
        from the graph's.
        """
        first = self.version < 0
        before, self.version = self.version, graph.version
        if first or self._warned:
            return
        self.streak += 1
        if self.streak < _RUNS:
            return
        self._warned = True
        added = graph.get_operations()[before:]
        where = next(
            (w for op in added if (w := user_line(op.traceback_frames))), "an unknown line"
        )
        warnings.warn(
            f"the graph grew before each of the last {_RUNS} runs, most recently by {len(added)} "
            f"operations made at {where}. Build the graph once, before the loop, and feed what "
            "changes; "
            "tf.get_default_graph().finalize() turns this mistake into an error.",
            GraphGrowthWarning,
            stacklevel=3,
        )
