"""Observe the steps of a program. In: an observer, from a tool that runs other people's programs.
Out: a watch for each step that any session prepares. The watch sees the step's forms and runs.

State: one observer for the process, since a program may make its sessions in any thread. Sessions
look for it only when they prepare a step, so that a run without an observer has no extra cost.
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
    """The callbacks for one step, called from any thread that runs the step."""

    def passed(self, name: str, form: Any) -> None:
        """Record the form that a pass has produced."""
        ...

    def told(self, node: Node, reason: str) -> None:
        """Record that a node is not compiled, and the reason."""
        ...

    def runs_as_is(self, reason: str) -> None:
        """Record that the step, or some of its later runs, is interpreted without optimisation."""
        ...

    def ran(self, seconds: float) -> None:
        """Record a finished run. If this raises, so does the program's `Session.run`."""
        ...


class Observer(Protocol):
    """A function that makes the watch of a step."""

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
    """Return the watch of a step that is about to be prepared, or None without an observer."""
    return None if _observer is None else _observer(fetches, targets, feeds, options)


def timed(run: Callable[[list[Any]], list[Any]], watch: StepWatch) -> Any:
    """Wrap a function that runs a step so that it reports its time to the watch."""

    def run_timed(values: list[Any]) -> list[Any]:
        began = time.perf_counter()
        results = run(values)
        watch.ran(time.perf_counter() - began)
        return results

    return run_timed
