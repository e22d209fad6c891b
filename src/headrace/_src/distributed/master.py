"""The master: opens sessions on the tasks of a cluster, registers the partitions of steps with the
workers, and runs the steps. In: events (messages of clients and workers, connections, work that has
ended, the time). Out: instructions for the driver. It does no I/O.

A session waits for the tasks that its device filters name, and tells its client for whom. A step is
divided and registered once for each combination of feed shapes, of which the latest 8 are kept. A
run is then one message to each worker that takes part and one answer from each whose end does not
follow from that of another. The first failure aborts the others; the client is told when all have
ended, or after a grace period.

Invariants: each request of a client is answered exactly once, unless the client is gone. Only tasks
that take part in a step can fail it. A task that comes back as another process is not part of the
sessions of its predecessor: their steps that need it fail with AbortedError, and the client makes a
new session. A process that is older than one that was ever connected is fenced. A task that was
lost and is connected again, as the same process, first ends all that it still has of this master.

The driver reports a process as lost when any connection to it has ended, and then uses none of the
others: what was sent on the one that ended may be lost. It reports `extended` before other events.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from headrace._src.core import errors
from headrace._src.core.device_names import DeviceSpec
from headrace._src.core.proto import ConfigProto
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.cluster_spec import ClusterSpec
from headrace._src.distributed.instructions import Peer, Post
from headrace._src.transport.frame import Frame

__all__ = ["Divided", "Master"]

_MOST_VARIANTS = 8  # registrations of one step, for different shapes
_PIECEWISE = "piecewise"  # the variant of a step for partial runs
_GRACE = 1.0  # seconds that a failed step waits for its workers to end
_FIRST_NOTICE, _NEXT_NOTICE = 2.0, 10.0  # seconds until a client hears for whom its session waits

Instructions = list[Any]
_new: Any = tuple.__new__  # makes a message or frame of its fields with one call less


class Divided(NamedTuple):
    """A step in partitions. parts: (about, payload) of each task. feeds: for each task, the
    positions of its feeds among the step's. sources: for each fetch of the step, its task and its
    position among that task's fetches. notice: what the client is to show. races: see Notice. Of
    a piecewise step, pieces: for the name of each feed, the tasks that receive it and the edges;
    fetched: the names of the tensors that come back, by their edges. covers: for tasks, the others
    that have ended well when they have (see partition.covers).
    """

    parts: Mapping[str, tuple[dict[str, Any], bytes]]
    feeds: Mapping[str, tuple[int, ...]]
    sources: tuple[tuple[str, int], ...]
    notice: str = ""
    races: Sequence[Any] = ()
    pieces: Mapping[str, list[tuple[str, int]]] = {}
    fetched: Mapping[int, str] = {}
    covers: Mapping[str, tuple[str, ...]] = {}


@dataclass
class _Session:
    """missing: the tasks that are not connected, or have not answered yet. until: when the session
    must be open.
    """

    number: int
    client: Peer
    opening: say.OpenSession
    tasks: dict[str, Peer | None]
    missing: set[str]
    addresses: Mapping[str, str]
    since: float
    notice: float
    until: float | None = None
    devices: dict[str, list[list[Any]]] = field(default_factory=dict)
    steps: dict[int, _Step] = field(default_factory=dict)
    ahead: dict[str, int] = field(default_factory=dict)  # of the tasks' clocks, in microseconds
    partials: dict[str, _Partial] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # tasks that are gone, and the reasons
    closed: bool = False


@dataclass
class _Step:
    """A prepared step. variants: its registrations by the shapes of the feeds. as_is: it is not
    specialised for shapes, since a variable did not have the shape that was declared.
    """

    number: int
    request: say.Prepare
    as_is: bool = False
    variants: OrderedDict[Any, _Graph] = field(default_factory=OrderedDict)


@dataclass
class _Graph:
    """A registered step. workers: who takes part, by how much their clocks are ahead, and the
    positions of their feeds. heads: of their RunGraphs if these are not traced, with the feeds.
    tasks: their names; ends: of these, those that have ended well when a worker has. waiting: the
    runs until all workers have registered it.
    """

    number: int
    session: _Session
    divided: Divided | None = None
    workers: Sequence[tuple[Peer, int, tuple[int, ...]]] = ()
    heads: Sequence[tuple[Peer, bytes, tuple[int, ...]]] = ()
    tasks: frozenset[str] = frozenset()
    ends: Mapping[Peer, frozenset[str]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    waiting: list[tuple[Peer, say.RunStep, _Partial | None]] = field(default_factory=list)
    running: int = 0
    evicted: bool = False

    @property
    def is_ready(self) -> bool:
        return self.divided is not None and not self.missing


@dataclass
class _Partial:
    """A partial run. requests: those that wait for fetches. feeds: what was fed before the step was
    started. run: the step, once it was started. values: the fetches that have come. error: why it
    failed.
    """

    client: Peer
    requests: list[say.AdvanceRun] = field(default_factory=list)
    feeds: list[tuple[str, Any]] = field(default_factory=list)
    run: _Run | None = None
    values: dict[str, Any] = field(default_factory=dict)
    over: bool = False
    error: say.Failed | None = None


@dataclass(slots=True)
class _Run:
    """A step that runs. results: of the tasks that have ended. stopped: why it was cancelled, as
    long as no part has failed; error: the first failure. held: the tasks that keep elements which
    they have taken; used: whether something was, or may have been, made of elements.
    """

    number: int
    client: Peer
    request: say.RunStep
    graph: _Graph
    left: set[str]
    deadline: float | None = None
    results: dict[str, Any] = field(default_factory=dict)
    stats: tuple[Any, ...] = ()
    stopped: errors.OpError | None = None
    error: errors.OpError | None = None
    operation: str = ""
    details: str = ""
    partial: _Partial | None = None
    held: tuple[str, ...] = ()
    used: bool = False


class Master:
    """The machine of the master of one server.

    addresses: of the tasks, by name. shapes_of: the key of a run's registration, from its feeds.
    clock: the time of day, in microseconds.
    """

    def __init__(
        self,
        name: str,
        incarnation: int,
        addresses: Mapping[str, str],
        shapes_of: Callable[[Any], Any],
        clock: Callable[[], int],
    ) -> None:
        self.me = Peer(name, incarnation)
        self._addresses = dict(addresses)
        self._clock = clock
        self._shapes_of = shapes_of
        self._peers: dict[str, Peer] = {}
        self._newest: dict[str, Peer] = {}  # of each task that was ever connected
        self._sessions: dict[int, _Session] = {}
        self._graphs: dict[int, _Graph] = {}
        self._runs: dict[int, _Run] = {}
        self._resets: dict[int, tuple[Peer, int, set[Peer]]] = {}
        self._asked: dict[int, tuple[Any, ...]] = {}  # what the answers of workers are for
        self._steps = say.step_ids(incarnation)
        self._numbers = iter(range(1, 1 << 62))
        self._now = 0.0
        self.alarm = inf  # no `tick` is needed before this time

    # -- Events ------------------------------------------------------------------------------------

    def received(self, peer: Peer, message: Any, now: float) -> Instructions:
        """A client or a worker has sent a message."""
        self._now = now
        handle = _HANDLERS.get(type(message))
        return [] if handle is None else handle(self, peer, message)

    def connected(self, peer: Peer, now: float) -> Instructions:
        """There is a connection to a task."""
        self._now = now
        known = self._peers.get(peer.name)
        if known == peer:
            return []
        newest = self._newest.get(peer.name)
        fenced = say.Fenced(0, f"{peer.name} has been started again elsewhere")
        if newest is not None and newest.incarnation > peer.incarnation:
            return [do.Send(peer, fenced), *self.connect_again(peer.name)]
        found: Instructions = []
        if known is not None:
            found += [do.Send(known, fenced), *self.lost(known, now, "was restarted")]
        if newest == peer:  # it may not know that the connection was lost: end what it still has
            found.append(do.Send(peer, say.CloseWorkerSession(0, 0)))
        self._peers[peer.name] = self._newest[peer.name] = peer
        for session in self._sessions.values():
            if peer.name in session.missing and session.tasks[peer.name] is None:
                found += self._open_on(session, peer)
        return found

    def connect_again(self, task: str) -> Instructions:
        """Go on to connect to a task, if a session waits for it."""
        for session in self._sessions.values():
            if task in session.missing and session.tasks[task] is None:
                return [do.Connect(task, session.addresses[task])]
        return []

    def lost(self, peer: Peer, now: float, why: str = "is gone") -> Instructions:
        """A process of the cluster, or a client, is gone."""
        self._now = now
        if self._peers.get(peer.name) == peer:
            del self._peers[peer.name]
        found: Instructions = []
        for session in list(self._sessions.values()):
            if session.client == peer:
                found += self._end(session)
            elif session.tasks.get(peer.name) == peer:
                found += self._lose(session, peer, why)
        for run in list(self._runs.values()):
            if peer.name in run.left and run.graph.session.tasks.get(peer.name) == peer:
                run.left.discard(peer.name)
                run.used = True  # perhaps
                found += self._fail(run, _gone(peer.name, why))
        for number, (_, _, left) in list(self._resets.items()):
            found += self._reset_answered(number, peer) if peer in left else []
        for number in [n for n, asked in self._asked.items() if asked[2] == peer]:
            del self._asked[number]  # if it answers all the same, it answers too late
        return found

    def refused(self, task: str, reason: str, now: float) -> Instructions:
        """A task cannot be part of this cluster: fail the sessions that wait for it."""
        self._now = now
        found: Instructions = []
        for session in [s for s in self._sessions.values() if task in s.missing]:
            error = errors.FailedPreconditionError(None, None, reason)
            found.append(do.Send(session.client, say.failed(session.opening.number, error)))
            found += self._end(session)
        return found

    def extended(self, request: say.ExtendGraph, error: BaseException | None) -> Instructions:
        """The graph of a session has grown."""
        session = self._sessions.get(request.session)
        if session is None:
            return []
        answer = say.Done(request.number) if error is None else say.failed(request.number, error)
        return [do.Send(session.client, answer)]

    def divided(
        self, number: int, found: Divided | None, error: BaseException | None, now: float
    ) -> Instructions:
        """A step was cut into partitions, or could not be."""
        self._now = now
        graph = self._graphs.get(number)
        if graph is None:
            return []
        if found is None:
            assert error is not None
            return self._refuse_graph(graph, error)
        graph.divided = found
        missing = [task for task in found.parts if task in graph.session.lost]
        if missing:
            return self._refuse_graph(graph, _restarted(graph.session, missing[0]))
        graph.missing = set(found.parts)
        session = graph.session
        tasks = {task: peer for task, peer in session.tasks.items() if peer and task in found.parts}
        # The part in this process comes last: it would keep the others waiting for their messages.
        order = sorted(found.parts, key=lambda task: task == self.me.name)
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
            request = self._ask("registered", graph, peer)
            message = say.RegisterGraph(
                request, graph.session.number, graph.number, incarnations, about, payload
            )
            instructions.append(do.Send(peer, message))
        return instructions if found.parts else [*instructions, *self._start_waiting(graph)]

    def tick(self, now: float) -> Instructions:
        """The time of `alarm` has come."""
        self._now = now
        found: Instructions = []
        for session in list(self._sessions.values()):
            if session.missing and session.until is not None and now >= session.until:
                late = errors.DeadlineExceededError(None, None, self._waits_for(session))
                found.append(do.Send(session.client, say.failed(session.opening.number, late)))
                found += self._end(session)
            elif session.missing and now >= session.notice:
                session.notice = now + _NEXT_NOTICE
                notice = say.Notice(0, f"headrace: {self._waits_for(session)}")
                found.append(do.Send(session.client, notice))
        for run in list(self._runs.values()):
            if run.deadline is not None and now >= run.deadline:
                found += self._be_late(run)
        waiting = [session for session in self._sessions.values() if session.missing]
        times = [time for session in waiting for time in (session.notice, session.until)]
        times += [run.deadline for run in self._runs.values()]
        self.alarm = min((time for time in times if time is not None), default=inf)
        return found

    def _due_in(self, seconds: float) -> float:
        """Return the time after some seconds; `tick` is to be called then."""
        when = self._now + seconds
        self.alarm = min(self.alarm, when)
        return when

    def devices_of(self, session: int) -> tuple[bytes, list[list[Any]]]:
        """Return the ConfigProto of a session and the devices of its tasks."""
        found = self._sessions[session]
        return found.opening.config, [d for task in found.tasks for d in found.devices[task]]

    def held(self) -> dict[str, int]:
        """Return how much the master keeps. Without clients it is nothing."""
        return {
            "sessions": len(self._sessions),
            "graphs": len(self._graphs),
            "runs": len(self._runs),
            "resets": len(self._resets),
            "requests": len(self._asked),
        }

    # -- Sessions ----------------------------------------------------------------------------------

    def _open(self, peer: Peer, message: say.OpenSession) -> Instructions:
        number = next(self._numbers)
        addresses = _addresses_of(message, self._addresses, self.me.name)
        tasks: dict[str, Peer | None] = dict.fromkeys(addresses)
        notice = self._due_in(_FIRST_NOTICE)
        timeout = ConfigProto.FromString(message.config).operation_timeout_in_ms
        until = self._due_in(timeout / 1e3) if timeout else None
        session = _Session(
            number, peer, message, tasks, set(addresses), addresses, self._now, notice, until
        )
        self._sessions[number] = session
        found: Instructions = []
        for task, address in addresses.items():
            known = self._peers.get(task)
            if known is None:
                found.append(do.Connect(task, address))
            else:
                found += self._open_on(session, known)
        return found

    def _open_on(self, session: _Session, peer: Peer) -> Instructions:
        session.tasks[peer.name] = peer
        request = self._ask("opened", session, peer, self._clock())
        opening = session.opening
        isolated = ConfigProto.FromString(opening.config).isolate_session_state
        message = say.OpenWorkerSession(request, session.number, int(isolated), opening.config)
        return [do.Send(peer, message)]

    def _worker_opened(self, peer: Peer, message: say.WorkerSessionOpened) -> Instructions:
        what = self._asked_of(peer, message.number)
        if what is None or what[0] != "opened":
            return []
        session: _Session = what[1]
        if session.closed or session.tasks.get(peer.name) != peer:
            return []
        session.missing.discard(peer.name)
        session.devices[peer.name] = message.devices
        session.ahead[peer.name] = message.clock - (what[3] + self._clock()) // 2
        if session.missing:
            return []
        devices = [each for task in session.tasks for each in session.devices[task]]
        opened = say.SessionOpened(session.opening.number, session.number, devices)
        return [do.Send(session.client, opened)]

    def _waits_for(self, session: _Session) -> str:
        """Return whom a session waits for, since when, and what to do."""
        since = round(self._now - session.since)
        each = [
            f"{task} at {session.addresses[task]} ("
            + ("it does not answer: is it running?" if task not in self._peers else "it is busy")
            + ")"
            for task in sorted(session.missing)
        ]
        start = "; ".join(
            f"tf.train.Server(cluster, job_name={spec.job!r}, task_index={spec.task})"
            for spec in map(DeviceSpec.from_string, sorted(session.missing)[:1])
        )
        own = DeviceSpec.from_string(self.me.name)
        return (
            f"the session has been waiting for {', '.join(each)} for {since} s. Start it: {start}. "
            "A session that does not need it can say so: "
            f'tf.ConfigProto(device_filters=["/job:ps", "/job:{own.job}/task:{own.task}"]).'
        )

    def _lose(self, session: _Session, peer: Peer, why: str) -> Instructions:
        """A task of a session is gone."""
        if session.missing:  # it went while the session was opened: wait for the next
            session.tasks[peer.name] = None
            session.missing.add(peer.name)
            return [do.Connect(peer.name, session.addresses[peer.name])]
        session.lost[peer.name] = why
        found: Instructions = []
        for step in session.steps.values():
            for graph in list(step.variants.values()):
                if peer.name in graph.missing:
                    found += self._refuse_graph(graph, _gone(peer.name, why))
        return found

    def _close(self, peer: Peer, message: say.CloseSession) -> Instructions:
        session = self._mine(peer, message.session)
        found = [] if session is None else self._end(session)
        return [*found, do.Send(peer, say.Done(message.number))]

    def _end(self, session: _Session) -> Instructions:
        """Drop a session: abort its steps and close it on its workers."""
        session.closed = True
        self._sessions.pop(session.number, None)
        self._expect_nothing_for(session)
        found: Instructions = []
        for run in [r for r in self._runs.values() if r.graph.session is session]:
            found += self._stop(run, _closed())
        for step in session.steps.values():
            for graph in list(step.variants.values()):
                found += self._refuse_graph(graph, _closed())
        for task, worker in session.tasks.items():
            if worker is not None and task not in session.lost:
                found.append(do.Send(worker, say.CloseWorkerSession(0, session.number)))
        return [*found, do.Drop(session.number)]

    def _mine(self, peer: Peer, number: int) -> _Session | None:
        """Return a session of this client."""
        session = self._sessions.get(number)
        return session if session is not None and session.client == peer else None

    def _reset(self, peer: Peer, message: say.ResetContainers) -> Instructions:
        tasks = _filtered(self._addresses, message.filters, self.me.name)
        known = [self._peers[task] for task in tasks if task in self._peers]
        if not known:
            return [do.Send(peer, say.Done(message.number))]
        request = next(self._numbers)
        self._resets[request] = peer, message.number, set(known)
        inner = message._replace(number=request)
        return [do.Send(each, inner) for each in known]

    def _reset_answered(self, request: int, peer: Peer) -> Instructions:
        client, number, left = self._resets[request]
        left.discard(peer)
        if left:
            return []
        del self._resets[request]
        return [do.Send(client, say.Done(number))]

    # -- Steps -------------------------------------------------------------------------------------

    def _extend(self, peer: Peer, message: say.ExtendGraph) -> Instructions:
        session = self._mine(peer, message.session)
        if session is None:
            return [_no_session(peer, message)]
        return [do.Extend(session.number, message)]

    def _prepare(self, peer: Peer, message: say.Prepare) -> Instructions:
        session = self._mine(peer, message.session)
        if session is None:
            return [_no_session(peer, message)]
        number = next(self._numbers)
        session.steps[number] = _Step(number, message)
        return [do.Send(peer, say.Prepared(message.number, number))]

    def _run(self, peer: Peer, message: say.RunStep) -> Instructions:
        session = self._sessions.get(message.session)
        step = session and session.steps.get(message.step)
        if session is None or step is None or session.client != peer:
            return [_no_session(peer, message)]
        shapes = None if step.as_is else self._shapes_of(message.tensors)
        graph = step.variants.get(shapes)
        if graph is None:
            return self._new_graph(session, step, shapes, peer, message)
        step.variants.move_to_end(shapes)
        if graph.divided is not None and not graph.missing:
            return self._start(graph, peer, message)
        graph.waiting.append((peer, message, None))
        return []

    def _new_graph(
        self,
        session: _Session,
        step: _Step,
        shapes: Any,
        peer: Peer,
        message: say.RunStep,
        partial: _Partial | None = None,
    ) -> Instructions:
        found: Instructions = []
        if len(step.variants) >= _MOST_VARIANTS:
            found += self._evict(step)
        graph = _Graph(next(self._numbers), session)
        self._graphs[graph.number] = step.variants[shapes] = graph
        graph.waiting.append((peer, message, partial))
        return [*found, do.Divide(session.number, graph.number, step.request, shapes)]

    def _evict(self, step: _Step) -> Instructions:
        """Deregister the variant that was not used for longest, unless it runs."""
        for shapes, graph in step.variants.items():
            if graph.is_ready and not graph.running:
                del step.variants[shapes], self._graphs[graph.number]
                return self._deregister(graph)
        return []

    def _deregister(self, graph: _Graph) -> Instructions:
        session = graph.session
        parts = graph.divided.parts if graph.divided is not None else ()
        return [
            do.Send(peer, say.DeregisterGraph(0, session.number, graph.number))
            for task in parts
            if (peer := session.tasks[task]) is not None and task not in session.lost
        ]

    def _refuse_graph(self, graph: _Graph, error: BaseException) -> Instructions:
        """Fail the runs that wait for a graph, and forget it everywhere."""
        found: Instructions = []
        if self._graphs.pop(graph.number, None) is not None and not graph.session.closed:
            found += self._deregister(graph)
        self._expect_nothing_for(graph)
        for step in graph.session.steps.values():
            for shapes in [s for s, g in step.variants.items() if g is graph]:
                del step.variants[shapes]
        waiting, graph.waiting = graph.waiting, []
        for peer, run, partial in waiting:
            if partial is None:
                found.append(do.Send(peer, say.failed(run.number, error)))
            else:
                found += self._end_partial(partial, say.failed(0, error))
        return found

    def _start_waiting(self, graph: _Graph) -> Instructions:
        waiting, graph.waiting = graph.waiting, []
        return [each for waiter in waiting for each in self._start(graph, *waiter)]

    def _start(
        self, graph: _Graph, peer: Peer, request: say.RunStep, partial: _Partial | None = None
    ) -> Instructions:
        """Send the parts of a step to the workers that take part."""
        divided, session = graph.divided, graph.session
        assert divided is not None
        for task in session.lost:
            if task in divided.parts:
                failed = say.failed(request.number, _restarted(session, task))
                return (
                    [do.Send(peer, failed)] if not partial else self._end_partial(partial, failed)
                )
        number = next(self._steps)
        deadline = self._due_in(request.timeout / 1e3) if request.timeout else None
        run = _Run(number, peer, request, graph, set(graph.tasks), deadline, partial=partial)
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
        if partial is None:
            return started
        partial.run = run
        feeds, partial.feeds = partial.feeds, []
        return [*started, *self._feed(run, feeds)]

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
        self._runs[number] = _Run(number, peer, message, graph, set(graph.tasks))
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

    # -- Partial runs ------------------------------------------------------------------------------

    def _continue(self, peer: Peer, message: say.AdvanceRun) -> Instructions:
        session = self._mine(peer, message.session)
        step = session and session.steps.get(message.step)
        if session is None or step is None:
            return [_no_session(peer, message)]
        partial = session.partials.get(message.run)
        begins = partial is None
        if partial is None:
            partial = session.partials[message.run] = _Partial(peer)
        if partial.error is not None:
            return [do.Send(peer, partial.error._replace(number=message.number))]
        partial.requests.append(message)
        feeds = list(zip(message.feeds, message.tensors, strict=True))
        if partial.run is None and not partial.over:
            partial.feeds += feeds
        found = [] if partial.run is None else self._feed(partial.run, feeds)
        if begins:
            found += self._begin_partial(session, step, partial, peer, message)
        return [*found, *self._answer_partial(session, partial)]

    def _begin_partial(
        self,
        session: _Session,
        step: _Step,
        partial: _Partial,
        peer: Peer,
        message: say.AdvanceRun,
    ) -> Instructions:
        request = say.RunStep(message.number, session.number, step.number, 0, 0, ())
        graph = step.variants.get(_PIECEWISE)
        if graph is None:
            return self._new_graph(session, step, _PIECEWISE, peer, request, partial)
        if graph.is_ready:
            return self._start(graph, peer, request, partial)
        graph.waiting.append((peer, request, partial))
        return []

    def _feed(self, run: _Run, feeds: list[tuple[str, Any]]) -> Instructions:
        """Send fed tensors to the tasks that wait for them."""
        divided, tasks = run.graph.divided, run.graph.session.tasks
        assert divided is not None
        return [
            do.Send(tasks[task], say.SentTensor(run.number, edge, 0, "", (tensor,)))  # type: ignore[arg-type]
            for name, tensor in feeds
            for task, edge in divided.pieces.get(name, ())
            if task in run.left
        ]

    def _piece(self, peer: Peer, message: say.FetchedPiece) -> Instructions:
        run = self._runs.get(message.number)
        if run is None or run.partial is None or self._is_old(run, peer):
            return []
        assert run.graph.divided is not None
        name = run.graph.divided.fetched.get(message.edge)
        if name is None:
            return []
        run.partial.values[name] = message.tensors[0]
        return self._answer_partial(run.graph.session, run.partial)

    def _answer_partial(self, session: _Session, partial: _Partial) -> Instructions:
        """Answer the requests whose fetches have come."""
        found: Instructions = []
        for request in list(partial.requests):
            wanted = [*request.fetches, *(f"^{name}" for name in request.targets)]
            if not partial.over and not all(name in partial.values for name in wanted):
                continue
            partial.requests.remove(request)
            tensors = [partial.values.pop(name, None) for name in wanted]
            answer = say.StepRan(request.number, 0, tuple(tensors[: len(request.fetches)]))
            found.append(do.Send(partial.client, answer))
        if partial.over and not partial.values:
            for name in [n for n, each in session.partials.items() if each is partial]:
                del session.partials[name]
        return found

    def _end_partial(self, partial: _Partial, error: say.Failed) -> Instructions:
        """Fail the requests of a partial run."""
        partial.over, partial.error, partial.run = True, error, None
        partial.values.clear()
        requests, partial.requests = partial.requests, []
        return [do.Send(partial.client, error._replace(number=r.number)) for r in requests]

    # -- The ends of steps -------------------------------------------------------------------------

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

    def _note_end(self, run: _Run, peer: Peer, elements: int) -> None:
        run.left.discard(peer.name)
        run.used = run.used or bool(elements & say.USED)
        if elements & say.HELD:
            run.held += (peer.name,)

    def _settle(self, run: _Run) -> Instructions:
        """Let tasks put back the elements that a cancelled step has taken, unless something was
        made of them; otherwise let them drop these.
        """
        cancelled = run.error is not None and run.stopped is not None and run.partial is None
        settled = say.SettleStep(run.number, int(cancelled and not run.used and not run.left))
        session = run.graph.session
        peers = [session.tasks[task] for task in run.held if task not in session.lost]
        return [do.Send(peer, settled) for peer in peers if peer is not None]

    def _despecialise(self, run: _Run, message: say.StepFailed) -> Instructions:
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

    def _is_old(self, run: _Run, peer: Peer) -> bool:
        """Return whether a message comes from a process that is not part of the step."""
        return run.graph.session.tasks.get(peer.name) != peer

    def _fail(
        self, run: _Run, error: errors.OpError, operation: str = "", details: str = ""
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

    def _stop(self, run: _Run, error: errors.OpError) -> Instructions:
        """Cancel a step of which nothing has failed."""
        if run.error is not None or run.stopped is not None:
            return []
        run.stopped = error
        run.deadline = self._due_in(_GRACE)
        return self._abort(run, error.message, error.error_code, gentle=True)

    def _abort(self, run: _Run, reason: str, code: int, gentle: bool = False) -> Instructions:
        session = run.graph.session
        abort = say.AbortStep(run.number, code, reason, int(gentle))
        peers = [session.tasks[task] for task in sorted(run.left) if task not in session.lost]
        return [do.Send(peer, abort) for peer in peers if peer is not None]

    def _be_late(self, run: _Run) -> Instructions:
        if run.error is not None:
            return self._finish(run)  # the grace period is over
        if run.stopped is not None:
            return self._fail(run, run.stopped)
        names = ", ".join(sorted(run.left))
        message = f"Timed out waiting for notification: {names} had not finished the step"
        return self._stop(run, errors.DeadlineExceededError(None, None, message))

    def _finish(self, run: _Run) -> Instructions:
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
                return [*settled, *self._end_partial(run.partial, answer)]
        elif run.partial is not None:
            run.partial.over, run.partial.run = True, None
            return [*settled, *self._answer_partial(run.graph.session, run.partial)]
        else:
            assert run.graph.divided is not None
            fetches = tuple([run.results[task][i] for task, i in run.graph.divided.sources])
            answer = say.StepRan(number, len(run.stats), (*fetches, *run.stats))
        return [*settled, do.Send(run.client, answer)]

    def _cancel(self, peer: Peer, message: say.CancelRun) -> Instructions:
        found: Instructions = []
        error = errors.CancelledError(None, None, "the run was cancelled")
        for run in list(self._runs.values()):
            requests = [run.request] if run.partial is None else run.partial.requests
            if run.client == peer and message.run in [r.number for r in requests]:
                found += self._stop(run, error)
        for graph in self._graphs.values():
            stays = [w for w in graph.waiting if (w[0], w[1].number) != (peer, message.run)]
            if len(stays) < len(graph.waiting):
                graph.waiting = stays
                found.append(do.Send(peer, say.failed(message.run, error)))
        return found

    # -- Answers of workers ------------------------------------------------------------------------

    def _ask(self, what: str, subject: Any, peer: Peer, *more: Any) -> int:
        """Return the number of a request to a worker, whose answer is for `subject`."""
        number = next(self._numbers)
        self._asked[number] = what, subject, peer, *more
        return number

    def _asked_of(self, peer: Peer, number: int) -> tuple[Any, ...] | None:
        """Return what a peer was asked with this number, once."""
        if number not in self._asked or self._asked[number][2] != peer:
            return None
        return self._asked.pop(number)

    def _expect_nothing_for(self, subject: _Session | _Graph) -> None:
        """Ignore answers that are still to come."""
        for number in [n for n, asked in self._asked.items() if asked[1] is subject]:
            del self._asked[number]

    def _answered(self, peer: Peer, message: say.Done) -> Instructions:
        if message.number in self._resets:
            return self._reset_answered(message.number, peer)
        what = self._asked_of(peer, message.number)
        if what is None or what[0] != "registered":
            return []
        graph: _Graph = what[1]
        graph.missing.discard(peer.name)
        return self._start_waiting(graph) if graph.is_ready else []

    def _refused(self, peer: Peer, message: say.Failed) -> Instructions:
        what = self._asked_of(peer, message.number)
        if what is None:
            return []
        error = say.error_of(message)
        if what[0] == "registered":
            return self._refuse_graph(what[1], error)
        if what[0] == "opened":
            session: _Session = what[1]
            answer = do.Send(session.client, say.failed(session.opening.number, error))
            return [answer, *self._end(session)]
        return []


def _addresses_of(
    message: say.OpenSession, addresses: Mapping[str, str], own: str
) -> dict[str, str]:
    """Return the addresses of a session's tasks, the master's own first: those of the cluster that
    its ConfigProto describes, or else of the server's, as far as its device filters name them.
    """
    config = ConfigProto.FromString(message.config)
    if config.HasField("cluster_def"):
        addresses = ClusterSpec(config.cluster_def).addresses()
    tasks = _filtered(addresses, list(config.device_filters), own)
    return {task: addresses.get(task, "") for task in tasks}


def _filtered(addresses: Mapping[str, str], filters: list[str], own: str) -> list[str]:
    """Return the tasks that filters of devices name, and the master's own one."""
    specs = [DeviceSpec.from_string(each) for each in filters]
    found = [own]
    for task in addresses:
        spec = DeviceSpec.from_string(task)
        wanted = any(
            (f.job is None or f.job == spec.job) and (f.task is None or f.task == spec.task)
            for f in specs
        )
        if task != own and (wanted or not specs):
            found.append(task)
    return found


