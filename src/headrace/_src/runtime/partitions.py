"""Run the partitions of a step. In: a PartitionedProgram and values for the feeds. Out: values of
the fetches.

Devices that never work at the same time need no partitions: the calling thread runs the whole step
in one order (partition.join), unless it is traced or has a deadline. All of the below is about the
other steps.

A partition runs until a Recv has no value yet. It then keeps its slots and its place, and occupies
no thread: the value that arrives makes it ready again, and any thread of the step may continue it.
The calling thread runs what is ready, one partition after the other. When it begins something long
while another partition is ready, a thread of the pool joins it. Devices of one process share its
cores, so a step whose partitions wait for each other never changes threads.

The fixed order of each partition will do where all of them are plain (see Executable): it agrees
with one order of the whole step, so they cannot wait for each other in a circle. Otherwise each
partition counts dependencies (runtime.step): where one has control flow or an op that may block on
something else, and where the step is traced or has a deadline.

The first error of a partition ends the step: it aborts the rendezvous, cancels the other partitions
and is raised once no thread works for the step.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from headrace._src.core import errors
from headrace._src.core.config import settings
from headrace._src.core.locks import RLock
from headrace._src.devices import workers
from headrace._src.devices.device import Device
from headrace._src.devices.pending import Pending
from headrace._src.devices.rendezvous import Key
from headrace._src.devices.resources import Resources
from headrace._src.devices.step_context import StepContext, active
from headrace._src.graph.dataflow import origin_of
from headrace._src.graph.partition import PartitionedProgram, is_long
from headrace._src.graph.program import Instruction
from headrace._src.ops.base.transfers import NOTHING, RECV, SEND, SEND_CONTROL, is_recv, key_of
from headrace._src.runtime.executor import Executable, store
from headrace._src.runtime.step import Observer, Step, context_in, put_back
from headrace._src.runtime.takings import holds as may_hold
from headrace._src.runtime.waits import report_quiet

__all__ = ["PartitionedExecutable", "PartitionedStep"]

_NAP = 1.0  # seconds: a sleeping thread wakes this often, so that it notices Ctrl-C
_MOMENT = 0.001  # seconds: what was claimed ends that soon

Guard = Callable[[Instruction, Callable[..., Any]], Callable[..., Any]]


class PartitionedExecutable:
    """A PartitionedProgram ready to run in one session."""

    def __init__(
        self,
        program: PartitionedProgram,
        resources: Resources,
        guard: Guard | None = None,
        holds: bool | None = None,
    ) -> None:
        """`holds`: whether the step may be blocked after it has taken elements; None: find out."""
        self.program = program
        self.resources = resources
        self._guard = guard
        if holds is None:
            holds = may_hold(i.op for part in program.programs for i in part.instructions)
        self.holds = holds
        self._joined: Executable | None = None
        if program.joined is not None:
            joined = Executable(program.joined, resources, guard=guard)
            self._joined = None if joined.watches else joined

    @cached_property
    def parts(self) -> list[Executable]:
        """The partitions. A step that is joined has use for them when it is traced or has a
        deadline.
        """
        programs = self.program.programs
        waiting = [_blocks(part.instructions) for part in programs]
        return [
            Executable(
                part,
                self.resources,
                guard=self._guard,
                others_wait=sum(waiting) > waits or _awaits(part.instructions),
            )
            for part, waits in zip(programs, waiting, strict=True)
        ]

    @cached_property
    def _lines(self) -> list[_Line] | None:
        """The fixed orders of the partitions; None if some of them must count dependencies."""
        return None if any(map(_counts, self.parts)) else list(map(_Line, self.parts))

    @property
    def counts(self) -> bool:
        """Whether some partition must count dependencies."""
        return self._lines is None

    def run(self, feeds: Sequence[Any]) -> list[Any]:
        """Run all partitions; see Executable.run."""
        if self._joined is not None:
            return self._joined.run(feeds)
        step = PartitionedStep(self)
        with self.resources.running(step):
            return step.run(feeds)

    def step(self, deadline: float | None = None, observe: Observer | None = None) -> Any:
        """Return one run of the step that has a deadline or is observed."""
        return PartitionedStep(self, deadline, observe)

    def runs(self, step: PartitionedStep, feeds: Sequence[Any]) -> list[_Run]:
        """Return the runs of the partitions, of which nothing has begun yet. ShapesChanged if a
        variable does not have the shape that was relied on.
        """
        given = [[feeds[i] for i in positions] for positions in self.program.feeds]
        if self._lines is not None and not step.counts:
            runs: list[_Run] = [
                _FixedRun(line, step, values)
                for line, values in zip(self._lines, given, strict=True)
            ]
        else:
            runs = [_CountedRun(part, step, v) for part, v in zip(self.parts, given, strict=True)]
        for run in runs:
            run.look()
        return runs


def _counts(executable: Executable) -> bool:
    """Return whether a partition must count dependencies."""
    instructions = executable.program.instructions
    steers = any(i.op.definition.flow is not None for i in instructions)
    return executable.watches or steers or _blocks(instructions) or _awaits(instructions)


def _blocks(instructions: Sequence[Instruction]) -> bool:
    """Return whether some instruction may block on something else than another partition."""
    return any(i.op.definition.may_wait and i.op.definition is not RECV for i in instructions)


def _awaits(instructions: Sequence[Instruction]) -> bool:
    """Return whether something that is received comes after an op of another partition, maybe of
    another process, that may block.
    """
    return any(is_recv(i.op) and i.op._attrs["awaits"] for i in instructions)


class PartitionedStep:
    """One run of a step in partitions.

    State, under the lock: the runs that are ready, and how many are left; how many helpers work;
    the first error. A run is advanced by one thread at a time.
    """

    def __init__(
        self,
        executable: PartitionedExecutable,
        deadline: float | None = None,
        observe: Observer | None = None,
        context: StepContext | None = None,
    ) -> None:
        self._executable = executable
        self._is_part = False
        if context is None:
            context, self._is_part = context_in(executable.resources, deadline, observe)
        self.context = context
        if executable.holds:
            context.taken = []
        self.rendezvous = self.context.rendezvous
        self.observe = observe
        self.counts = deadline is not None or observe is not None
        self._deadline = deadline
        self._lock = RLock()
        self._changed = threading.Condition(self._lock)
        self._runs: list[_Run] = []
        self.ready: deque[_Run] = deque()
        self._left = 0
        self._helpers = 0
        self._error: BaseException | None = None
        self._sleeper: int | None = None

    def run(self, feeds: Sequence[Any]) -> list[Any]:
        """Run all partitions and return the fetches."""
        self._begin(feeds)
        timer = self._timer()
        try:
            self._work()
        except BaseException as error:
            self._fail(error)
        finally:
            if timer is not None:
                timer.cancel()
            self._finish()
        if self._error is not None:
            raise self._error
        return self._fetched()

    def _begin(self, feeds: Sequence[Any]) -> None:
        """Make the runs of the partitions ready; ShapesChanged if a variable has another shape."""
        self._runs = runs = self._executable.runs(self, feeds)
        self._left = len(runs)
        # What begins with a Recv is blocked at once: it must not look ready to the pool.
        self.ready.extend(sorted(runs, key=lambda run: not run.begins_with_recv))
        for run in runs:
            run.queued = True

    def _fetched(self) -> list[Any]:
        """Return the fetches, once all partitions are over."""
        fetched = [run.fetch() for run in self._runs]
        return [fetched[part][position] for part, position in self._executable.program.sources]

    def cancel(self, error: BaseException) -> None:
        """Stop the step, from any thread, with an error."""
        self.context.cancellation.cancel(error)
        with self._lock:
            self._changed.notify_all()

    def waiting(self) -> list[tuple[str, Any]]:
        """Return the operations that are blocked, each with what it waits for; Recvs last, since
        what another partition waits for says more.
        """
        blocked = [pair for run in list(self._runs) for pair in run.waiting()]
        return sorted(blocked, key=lambda pair: is_recv(pair[1]))

    def sleeper(self) -> int | None:
        """Return the thread that sleeps until something arrives, or None while any thread works
        for the step.
        """
        with self._lock:
            busy = self.ready or self._helpers or any(run.works() for run in self._runs)
            return None if busy else self._sleeper

    # -- Threads -----------------------------------------------------------------------------------

    def wake(self, run: _Run) -> None:
        """Make a run ready that was blocked; from any thread."""
        with self._lock:
            if run.running:
                run.again = True
            elif not run.queued and not run.over:
                run.queued = True
                self.ready.append(run)
                if self._sleeper is not None:
                    self._changed.notify_all()

    def ask_for_help(self) -> None:
        """Let a thread of the pool run what is ready, unless one does so for each run."""
        with self._lock:
            if not self.ready or self._helpers >= len(self._runs) - 1 or self._error is not None:
                return
            self._helpers += 1
        workers.start(self._help)

    def _help(self) -> None:
        """In a thread of the pool: run what is ready."""
        try:
            with active(self.context), np.errstate(all="ignore"):
                while self._error is None and self._advance_one():
                    pass
        except BaseException as error:
            self._fail(error)
        finally:
            with self._lock:
                self._helpers -= 1
                self._changed.notify_all()

    def _work(self) -> None:
        """In the calling thread: run what is ready until nothing is left."""
        with active(self.context), np.errstate(all="ignore"):
            while self._left and self._error is None:
                if not self._advance_one():
                    self._sleep()

    def _advance_one(self) -> bool:
        """Continue a run that is ready; return whether there was one."""
        with self._lock:
            if not self.ready:
                return False
            run = self.ready.popleft()
            run.queued, run.running, run.again = False, True, False
        done = False
        try:
            done = run.advance()
        finally:
            with self._lock:
                run.running = False
                if done:
                    run.over = True
                    self._left -= 1
                    if not self._left:
                        self._changed.notify_all()
                elif run.again:
                    run.again, run.queued = False, True
                    self.ready.append(run)
        return True

    def _sleep(self) -> None:
        """Sleep until a run is ready, all are over, or the step fails or is cancelled."""
        patience = settings().quiet_seconds
        quiet = time.monotonic() + patience if patience else float("inf")
        cancellation = self.context.cancellation
        with self._lock:
            self._sleeper = threading.get_ident()
            try:
                while self._left and not self.ready and self._error is None:
                    if cancellation.error is not None and not self._helpers:
                        break
                    now = time.monotonic()
                    if now >= quiet:
                        waiting = self.waiting()
                        if waiting:
                            report_quiet(waiting, patience)
                        quiet = float("inf")
                    self._changed.wait(min(quiet - now, _NAP))
                else:
                    return
            finally:
                self._sleeper = None
        self._withdraw(cancellation.error)

    def _withdraw(self, error: BaseException | None) -> None:
        """Cancel what is blocked and raise, unless all of it has been claimed: elements taken from
        a queue must not be lost, and the step ends if nothing else is missing.
        """
        ended = self._cancel_waits()
        if any(ended) or not ended:
            assert error is not None
            raise error
        with self._lock:
            if not self.ready:
                self._changed.wait(_MOMENT)

    def _cancel_waits(self) -> list[bool]:
        """Cancel what is blocked on something else than a partition; see Step.cancel_waits."""
        return [one for run in self._runs if not run.over for one in run.cancel_waits()]

    # -- Ending ------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        """Record the first error, and stop the other partitions."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
        stopped = errors.CancelledError(None, None, "another partition of the step failed")
        self.context.cancellation.cancel(stopped)
        self.rendezvous.abort(stopped)
        with self._lock:
            self._changed.notify_all()

    def _finish(self) -> None:
        """Wait until no helper works, end what is left, and drop what lived as long as the step."""
        with self._lock:
            while self._helpers:
                self._changed.wait(_NAP)
        self._clean_up()

    def _clean_up(self) -> None:
        """End what is left of a step that failed, and drop what lived as long as the step."""
        if self._error is not None:
            left = [each for run in self._runs if not run.over for each in run.abandon()]
            if self._may_put_back():
                put_back(self.context, left)
        if not self._is_part:
            self.context.resources.drop(self.context.container)

    def _may_put_back(self) -> bool:
        """Return whether nothing has used what the step has taken."""
        return not any(run.used for run in self._runs)

    def _timer(self) -> threading.Timer | None:
        if self._deadline is None:
            return None
        timer = threading.Timer(max(0.0, self._deadline - time.monotonic()), self._be_late)
        timer.daemon = True
        timer.start()
        return timer

    def _be_late(self) -> None:
        """In the timer's thread: stop the step."""
        self.cancel(self.lateness())

    def lateness(self) -> BaseException:
        """Return the error of a step whose deadline has passed: it names an operation that runs, or
        else what one waits for.
        """
        running = next(filter(None, [run.current() for run in self._runs]), None)
        happening, op = "", None
        if running is not None:
            op = origin_of(running)
            happening = f" while {op.type} '{op.name}' ran"
        elif waiting := self.waiting():
            what, node = waiting[0]
            op = origin_of(node)
            happening = f" while {op.type} '{op.name}' waited for {what}"
        message = f"Timed out waiting for notification: the step's deadline passed{happening}"
        return errors.DeadlineExceededError(None, op, message)


