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

__all__ = ["PartialRun", "RemotePartialRun", "not_set_up"]


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


def not_set_up(handle: str) -> errors.InvalidArgumentError:
    """Return the error of a call for a partial run that does not exist, or no longer."""
    message = (
        f"Must run 'setup' before performing partial runs: {handle!r} was never set up, has given "
        "all its fetches, or has failed"
    )
    return errors.InvalidArgumentError(None, None, message)


class _Checked:
    """The feeds, fetches and targets of a partial run that are left."""

    def __init__(self, handle: str, plan: Any) -> None:
        self._handle = handle
        self._feeds = _Declared("feed", "fed", plan.feeds)
        self._fetches = _Declared("fetch", "fetched", plan.fetches.tensors)
        self._targets = _Declared("target", "run", plan.fetches.targets)
        self._lock = Lock()
        self.is_over = False  # everything was fed, fetched and run; or the step has failed

    def _check(
        self, computed: list[Tensor], targets: list[Operation], values: dict[Tensor, Any]
    ) -> None:
        if self.is_over:
            raise not_set_up(self._handle)
        self._feeds.check(values)
        self._fetches.check(computed)
        self._targets.check(targets)

    def _count(
        self, tensors: list[Tensor], targets: list[Operation], values: dict[Tensor, Any]
    ) -> bool:
        """Note what was done; return whether that was all."""
        self._feeds.left -= values.keys()
        self._fetches.left -= set(tensors)
        self._targets.left -= set(targets)
        return not (self._feeds.left or self._fetches.left or self._targets.left)

    def _lack(self, missing: Sequence[Tensor]) -> None:
        """Raise if feeds are missing."""
        if missing:
            raise errors.InvalidArgumentError(
                None,
                missing[0].op,
                f"Fetch can't be computed from the feeds that have been fed so far: it needs "
                f"{', '.join(t.name for t in missing)}",
            )


class PartialRun(_Checked):
    """A step in progress, with the feeds, fetches and targets that are left.

    A call that fails in the middle of the step ends it, since its values are lost.
    """

    def __init__(self, handle: str, plan: Any) -> None:
        super().__init__(handle, plan)
        executable = plan.variants.whole()  # the shapes of later feeds are unknown
        program = executable.program
        self._step = Step(executable)
        self._resources = executable.resources
        self._slots = {**dict(program.feeds), **dict(program.fetches)}

    def advance(
        self, tensors: list[Tensor], targets: list[Operation], values: dict[Tensor, Any]
    ) -> list[Any]:
        """Feed `values`, run `targets`, and return the values of `tensors`."""
        with self._lock:
            computed = [t for t in tensors if t not in values]
            self._check(computed, targets, values)
            slots = [self._slots[t] for t in computed]
            given = {self._slots[t]: v for t, v in values.items()}
            self._check_fed(slots, targets, given)
            try:
                with self._resources.running(self._step):
                    self._step.feed(given)
                    self._step.run_until(slots, targets)
                found = [self._step.fetch(t, s) for t, s in zip(computed, slots, strict=True)]
            except BaseException:
                self._step.abandon()
                self._end()
                raise
            if self._count(tensors, targets, values):
                self._end()
            results = dict(zip(computed, found, strict=True))
            return [results[t] if t in results else values[t].copy() for t in tensors]

    def _end(self) -> None:
        self.is_over = True
        self._step.end()

    def _check_fed(self, slots: list[int], targets: list[Operation], given: dict[int, Any]) -> None:
        lacking = self._step.unfed(slots, targets) - set(given)
        self._lack([t for t in self._feeds.declared if self._slots[t] in lacking])


class RemotePartialRun(_Checked):
    """A step in progress on the tasks of a cluster."""

    def __init__(self, handle: str, plan: Any, step: Any) -> None:
        super().__init__(handle, plan)
        self._step = step

    def advance(
        self, tensors: list[Tensor], targets: list[Operation], values: dict[Tensor, Any]
    ) -> list[Any]:
        """Feed `values`, run `targets`, and return the values of `tensors`."""
        with self._lock:
            computed = [t for t in tensors if t not in values]
            self._check(computed, targets, values)
            self._lack(self._lacking([*(t.op for t in computed), *targets], computed, values))
            try:
                master = self._step.master
                found = master.advance(self._step, self._handle, computed, targets, values)
            except BaseException:
                self.is_over = True
                raise
            self.is_over = self._count(tensors, targets, values)
        results = dict(zip(computed, found, strict=True))
        return [results[t] if t in results else values[t].copy() for t in tensors]

    def _lacking(
        self, ops: list[Operation], computed: list[Tensor], values: dict[Tensor, Any]
    ) -> list[Tensor]:
        """Return the feeds that operations and fetches need, and that were not fed."""
        declared = set(self._feeds.declared)
        needed = declared & set(computed)
        seen: set[Operation] = set()
        stack = [op for op in ops if not declared.intersection(op.outputs)]
        while stack:
            op = stack.pop()
            if op in seen:
                continue
            seen.add(op)
            needed |= declared & set(op.inputs)
            stack += [t.op for t in op.inputs if t not in declared]
            stack += op.control_inputs
        return [t for t in self._feeds.declared if t in needed & self._feeds.left - values.keys()]
