"""The worker: runs its partitions of steps for masters. In: events (messages of peers, peers that
are lost, work that has ended). Out: instructions for the driver. It does no I/O and has no clock.

A session belongs to the master that opened it. A graph is registered with the incarnations of all
tasks that take part in it: tensors are accepted from those processes only, so an old process that
comes back, or messages of one that were under way, can do nothing (white paper §3.3).

Invariants: a step that was started ends exactly once, by `ended`; its master is then told, if it is
still there, unless the step ended well and another task's end says so (partition.covers): then the
master is told if it asks. A step that lost a peer that takes part fails, and so do later ones of
the same graph: tensors may have been lost too. Tensors are kept only for steps that may still be
started. The first step of a session starts only when the aborted steps of other sessions have ended
here, so it never meets their effects.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace._src.core import errors
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer, Post
from headrace._src.transport.frame import Frame

__all__ = ["Worker"]

_MOST_EARLY = 4096  # tensors of steps that have not been started yet
_MOST_ENDED = 4096  # numbers of ended steps: late tensors of theirs are dropped

Key = tuple[Peer, int]  # of a session: its master, and the master's number of it
Instructions = list[Any]
_new: Any = tuple.__new__  # makes a frame of its fields with one call less


@dataclass
class _Session:
    key: Key
    is_open: bool = False
    closing: int | None = None  # the number of the request to close it
    began: bool = False  # whether a step of it has been started
    orphaned: bool = False  # whether its master is gone
    waiting: deque[tuple[int, say.RunGraph]] = field(default_factory=deque)
    graphs: dict[int, _Graph] = field(default_factory=dict)


@dataclass
class _Graph:
    """A registered graph. request: its registration, until it is answered. broken: a task that was
    lost since. Tensors from it may be lost too, so that no step can be sure of them any more, even
    if there is a new connection to the same process. fed: the edges that the master feeds, piece by
    piece. covered: whether another task's end says that this one's has come.
    """

    key: tuple[Key, int]
    tasks: dict[str, int]
    built: bool = False
    request: say.RegisterGraph | None = None
    broken: str = ""
    fed: frozenset[int] = frozenset()
    covered: bool = False


@dataclass(slots=True)
class _Step:
    """A step that was started. error: the reason for which it was cancelled; gentle: how."""

    number: int
    session: Key
    graph: _Graph
    error: BaseException | None = None
    gentle: bool = False


class Worker:
    """The machine of one task. `name`: the task's full name."""

    def __init__(self, name: str, incarnation: int) -> None:
        self.me = Peer(name, incarnation)
        self._sessions: dict[Key, _Session] = {}
        self._steps: dict[int, _Step] = {}
        self._early: OrderedDict[int, list[tuple[Peer, say.SentTensor]]] = OrderedDict()
        self._early_count = 0
        self._spilt: set[int] = set()  # steps that lost tensors because too many came early
        self._ended: OrderedDict[int, bool] = OrderedDict()  # and whether the master was told
        self._held: dict[int, Peer] = {}  # ended steps that keep elements, and their masters
        self.handlers: dict[type[Any], Callable[[Peer, Any], Instructions]] = {
            say.OpenWorkerSession: self._open,
            say.CloseWorkerSession: self._close,
            say.RegisterGraph: self._register,
            say.DeregisterGraph: self._deregister,
            say.RunGraph: self._run,
            say.AbortStep: self._abort,
            say.SettleStep: self._settle,
            say.SentTensor: self._tensor,
            say.ResetContainers: self._reset,
        }

    # -- Events ------------------------------------------------------------------------------------

    def received(self, peer: Peer, message: Any) -> Instructions:
        """A peer has sent a message."""
        handle = self.handlers.get(type(message))
        return [] if handle is None else handle(peer, message)

    def lost(self, peer: Peer, why: str = "is gone") -> Instructions:
        """The connection to a process has ended, or it gives no sign of life."""
        found = self._settle_all(peer)
        gone = errors.UnavailableError(None, None, f"{peer.name} {why}")
        for session in [s for s in self._sessions.values() if s.key[0] == peer]:
            session.waiting.clear()
            session.orphaned = True
            found += self._cancel_all(session, gone)
            session.closing = session.closing or 0
            found += self._close_if_idle(session)
        for session in self._sessions.values():
            for graph in session.graphs.values():
                if graph.tasks.get(peer.name) == peer.incarnation:
                    graph.broken = peer.name
        for step in list(self._steps.values()):
            if step.graph.tasks.get(peer.name) == peer.incarnation:
                found += self._cancel(step, gone)
        return found

    def opened(
        self, session: Key, number: int, devices: list[list[Any]], clock: int
    ) -> Instructions:
        """The state of a session is there. `clock`: the time of day, in microseconds."""
        known = self._sessions.get(session)
        if known is None:
            return [do.CloseState(session)]
        known.is_open = True
        answer = do.Send(session[0], say.WorkerSessionOpened(number, devices, clock))
        return [answer, *self._close_if_idle(known)]

    def not_opened(self, session: Key, number: int, error: BaseException) -> Instructions:
        """The state of a session could not be made."""
        self._sessions.pop(session, None)
        return [do.Send(session[0], say.failed(number, error))]

    def built(self, graph: tuple[Key, int], error: BaseException | None) -> Instructions:
        """The executable of a graph is there, or could not be made."""
        session = self._sessions.get(graph[0])
        known = session and session.graphs.get(graph[1])
        if session is None or known is None:
            return [do.Forget(graph)]
        request, known.request = known.request, None
        assert request is not None
        forget: Instructions = []
        if error is None and known.broken:
            error, forget = _broken(known), [do.Forget(graph)]
        if error is not None:
            del session.graphs[graph[1]]
            return [*forget, do.Send(graph[0][0], say.failed(request.number, error))]
        known.built = True
        return [do.Send(graph[0][0], say.Done(request.number))]

    def ended(
        self,
        number: int,
        fetches: Any,
        error: BaseException | None,
        stats: Any = None,
        elements: int = 0,
    ) -> Instructions:
        """Nothing of a step runs any more. `elements`: see StepDone."""
        step = self._steps.pop(number)
        silent = step.graph.covered and error is None and stats is None and not elements
        self._remember(number, not silent)
        master = step.session[0]
        if error is None:  # even if it was cancelled: then it ended before that reached it
            traced = stats is not None
            tensors = (*fetches, stats) if traced else tuple(fetches)
            answer: Any = say.StepDone(number, int(traced), elements, tensors)
        else:
            asked = step.error
            if asked is not None and _code(asked) != _code(error):
                error = asked  # otherwise it says more than the request to stop
            answer = say.failed(number, error, say.StepFailed)._replace(elements=elements)
        found: Instructions = [] if silent else [do.Send(master, answer)]
        session = self._sessions.get(step.session)
        if elements & say.HELD:
            if session is None or session.orphaned:
                found.append(do.Settle(number, False))
            else:
                self._held[number] = master
        if session is not None and session.closing is not None:
            found += self._close_if_idle(session)
        if step.error is not None:
            for other in list(self._sessions.values()):
                found += self._begin_waiting(other)
        return found

    # -- Steps that run again ----------------------------------------------------------------------

    def run_again(self, peer: Peer, frame: Frame) -> tuple[Key, int] | None:
        """A master has sent a RunGraph. If nothing is to be done but to start the step, note that
        it starts, and return its graph; otherwise do nothing, and return None.
        """
        _, number, head, _ = frame
        if len(head) != say.RUN_GRAPH_HEAD.size:
            return None
        session_number, graph_number, traced, _ = say.RUN_GRAPH_HEAD.unpack(head)
        session = self._sessions.get((peer, session_number))
        graph = session and session.graphs.get(graph_number)
        if session is None or graph is None or traced or session.closing is not None:
            return None
        if not graph.built or graph.broken or not session.began:
            return None
        if number in self._early or number in self._spilt:
            return None
        self._steps[number] = _Step(number, session.key, graph)
        return graph.key

    def ended_again(self, number: int, fetches: Any) -> list[Post] | None:
        """A step has ended well, without elements. If nothing is to be done but to tell its master,
        note that it has ended, and return the frame; otherwise do nothing, and return None.
        """
        step = self._steps[number]
        session = self._sessions.get(step.session)
        if step.error is not None or session is None or session.closing is not None:
            return None
        del self._steps[number]
        covered = step.graph.covered
        self._remember(number, not covered)
        if covered:
            return []
        answer = say.STEP_DONE, number, say.DONE_AND_NO_MORE, fetches
        return [(step.session[0], _new(Frame, answer))]

    # -- What is kept ------------------------------------------------------------------------------

    def running(self) -> list[int]:
        """Return the numbers of the steps that run."""
        return list(self._steps)

    def held(self) -> dict[str, int]:
        """Return how much the worker keeps. Without sessions and steps it is nothing."""
        return {
            "sessions of masters": len(self._sessions),
            "steps": len(self._steps),
            "early tensors": self._early_count,
            "early steps": len(self._early),
            "spilt steps": len(self._spilt),
            "steps with elements": len(self._held),
        }

    # -- Sessions ----------------------------------------------------------------------------------

    def _open(self, peer: Peer, message: say.OpenWorkerSession) -> Instructions:
        key = peer, message.session
        if key in self._sessions:
            return [_refuse(peer, message.number, f"session {message.session} is open already")]
        others = {master for master, _ in self._sessions if master != peer}
        found: Instructions = []
        for other in sorted(others):
            if other.name == peer.name and other.incarnation > peer.incarnation:
                return [_refuse(peer, message.number, f"{peer.name} has been replaced")]
            if other.name == peer.name:
                found += self.lost(other)
            elif say.steps_of(other.incarnation) == say.steps_of(peer.incarnation):
                text = f"{peer.name} and {other.name} number their steps alike: restart one of them"
                return [do.Send(peer, say.Failed(message.number, errors.INTERNAL, text))]
        self._sessions[key] = _Session(key)
        return [*found, do.OpenState(key, message)]

    def _close(self, peer: Peer, message: say.CloseWorkerSession) -> Instructions:
        if not message.session:
            mine = [number for master, number in self._sessions if master == peer]
            each = [self._close(peer, say.CloseWorkerSession(0, number)) for number in mine]
            settled = self._settle_all(peer)
            return [*settled, *(instruction for found in each for instruction in found)]
        session = self._sessions.get((peer, message.session))
        if session is None:
            return [do.Send(peer, say.Done(message.number))] if message.number else []
        session.closing = message.number
        found: Instructions = []
        while session.waiting:
            found += self._refuse_step(peer, session.waiting.popleft()[0], _closed())
        cancelled = self._cancel_all(session, _closed(), gentle=True)
        return [*found, *cancelled, *self._close_if_idle(session)]

    def _close_if_idle(self, session: _Session) -> Instructions:
        """Drop a session that is to be closed, once nothing of it runs."""
        if session.closing is None or not session.is_open:
            return []
        if any(step.session == session.key for step in self._steps.values()):
            return []
        del self._sessions[session.key]
        self._drop_early()
        forget: Instructions = [do.Forget(g.key) for g in session.graphs.values() if g.built]
        answer: Instructions = []
        if session.closing:
            answer = [do.Send(session.key[0], say.Done(session.closing))]
        return [*forget, do.CloseState(session.key), *answer]

    def _reset(self, peer: Peer, message: say.ResetContainers) -> Instructions:
        return [do.ResetState(message.containers), do.Send(peer, say.Done(message.number))]

    # -- Graphs ------------------------------------------------------------------------------------

    def _register(self, peer: Peer, message: say.RegisterGraph) -> Instructions:
        session = self._sessions.get((peer, message.session))
        if session is None or session.closing is not None:
            return [_refuse(peer, message.number, f"there is no session {message.session} here")]
        if message.tasks.get(self.me.name) != self.me.incarnation:
            return [_refuse(peer, message.number, f"{self.me.name} has been restarted")]
        key = session.key, message.graph
        fed = frozenset(edge for edge, *_ in message.about.get("fed", ()))
        covered = bool(message.about.get("covered", False))
        session.graphs[message.graph] = _Graph(
            key, message.tasks, request=message, fed=fed, covered=covered
        )
        return [do.Build(key, message)]

    def _deregister(self, peer: Peer, message: say.DeregisterGraph) -> Instructions:
        session = self._sessions.get((peer, message.session))
        graph = session and session.graphs.pop(message.graph, None)
        return [do.Forget(graph.key)] if graph is not None and graph.built else []

    # -- Steps -------------------------------------------------------------------------------------

    def _run(self, peer: Peer, message: say.RunGraph) -> Instructions:
        session = self._sessions.get((peer, message.session))
        graph = session and session.graphs.get(message.graph)
        if session is None or session.closing is not None or graph is None or not graph.built:
            gone = errors.AbortedError(
                None, None, f"{self.me.name} does not have the step: it has been restarted"
            )
            return self._refuse_step(peer, message.number, gone)
        if graph.broken:
            return self._refuse_step(peer, message.number, _broken(graph))
        if not session.began and any(s.error is not None for s in self._steps.values()):
            session.waiting.append((message.number, message))
            return []
        return self._begin(session, graph, message)

    def _begin(self, session: _Session, graph: _Graph, message: say.RunGraph) -> Instructions:
        session.began = True
        number = message.number
        self._steps[number] = _Step(number, session.key, graph)
        found: Instructions = [do.Start(number, graph.key, message)]
        if number in self._early:
            early = self._early.pop(number)
            self._early_count -= len(early)
            for peer, tensor in early:
                found += self._deliver(peer, tensor)
        if number in self._spilt:
            self._spilt.discard(number)
            spilt = errors.ResourceExhaustedError(
                None, None, f"more than {_MOST_EARLY} tensors came before their steps were started"
            )
            found += self._cancel(self._steps[number], spilt)
        return found

    def _begin_waiting(self, session: _Session) -> Instructions:
        """Start the steps that waited for aborted ones to end."""
        found: Instructions = []
        while session.waiting and not any(s.error is not None for s in self._steps.values()):
            _, message = session.waiting.popleft()
            graph = session.graphs.get(message.graph)
            if graph is None or graph.broken:
                error = _broken(graph) if graph is not None else _closed()
                found += self._refuse_step(session.key[0], message.number, error)
            else:
                found += self._begin(session, graph, message)
        return found

    def _refuse_step(self, master: Peer, number: int, error: BaseException) -> Instructions:
        self._remember(number)
        return [do.Send(master, say.failed(number, error, say.StepFailed))]

    def _abort(self, peer: Peer, message: say.AbortStep) -> Instructions:
        step = self._steps.get(message.number)
        if step is not None and step.session[0] == peer:
            return self._cancel(step, say.error_of(message), bool(message.gentle))
        for session in self._sessions.values():
            kept = deque(each for each in session.waiting if each[0] != message.number)
            if session.key[0] == peer and len(kept) < len(session.waiting):
                session.waiting = kept
                return self._refuse_step(peer, message.number, say.error_of(message))
        if self._ended.get(message.number, False):
            return []
        return [do.Send(peer, say.StepDone(message.number, 0, 0, ()))]  # it ended without a word

    def _settle(self, peer: Peer, message: say.SettleStep) -> Instructions:
        if self._held.get(message.number) != peer:
            return []
        del self._held[message.number]
        return [do.Settle(message.number, bool(message.returns))]

    def _settle_all(self, master: Peer) -> Instructions:
        """Drop the elements of a master's steps: nobody will say what became of them."""
        mine = [number for number, peer in self._held.items() if peer == master]
        return [each for n in mine for each in self._settle(master, say.SettleStep(n, 0))]

    def _cancel(self, step: _Step, error: BaseException, gentle: bool = False) -> Instructions:
        """Cancel a step, once gently and once not."""
        if step.error is not None and (gentle or not step.gentle):
            return []
        step.error = step.error or error
        step.gentle = gentle
        return [do.CancelStep(step.number, error, gentle)]

    def _cancel_all(
        self, session: _Session, error: BaseException, gentle: bool = False
    ) -> Instructions:
        steps = [s for s in self._steps.values() if s.session == session.key]
        return [each for step in steps for each in self._cancel(step, error, gentle)]

    def _tensor(self, peer: Peer, message: say.SentTensor) -> Instructions:
        if message.number in self._steps:
            return self._deliver(peer, message)
        if message.number in self._ended or not self._may_come(message.number):
            return []
        self._early.setdefault(message.number, []).append((peer, message))
        self._early_count += 1
        while self._early_count > _MOST_EARLY:
            number, dropped = self._early.popitem(last=False)
            self._early_count -= len(dropped)
            self._spilt.add(number)
        return []

    def _may_come(self, number: int) -> bool:
        """Return whether a step can still be started here: its master has a session."""
        return any(say.steps_of(key[0].incarnation) == number >> 40 for key in self._sessions)

    def _drop_early(self) -> None:
        """Drop the tensors of steps that can no longer be started."""
        for number in [n for n in self._early if not self._may_come(n)]:
            self._early_count -= len(self._early.pop(number))
        self._spilt = {number for number in self._spilt if self._may_come(number)}

    def _deliver(self, peer: Peer, message: say.SentTensor) -> Instructions:
        """Pass a tensor on if its sender takes part in the step, and is the process that the master
        means; or if it is the master, which feeds the step piece by piece.
        """
        step = self._steps[message.number]
        feeds = peer == step.session[0] and message.edge in step.graph.fed
        if step.graph.tasks.get(peer.name) != peer.incarnation and not feeds:
            return []
        return [do.Deliver(message.number, message)]

    def _remember(self, number: int, told: bool = True) -> None:
        """Drop what comes late for a step. told: whether its master knows that it has ended."""
        self._ended[number] = told
        if self._early or self._spilt:
            self._early_count -= len(self._early.pop(number, ()))
            self._spilt.discard(number)
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)


def _refuse(peer: Peer, number: int, reason: str) -> do.Send:
    return do.Send(peer, say.Failed(number, errors.ABORTED, reason))


def _broken(graph: _Graph) -> errors.OpError:
    text = f"the connection to {graph.broken} has ended since the session began: make a new one"
    return errors.AbortedError(None, None, text)


def _code(error: BaseException) -> int | None:
    return error.error_code if isinstance(error, errors.OpError) else None


def _closed() -> errors.OpError:
    return errors.CancelledError(None, None, "the session was closed")
