"""The runs: the steps of a master that run on the workers, from their start to the answer for the
client. In: requests whose graphs are ready, messages of workers about steps, tasks that are lost,
runs and sessions that are given up, the time. Out: instructions. It does no I/O.

A run is one message to each worker that takes part and one answer from each whose end does not
follow from that of another. The first failure aborts the others; the client is told when all have
ended, or after a grace period.

Invariants: each run is answered exactly once. A message about it counts only while the task that
sends it takes part, and only from the process that the session began with. The deadline of a run is
never more than the grace period away once it has failed or was cancelled. Elements that tasks hold
are settled with the answer, or when a task says too late that it holds some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace._src.core import errors
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer, Post
from headrace._src.distributed.piecewise_run import PiecewiseRun
from headrace._src.distributed.sessions import (
    MasterSession,
    RegisteredGraph,
    RunningStep,
    gone,
    restarted,
)
from headrace._src.transport.frame import Frame

__all__ = ["Runs"]

_GRACE = 1.0  # seconds that a failed step waits for its workers to end

Instructions = list[Any]
_new: Any = tuple.__new__  # makes a message or frame of its fields with one call less


class Runs:
    """The runs of one master.

    sessions: the master's, by their numbers. shapes_of: the key of a run's registration, from its
    feeds. due_in: returns the time after some seconds, and has `tick` called then. run: does what a
    request to run a step says, as if its client had just sent it.
    """

    def __init__(
        self,
        incarnation: int,
        sessions: Mapping[int, MasterSession],
        shapes_of: Callable[[Any], Any],
        due_in: Callable[[float], float],
        run: Callable[[Peer, say.RunStep], Instructions],
    ) -> None:
        self._sessions = sessions
        self._shapes_of = shapes_of
        self._due_in = due_in
        self._run = run
        self._runs: dict[int, RunningStep] = {}
        self._steps = say.step_ids(incarnation)
        self.handlers: dict[type[Any], Callable[[Peer, Any], Instructions]] = {
            say.StepDone: self._step_done,
            say.StepFailed: self._step_failed,
            say.FetchedPiece: self._piece,
        }

    def __len__(self) -> int:
        return len(self._runs)

    def start(
        self,
        graph: RegisteredGraph,
        peer: Peer,
        request: say.RunStep,
        partial: PiecewiseRun | None = None,
    ) -> Instructions:
        """Send the parts of a step to the workers that take part."""
        divided, session = graph.divided, graph.session
        assert divided is not None
        for task in session.lost:
            if task in divided.parts:
                failed = say.failed(request.number, restarted(session, task))
                return [do.Send(peer, failed)] if not partial else partial.failed(failed)
        number = next(self._steps)
        deadline = self._due_in(request.timeout / 1e3) if request.timeout else None
        run = RunningStep(number, peer, request, graph, set(graph.tasks), deadline, partial=partial)
        if not divided.parts:
            return self._finish(run)
        self._runs[number] = run
        graph.running += 1
        tensors = request.tensors
        started: Instructions = []
        for worker, ahead, feeds in graph.workers:
            fed = _chosen(tensors, feeds)
            message = say.RunGraph(number, session.number, graph.number, request.traced, ahead, fed)
            started.append(do.Send(worker, message))
        return started if partial is None else [*started, *partial.started(run)]

    # -- Steps that run again ----------------------------------------------------------------------

    def run_again(self, peer: Peer, frame: Frame) -> list[Post] | None:
        """A client has sent a RunStep. If it only repeats a step that is registered, start it, and
        return the frames for its workers; otherwise do nothing, and return None.
        """
        _, request, head, tensors = frame
        if len(head) != say.RUN_STEP_HEAD.size:
            return None
        session_number, step_number, timeout, traced = say.RUN_STEP_HEAD.unpack(head)
        session = self._sessions.get(session_number)
        step = session and session.steps.get(step_number)
        if session is None or step is None or session.client != peer or timeout or traced:
            return None
        shapes = None if step.as_is else self._shapes_of(tensors)
        graph = step.variants.get(shapes)
        if graph is None or graph.missing or not graph.heads or session.lost:
            return None
        if len(step.variants) > 1:
            step.variants.move_to_end(shapes)
        number = next(self._steps)
        message = _new(say.RunStep, (request, session_number, step_number, 0, 0, tensors))
        self._runs[number] = RunningStep(number, peer, message, graph, set(graph.tasks))
        graph.running += 1
        return [
            (worker, _new(Frame, (say.RUN_GRAPH, number, head, _chosen(tensors, feeds))))
            for worker, head, feeds in graph.heads
        ]

    def done_again(self, peer: Peer, frame: Frame) -> list[Post] | None:
        """A worker has sent a StepDone. If it only says that its part has ended, note that, and
        return the answer for the client if it was the last one; otherwise do nothing, and return
        None.
        """
        _, number, head, tensors = frame
        run = self._runs.get(number)
        if run is None or head != say.DONE_AND_NO_MORE:
            return None
        graph = run.graph
        ends = graph.ends.get(peer)
        if ends is None or peer.name not in run.left:
            return None
        if run.error is not None or run.partial is not None or run.held or run.request.traced:
            return None
        run.left -= ends
        run.results[peer.name] = tensors
        if run.left:
            return []
        del self._runs[number]
        graph.running -= 1
        assert graph.divided is not None
        fetches = tuple([run.results[task][i] for task, i in graph.divided.sources])
        answer = say.STEP_RAN, run.request.number, say.UNTRACED_RAN, fetches
        return [(run.client, _new(Frame, answer))]

    # -- Messages of workers -----------------------------------------------------------------------

    def _step_done(self, peer: Peer, message: say.StepDone) -> Instructions:
        run = self._runs.get(message.number)
        if run is None or peer.name not in run.left or self._is_old(run, peer):
            return _too_late(peer, message)
        self._note_end(run, peer, message.elements)
        tensors = message.tensors
        if message.traced:
            tensors, stats = tensors[:-1], tensors[-1]
            run.stats += (stats,)
        else:
            run.left -= run.graph.ends[peer]
        run.results[peer.name] = tensors
        return [] if run.left else self._finish(run)

    def _step_failed(self, peer: Peer, message: say.StepFailed) -> Instructions:
        run = self._runs.get(message.number)
        if run is None or peer.name not in run.left or self._is_old(run, peer):
            return _too_late(peer, message)
        self._note_end(run, peer, message.elements)
        if message.code == say.SHAPES_CHANGED:
            return self._despecialise(run, message)
        return self._fail(run, say.error_of(message), message.operation, message.details)

    def _note_end(self, run: RunningStep, peer: Peer, elements: int) -> None:
        run.left.discard(peer.name)
        run.used = run.used or bool(elements & say.USED)
        if elements & say.HELD:
            run.held += (peer.name,)

    def _despecialise(self, run: RunningStep, message: say.StepFailed) -> Instructions:
        """Run a step as it is from now on. If only one task takes part, nothing has begun: run it
        at once.
        """
        step = run.graph.session.steps[run.request.step]
        step.as_is = True
        if not run.left and not run.results and run.error is None and run.stopped is None:
            del self._runs[run.number]
            run.graph.running -= 1
            return self._run(run.client, run.request)
        text = f"{message.message}. Run the step again: it no longer relies on shapes."
        return self._fail(run, errors.AbortedError(None, None, text))

    def _piece(self, peer: Peer, message: say.FetchedPiece) -> Instructions:
        run = self._runs.get(message.number)
        if run is None or run.partial is None or self._is_old(run, peer):
            return []
        assert run.graph.divided is not None
        name = run.graph.divided.fetched.get(message.edge)
        return [] if name is None else run.partial.fetched(name, message.tensors[0])

    def _is_old(self, run: RunningStep, peer: Peer) -> bool:
        """Return whether a message comes from a process that is not part of the step."""
        return run.graph.session.tasks.get(peer.name) != peer

    # -- Reasons to end ----------------------------------------------------------------------------

    def lost(self, peer: Peer, why: str) -> Instructions:
        """A process is gone: fail the runs that it still takes part in."""
        found: Instructions = []
        for run in list(self._runs.values()):
            if peer.name in run.left and run.graph.session.tasks.get(peer.name) == peer:
                run.left.discard(peer.name)
                run.used = True  # perhaps
                found += self._fail(run, gone(peer.name, why))
        return found

    def end(self, session: MasterSession, error: errors.OpError) -> Instructions:
        """A session ends: cancel its runs."""
        found: Instructions = []
        for run in [r for r in self._runs.values() if r.graph.session is session]:
            found += self._stop(run, error)
        return found

    def cancel(self, client: Peer, number: int, error: errors.OpError) -> Instructions:
        """A client gives up a run."""
        found: Instructions = []
        for run in list(self._runs.values()):
            requests = [run.request] if run.partial is None else run.partial.requests
            if run.client == client and number in [r.number for r in requests]:
                found += self._stop(run, error)
        return found

    def tick(self, now: float) -> Instructions:
        """End what is late."""
        found: Instructions = []
        for run in list(self._runs.values()):
            if run.deadline is not None and now >= run.deadline:
                found += self._be_late(run)
        return found

    def deadlines(self) -> list[float | None]:
        """Return when `tick` next has something to do for each run."""
        return [run.deadline for run in self._runs.values()]

    # -- Failures and ends -------------------------------------------------------------------------

    def _fail(
        self, run: RunningStep, error: errors.OpError, operation: str = "", details: str = ""
    ) -> Instructions:
        """Record the first error of a step, and abort the other parts."""
        found: Instructions = []
        if run.error is None:
            if run.stopped is not None and run.stopped.error_code != error.error_code:
                error, operation, details = run.stopped, "", ""
            run.error, run.operation, run.details = error, operation, details
            run.deadline = self._due_in(_GRACE)
            found += self._abort(run, f"the step failed: {error.message}", errors.CANCELLED)
        return found if run.left else [*found, *self._finish(run)]

    def _stop(self, run: RunningStep, error: errors.OpError) -> Instructions:
        """Cancel a step of which nothing has failed."""
        if run.error is not None or run.stopped is not None:
            return []
        run.stopped = error
        run.deadline = self._due_in(_GRACE)
        return self._abort(run, error.message, error.error_code, gentle=True)

    def _abort(
        self, run: RunningStep, reason: str, code: int, gentle: bool = False
    ) -> Instructions:
        session = run.graph.session
        abort = say.AbortStep(run.number, code, reason, int(gentle))
        peers = [session.tasks[task] for task in sorted(run.left) if task not in session.lost]
        return [do.Send(peer, abort) for peer in peers if peer is not None]

    def _be_late(self, run: RunningStep) -> Instructions:
        if run.error is not None:
            return self._finish(run)  # the grace period is over
        if run.stopped is not None:
            return self._fail(run, run.stopped)
        names = ", ".join(sorted(run.left))
        message = f"Timed out waiting for notification: {names} had not finished the step"
        return self._stop(run, errors.DeadlineExceededError(None, None, message))

    def _finish(self, run: RunningStep) -> Instructions:
        """Answer the client."""
        if self._runs.pop(run.number, None) is not None:
            run.graph.running -= 1
        number = run.request.number
        settled = self._settle(run) if run.held else []
        if run.error is not None:
            answer: Any = say.failed(number, run.error)._replace(
                operation=run.operation, details=run.details
            )
            if run.partial is not None:
                return [*settled, *run.partial.failed(answer)]
        elif run.partial is not None:
            return [*settled, *run.partial.ended()]
        else:
            assert run.graph.divided is not None
            fetches = tuple([run.results[task][i] for task, i in run.graph.divided.sources])
            answer = say.StepRan(number, len(run.stats), (*fetches, *run.stats))
        return [*settled, do.Send(run.client, answer)]

    def _settle(self, run: RunningStep) -> Instructions:
        """Let tasks put back the elements that a cancelled step has taken, unless something was
        made of them; otherwise let them drop these.
        """
        cancelled = run.error is not None and run.stopped is not None and run.partial is None
        settled = say.SettleStep(run.number, int(cancelled and not run.used and not run.left))
        session = run.graph.session
        peers = [session.tasks[task] for task in run.held if task not in session.lost]
        return [do.Send(peer, settled) for peer in peers if peer is not None]


def _chosen(tensors: Sequence[Any], feeds: tuple[int, ...]) -> tuple[Any, ...]:
    """Return a worker's feeds."""
    return tuple([tensors[i] for i in feeds]) if feeds else ()


def _too_late(peer: Peer, message: say.StepDone | say.StepFailed) -> Instructions:
    """Answer a worker whose step the master does not know any more."""
    if not message.elements & say.HELD:
        return []
    return [do.Send(peer, say.SettleStep(message.number, 0))]
