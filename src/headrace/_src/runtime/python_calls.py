"""Run the Python functions of a program. In: a Program and its kernels. Out: kernels that let
functions of one step wait for each other.

A function may block until another op of the step has run, such as another function or an op on a
queue. The fixed order runs one op after the other and would then deadlock. So if a Program has ops
that may block each other, and neither depends on the other, the fixed order watches its functions
(`Watched`): if one does not return in a moment, another thread runs the rest of the step. A step
that counts dependencies (runtime.step) instead runs such a function in a thread of its own.

A stateless function whose arguments are all constants is called once in a session.

State: the watched calls, and the thread that watches them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace._src.devices import workers
from headrace._src.devices.pending import Pending
from headrace._src.devices.step_context import active, current
from headrace._src.graph.definition import Effect
from headrace._src.graph.program import Instruction, Program
from headrace._src.graph.structured import parts_of
from headrace._src.runtime.kernels import NodeContext

__all__ = ["RunElsewhere", "Watched", "with_python_calls"]

Kernel = Callable[..., Any]

_MOMENT = 0.005  # seconds that a step waits for a function before it continues without it
_LOOK = _MOMENT / 2  # seconds between two checks of the watched calls


def with_python_calls(
    program: Program, kernels: list[Kernel], resources: Any, others_wait: bool = False
) -> dict[int, Kernel]:
    """Replace, in place, the kernels that call Python by kernels for `Step`.

    others_wait: another partition of the step has ops that may block.
    Returns the kernels that the fixed order must watch, by the number of their instruction.
    """
    calls = [k for k, i in enumerate(program.instructions) if _calls_python(i.op)]
    if not calls:
        return {}
    constants = {slot for slot, _ in program.constants}
    for k in calls:
        instruction = program.instructions[k]
        if _is_constant(instruction, constants):
            kernels[k] = _once(kernels[k], NodeContext(instruction.op, resources))
    apart = set(calls) if others_wait else _unordered(program, calls)
    watched = {k: kernels[k] for k in apart}
    for k in apart:
        kernels[k] = _apart(kernels[k])
    return watched


def _calls_python(op: Any) -> bool:
    """Return whether an operation or node calls Python functions, itself or in its parts."""
    if op.definition.calls_python:
        return True
    parts = (part for part in parts_of(op).values() if isinstance(part, Program))
    return any(_calls_python(i.op) for part in parts for i in part.instructions)


def _is_constant(instruction: Instruction, constants: set[int]) -> bool:
    definition = instruction.op.definition
    stateless = definition.calls_python and definition.effect is not Effect.WRITES
    return stateless and constants.issuperset(instruction.inputs)


def _unordered(program: Program, calls: Sequence[int]) -> set[int]:
    """Return the calls that have no fixed order with some other op that may block."""
    instructions = program.instructions
    if any(i.op.definition.flow is not None for i in instructions):
        return set(calls)  # the order depends on values
    blocking = [k for k, i in enumerate(instructions) if i.op.definition.may_wait]
    blocking = sorted({*blocking, *calls})
    if len(blocking) < 2:
        return set()
    bit = {k: 1 << n for n, k in enumerate(blocking)}
    writer: dict[int, int] = {}
    needed: list[int] = []  # for each instruction: the blocking ones that it depends on, as bits
    for k, i in enumerate(instructions):
        before = [*(writer[s] for s in i.inputs if s in writer), *i.after]
        found = 0
        for b in before:
            found |= needed[b] | bit.get(b, 0)
        needed.append(found)
        writer.update(dict.fromkeys(range(i.output, i.output + i.width), k))
    apart = set()
    for n, k in enumerate(blocking):
        unordered = [j for j in blocking[:n] if not needed[k] & bit[j]]
        if unordered:
            apart |= {k, *unordered}
    return apart & set(calls)


class _Call(Pending):
    """The Pending of a function that runs in a thread of its own."""

    __slots__ = ("_done", "_inputs", "_kernel", "_step")

    works = True

    def __init__(self, kernel: Kernel, inputs: Sequence[Any]) -> None:
        super().__init__("its Python function to return")
        self._kernel: Kernel | None = kernel
        self._inputs = inputs
        self._step = current()
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        assert self._kernel is not None
        value = failed = None
        try:
            with np.errstate(all="ignore"), active(self._step):
                value = self._kernel(*self._inputs)
        except BaseException as error:  # of any kind: the waiting thread raises it
            failed = error
        self._kernel, self._inputs = None, ()
        if self.claim():
            if failed is None:
                self.complete(value)
            else:
                self.fail(failed)
        self._done.release()

    def answer(self) -> Any:
        """Return the result if it comes within a moment, or else this Pending."""
        return self.result() if self._wait(_MOMENT) else self

    def join(self) -> None:
        self._wait(-1)

    def _wait(self, seconds: float) -> bool:
        if not self._done.acquire(timeout=seconds):
            return False
        self._done.release()
        return True


def _apart(kernel: Kernel) -> Kernel:
    """Wrap a kernel so that it runs in a thread of its own."""

    def call(*inputs: Any) -> Any:
        pending = _Call(kernel, inputs)
        workers.start(pending.run)
        return pending.answer()

    return call


class RunElsewhere(Exception):
    """Another thread has run the rest of the step, with these results."""

    def __init__(self, results: list[Any]) -> None:
        self.results = results


class Watched:
    """A kernel for one call in this thread; another thread may have to continue the step.

    `go_on(pending, begun)` runs the rest of the step, given a Pending for the call, and calls
    `begun` with the Step, which can be cancelled. The kernel then raises RunElsewhere.
    """

    __slots__ = ("_error", "_go_on", "_kernel", "_left", "_over", "_pending", "_rest", "_results")

    def __init__(self, kernel: Kernel, go_on: Callable[..., list[Any]]) -> None:
        self._kernel = kernel
        self._go_on = go_on
        self._pending = Pending("its Python function to return")
        self._over = threading.Lock()
        self._over.acquire()
        self._rest: Any = None
        self._left: BaseException | None = None  # why no thread waits for the rest
        self._results: list[Any] = []
        self._error: BaseException | None = None

    def __call__(self, *inputs: Any) -> Any:
        try:
            return self._call(inputs)
        except RunElsewhere:
            raise
        except BaseException as error:
            if _running.pop(self, None) is None:
                self._leave(error)
            raise

    def _call(self, inputs: Sequence[Any]) -> Any:
        _running[self] = time.monotonic()
        if not _some.is_set():
            _wake_watcher()
        value = failed = None
        try:
            value = self._kernel(*inputs)
        except BaseException as error:
            failed = error
        if _running.pop(self, None) is not None:
            if failed is not None:
                raise failed
            return value
        self._tell(value, failed)
        self._over.acquire()
        if self._error is not None:
            raise self._error
        raise RunElsewhere(self._results)

    def _tell(self, value: Any, failed: BaseException | None) -> None:
        """Pass the result of the call to the rest of the step, unless it was cancelled."""
        if self._pending.claim():
            if failed is None:
                self._pending.complete(value)
            else:
                self._pending.fail(failed)

    def _leave(self, error: BaseException) -> None:
        """Stop the rest of the step, since no thread waits for it: Ctrl-C was pressed, or it has
        failed.
        """
        self._left = error
        self._tell(None, error)
        if self._rest is not None:
            self._rest.cancel(error)

    def go_on(self) -> None:
        """Run the rest of the step, in another thread."""
        try:
            self._results = self._go_on(self._pending, self._begun)
        except BaseException as error:  # the waiting thread raises it
            self._error = error
        self._over.release()

    def _begun(self, rest: Any) -> None:
        self._rest = rest
        if self._left is not None:
            rest.cancel(self._left)


# When each watched call began. A thread that removes a call may continue its step.
_running: dict[Watched, float] = {}
_some = threading.Event()  # set if there may be watched calls
_watcher: threading.Thread | None = None
_watcher_lock = threading.Lock()


def _wake_watcher() -> None:
    global _watcher
    _some.set()
    if _watcher is None:
        with _watcher_lock:
            if _watcher is None:
                _watcher = threading.Thread(target=_watch, name="headrace watch", daemon=True)
                _watcher.start()


def _watch() -> None:
    while True:
        _some.clear()
        if not _running:
            _some.wait()
        time.sleep(_LOOK)
        late = time.monotonic() - _MOMENT
        for call, since in _running.copy().items():
            if since <= late and _running.pop(call, None) is not None:
                workers.start(call.go_on)


def _forget_watcher() -> None:
    """Reset the state in a forked child, which has no other threads."""
    global _some, _watcher, _watcher_lock
    _running.clear()
    _some, _watcher, _watcher_lock = threading.Event(), None, threading.Lock()


os.register_at_fork(after_in_child=_forget_watcher)


class _Result:
    """The result of a function that is called once."""

    __slots__ = ("value",)


def _once(kernel: Kernel, context: NodeContext) -> Kernel:
    """Wrap a kernel so that this session calls it only until it has returned a result."""

    def call(*inputs: Any) -> Any:
        found = context.state(_Result, _Result)
        if not hasattr(found, "value"):
            found.value = kernel(*inputs)
        return found.value

    return call