def _chosen(tensors: Sequence[Any], feeds: tuple[int, ...]) -> tuple[Any, ...]:
    """Return a worker's feeds."""
    return tuple([tensors[i] for i in feeds]) if feeds else ()


def _no_session(peer: Peer, message: Any) -> do.Send:
    text = f"there is no session {message.session} here: the server may have been restarted"
    return do.Send(peer, say.Failed(message.number, errors.ABORTED, text))


def _too_late(peer: Peer, message: say.StepDone | say.StepFailed) -> Instructions:
    """Answer a worker whose step the master does not know any more."""
    if not message.elements & say.HELD:
        return []
    return [do.Send(peer, say.SettleStep(message.number, 0))]


def _closed() -> errors.OpError:
    return errors.CancelledError(None, None, "the session was closed")


def _gone(task: str, why: str) -> errors.OpError:
    return errors.UnavailableError(None, None, f"{task} {why}")


def _restarted(session: _Session, task: str) -> errors.OpError:
    why = session.lost[task]
    return errors.AbortedError(None, None, f"{task} {why} since the session began: make a new one")


_HANDLERS: dict[type[Any], Any] = {
    say.OpenSession: Master._open,
    say.WorkerSessionOpened: Master._worker_opened,
    say.CloseSession: Master._close,
    say.ExtendGraph: Master._extend,
    say.Prepare: Master._prepare,
    say.RunStep: Master._run,
    say.AdvanceRun: Master._continue,
    say.FetchedPiece: Master._piece,
    say.CancelRun: Master._cancel,
    say.ResetContainers: Master._reset,
    say.StepDone: Master._step_done,
    say.StepFailed: Master._step_failed,
    say.Done: Master._answered,
    say.Failed: Master._refused,
}