class _Run:
    """One partition of one step.

    queued: it is among the ready ones. running: a thread advances it. again: something has arrived
    meanwhile. over: nothing of it is left.
    """

    queued = running = again = over = False
    used = sent = False  # what was taken; see Step
    begins_with_recv = False

    def look(self) -> None:
        """Find the partition's variables; ShapesChanged if one has another shape."""
        raise NotImplementedError

    def advance(self) -> bool:
        """Run until nothing is left (True) or a Recv or another op blocks (False)."""
        raise NotImplementedError

    def fetch(self) -> list[Any]:
        """Return the partition's fetches, once it is over."""
        raise NotImplementedError

    def waiting(self) -> list[tuple[str, Any]]:
        """Return the operations that are blocked, each with what it waits for."""
        return []

    def current(self) -> Any:
        """Return the operation whose kernel runs, if that is known."""
        return None

    def works(self) -> bool:
        """Return whether a thread computes a result that the blocked run waits for."""
        return False

    def cancel_waits(self) -> list[bool]:
        """Cancel what is blocked on something else than a partition; see Step.cancel_waits."""
        return []

    def abandon(self) -> list[Pending]:
        """Drop the values of a run that does not go on; see Step.abandon."""
        return []


class _CountedRun(_Run):
    """A partition that counts dependencies."""

    def __init__(self, part: Executable, step: PartitionedStep, feeds: Sequence[Any]) -> None:
        self._part = part
        self._feeds = feeds
        self._step = Step(
            part, observe=step.observe, context=step.context, wake=lambda _: step.wake(self)
        )

    def look(self) -> None:
        self._part.look()
        slots = self._part.blank(self._feeds)
        self._step.begin(self._feeds, slots, self._part.find(slots))

    def advance(self) -> bool:
        return self._step.advance()

    def fetch(self) -> list[Any]:
        fetches = self._part.program.fetches
        return [self._step.fetch(tensor, slot, last=True) for tensor, slot in fetches]

    def waiting(self) -> list[tuple[str, Any]]:
        return self._step.waiting()

    def current(self) -> Any:
        return self._step.running() if self.running else None

    def works(self) -> bool:
        return self._step.works()

    def cancel_waits(self) -> list[bool]:
        return self._step.cancel_waits()

    @property
    def used(self) -> bool:  # type: ignore[override]
        return self._step.used

    @property
    def sent(self) -> bool:  # type: ignore[override]
        return self._step.sent

    def abandon(self) -> list[Pending]:
        return self._step.abandon()


