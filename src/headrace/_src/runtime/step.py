"""Step: one execution by counting. In: values, now or later. Out: values, as soon as they exist.

Each iteration of each frame counts what its nodes still wait for; a node that waits for nothing is
ready, and the calling thread runs what is ready. A kernel may return a Pending: its node is then
*waiting* and holds no thread, while the step goes on with what is ready, or sleeps. A node with a
dead input does not run, its outputs are dead (white paper §4.4; see graph.control_roles for those
that steer). Used where the fixed order of `Executable.run` does not do: control flow, ops that
wait, partial runs, deadlines, tracing.

Invariants: an iteration's `outstanding` counts its nodes that are ready, running or waiting, and
its child frames; iterations of a frame end in order, and a frame ends when its last iteration has
and all its Enters have arrived: then the Exits that nothing has come out of are dead.
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
from headrace._src.devices.step_context import StepContext, active, current
from headrace._src.graph.control_roles import DEAD, Flow
from headrace._src.graph.dataflow import Node, origin_of
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.runtime.frames import CONTROL, Frame, FrameNode
from headrace._src.runtime.kernels import ShapesChanged, copy_of, echo, failure, take, translate
from headrace._src.runtime.waits import report_quiet

__all__ = ["Observer", "Step"]

# Called after each kernel with its operation, start and end in seconds, and its results.
Observer = Callable[[Operation | Node, float, float, list[Any]], None]

_NAP = 1.0  # seconds: so often a thread that waits sees whether Ctrl-C was pressed
_ARRIVED = -(2**60)  # of a Merge: a live input has come, so that dead ones mean nothing any more


class _Iteration:
    """Values and counts of one iteration of a frame.

    dead[j]: how many dead inputs node j has got.
    """

    __slots__ = ("children", "dead", "number", "outstanding", "pending", "readers", "run", "values")

    def __init__(self, run: _Run, number: int) -> None:
        frame = run.frame
        self.run = run
        self.number = number
        self.values: list[Any] = [DEAD] * frame.slots
        self.pending = list(frame.pending)
        self.readers = list(frame.readers)
        self.dead = [0] * len(frame.nodes)
        self.outstanding = 0
        self.children: dict[Frame, _Run] = {}


class _Run:
    """A frame that runs, inside an iteration of its parent.

    deferred: what the newest iteration passes on to one that may not begin, for too many live.
    """

    __slots__ = (
        "deferred",
        "enters",
        "exited",
        "frame",
        "invariants",
        "iterations",
        "oldest",
        "parent",
    )

    def __init__(self, frame: Frame, parent: _Iteration | None) -> None:
        self.frame = frame
        self.parent = parent
        self.enters = frame.enters  # those that have yet to arrive
        self.invariants: list[tuple[FrameNode, tuple[Any, ...]]] = []
        self.exited: set[FrameNode] = set()
        self.deferred: list[tuple[FrameNode, tuple[Any, ...]]] = []
        self.oldest = 0
        self.iterations = {0: _Iteration(self, 0)}


class Step:
    """One run of an executable that can be fed and fetched piece by piece."""

    def __init__(
        self,
        executable: Any,
        deadline: float | None = None,
        observe: Observer | None = None,
    ) -> None:
        self._program = executable.program
        self._look = executable.look
        self._frames = frames = executable.frames
        outer, resources = current(), executable.resources
        self._is_part = outer is not None and outer.resources is resources  # of that step
        self._context = StepContext(resources, None, deadline, observe)
        if outer is not None and self._is_part:
            self._context.id, self._context.container = outer.id, outer.container
        self._deadline = deadline
        self._observe = observe
        self._fed: dict[int, Any] = {}
        self._run_nodes: set[FrameNode] = set()  # of the root frame: those that have run
        self._waiting: dict[Pending, tuple[_Iteration, FrameNode, float]] = {}
        self._over: deque[Pending] = deque()  # those that other threads have ended
        # The node whose kernel runs; None while the step sleeps.
        self._running: FrameNode | None = frames.nodes[0] if frames.nodes else None
        self._result: Any = None  # of a kernel, until it's known whether that is a Pending
        self._changed = Condition()
        self._sleeper: int | None = None
        self._cancellation = self._context.cancellation
        self._root = root = _Run(frames.root, None).iterations[0]
        for slot, value in frames.constants.items():
            root.values[frames.home[slot][1]] = value
        self._ready: deque[tuple[_Iteration, FrameNode]] = deque(
            (root, node)
            for node, pending in zip(frames.root.nodes, root.pending, strict=True)
            if not pending
        )
        root.outstanding = len(self._ready)

    # -- Feeding, running, fetching ----------------------------------------------------------------

    def feed(self, values: Mapping[int, Any]) -> None:
        """Put values into feed slots; what waited for them becomes ready."""
        for slot, value in values.items():
            self._fed[slot] = value
            self._root.values[self._frames.home[slot][1]] = value
            for local in self._frames.after_feed[slot]:
                self._arrive(self._root, local, value is DEAD, False)

    def run(self, feeds: Sequence[Any]) -> list[Any]:
        """Feed all, run all, fetch all."""
        self._look()
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
        """Go on with a step whose first `number` instructions have run in order, with what they
        left in the program's slots, and the next of which waits; fetch all.
        """
        program, root = self._program, self._root
        self.feed({slot: v for (_, slot), v in zip(program.feeds, feeds, strict=True)})
        for node in self._frames.nodes[:number]:
            i = node.instruction
            self._finish(root, node, tuple(slots[i.output : i.output + i.width]), True)
        waiting = self._frames.nodes[number]
        begun = {*self._run_nodes, waiting}
        self._ready = deque(entry for entry in self._ready if entry[1] not in begun)
        self._waiting[pending] = root, waiting, 0.0
        pending.then(self._ended)
        try:
            self.run_all()
            return [self.fetch(t, slot, last=True) for t, slot in program.fetches]
        finally:
            self.end()

    def end(self) -> None:
        """Forget what lived as long as the step."""
        if not self._is_part:
            self._context.resources.drop(self._context.container)

    def run_all(self) -> None:
        """Run every instruction."""
        self._loop(None)

    def run_until(self, slots: Iterable[int], operations: Iterable[Operation]) -> None:
        """Run what `slots` and `operations` need; their feeds must be there (see `unfed`)."""
        self._loop(self._needed(slots, operations))

    def unfed(self, slots: Iterable[int], operations: Iterable[Operation]) -> set[int]:
        """The feed slots that `slots` and `operations` need and that have no value yet."""
        read = {s for n in self._needed(slots, operations) for s in n.instruction.inputs}
        wanted = {*read, *slots}
        return {s for s in wanted if s in self._frames.after_feed and s not in self._fed}

    def fetch(self, tensor: Tensor, slot: int, last: bool = False) -> Any:
        """Return the value of a fetched tensor; each fetch can be taken once. `last`: nothing will
        run any more that could read it.
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
        self._release(self._root, local)
        return value

    def cancel(self, error: BaseException) -> None:
        """Stop the step, from any thread, with an error."""
        with self._changed:
            self._cancellation.cancel(error)
            self._changed.notify()

    def _needed(self, slots: Iterable[int], operations: Iterable[Operation]) -> set[FrameNode]:
        """The nodes that have yet to run before `slots` and `operations` are done."""
        writer, nodes = self._frames.writer, self._frames.nodes
        wanted = set(operations)
        stack = [writer[s] for s in slots if s in writer]
        stack += [n for n in nodes if origin_of(n.op) in wanted]  # a constant has no instruction
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
        """Run what is ready, and what becomes so, until nothing is ready or waiting."""
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
                    # A step that has run doesn't fail: what it took from a queue would be lost.
                    if ready or not self._frames.takes:
                        self._cancellation.check()
        except BaseException:
            self._abandon()
            raise
        ready.extend(postponed)

    def _execute(self, iteration: _Iteration, node: FrameNode) -> None:
        if iteration.dead[node.local] > 0 and not node.outlives_death:
            self._finish(iteration, node, node.dead, False)
            return
        self._running = node
        values = iteration.values
        given = [values[s] for s in node.inputs]
        start = time.time() if self._observe is not None else 0.0
        failed = None
        try:
            if node.asks and iteration is not self._root:
                inside = self._context.inside(iteration.run.frame.name, iteration.number)
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

    def _complete(self, iteration: _Iteration, node: FrameNode, result: Any, start: float) -> None:
        """Take the result of a kernel."""
        width = node.instruction.width
        results: tuple[Any, ...]
        results = tuple(result) if node.several else (result,) if width else ()
        if len(results) != width:
            raise RuntimeError(
                f"the kernel of {node.op.type} gave {len(results)} outputs, not {width}"
            )
        if self._observe is not None:
            self._observe(node.op, start, time.time(), list(results))
        alive = node.flow is not Flow.MERGE or results[0] is not DEAD
        self._finish(iteration, node, results, alive)

    def _finish(
        self, iteration: _Iteration, node: FrameNode, results: tuple[Any, ...], alive: bool
    ) -> None:
        """Pass results on, each to the iteration where it belongs."""
        for s in node.inputs:
            self._release(iteration, s)
        flow = node.flow
        if flow is Flow.ENTER:
            self._enter(iteration, node, results)
        elif flow is Flow.EXIT:
            if alive:
                run = iteration.run
                run.exited.add(node)
                assert run.parent is not None
                self._deliver(run.parent, node, results, True)
        elif flow is Flow.NEXT:
            if alive:
                self._next(iteration, node, results)
        else:
            self._deliver(iteration, node, results, alive)
        if iteration is self._root:
            self._run_nodes.add(node)
        iteration.outstanding -= 1
        if not iteration.outstanding:
            self._settle(iteration)

    def _release(self, iteration: _Iteration, slot: int) -> None:
        left = iteration.readers[slot] = iteration.readers[slot] - 1
        if left <= 0:
            iteration.values[slot] = None

    # -- Passing values on -------------------------------------------------------------------------

    def _deliver(
        self, iteration: _Iteration, node: FrameNode, results: tuple[Any, ...], alive: bool
    ) -> None:
        """Put a node's results into an iteration, and let their readers know."""
        values, readers, output = iteration.values, iteration.readers, node.output
        for i, value in enumerate(results, output):
            if readers[i] > 0:
                values[i] = value
        for which, local in node.edges:
            if which == CONTROL:
                self._arrive(iteration, local, not alive, True)
            else:
                self._arrive(iteration, local, results[which] is DEAD, False)

    def _arrive(self, iteration: _Iteration, local: int, dead: bool, control: bool) -> None:
        """One thing that a node waited for is there."""
        node = iteration.run.frame.nodes[local]
        if node.merged and not control:
            if dead:
                iteration.dead[local] += 1
                if iteration.dead[local] != node.merged:
                    return
            elif iteration.dead[local] < 0:
                return  # a second live input, which a well-formed graph has not
            else:
                iteration.dead[local] = _ARRIVED
        elif dead and not node.merged:
            iteration.dead[local] += 1
        left = iteration.pending[local] = iteration.pending[local] - 1
        if not left:
            iteration.outstanding += 1
            self._ready.append((iteration, node))

    def _enter(self, iteration: _Iteration, node: FrameNode, results: tuple[Any, ...]) -> None:
        """Pass a value into a frame, which begins with the first that comes."""
        frame = node.target
        assert frame is not None
        run = iteration.children.get(frame)
        if run is None:
            run = iteration.children[frame] = _Run(frame, iteration)
            iteration.outstanding += 1
        run.enters -= 1
        alive = results[0] is not DEAD
        if node.constant:
            run.invariants.append((node, results))
            for inner in run.iterations.values():
                self._deliver(inner, node, results, alive)
        else:
            self._deliver(run.iterations[0], node, results, alive)
        if not run.enters:
            self._settle(run.iterations[run.oldest])

    def _next(self, iteration: _Iteration, node: FrameNode, results: tuple[Any, ...]) -> None:
        """Pass a value to the next iteration, which begins with it if it may."""
        run, number = iteration.run, iteration.number + 1
        following = run.iterations.get(number)
        if following is None:
            if number - run.oldest >= run.frame.parallel:
                run.deferred.append((node, results))
                return
            following = self._begin(run, number)
        self._deliver(following, node, results, True)

    def _begin(self, run: _Run, number: int) -> _Iteration:
        iteration = run.iterations[number] = _Iteration(run, number)
        for node, results in run.invariants:
            self._deliver(iteration, node, results, results[0] is not DEAD)
        return iteration

    def _settle(self, iteration: _Iteration) -> None:
        """End an iteration in which nothing is left to do, and what ends with it."""
        run = iteration.run
        while (
            run.parent is not None
            and not iteration.outstanding
            and not run.enters
            and iteration.number == run.oldest
        ):
            del run.iterations[iteration.number]
            run.oldest += 1
            if run.deferred:
                deferred, run.deferred = run.deferred, []
                following = self._begin(run, iteration.number + run.frame.parallel)
                for node, results in deferred:
                    self._deliver(following, node, results, True)
            following = run.iterations.get(run.oldest)
            if following is not None:
                iteration = following
                continue
            parent = run.parent
            for node in run.frame.exits:
                if node not in run.exited:
                    self._deliver(parent, node, node.dead, False)
            del parent.children[run.frame]
            parent.outstanding -= 1
            iteration, run = parent, parent.run

    # -- Waiting -----------------------------------------------------------------------------------

    def _ended(self, pending: Pending) -> None:
        """In whatever thread: a Pending is over."""
        with self._changed:
            self._over.append(pending)
            self._changed.notify()

    def sleeper(self) -> int | None:
        """The thread that sleeps until something comes, if nothing has."""
        with self._changed:
            busy = self._over or any(pending.works for pending in self._waiting)
            return None if busy else self._sleeper

    def _take_over(self) -> None:
        """Take the results of Pendings that are over; sleep if there are none."""
        self._running = None
        while not self._over:
            self._sleep()
            if not self._over and self._cancellation.error is not None:
                self._withdraw(self._cancellation.error)
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
        """Sleep until a Pending is over, or the step is cancelled."""
        patience = settings().quiet_seconds
        quiet = time.monotonic() + patience if patience else float("inf")
        with self._changed:
            self._sleeper = get_ident()
            try:
                while not (self._over or self._cancellation.error):
                    self._cancellation.check()
                    now = time.monotonic()
                    if now >= quiet:
                        waiting = [(p.what, n.op) for p, (_, n, _) in self._waiting.items()]
                        report_quiet(waiting, patience)
                        quiet = float("inf")
                    self._changed.wait(min(quiet - now, _NAP))
            finally:
                self._sleeper = None

    def _withdraw(self, error: BaseException) -> None:
        """Cancel what is waited for, and raise; unless all of that has been claimed. Then it's
        about to come, and what was taken from a queue for it must not be lost.
        """
        reason = errors.CancelledError(None, None, "the step was cancelled")
        cancelled = [pending.cancel(reason) for pending in list(self._waiting)]
        if any(cancelled):
            raise error
        with self._changed:
            while not self._over:
                self._changed.wait(_NAP)

    @contextmanager
    def _timer(self) -> Iterator[None]:
        """Stop what runs long when the time is up."""
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
        """In the timer's thread: stop, with an error that names what runs or what waits (if
        anything does).
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

    def _abandon(self) -> None:
        """End what still waits, after a failure; nobody looks at the results."""
        error = errors.CancelledError(None, None, "the step was cancelled")
        left = [p for p in (*self._waiting, self._result) if isinstance(p, Pending)]
        for pending in left:
            pending.cancel(error)
        for pending in left:
            pending.join()  # a step is over when nothing works for it any more
        self._result = None
        self._waiting.clear()
        self._ready.clear()
        _drop_values(self._root)

    def _failed(self, error: Exception, node: FrameNode, given: Sequence[Any]) -> errors.OpError:
        tensors = {slot: t for t, slot in self._program.feeds}
        fed = [(tensors[slot], value) for slot, value in self._fed.items()]
        return failure(error, node.op, given, fed)


def _drop_values(iteration: _Iteration) -> None:
    """Let go of what a step that failed holds: a value may be a lock, which is given back so."""
    iteration.values = []
    for run in iteration.children.values():
        run.invariants = []
        run.deferred = []
        for inner in run.iterations.values():
            _drop_values(inner)
