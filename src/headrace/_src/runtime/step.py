"""Run a step by counting dependencies. In: feeds, now or later. Out: fetches, once they exist.

The iterations of its frames (`iterations`) say which nodes are ready, and the calling thread runs
these. If a kernel returns a Pending, its node is *waiting*: it is blocked and occupies no thread.
Meanwhile the step runs other ready nodes, or sleeps. Step is used where the fixed order of
`Executable.run` is not enough: control flow, blocked ops, partial runs, deadlines, tracing.

Invariants: each ready node is finished once, unless the step fails: at once if it does not run
since an input is dead, or with its kernel's results, or with those of its Pending. Only the thread
that runs the step changes `_waiting`; another one that ends a Pending or cancels the step only
notes that, and wakes it. A step that failed has no Pendings left, and keeps no values.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition, Timer, get_ident
from typing import Any

import numpy as np

from headrace._src.core import errors
from headrace._src.core.config import settings
from headrace._src.devices.pending import Pending
from headrace._src.devices.step_context import Record, StepContext, active, current
from headrace._src.graph.control_roles import DEAD, Flow
from headrace._src.graph.dataflow import Node, origin_of
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.transfers import is_recv, is_send
from headrace._src.runtime.frames import FrameNode
from headrace._src.runtime.iterations import Iteration, Iterations
from headrace._src.runtime.kernels import ShapesChanged, copy_of, echo, failure, take, translate
from headrace._src.runtime.waits import report_quiet

__all__ = ["Observer", "Step", "context_in", "put_back"]

# Called after each kernel with the operation, its start and end in seconds, and its results.
Observer = Callable[[Operation | Node, float, float, list[Any]], None]

_NAP = 1.0  # seconds: a sleeping thread wakes this often, so that it notices Ctrl-C
_NAP_INSIDE = 0.05  # in a branch, so that it notices that the whole step is cancelled


def context_in(
    resources: Any,
    deadline: float | None = None,
    observe: Observer | None = None,
    inside: bool = False,
) -> tuple[StepContext, bool]:
    """Return the context of a new step, and whether it is a part of the step that this thread
    runs: then they share what lives as long as a step. inside: it runs a branch of that step, and
    is cancelled with it.
    """
    outer = current()
    context = StepContext(resources, None, deadline, observe)
    is_part = outer is not None and outer.resources is resources
    if outer is not None and is_part:
        context.id, context.container = outer.id, outer.container
        if inside:
            context.cancellation = outer.cancellation
    return context, is_part


class Step:
    """One run of an executable, which can be fed and fetched piece by piece."""

    def __init__(
        self,
        executable: Any,
        deadline: float | None = None,
        observe: Observer | None = None,
        context: StepContext | None = None,
        wake: Callable[[Step], None] | None = None,
        inside: bool = False,
    ) -> None:
        """`context`, `wake`: of a step in partitions, of which this is one; `wake` is called when
        something has come that it was blocked on. `inside`: it runs a branch of another step.
        """
        self._program = executable.program
        self._look = executable.look
        self._frames = frames = executable.frames
        self._is_part = context is not None
        if context is None:
            context, self._is_part = context_in(executable.resources, deadline, observe, inside)
        self._context = context
        self._nap = _NAP_INSIDE if inside else _NAP
        self._wake = wake
        self._deadline = deadline
        self._observe = observe
        self._fed: dict[int, Any] = {}
        self._waiting: dict[Pending, tuple[Iteration, FrameNode, float]] = {}
        # Of a step that can put back what it has taken: who uses it, and whether that has happened.
        self._users: tuple[frozenset[FrameNode], frozenset[FrameNode]] | None = None
        self.used = self.sent = False
        if context.taken is not None:
            self.hold()
        self._over: deque[Pending] = deque()  # ended by other threads
        # The node whose kernel is running; None while the step sleeps.
        self._running: FrameNode | None = frames.nodes[0] if frames.nodes else None
        self._result: Any = None  # a kernel's result, until we know whether it is a Pending
        self._changed = Condition()
        self._sleeper: int | None = None
        self._cancellation = self._context.cancellation
        self._iterations = iterations = Iterations(frames)
        self._root, self._ready = iterations.root, iterations.ready
        self._run_nodes = iterations.ran
        self._finish = iterations.finish  # for each node, so without a detour

    # -- Feeding, running, fetching ----------------------------------------------------------------

    def feed(self, values: Mapping[int, Any]) -> None:
        """Put values into feed slots; nodes that lacked only these become ready."""
        for slot, value in values.items():
            self._fed[slot] = value
            self._root.values[self._frames.home[slot][1]] = value
            for local in self._frames.after_feed[slot]:
                self._iterations.arrive(self._root, local, value is DEAD, False)

    def hold(self, taken: Record | None = None) -> None:
        """Put back what the step takes from queues if it is cancelled before it is used. `taken`:
        by what has run of it before.
        """
        context = self._context
        if taken is not None or context.taken is None:
            context.taken = [] if taken is None else taken
        self._users = self._frames.uses

    def run(self, feeds: Sequence[Any]) -> list[Any]:
        """Feed all values, run all instructions and return all fetches."""
        self._look()
        if self._frames.holds:
            self.hold()
        program = self._program
        self.feed({slot: v for (_, slot), v in zip(program.feeds, feeds, strict=True)})
        try:
            self.run_all()
            return [self.fetch(t, slot, last=True) for t, slot in program.fetches]
        finally:
            self.end()

    def resume(
        self, feeds: Sequence[Any], slots: Sequence[Any], number: int, pending: Pending
    ) -> list[Any]:
        """Continue a step that began in the fixed order, and return all fetches.

        Its first `number` instructions have run and left their results in the program's `slots`;
        the next instruction is blocked on `pending`.
        """
        program, root = self._program, self._root
        self.begin(feeds, slots, number)
        waiting = self._frames.nodes[number]
        self._iterations.take_out((waiting,))
        self._waiting[pending] = root, waiting, 0.0
        pending.then(self._ended)
        try:
            self.run_all()
            return [self.fetch(t, slot, last=True) for t, slot in program.fetches]
        finally:
            self.end()

    @contextmanager
    def refusing(self, number: int, pending: Pending) -> Iterator[None]:
        """If the session was closed after the first `number` instructions had run, put back what
        they have taken. (Otherwise the step itself does.)
        """
        try:
            yield
        except BaseException as error:
            if not self._run_nodes and not self.used:
                pending.cancel(error)
                users = () if self._users is None else self._users[0]
                if not any(node in users for node in self._frames.nodes[:number]):
                    put_back(self._context, [pending] if pending.has_effect else [])
            raise

    def begin(self, feeds: Sequence[Any], slots: Sequence[Any], number: int) -> None:
        """Feed all values, given that the first `number` instructions have run in the fixed order
        and left their results in the program's `slots`.
        """
        program = self._program
        self.feed({slot: v for (_, slot), v in zip(program.feeds, feeds, strict=True)})
        now = time.time()
        for node in self._frames.nodes[:number]:
            i = node.instruction
            results = tuple(slots[i.output : i.output + i.width])
            if self._observe is not None:
                self._observe(node.op, now, now, list(results))
            self._note_use(node)
            self._finish(self._root, node, results, True)
        self._iterations.take_out(self._run_nodes)

    def end(self) -> None:
        """Drop the resources that live as long as the step."""
        if not self._is_part:
            self._context.resources.drop(self._context.container)

    def run_all(self) -> None:
        """Run every instruction."""
        self._loop(None)

    def run_until(self, slots: Iterable[int], operations: Iterable[Operation]) -> None:
        """Run the nodes for `slots` and `operations`; their feeds must be set (see `unfed`)."""
        self._loop(self._needed(slots, operations))

    def unfed(self, slots: Iterable[int], operations: Iterable[Operation]) -> set[int]:
        """Return the feed slots without a value that `slots` and `operations` need."""
        read = {s for n in self._needed(slots, operations) for s in n.instruction.inputs}
        wanted = {*read, *slots}
        return {s for s in wanted if s in self._frames.after_feed and s not in self._fed}

    def fetch(self, tensor: Tensor, slot: int, last: bool = False) -> Any:
        """Return the value of a fetched tensor; each fetch can be taken once.

        `last` means that no node will run later that could read the value.
        """
        local = self._frames.home[slot][1]
        if self._root.values[local] is DEAD:
            raise errors.InvalidArgumentError(
                None,
                origin_of(tensor.op),
                f"Retval does not have value: '{tensor.name}' is dead, since the branch that would "
                "have made it was not taken",
            )
        try:
            owned = last and slot in self._program.owned
            get = echo if slot in self._fed else take if owned else copy_of
            value = get(self._root.values, local)
        except errors.OpError as error:
            raise translate(error, tensor.op) from None
        self._iterations.release(self._root, local)
        return value

    def cancel(self, error: BaseException) -> None:
        """Stop the step with an error. Any thread may call this."""
        with self._changed:
            self._cancellation.cancel(error)
            self._changed.notify()

    def _needed(self, slots: Iterable[int], operations: Iterable[Operation]) -> set[FrameNode]:
        """Return the nodes that have yet to run before `slots` and `operations` are done."""
        writer, nodes = self._frames.writer, self._frames.nodes
        wanted = set(operations)
        stack = [writer[s] for s in slots if s in writer]
        stack += [n for n in nodes if origin_of(n.op) in wanted]  # constants have no instruction
        needed: set[FrameNode] = set()
        while stack:
            node = stack.pop()
            if node in needed or node in self._run_nodes:
                continue
            needed.add(node)
            stack += [writer[s] for s in node.instruction.inputs if s in writer]
            stack += [nodes[k] for k in node.instruction.after]
        return needed

    # -- The loop ----------------------------------------------------------------------------------

    def _loop(self, wanted: set[FrameNode] | None) -> None:
        """Run ready nodes until no node is ready or waiting; skip nodes that are not `wanted`."""
        ready, postponed = self._ready, []
        try:
            with np.errstate(all="ignore"), active(self._context), self._timer():
                while ready or self._waiting:
                    if self._over or not ready:
                        self._take_over()
                        continue
                    iteration, node = ready.popleft()
                    if wanted is not None and node not in wanted:
                        postponed.append((iteration, node))
                    else:
                        self._execute(iteration, node)
                    # A finished step must not fail: elements it took from a queue would be lost.
                    if ready or not self._frames.takes:
                        self._cancellation.check()
        except BaseException:
            left = self.abandon()
            if not self.used:
                put_back(self._context, left)
            raise
        ready.extend(postponed)

    def advance(self) -> bool:
        """Run until nothing is left (True) or everything left is blocked (False); for a step in
        partitions, whose thread then runs another one. That step decides whether to withdraw what
        is blocked when it is cancelled.
        """
        ready = self._ready
        try:
            with np.errstate(all="ignore"), active(self._context):
                while ready or self._waiting:
                    if self._over or not ready:
                        self._running = None
                        if not self._over:
                            return False
                        self._collect()
                        continue
                    self._execute(*ready.popleft())
                    # What was taken from a queue must reach the partition that returns it.
                    stops = self._cancellation.error is not None
                    if stops and self._frames.takes and all(is_send(n.op) for _, n in ready):
                        continue
                    if ready or not self._frames.takes:
                        self._cancellation.check()
        except BaseException:
            self.abandon()
            raise
        self._running = None
        return True

    def _execute(self, iteration: Iteration, node: FrameNode) -> None:
        if iteration.dead[node.local] > 0 and not node.outlives_death:
            self._finish(iteration, node, node.dead, False)
            return
        self._running = node
        values = iteration.values
        given = [values[s] for s in node.inputs]
        start = time.time() if self._observe is not None else 0.0
        failed = None
        try:
            if node.flow is Flow.SEND and iteration.dead[node.local] > 0:
                given = [DEAD]
            if node.asks and iteration is not self._root:
                run = iteration.run
                inside = self._context.inside(run.frame.name, iteration.number, run.path)
                with active(inside):
                    self._result = result = node.kernel(*given)
            else:
                self._result = result = node.kernel(*given)
        except ShapesChanged:
            raise
        except Exception as error:
            failed = self._failed(error, node, given)
        if failed is not None:
            raise failed
        waits = isinstance(result, Pending)
        if waits:
            self._waiting[result] = iteration, node, start
        self._result = None
        if waits:
            result.then(self._ended)
        else:
            self._complete(iteration, node, result, start)

    def _complete(self, iteration: Iteration, node: FrameNode, result: Any, start: float) -> None:
        """Check a kernel's result, report it to the observer and pass it on."""
        width = node.instruction.width
        results: tuple[Any, ...]
        results = tuple(result) if node.several else (result,) if width else ()
        if len(results) != width:
            raise RuntimeError(
                f"the kernel of {node.op.type} gave {len(results)} outputs, not {width}"
            )
        if self._observe is not None:
            self._observe(node.op, start, time.time(), list(results))
        alive = not (node.may_be_dead and results[0] is DEAD)
        if self._users is not None and alive:
            self._note_use(node)
        self._finish(iteration, node, results, alive)

    def _note_use(self, node: FrameNode) -> None:
        """Note whether a node that has run uses what was taken."""
        if self._users is not None:
            self.used = self.used or node in self._users[0]
            self.sent = self.sent or node in self._users[1]

    # -- Waiting -----------------------------------------------------------------------------------

    def _ended(self, pending: Pending) -> None:
        """Note that a Pending has ended. Any thread may call this."""
        with self._changed:
            self._over.append(pending)
            self._changed.notify()
        if self._wake is not None:
            self._wake(self)

    def sleeper(self) -> int | None:
        """Return the thread that sleeps in this step, or None if the step has work to do."""
        with self._changed:
            # Only a thread that is awake changes `_waiting`, which it does without the lock.
            if self._sleeper is None or self._over or self.works():
                return None
            return self._sleeper

    def works(self) -> bool:
        """Return whether a thread computes a result that the step waits for."""
        return any(pending.works for pending in list(self._waiting))

    def waiting(self) -> list[tuple[str, Any]]:
        """Return the operations that are blocked, each with what it waits for."""
        return [(pending.what, node.op) for pending, (_, node, _) in list(self._waiting.items())]

    def running(self) -> Any:
        """Return the operation whose kernel runs, or None."""
        node = self._running
        return None if node is None else node.op

    def _take_over(self) -> None:
        """Take the results of Pendings that have ended; sleep until there is one."""
        self._running = None
        while not self._over:
            self._sleep()
            if not self._over and self._cancellation.error is not None:
                self._withdraw(self._cancellation.error)
        self._collect()

    def _collect(self) -> None:
        """Take the results of Pendings that have ended."""
        while self._over:
            pending = self._over.popleft()
            iteration, node, start = self._waiting.pop(pending)
            try:
                result = pending.result()
            except Exception as error:
                failed = self._failed(error, node, [iteration.values[s] for s in node.inputs])
            else:
                self._complete(iteration, node, result, start)
                continue
            raise failed

    def _sleep(self) -> None:
        """Sleep until a Pending ends or the step is cancelled."""
        patience = settings().quiet_seconds
        quiet = time.monotonic() + patience if patience else float("inf")
        with self._changed:
            self._sleeper = get_ident()
            try:
                while not (self._over or self._cancellation.error):
                    self._cancellation.check()
                    now = time.monotonic()
                    if now >= quiet:
                        report_quiet(self.waiting(), patience)
                        quiet = float("inf")
                    self._changed.wait(min(quiet - now, self._nap))
            finally:
                self._sleeper = None

    def _withdraw(self, error: BaseException) -> None:
        """Cancel all Pendings and raise, unless every one of them has been claimed.

        A claimed Pending is about to end, and elements taken from a queue for it must not be lost.
        """
        if any(self.cancel_waits()):
            raise error
        with self._changed:
            while not self._over:
                self._changed.wait(_NAP)

    def cancel_waits(self) -> list[bool]:
        """Cancel the Pendings of what is blocked on something else than another partition; return
        for each whether it was cancelled. One that was claimed is about to end.
        """
        reason = errors.CancelledError(None, None, "the step was cancelled")
        waiting = list(self._waiting.items())
        return [p.cancel(reason) for p, (_, node, _) in waiting if not is_recv(node.op)]

    @contextmanager
    def _timer(self) -> Iterator[None]:
        """Cancel the step if its deadline passes inside this context."""
        if self._deadline is None:
            yield
            return
        timer = Timer(max(0.0, self._deadline - time.monotonic()), self._be_late)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _be_late(self) -> None:
        """Cancel the step with an error that names the running op, or else a waiting one.

        The timer's thread calls this.
        """
        running, waiting = self._running, list(self._waiting.items())
        op, happening = None, ""
        if running is not None:
            op, happening = origin_of(running.op), "ran"
        elif waiting:
            pending, (_, node, _) = waiting[0]
            op, happening = origin_of(node.op), f"waited for {pending.what}"
        while_ = f" while {op.type} '{op.name}' {happening}" if op is not None else ""
        message = f"Timed out waiting for notification: the step's deadline passed{while_}"
        self.cancel(errors.DeadlineExceededError(None, op, message))

    def abandon(self) -> list[Pending]:
        """Cancel all Pendings after a failure, discard their results and drop all values. Return
        the Pendings that were claimed before, and may still take something.
        """
        error = errors.CancelledError(None, None, "the step was cancelled")
        left = [p for p in (*self._waiting, self._result) if isinstance(p, Pending)]
        if self._users is not None:
            effects = [p for p, (_, node, _) in self._waiting.items() if node in self._users[0]]
            self.used = self.used or any(p.has_effect for p in effects)
        for pending in left:
            pending.cancel(error)
        for pending in left:
            pending.join()  # no thread may work for a step that has ended
        self._result = None
        self._waiting.clear()
        self._iterations.drop()
        return [p for p in left if p.has_effect]

    def _failed(self, error: Exception, node: FrameNode, given: Sequence[Any]) -> errors.OpError:
        self.used = True  # the element that was taken may be the reason
        tensors = {slot: t for t, slot in self._program.feeds}
        fed = [(tensors[slot], value) for slot, value in self._fed.items()]
        return failure(error, node.op, given, fed)


def put_back(context: StepContext, left: Sequence[Pending]) -> None:
    """Put back what a cancelled step has taken. left: Pendings that were claimed, and may still
    take something.
    """
    if context.taken is None:
        return
    for pending in left:
        pending.then(lambda _: context.put_back())
    context.put_back()
