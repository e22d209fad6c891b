"""Warn about graphs that grow inside a loop of runs. This is the most common reason why a TF1
program becomes slow and then runs out of memory.
"""

from __future__ import annotations

import warnings

from headrace._src.core.source import user_line
from headrace._src.graph.graph import Graph

__all__ = ["GrowthWatch", "GraphGrowthWarning"]

_RUNS = 20  # Set-up code may add operations between some runs; a loop does so each time.


class GraphGrowthWarning(UserWarning):
    """The program keeps adding operations to the graph between runs."""


class GrowthWatch:
    """Warn once, with the line, if the graph grew before each of many consecutive runs."""

    __slots__ = ("_warned", "streak", "version")

    def __init__(self) -> None:
        self.version = -1  # the graph's version at the last run
        self.streak = 0  # the number of consecutive runs before which the graph grew
        self._warned = False

    def grew(self, graph: Graph) -> None:
        """Record a run before which the graph grew.

        Call it only if `version` differs from the graph's.
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
