"""The iterations of a step's frames: counts what each node lacks, and passes values on. In: frames,
fed values, results of nodes. Out: nodes that are ready, with their iterations.

Each iteration of each frame counts the inputs that each node still lacks. A node that lacks none is
ready. A node with a dead input does not run, and its outputs are dead (white paper §4.4); the
control flow ops in graph.control_roles are exceptions.

Invariants: an iteration's `outstanding` counts its child frames and its nodes that are ready and
have not finished. The iterations of a frame end in order. A frame ends when its last iteration has
ended and all its Enters have arrived; an Exit that has passed no value is then dead. An iteration
keeps a value until its last reader has finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Any

from headrace._src.graph.control_roles import DEAD, Flow
from headrace._src.runtime.frames import CONTROL, FrameNode, Frames, LoopFrame

__all__ = ["Iteration", "Iterations"]

_ARRIVED = -(2**60)  # dead count of a Merge with a live input: its dead inputs do not matter


class Iteration:
    """The values and counts of one iteration of a frame.

    dead[j] is the number of dead inputs that node j has received.
    """

    __slots__ = ("children", "dead", "number", "outstanding", "pending", "readers", "run", "values")

    def __init__(self, run: RunningFrame, number: int) -> None:
        frame = run.frame
        self.run = run
        self.number = number
        self.values: list[Any] = [DEAD] * frame.slots
        self.pending = list(frame.pending)
        self.readers = list(frame.readers)
        self.dead = [0] * len(frame.nodes)
        self.outstanding = 0
        self.children: dict[LoopFrame, RunningFrame] = {}


class RunningFrame:
    """A running frame, inside an iteration of its parent frame.

    deferred holds values for the next iteration while too many iterations are live to begin it.
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
        "path",
    )

    def __init__(self, frame: LoopFrame, parent: Iteration | None) -> None:
        self.frame = frame
        self.parent = parent
        outer = "" if parent is None else f"{parent.run.path};{parent.number};"
        self.path = outer + frame.name if parent is not None else 0
        self.enters = frame.enters  # how many have yet to arrive
        self.invariants: list[tuple[FrameNode, tuple[Any, ...]]] = []
        self.exited: set[FrameNode] = set()
        self.deferred: list[tuple[FrameNode, tuple[Any, ...]]] = []
        self.oldest = 0
        self.iterations = {0: Iteration(self, 0)}


class Iterations:
    """The iterations of one step. root: the only one of the root frame. ready: the nodes that can
    run, which whoever runs them removes and then finishes. ran: the root frame's nodes that have
    finished.
    """

    def __init__(self, frames: Frames) -> None:
        self.root = root = RunningFrame(frames.root, None).iterations[0]
        self.ran: set[FrameNode] = set()
        for slot, value in frames.constants.items():
            root.values[frames.home[slot][1]] = value
        self.ready: deque[tuple[Iteration, FrameNode]] = deque(
            (root, node)
            for node, pending in zip(frames.root.nodes, root.pending, strict=True)
            if not pending
        )
        root.outstanding = len(self.ready)

    def take_out(self, nodes: Container[FrameNode]) -> None:
        """Remove nodes from the ready ones: something else runs them, or has run them."""
        left = [entry for entry in self.ready if entry[1] not in nodes]
        self.ready.clear()
        self.ready.extend(left)

    def finish(
        self, iteration: Iteration, node: FrameNode, results: tuple[Any, ...], alive: bool
    ) -> None:
        """Release a node's inputs and pass its results to the iteration where they belong."""
        for s in node.inputs:
            self.release(iteration, s)
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
        if iteration is self.root:
            self.ran.add(node)
        iteration.outstanding -= 1
        if not iteration.outstanding:
            self._settle(iteration)

    def release(self, iteration: Iteration, slot: int) -> None:
        """One reader of a value less."""
        left = iteration.readers[slot] = iteration.readers[slot] - 1
        if left <= 0:
            iteration.values[slot] = None

    def drop(self) -> None:
        """Drop all values, and run nothing any more."""
        self.ready.clear()
        _drop_values(self.root)

    def arrive(self, iteration: Iteration, local: int, dead: bool, control: bool) -> None:
        """Record that one input of a node has arrived; the node may become ready."""
        node = iteration.run.frame.nodes[local]
        if node.merged and not control:
            if dead:
                iteration.dead[local] += 1
                if iteration.dead[local] != node.merged:
                    return
            elif iteration.dead[local] < 0:
                return  # a second live input: a well-formed graph never gets here
            else:
                iteration.dead[local] = _ARRIVED
        elif dead and not node.merged:
            iteration.dead[local] += 1
        left = iteration.pending[local] = iteration.pending[local] - 1
        if not left:
            iteration.outstanding += 1
            self.ready.append((iteration, node))

    def _deliver(
        self, iteration: Iteration, node: FrameNode, results: tuple[Any, ...], alive: bool
    ) -> None:
        """Put a node's results into an iteration and notify their readers."""
        values, readers, output = iteration.values, iteration.readers, node.output
        for i, value in enumerate(results, output):
            if readers[i] > 0:
                values[i] = value
        for which, local in node.edges:
            if which == CONTROL:
                self.arrive(iteration, local, not alive, True)
            else:
                self.arrive(iteration, local, results[which] is DEAD, False)

    def _enter(self, iteration: Iteration, node: FrameNode, results: tuple[Any, ...]) -> None:
        """Pass a value into a frame; the first value starts the frame."""
        frame = node.target
        assert frame is not None
        run = iteration.children.get(frame)
        if run is None:
            run = iteration.children[frame] = RunningFrame(frame, iteration)
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

    def _next(self, iteration: Iteration, node: FrameNode, results: tuple[Any, ...]) -> None:
        """Pass a value to the next iteration; start that iteration or defer the value."""
        run, number = iteration.run, iteration.number + 1
        following = run.iterations.get(number)
        if following is None:
            if number - run.oldest >= run.frame.parallel:
                run.deferred.append((node, results))
                return
            following = self._begin(run, number)
        self._deliver(following, node, results, True)

    def _begin(self, run: RunningFrame, number: int) -> Iteration:
        iteration = run.iterations[number] = Iteration(run, number)
        for node, results in run.invariants:
            self._deliver(iteration, node, results, results[0] is not DEAD)
        return iteration

    def _settle(self, iteration: Iteration) -> None:
        """End an iteration that has nothing left to do, and the frames that end with it."""
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


def _drop_values(iteration: Iteration) -> None:
    """Drop all values of a failed step: a value may be a lock, and dropping it releases it."""
    iteration.values = []
    for run in iteration.children.values():
        run.invariants = []
        run.deferred = []
        for inner in run.iterations.values():
            _drop_values(inner)
