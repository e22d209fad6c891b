"""Run a task's partitions of a step without a thread of its own. In: a PartitionedExecutable, the
step's rendezvous, feeds, and whatever arrives later. Out: the fetches or the first error, once.

A step runs only inside `pump`, in the thread that calls it, until everything left is blocked; then
it occupies no thread. A tensor that arrives, or an element of a queue, makes a partition ready, and
the step asks its *host*, the server, to pump it again. Several threads may pump a step; the last
one to leave ends it.

A step that is told to stop withdraws its blocked operations, except those that were claimed: their
elements have been taken from a queue, and would be lost. Elements taken on one task may be on their
way to another. So the tasks of a step that takes elements are cancelled *gently*: each goes on as
far as it can without waiting for anything but another task. Either one of them withdraws something
and fails, and the others are then aborted, or all of them end well.

If one of them withdraws something, others may already have taken elements, and even ended. What
has not left its task goes back at once (runtime.takings). What has is kept (`taken`) until the
master says whether the step was cancelled and no task has used it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import thread_time
from typing import Any, Protocol

import numpy as np

from headrace._src.devices.rendezvous import Rendezvous
from headrace._src.devices.step_context import StepContext, active
from headrace._src.graph.definition import Effect
from headrace._src.graph.partition import PartitionedProgram
from headrace._src.ops.base.transfers import is_recv
from headrace._src.runtime.deadlines import Deadline
from headrace._src.runtime.partitions import PartitionedExecutable, PartitionedStep, _Run
from headrace._src.runtime.step import Observer

__all__ = ["Host", "ServedStep", "takes_elements"]


class Host(Protocol):
    """The owner of the threads that run served steps."""

    def schedule(self, step: ServedStep) -> None:
        """Call `step.pump()` soon, in another call than this one. Any thread may call this."""


class ServedStep(PartitionedStep):
    """One run of a task's partitions.

    done: called once, with the fetches and None, or with None and the error, when nothing of the
    step runs any more. It is called inside `start` or `pump`, and must not block.
    deadline: when this task's part must be over, on the clock of time.monotonic. A step of several
    tasks that takes elements of queues had better be cancelled gently by its master.

    State, under the lock: the threads that pump; whether the host was asked to pump; whether a
    thread ends the step or withdraws what is blocked, while no other may pump; whether nothing has
    run yet; why the step was cancelled, and whether gently.
    """

    def __init__(
        self,
        executable: PartitionedExecutable,
        rendezvous: Rendezvous,
        host: Host,
        *,
        deadline: float | None = None,
        observe: Observer | None = None,
        done: Callable[[list[Any] | None, BaseException | None], None],
    ) -> None:
        context = StepContext(executable.resources, None, deadline, observe)
        context.__dict__["rendezvous"] = rendezvous  # instead of one that is made at first use
        super().__init__(executable, deadline, observe, context)
        self._host = host
        self._done = done
        self._timer_of_deadline: Deadline | None = None
        self._pumping = 0
        self._scheduled = False
        self._alone = False
        self._begun = False
        self._untouched = True
        self._ended = False
        self._asked: BaseException | None = None
        self._gentle = True
        self.used = False  # once it is over: whether something was made of taken elements
        self.seconds = 0.0  # for which it has used a processor

    def start(self, feeds: Sequence[Any]) -> None:
        """Begin the step; the caller must then pump it. If it cannot begin, `done` gets the error:
        ShapesChanged if a variable does not have the shape that was relied on, or the error that
        the session was closed with.
        """
        try:
            self.context.resources.enlist(self)
            self._begin(feeds)
        except BaseException as error:
            self._fail(error)
            self._end()
            return
        with self._lock:
            self._begun = True
            self._scheduled = True  # the caller pumps
        if self._deadline is not None:
            self._timer_of_deadline = Deadline(self._deadline, self._be_late)

    def pump(self) -> None:
        """Run what is ready, in this thread, until everything left is blocked. Does not sleep,
        except for a Python function that runs in another thread when the step fails.
        """
        with self._lock:
            self._scheduled = False
            if self._alone or self._ended or not self._begun:
                return  # a thread that is alone looks again before it leaves
            self._pumping += 1
        while self._goes_on():
            try:
                with active(self.context), np.errstate(all="ignore"):
                    while self._error is None and self._advance_one():
                        pass
            except BaseException as error:
                self._fail(error)

    def cancel(self, error: BaseException, gentle: bool = False) -> None:
        """Stop the step, from any thread, with an error. A step that is over, or has only claimed
        elements to wait for, ends well instead.

        gentle: the other tasks of the step are told, too, and if one of them fails, this one is
        aborted. So this one stops only where it can withdraw an operation that is blocked, and in
        loops; tensors of other tasks are waited for.
        """
        with self._lock:
            if self._ended:
                return
            self._asked = error = self._asked or error
            self._gentle = self._gentle and gentle
            if not self._gentle or _may_last(self._executable.program):
                self.context.cancellation.cancel(error)
        self._ask_host()

    def abort(self, error: BaseException) -> None:
        """Stop the step at once, from any thread, with an error: another task has failed, and needs
        nothing of this one.
        """
        if not self._ended:
            self._fail(error)
            self._ask_host()

    def wake(self, run: _Run) -> None:
        if not self._ended:
            super().wake(run)
            if self.ready and not self._pumping:
                self._ask_host()

    # -- Threads -----------------------------------------------------------------------------------

    def _advance_one(self) -> bool:
        start = thread_time()
        try:
            return super()._advance_one()
        finally:
            self.seconds += thread_time() - start

    def _ask_host(self) -> None:
        with self._lock:
            if self._scheduled or self._ended or not self._begun or self._pumping:
                return
            self._scheduled = True
        self._host.schedule(self)

    def _help(self) -> None:
        """In a thread of the pool: run what is ready."""
        self.pump()
        with self._lock:
            self._helpers -= 1

    def _goes_on(self) -> bool:
        """Return whether this thread has something to run; if not, it leaves the step. The last
        thread to leave withdraws what is blocked if the step was cancelled, and ends the step if
        nothing is left.
        """
        while True:
            with self._lock:
                self._alone = False
                stops = self._asked is not None and self._untouched and not self._may_be_sent()
                if self._error is None and self.ready and not stops:
                    self._untouched = False
                    return True
                self._pumping -= 1
                if self._pumping:
                    return False
                goes = self._error is None and self._left
                if goes and self._asked is None:
                    return False
                self._pumping = 1
                self._alone = True
                gentle = self._gentle
            if not goes:
                self._end()
                return False
            if not self._withdraws(gentle):
                with self._lock:
                    if not self.ready and self._error is None and self._gentle is gentle:
                        self._alone = False
                        self._pumping = 0
                        return False

    def _may_be_sent(self) -> bool:
        """Return whether other tasks may have sent elements that they have taken."""
        return self._gentle and any(is_recv(i.op) for i in self._executable.program.instructions)

    def _withdraws(self, gentle: bool) -> bool:
        """Cancel what is blocked; return whether the step fails. It does not if everything blocked
        was claimed, or, in a gentle cancellation, waits for other tasks.
        """
        ended = self._cancel_waits()
        waits = bool(ended) or (gentle and any(is_recv(op) for _, op in self.waiting()))
        if not any(ended) and waits:
            return False
        assert self._asked is not None
        self._fail(self._asked)
        return True

    def _may_put_back(self) -> bool:
        self.used = any(run.used for run in self._runs)
        return not self.used and not any(run.sent for run in self._runs)

    @property
    def taken(self) -> bool:
        """Whether the step, which is over, keeps elements that it could put back."""
        return not self.used and bool(self.context.taken)

    def _end(self) -> None:
        """Fetch, clean up and tell the server, in the only thread that works for the step."""
        with self._lock:
            self._ended = True  # an error that comes now is too late
            error = self._error
        values = None
        if error is None:
            try:
                values = self._fetched()
            except BaseException as failed:
                error = failed
        self.used = any(run.used for run in self._runs)
        self._clean_up()
        if self._timer_of_deadline is not None:
            self._timer_of_deadline.cancel()
        self.context.resources.dismiss(self)
        with self._lock:
            self._runs = []
            self.ready.clear()
        self._done(values, error)


def takes_elements(program: PartitionedProgram) -> bool:
    """Return whether a task's part of a step may take elements of queues or similar resources. If
    some task's part does, the step's tasks are to be cancelled gently.
    """
    return any(
        i.op.definition.effect is Effect.BLOCKS and not is_recv(i.op) for i in program.instructions
    )


def _may_last(program: PartitionedProgram) -> bool:
    """Return whether a step may run for ever and can be stopped: it has loops."""
    steers = any(i.op.definition.flow is not None for i in program.instructions)
    return steers or any(part.has_loops for part in program.programs)
