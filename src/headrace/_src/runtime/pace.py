"""Learn whether a step is brief whose work is not known before it runs. In: the processor time of
each run. Out: whether the next one may run where nothing may take long.

Sizes that a step computes, such as the number of rows with some key, change little from run to run.
So does its time. A step that was brief a few times counts as brief, until it has been long a few
times. The limits differ, so that a step near one of them stays where it is.
"""

from __future__ import annotations

__all__ = ["Pace"]

_BRIEF, _LONG = 0.004, 0.008  # seconds
_RUNS = 3  # in succession, for another opinion


class Pace:
    """What the runs of a step have shown so far."""

    __slots__ = ("_against", "is_brief")

    def __init__(self) -> None:
        self.is_brief = False
        self._against = 0  # the last runs, as far as they contradict

    def note(self, seconds: float) -> None:
        """Take note of a run that has used a processor for so long."""
        contradicts = seconds > _LONG if self.is_brief else seconds <= _BRIEF
        self._against = self._against + 1 if contradicts else 0
        if self._against == _RUNS:
            self.is_brief, self._against = not self.is_brief, 0