class _Line:
    """The instructions of a partition in their fixed order, with Sends and Recvs as keys."""

    def __init__(self, part: Executable) -> None:
        self.part = part
        self.code = [_coded(entry, part.resources) for entry in part.code]
        self.begins_with_recv = bool(self.code) and self.code[0][0].definition is RECV


def _coded(entry: tuple[Any, ...], resources: Resources) -> tuple[Any, ...]:
    """Return an instruction with the key of a Send or Recv, or whether it is long."""
    op, kernel, gather, output, width, frees = entry
    device = resources.device(op.device)
    definition = op.definition
    if definition is RECV:
        return op, _converting(device, "put"), key_of(op.attrs), output, width, frees
    if definition is SEND:
        return op, (gather, _converting(device, "get")), key_of(op.attrs), output, -2, frees
    if definition is SEND_CONTROL:
        return op, None, key_of(op.attrs), output, -2, frees
    return op, (kernel, gather, is_long(op)), None, output, width, frees


def _converting(device: Device, name: str) -> Callable[[Any], Any] | None:
    """Return the method that moves a value from or to the host; None if there is nothing to do."""
    return None if getattr(type(device), name) is getattr(Device, name) else getattr(device, name)


class _FixedRun(_Run):
    """A partition in its fixed order. State: its slots, the next instruction, and the Recv that it
    is blocked on.
    """

    def __init__(self, line: _Line, step: PartitionedStep, feeds: Sequence[Any]) -> None:
        self._line = line
        self._step = step
        self._feeds = feeds
        self._slots: list[Any] = line.part.blank(feeds)
        self._next = 0
        self._blocked: Pending | None = None
        self.begins_with_recv = line.begins_with_recv

    def look(self) -> None:
        self._line.part.look()
        self._line.part.find(self._slots)

    def advance(self) -> bool:
        step = self._step
        code, slots, number = self._line.code, self._slots, self._next
        rendezvous, check = step.rendezvous, step.context.cancellation
        op = gather = failed = None
        try:
            if self._blocked is not None:
                op, _, _, output, _, frees = code[number]
                if not self._blocked.is_over:  # the step was stopped
                    check.check()
                    return False
                blocked, self._blocked = self._blocked, None
                slots[output] = blocked.result()
                blocked = None  # whoever sent the value learns soon when it's not used any more
                for i in frees:
                    slots[i] = None
                number += 1
            while number < len(code):
                op, call, key, output, width, frees = code[number]
                if key is None:
                    kernel, gather, long = call
                    if long and step.ready:
                        step.ask_for_help()
                    result = kernel(*gather(slots))
                    gather = None
                    if width == 1:
                        slots[output] = result
                    elif width:
                        store(slots, op, output, result)
                    result = None
                elif width == -2:
                    self._send(rendezvous, key, call)
                else:
                    result = rendezvous.recv(key, call)
                    if isinstance(result, Pending):
                        self._next, self._blocked = number, result
                        result.then(self._arrived)
                        return False
                    slots[output] = result
                    result = None
                for i in frees:
                    slots[i] = None
                number += 1
            if check.error is not None:
                check.check()
            return True
        except Exception as error:
            failed = self._line.part.failure(error, op, gather, slots, self._feeds)
        raise failed

    def _arrived(self, _: Pending) -> None:
        self._step.wake(self)

    def _send(self, rendezvous: Any, key: Key, call: Any) -> None:
        if call is None:
            rendezvous.send(key, NOTHING)
            return
        gather, get = call
        (value,) = gather(self._slots)
        rendezvous.send(key, value if get is None else get(value))

    def fetch(self) -> list[Any]:
        return self._line.part.fetched(self._slots, self._feeds)

    def waiting(self) -> list[tuple[str, Any]]:
        blocked = self._blocked
        return [] if blocked is None else [(blocked.what, self._line.code[self._next][0])]

    def abandon(self) -> list[Pending]:
        self._slots = []
        return []
