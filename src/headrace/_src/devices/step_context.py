"""StepContext: the information about a step that its kernels can use.

A kernel that names `step` among its keyword-only parameters gets it. The thread that runs a step
has it as its `current` step, and hands it to the threads that work for it.
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

__all__ = ["StepContext", "active", "current", "recorded", "takings"]

Record = list[tuple[Any, list[Any]]]  # queues, and the elements that were taken from them

_numbers = itertools.count(1)


class StepContext:
    """One step.

    resources: the state of the session that runs it. container: the name of the container there for
    state that lives as long as the step. deadline: when the step must be over, on the clock of
    time.monotonic. observe: called for each kernel that has run, if the step is traced. frame,
    iteration: the loop and the iteration that the kernel runs in, if `runtime.step` runs the step.
    taken: the elements that the step has taken from queues, each with its queue; None if nobody
    wants to put them back.
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
        self.path: int | str = 0
        self.taken: Record | None = None

    @cached_property
    def rendezvous(self) -> Rendezvous:
        """The place where the partitions of the step hand tensors to each other."""
        return Rendezvous()

    def inside(self, frame: str, iteration: int, path: int | str = 0) -> StepContext:
        """Return the same step, as a kernel in an iteration of a loop sees it. `path` names the
        frame and the iterations of the loops around it.
        """
        self.rendezvous  # noqa: B018  (make it now, so that all copies share it)
        found = copy(self)
        found.frame, found.iteration, found.path = frame, iteration, path
        return found

    def cancel(self, error: BaseException) -> None:
        """Stop the step, from any thread, with an error."""
        self.cancellation.cancel(error)

    def put_back(self) -> None:
        """Put the elements that the step has taken back to where they were, the last one first."""
        while self.taken:
            owner, elements = self.taken.pop()
            owner.put_back(elements)


class _Local(threading.local):
    step: StepContext | None = None
    recording: tuple[Any, Record] | None = None  # resources, and what a run of theirs has taken


_local = _Local()


def current() -> StepContext | None:
    """Return the step that this thread runs, if it can be cancelled or a kernel asks for it."""
    return _local.step


def takings(resources: Any) -> Record | None:
    """Return the list of what this thread's step in a session has taken, if there is one."""
    recording = _local.recording
    if recording is not None and recording[0] is resources:
        return recording[1]
    step = _local.step
    return step.taken if step is not None and step.resources is resources else None


def recorded(resources: Any, run: Callable[[Any], Any], argument: Any) -> Any:
    """Return `run(argument)`, a run in the fixed order that records what it takes."""
    outer, _local.recording = _local.recording, (resources, [])
    try:
        return run(argument)
    finally:
        _local.recording = outer


@contextmanager
def active(step: StepContext | None) -> Iterator[StepContext | None]:
    """Make `step` the current one of this thread within the with-block."""
    outer, _local.step = _local.step, step
    try:
        yield step
    finally:
        _local.step = outer
