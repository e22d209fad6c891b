"""The prepared steps of a master's sessions: divides each for the shapes of its feeds, registers
the parts with the workers, and starts the runs. In: what clients ask of steps, divisions, answers
of workers, tasks that are lost. Out: instructions.

A step is divided and registered once for each combination of feed shapes, of which the latest 8 are
kept, or once in pieces for its partial runs. A step that cannot rely on shapes is registered as it
is.

Invariants: a run starts only when all workers that take part have registered its graph. Until then
it waits, and is started, refused or cancelled exactly once. A graph that is refused is forgotten
everywhere, so the next run divides the step again. A graph that runs is not evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace._src.core import errors
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer
from headrace._src.distributed.piecewise_run import PiecewiseRun
from headrace._src.distributed.runs import Runs
from headrace._src.distributed.sessions import (
    Divided,
    MasterSession,
    PreparedStep,
    RegisteredGraph,
    gone,
    no_session,
    restarted,
    session_of,
)
from headrace._src.distributed.worker_requests import WorkerRequests

__all__ = ["PreparedSteps"]

_MOST_VARIANTS = 8  # registrations of one step, for different shapes
_PIECEWISE = "piecewise"  # the variant of a step for partial runs

Instructions = list[Any]


class PreparedSteps:
    """The steps of one master. runs: of these; it owns them.

    sessions: the master's, by their numbers. numbers: those that are not used yet. shapes_of: the
    key of a run's registration, from its feeds. due_in: see Runs.
    """

    def __init__(
        self,
        me: Peer,
        sessions: Mapping[int, MasterSession],
        numbers: Iterator[int],
        requests: WorkerRequests,
        shapes_of: Callable[[Any], Any],
        due_in: Callable[[float], float],
    ) -> None:
        self._me = me
        self._sessions = sessions
        self._numbers = numbers
        self._requests = requests
        self._shapes_of = shapes_of
        self._graphs: dict[int, RegisteredGraph] = {}
        self.runs = Runs(me.incarnation, sessions, shapes_of, due_in, self._run)
        self.handlers: dict[type[Any], Callable[[Peer, Any], Instructions]] = {
            say.Prepare: self._prepare,
            say.RunStep: self._run,
            say.AdvanceRun: self._continue,
        }

    def __len__(self) -> int:
        """Return how many graphs are registered, or about to be."""
        return len(self._graphs)

    # -- Requests of clients -----------------------------------------------------------------------

    def _prepare(self, peer: Peer, message: say.Prepare) -> Instructions:
        session = session_of(peer, self._sessions, message.session)
        if session is None:
            return [no_session(peer, message)]
        number = next(self._numbers)
        session.steps[number] = PreparedStep(number, message)
        return [do.Send(peer, say.Prepared(message.number, number))]

    def _run(self, peer: Peer, message: say.RunStep) -> Instructions:
        session = self._sessions.get(message.session)
        step = session and session.steps.get(message.step)
        if session is None or step is None or session.client != peer:
            return [no_session(peer, message)]
        shapes = None if step.as_is else self._shapes_of(message.tensors)
        graph = step.variants.get(shapes)
        if graph is None:
            return self._new_graph(session, step, shapes, peer, message)
        step.variants.move_to_end(shapes)
        if graph.divided is not None and not graph.missing:
            return self.runs.start(graph, peer, message)
        graph.waiting.append((peer, message, None))
        return []

    def _continue(self, peer: Peer, message: say.AdvanceRun) -> Instructions:
        session = session_of(peer, self._sessions, message.session)
        step = session and session.steps.get(message.step)
        if session is None or step is None:
            return [no_session(peer, message)]
        partial = session.partials.get(message.run)
        begins = partial is None
        if partial is None:
            partial = session.partials[message.run] = PiecewiseRun(session, peer)
        if partial.error is not None:
            return [do.Send(peer, partial.error._replace(number=message.number))]
        found = partial.asked(message)
        if begins:
            found += self._begin_partial(session, step, partial, peer, message)
        return [*found, *partial.answer()]

    def _begin_partial(
        self,
        session: MasterSession,
        step: PreparedStep,
        partial: PiecewiseRun,
        peer: Peer,
        message: say.AdvanceRun,
    ) -> Instructions:
        request = say.RunStep(message.number, session.number, step.number, 0, 0, ())
        graph = step.variants.get(_PIECEWISE)
        if graph is None:
            return self._new_graph(session, step, _PIECEWISE, peer, request, partial)
        if graph.is_ready:
            return self.runs.start(graph, peer, request, partial)
        graph.waiting.append((peer, request, partial))
        return []

    def cancel(self, client: Peer, number: int, error: errors.OpError) -> Instructions:
        """A client gives up a run: fail it if it waits for a graph."""
        found: Instructions = []
        for graph in self._graphs.values():
            stays = [w for w in graph.waiting if (w[0], w[1].number) != (client, number)]
            if len(stays) < len(graph.waiting):
                graph.waiting = stays
                found.append(do.Send(client, say.failed(number, error)))
        return found

    # -- Registration ------------------------------------------------------------------------------

    def _new_graph(
        self,
        session: MasterSession,
        step: PreparedStep,
        shapes: Any,
        peer: Peer,
        message: say.RunStep,
        partial: PiecewiseRun | None = None,
    ) -> Instructions:
        found: Instructions = []
        if len(step.variants) >= _MOST_VARIANTS:
            found += self._evict(step)
        graph = RegisteredGraph(next(self._numbers), session)
        self._graphs[graph.number] = step.variants[shapes] = graph
        graph.waiting.append((peer, message, partial))
        return [*found, do.Divide(session.number, graph.number, step.request, shapes)]

    def divided(
        self, number: int, found: Divided | None, error: BaseException | None
    ) -> Instructions:
        """A step was cut into partitions, or could not be."""
        graph = self._graphs.get(number)
        if graph is None:
            return []
        if found is None:
            assert error is not None
            return self.refuse(graph, error)
        graph.divided = found
        missing = [task for task in found.parts if task in graph.session.lost]
        if missing:
            return self.refuse(graph, restarted(graph.session, missing[0]))
        graph.missing = set(found.parts)
        session = graph.session
        tasks = {task: peer for task, peer in session.tasks.items() if peer and task in found.parts}
        # The part in this process comes last: it would keep the others waiting for their messages.
        order = sorted(found.parts, key=lambda task: task == self._me.name)
        graph.workers = [(tasks[t], session.ahead[t], found.feeds[t]) for t in order]
        graph.tasks = frozenset(found.parts)
        graph.heads = [
            (peer, say.RUN_GRAPH_HEAD.pack(session.number, graph.number, 0, ahead), feeds)
            for peer, ahead, feeds in graph.workers
        ]
        graph.ends = {
            p: frozenset((task, *found.covers.get(task, ()))) for task, p in tasks.items()
        }
        incarnations = {task: peer.incarnation for task, peer in tasks.items()}
        instructions: Instructions = []
        if found.notice or found.races:
            notice = say.Notice(0, found.notice, list(found.races))
            instructions.append(do.Send(graph.session.client, notice))
        for task, (about, payload) in found.parts.items():
            peer = tasks[task]
            request = self._requests.ask("registered", graph, peer)
            message = say.RegisterGraph(
                request, graph.session.number, graph.number, incarnations, about, payload
            )
            instructions.append(do.Send(peer, message))
        return instructions if found.parts else [*instructions, *self._start_waiting(graph)]

    def registered(self, graph: RegisteredGraph, task: str) -> Instructions:
        """A worker has registered its part of a graph."""
        graph.missing.discard(task)
        return self._start_waiting(graph) if graph.is_ready else []

    def lost(self, session: MasterSession, task: str, why: str) -> Instructions:
        """A task of a session is gone: refuse the graphs that it has not registered yet."""
        found: Instructions = []
        for step in session.steps.values():
            for graph in list(step.variants.values()):
                if task in graph.missing:
                    found += self.refuse(graph, gone(task, why))
        return found

    def end(self, session: MasterSession, error: errors.OpError) -> Instructions:
        """A session ends: refuse all its graphs."""
        found: Instructions = []
        for step in session.steps.values():
            for graph in list(step.variants.values()):
                found += self.refuse(graph, error)
        return found

    def _evict(self, step: PreparedStep) -> Instructions:
        """Deregister the variant that was not used for longest, unless it runs."""
        for shapes, graph in step.variants.items():
            if graph.is_ready and not graph.running:
                del step.variants[shapes], self._graphs[graph.number]
                return self._deregister(graph)
        return []

    def _deregister(self, graph: RegisteredGraph) -> Instructions:
        session = graph.session
        parts = graph.divided.parts if graph.divided is not None else ()
        return [
            do.Send(peer, say.DeregisterGraph(0, session.number, graph.number))
            for task in parts
            if (peer := session.tasks[task]) is not None and task not in session.lost
        ]

    def refuse(self, graph: RegisteredGraph, error: BaseException) -> Instructions:
        """Fail the runs that wait for a graph, and forget it everywhere."""
        found: Instructions = []
        if self._graphs.pop(graph.number, None) is not None and not graph.session.closed:
            found += self._deregister(graph)
        self._requests.expect_nothing_for(graph)
        for step in graph.session.steps.values():
            for shapes in [s for s, g in step.variants.items() if g is graph]:
                del step.variants[shapes]
        waiting, graph.waiting = graph.waiting, []
        for peer, run, partial in waiting:
            if partial is None:
                found.append(do.Send(peer, say.failed(run.number, error)))
            else:
                found += partial.failed(say.failed(0, error))
        return found

    def _start_waiting(self, graph: RegisteredGraph) -> Instructions:
        waiting, graph.waiting = graph.waiting, []
        return [each for waiter in waiting for each in self.runs.start(graph, *waiter)]
