"""Watch what becomes of steps. In: an observer, for tools that run other people's programs. Out: a
watch of each step that any session of the process prepares, which sees its forms and its runs.

State: the observer, one for the process: a program may make its sessions in any thread. Sessions
ask for it when they prepare a step, so that without one nothing costs anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from headrace._src.graph.dataflow import Node
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.pipeline import Options

__all__ = ["Observer", "StepWatch", "observed_by", "timed", "watch_step"]


class StepWatch(Protocol):
    """What is told of one step, from any thread that runs it."""

    def passed(self, name: str, form: Any) -> None:
        """A pass has made this form."""
        ...

    def told(self, node: Node, reason: str) -> None:
        """A node is not compiled, and why."""
        ...

    def runs_as_is(self, reason: str) -> None:
        """The step, or from now on some of its runs, is interpreted as the graph has it."""
        ...

    def ran(self, seconds: float) -> None:
        """A run of the step is over. An exception ends the program's run of the session."""
        ...


class Observer(Protocol):
    """Makes the watches of steps."""

    def __call__(
        self,
        fetches: Sequence[Tensor],
        targets: Sequence[Operation],
        feeds: Sequence[Tensor],
        options: Options,
    ) -> StepWatch: ...


_observer: Observer | None = None


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Let an observer see the steps that sessions prepare inside the with-block."""
    global _observer
    before, _observer = _observer, observer
    try:
        yield
    finally:
        _observer = before


def watch_step(
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
    feeds: Sequence[Tensor],
    options: Options,
) -> StepWatch | None:
    """The watch of a step that is about to be prepared; None if nobody observes."""
    return None if _observer is None else _observer(fetches, targets, feeds, options)


def timed(run: Callable[[list[Any]], list[Any]], watch: StepWatch) -> Any:
    """A function that runs a step and tells its watch how long that took."""

    def run_timed(values: list[Any]) -> list[Any]:
        began = time.perf_counter()
        results = run(values)
        watch.ran(time.perf_counter() - began)
        return results

    return run_timed
