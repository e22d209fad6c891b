"""Run a step piece by piece, for `Session.partial_run`. In: some of the feeds, with each call. Out:
the values that can be computed from the feeds so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace._src.core import errors
from headrace._src.core.locks import Lock
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.runtime import Step

__all__ = ["PartialRun"]


class _Declared:
    """The feeds, fetches or targets that a partial run has declared, and those that are left."""

    def __init__(self, what: str, done: str, declared: Sequence[Any]) -> None:
        self._what = what
        self._done = done
        self.declared = tuple(declared)
        self.left = set(declared)

    def check(self, elements: Iterable[Any]) -> None:
        """Raise if an element was not declared, or has been used already."""
        for element in elements:
            if element in self.left:
                continue
            if element in self.declared:
                problem = f"has already been {self._done}."
            else:
                problem = "was not specified in partial_run_setup."
            op = element.op if isinstance(element, Tensor) else element
            raise errors.InvalidArgumentError(
                None, op, f"The {self._what} {element.name} {problem}"
            )


class PartialRun:
    """A step in progress, with the feeds, fetches and targets that are left."""

    def __init__(self, plan: Any) -> None:
        executable = plan.variants.whole()  # the shapes of later feeds are unknown
        program = executable.program
        self._step = Step(executable)
        self._slots = {**dict(program.feeds), **dict(program.fetches)}
        self._feeds = _Declared("feed", "fed", plan.feeds)
        self._fetches = _Declared("fetch", "fetched", plan.fetches.tensors)
        self._targets = _Declared("target", "run", plan.fetches.targets)
        self._lock = Lock()

    def is_done(self) -> bool:
        """Return whether everything that was declared has been fed, fetched and run."""
        return not (self._feeds.left or self._fetches.left or self._targets.left)

    def advance(
        self, tensors: list[Tensor], targets: list[Operation], values: dict[Tensor, Any]
    ) -> list[Any]:
        """Feed `values`, run `targets`, and return the values of `tensors`."""
        with self._lock:
            computed = [t for t in tensors if t not in values]
            self._feeds.check(values)
            self._fetches.check(computed)
            self._targets.check(targets)
            slots = [self._slots[t] for t in computed]
            given = {self._slots[t]: v for t, v in values.items()}
            self._check_fed(slots, targets, given)
            self._step.feed(given)
            self._step.run_until(slots, targets)
            self._feeds.left -= values.keys()
            self._fetches.left -= set(tensors)
            self._targets.left -= set(targets)
            results = {t: self._step.fetch(t, s) for t, s in zip(computed, slots, strict=True)}
            if self.is_done():
                self._step.end()
            return [results[t] if t in results else values[t].copy() for t in tensors]

    def _check_fed(self, slots: list[int], targets: list[Operation], given: dict[int, Any]) -> None:
        lacking = self._step.unfed(slots, targets) - set(given)
        missing = [t for t in self._feeds.declared if self._slots[t] in lacking]
        if missing:
            raise errors.InvalidArgumentError(
                None,
                missing[0].op,
                f"Fetch can't be computed from the feeds that have been fed so far: it needs "
                f"{', '.join(t.name for t in missing)}",
            )
