"""StepContext: what a kernel can know of the step that it runs for.

A kernel that names `step` among its keyword-only parameters gets it. The thread that runs a step
has it as its `current` one, and hands it to the threads that work for it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from typing import Any

from headrace._src.devices.cancellation import Cancellation
from headrace._src.devices.rendezvous import Rendezvous

__all__ = ["StepContext", "active", "current"]

_numbers = itertools.count(1)


class StepContext:
    """One step.

    resources: the state of the session that runs it. container: the name of the container there of
    what lives as long as the step. deadline: when it must be over, on the clock of time.monotonic.
    observe: is told of each kernel that has run, if the step is traced. frame, iteration: which
    loop and which of its iterations the kernel runs in, where the step is run by counting.
    """

    def __init__(
        self,
        resources: Any = None,
        cancellation: Cancellation | None = None,
        deadline: float | None = None,
        observe: Callable[..., None] | None = None,
    ) -> None:
        self.id = next(_numbers)
        self.container = f"_step_{self.id}"
        self.resources = resources
        self.cancellation = cancellation or Cancellation()
        self.deadline = deadline
        self.observe = observe
        self.frame = ""
        self.iteration = 0

    @cached_property
    def rendezvous(self) -> Rendezvous:
        """Where the partitions of the step hand tensors to each other."""
        return Rendezvous()

    def inside(self, frame: str, iteration: int) -> StepContext:
        """The same step, as a kernel in an iteration of a loop sees it."""
        self.rendezvous  # noqa: B018  (there is one for all)
        found = copy(self)
        found.frame, found.iteration = frame, iteration
        return found

    def cancel(self, error: BaseException) -> None:
        """Stop the step, from any thread, with an error."""
        self.cancellation.cancel(error)


class _Local(threading.local):
    step: StepContext | None = None


_local = _Local()


def current() -> StepContext | None:
    """The step that this thread runs, if it is one that can be cancelled or that a kernel asks
    about.
    """
    return _local.step


@contextmanager
def active(step: StepContext | None) -> Iterator[StepContext | None]:
    """Make `step` the current one of this thread within the with-block."""
    outer, _local.step = _local.step, step
    try:
        yield step
    finally:
        _local.step = outer
