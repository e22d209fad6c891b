"""The master: opens sessions on the tasks of a cluster, and lets them prepare and run steps. In:
events (messages of clients and workers, connections, work that has ended, the time). Out:
instructions for the driver. It does no I/O.

A session waits for the tasks that its device filters name, and tells its client for whom. The
master owns two machines: the prepared steps (`prepared_steps.py`) of all sessions, and the runs
(`runs.py`) of these. It hands on to them what concerns them, and keeps the time for them.

Invariants: each request of a client is answered exactly once, unless the client is gone. Only tasks
that take part in a step can fail it. A task that comes back as another process is not part of the
sessions of its predecessor: their steps that need it fail with AbortedError, and the client makes a
new session. A process that is older than one that was ever connected is fenced. A task that was
lost and is connected again, as the same process, first ends all that it still has of this master.

The driver reports a process as lost when any connection to it has ended, and then uses none of the
others: what was sent on the one that ended may be lost. It reports `extended` before other events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from headrace._src.core import errors
from headrace._src.core.device_names import DeviceSpec
from headrace._src.core.proto import ConfigProto
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.cluster_spec import ClusterSpec
from headrace._src.distributed.instructions import Peer
from headrace._src.distributed.prepared_steps import PreparedSteps
from headrace._src.distributed.sessions import Divided, MasterSession, no_session, session_of
from headrace._src.distributed.worker_requests import WorkerRequests

__all__ = ["Master"]

_FIRST_NOTICE, _NEXT_NOTICE = 2.0, 10.0  # seconds until a client hears for whom its session waits

Instructions = list[Any]


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
        self._peers: dict[str, Peer] = {}
        self._newest: dict[str, Peer] = {}  # of each task that was ever connected
        self._sessions: dict[int, MasterSession] = {}
        self._resets: dict[int, tuple[Peer, int, set[Peer]]] = {}
        self._numbers = iter(range(1, 1 << 62))
        self._requests = WorkerRequests(self._numbers)
        self._now = 0.0
        self.alarm = inf  # no `tick` is needed before this time
        self._steps = PreparedSteps(
            self.me, self._sessions, self._numbers, self._requests, shapes_of, self._due_in
        )
        self._runs = self._steps.runs
        # The driver calls these of the runs as if they were the master's, without a call between.
        self.run_again, self.done_again = self._runs.run_again, self._runs.done_again
        self._handlers: dict[type[Any], Callable[[Peer, Any], Instructions]] = {
            **self._steps.handlers,
            **self._runs.handlers,
            say.OpenSession: self._open,
            say.WorkerSessionOpened: self._worker_opened,
            say.CloseSession: self._close,
            say.ExtendGraph: self._extend,
            say.CancelRun: self._cancel,
            say.ResetContainers: self._reset,
            say.Done: self._answered,
            say.Failed: self._refused,
        }

    # -- Events ------------------------------------------------------------------------------------

    def received(self, peer: Peer, message: Any, now: float) -> Instructions:
        """A client or a worker has sent a message."""
        self._now = now
        handle = self._handlers.get(type(message))
        return [] if handle is None else handle(peer, message)

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
        found += self._runs.lost(peer, why)
        for number, (_, _, left) in list(self._resets.items()):
            found += self._reset_answered(number, peer) if peer in left else []
        self._requests.lost(peer)
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
        return self._steps.divided(number, found, error)

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
        found += self._runs.tick(now)
        waiting = [session for session in self._sessions.values() if session.missing]
        times = [time for session in waiting for time in (session.notice, session.until)]
        times += self._runs.deadlines()
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
            "graphs": len(self._steps),
            "runs": len(self._runs),
            "resets": len(self._resets),
            "requests": len(self._requests),
        }

    # -- Sessions ----------------------------------------------------------------------------------

    def _open(self, peer: Peer, message: say.OpenSession) -> Instructions:
        number = next(self._numbers)
        addresses = _addresses_of(message, self._addresses, self.me.name)
        tasks: dict[str, Peer | None] = dict.fromkeys(addresses)
        notice = self._due_in(_FIRST_NOTICE)
        timeout = ConfigProto.FromString(message.config).operation_timeout_in_ms
        until = self._due_in(timeout / 1e3) if timeout else None
        session = MasterSession(
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

    def _open_on(self, session: MasterSession, peer: Peer) -> Instructions:
        session.tasks[peer.name] = peer
        request = self._requests.ask("opened", session, peer, self._clock())
        opening = session.opening
        isolated = ConfigProto.FromString(opening.config).isolate_session_state
        message = say.OpenWorkerSession(request, session.number, int(isolated), opening.config)
        return [do.Send(peer, message)]

    def _worker_opened(self, peer: Peer, message: say.WorkerSessionOpened) -> Instructions:
        what = self._requests.asked_of(peer, message.number)
        if what is None or what[0] != "opened":
            return []
        session: MasterSession = what[1]
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

    def _waits_for(self, session: MasterSession) -> str:
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

    def _lose(self, session: MasterSession, peer: Peer, why: str) -> Instructions:
        """A task of a session is gone."""
        if session.missing:  # it went while the session was opened: wait for the next
            session.tasks[peer.name] = None
            session.missing.add(peer.name)
            return [do.Connect(peer.name, session.addresses[peer.name])]
        session.lost[peer.name] = why
        return self._steps.lost(session, peer.name, why)

    def _close(self, peer: Peer, message: say.CloseSession) -> Instructions:
        session = session_of(peer, self._sessions, message.session)
        found = [] if session is None else self._end(session)
        return [*found, do.Send(peer, say.Done(message.number))]

    def _end(self, session: MasterSession) -> Instructions:
        """Drop a session: abort its steps and close it on its workers."""
        session.closed = True
        self._sessions.pop(session.number, None)
        self._requests.expect_nothing_for(session)
        closed = errors.CancelledError(None, None, "the session was closed")
        found = [*self._runs.end(session, closed), *self._steps.end(session, closed)]
        for task, worker in session.tasks.items():
            if worker is not None and task not in session.lost:
                found.append(do.Send(worker, say.CloseWorkerSession(0, session.number)))
        return [*found, do.Drop(session.number)]

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

    def _extend(self, peer: Peer, message: say.ExtendGraph) -> Instructions:
        session = session_of(peer, self._sessions, message.session)
        if session is None:
            return [no_session(peer, message)]
        return [do.Extend(session.number, message)]

    def _cancel(self, peer: Peer, message: say.CancelRun) -> Instructions:
        error = errors.CancelledError(None, None, "the run was cancelled")
        found = self._runs.cancel(peer, message.run, error)
        return [*found, *self._steps.cancel(peer, message.run, error)]

    # -- Answers of workers ------------------------------------------------------------------------

    def _answered(self, peer: Peer, message: say.Done) -> Instructions:
        if message.number in self._resets:
            return self._reset_answered(message.number, peer)
        what = self._requests.asked_of(peer, message.number)
        if what is None or what[0] != "registered":
            return []
        return self._steps.registered(what[1], peer.name)

    def _refused(self, peer: Peer, message: say.Failed) -> Instructions:
        what = self._requests.asked_of(peer, message.number)
        if what is None:
            return []
        error = say.error_of(message)
        if what[0] == "registered":
            return self._steps.refuse(what[1], error)
        if what[0] == "opened":
            session: MasterSession = what[1]
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
