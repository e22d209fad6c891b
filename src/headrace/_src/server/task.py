"""The driver of a task: connects the machines of master and worker with links to other processes,
with the pipeline and with the runtime.

One thread, the loop's, receives frames and calls the machines; nothing else calls them. Work that
takes long (dividing, building, connecting, steps that are not brief) is done by threads of the
pool, which report to the loop.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np

from headrace._src.compile.native.heartbeat import responder
from headrace._src.core import errors
from headrace._src.core.proto import ConfigProto
from headrace._src.devices import workers
from headrace._src.devices.variable_state import shared
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.cluster_spec import ClusterSpec, conflict, task_name
from headrace._src.distributed.instructions import Peer, Post
from headrace._src.distributed.master import Master
from headrace._src.distributed.worker import Worker
from headrace._src.server.dividing import MirroredGraph, RemoteDevice, shapes_of
from headrace._src.server.running import WorkerState
from headrace._src.session import configuration
from headrace._src.transport.connect import (
    Connection,
    connect,
    listen,
    same_address,
    split_address,
)
from headrace._src.transport.frame import Frame
from headrace._src.transport.handshake import Hello, Service
from headrace._src.transport.heartbeat import Answers, Heartbeat
from headrace._src.transport.keys import configured_key
from headrace._src.transport.link import Link
from headrace._src.transport.loop import Loop, LoopTimer

__all__ = ["Task", "new_incarnation"]

_RETRY = 0.2  # seconds between attempts to connect
_PATIENCE = 5.0  # seconds for one attempt
_LINGER = 2.0  # seconds that a task stays after its last worker has left

_log = logging.getLogger("headrace")


def _clock() -> int:
    return time.time_ns() // 1000


def new_incarnation() -> int:
    """Return a number for this process that is larger than those of earlier ones."""
    return (time.time_ns() >> 10 << 10 | secrets.randbits(10)) & (1 << 63) - 1


class Task:
    """One task of a cluster, in this process."""

    def __init__(self, spec: ClusterSpec, job: str, index: int, config: Any) -> None:
        self.name = task_name(job, index)
        self.incarnation = new_incarnation()
        self.me = Peer(self.name, self.incarnation)
        self._addresses = spec.addresses()
        self._hello = Hello("task", job, index, self.incarnation)
        self._worker = Worker(self.name, self.incarnation)
        self._master = Master(self.name, self.incarnation, self._addresses, shapes_of, _clock)
        self._state = WorkerState(self.name, self.incarnation, config or ConfigProto(), self)
        self.finished = 0  # steps that have ended well, for the server's status
        self._graphs: dict[int, MirroredGraph] = {}  # of sessions
        self._links: dict[Peer, list[Link]] = {}
        self._newest: dict[str, Peer] = {}  # the last process of each task
        self._beats: dict[Peer, list[Heartbeat]] = {}
        self._refused: set[Peer] = set()  # tasks with another specification
        self._silent: dict[Peer, str] = {}  # why processes are given up that are still connected
        self._connecting: set[str] = set()
        self._clean: set[Peer] = set()  # peers that have said goodbye
        self._masters: dict[str, Peer] = {}  # other tasks that have opened sessions here
        self._events: deque[Callable[[], list[Any]]] = deque()
        self._alarm = inf  # when the timer rings
        self._timer: LoopTimer | None = None
        self._over = threading.Condition()
        self._stopped: str | None = None
        self._loop = Loop()
        self._thread = 0  # the loop's
        self._key = configured_key()
        self.on_fenced: Callable[[], Any] | None = None  # after the end
        self._do: dict[type[Any], Callable[[Any], list[Any]]] = {
            do.Send: self._send,
            do.Connect: self._connect,
            do.Stop: self._fenced,
            do.OpenState: self._open_state,
            do.CloseState: self._close_state,
            do.Build: self._build,
            do.Forget: self._forget,
            do.Start: self._start,
            do.CancelStep: self._cancel_step,
            do.Settle: self._settle,
            do.Deliver: self._deliver,
            do.ResetState: self._reset_state,
            do.Extend: self._extend,
            do.Drop: self._drop,
            do.Divide: self._divide,
        }
        # What the frames of a step that runs again cause, if it is no more than usual.
        self._again: dict[int, Callable[[Peer, Frame], bool]] = {
            say.RUN_STEP: self._run_again,
            say.RUN_GRAPH: self._start_again,
            say.SENT_TENSOR: self._tensor_again,
            say.STEP_DONE: self._done_again,
        }
        self._receivers: dict[type[Any], Callable[[Peer, Any], list[Any]]] = {
            **self._worker.handlers,
            say.OpenWorkerSession: self._open_worker_session,
            say.ResetContainers: self._reset,
            say.Goodbye: self._goodbye,
            say.Fenced: lambda peer, message: [do.Stop(message.reason)],
            say.Spec: self._compare,
            say.OpenSession: self._open_session,
        }

    # -- Life --------------------------------------------------------------------------------------

    def listen(self, address: str) -> str:
        """Open the port; return the address, with the port that was chosen if none was named."""
        responder()  # before others can connect: it takes a moment, in which nothing would answer
        listener = listen(address, self._key)
        self._loop.listen(listener, self._hello, self._linked)
        if split_address(address)[1] == 0:
            self._addresses[self.name] = listener.address
        return listener.address

    def start(self) -> None:
        """Begin to serve."""
        self._loop.call_soon(self._begin)
        self._loop.start()

    def _begin(self) -> None:
        self._thread = threading.get_ident()
        np.seterr(all="ignore")  # of this thread, which runs kernels of brief steps
        self._perform(self._master.connected(self.me, time.monotonic()))

    def counts(self) -> tuple[int, int]:
        """Return how many steps have ended well, and how many run; from any thread."""
        return self.finished, len(self._worker.running())

    def is_in_loop(self) -> bool:
        """Return whether this is the loop's thread."""
        return threading.get_ident() == self._thread

    def join(self, stay: bool) -> None:
        """Block until the task is stopped; unless `stay`, also until every task that has opened a
        session here has ended by itself.
        """
        with self._over:
            while self._stopped is None:
                self._over.wait(1.0)
                if not stay and self._is_left():
                    self._over.wait(_LINGER)
                    if self._is_left():
                        return
        if self._stopped:
            raise errors.AbortedError(None, None, self._stopped)

    def _is_left(self) -> bool:
        return bool(self._masters) and self._clean.issuperset(self._masters.values())

    def stop(self, reason: str = "", clean: bool = True) -> None:
        """End the task: tell the others if that is meant, and close everything."""
        with self._over:
            if self._stopped is not None:
                return
            self._stopped = reason
            self._over.notify_all()
        for links in list(self._links.values()) if clean else ():
            for link in links:
                _post(link, say.Goodbye())
        self._state.close()
        self._loop.stop()

    # -- Events ------------------------------------------------------------------------------------

    def _frame(self, link: Link, frame: Frame) -> None:
        """In the loop: a frame has come."""
        again = self._again.get(frame[0])
        if again is None or not again(link.context, frame):
            self._perform(self._received(link.context, say.decode(*frame)))
        elif self._events or self._state.due:
            self._perform([])

    def _received(self, peer: Peer, message: Any) -> list[Any]:
        return self._receivers.get(type(message), self._to_master)(peer, message)

    def _to_master(self, peer: Peer, message: Any) -> list[Any]:
        return self._master.received(peer, message, time.monotonic())

    def _reset(self, peer: Peer, message: say.ResetContainers) -> list[Any]:
        """A client asks the master, and the master the workers."""
        if self._is_task(peer):
            return self._worker.received(peer, message)
        return self._to_master(peer, message)

    def _goodbye(self, peer: Peer, message: say.Goodbye) -> list[Any]:
        with self._over:
            self._clean.add(peer)
            self._over.notify_all()
        return []

    def _open_session(self, peer: Peer, message: say.OpenSession) -> list[Any]:
        try:
            config = ConfigProto.FromString(message.config)
            configuration.options(config, remote=True)
            self._adopt(config)
        except Exception as error:
            return [do.Send(peer, say.failed(message.number, error))]
        return self._to_master(peer, message)

    def _open_worker_session(self, peer: Peer, message: say.OpenWorkerSession) -> list[Any]:
        try:
            self._adopt(ConfigProto.FromString(message.config))
        except Exception as error:
            return [do.Send(peer, say.failed(message.number, error))]
        if peer != self.me:
            self._masters[peer.name] = peer
        return self._worker.received(peer, message)

    def _adopt(self, config: Any) -> None:
        """Take note of the tasks of a session's own cluster; InvalidArgumentError if it gives a
        task of this one another address.
        """
        if not config.HasField("cluster_def"):
            return
        theirs = ClusterSpec(config.cluster_def).addresses()
        found = conflict(self._addresses, theirs, same_address)
        if found is None and self.name not in theirs:
            found = (
                f"it lacks {self.name}, which has to take part under the name it was started with"
            )
        if found is not None:
            text = f"ConfigProto.cluster_def does not fit the cluster of {self.name}: {found}"
            raise errors.InvalidArgumentError(None, None, text)
        self._addresses |= {task: a for task, a in theirs.items() if task not in self._addresses}

    def _is_task(self, peer: Peer) -> bool:
        return peer.name in self._addresses

    def _linked(self, connection: Connection) -> None:
        """In the loop: a process has connected, or this one has connected to it."""
        if self._stopped is not None:
            connection.socket.close()
            return
        hello = connection.peer
        peer = _peer_of(hello)
        if connection.service is Service.HEARTBEATS:
            self._watch(peer, connection)
            return
        link = self._loop.add(connection, self._frame, self._unlinked)
        link.context = peer
        if hello.role != "task":
            self._links.setdefault(peer, []).append(link)
            return
        self._connecting.discard(peer.name)
        if self._newest.setdefault(peer.name, peer).incarnation > peer.incarnation:
            self._fence(link)
            self._perform(self._master.connect_again(peer.name))
            return
        self._newest[peer.name] = peer
        replaced = [old for old in self._links if old.name == peer.name and old != peer]
        self._links.setdefault(peer, []).append(link)
        _post(link, say.Spec(0, list(self._addresses), list(self._addresses.values())))
        self._perform(self._master.connected(peer, time.monotonic()))
        for old in replaced:
            for stale in self._links.pop(old):
                self._fence(stale)
            self._perform(self._worker.lost(old, "was restarted"))

    def _fence(self, link: Link) -> None:
        """Tell an old process of a task that there is a newer one, and no longer listen to it."""
        link.on_frame = _ignore
        _post(link, say.Fenced(0, f"{link.context.name} has been started again elsewhere"))
        self._loop.call_later(_LINGER, link.close)

    def _compare(self, peer: Peer, message: say.Spec) -> list[Any]:
        """Refuse a task whose specification gives some task another address."""
        theirs = dict(zip(message.tasks, message.addresses, strict=False))
        found = conflict(self._addresses, theirs, same_address)
        if found is None:
            return []
        reason = (
            f"{self.name} and {peer.name} have different cluster specifications: {found}. "
            "Start both with the same one."
        )
        _log.error("%s", reason)
        refused = self._master.refused(peer.name, reason, time.monotonic())
        self._refused.add(peer)
        for link in list(self._links.get(peer, ())):
            link.on_frame = _ignore
            self._loop.call_later(_RETRY, link.close)  # not before it has our specification
        return refused

    def _unlinked(self, link: Link, error: Exception | None) -> None:
        """In the loop: a connection has ended. What was under way on it is lost, so the process is
        lost, even if there is another connection to it.
        """
        peer = link.context
        if link not in self._links.get(peer, ()):
            return
        for other in self._links.pop(peer):
            if other is not link:
                other.on_frame = _ignore
                other.close()
        for beats in self._beats.pop(peer, ()):
            beats.stop()
        why = self._silent.pop(peer, "is gone: its connection has ended")
        self._perform(self._lost(peer, why))
        address = self._addresses.get(peer.name)
        expected = peer not in self._clean and peer not in self._refused
        if address and expected and self._stopped is None:
            # If it gave this process up and knows a successor of it, it says so.
            workers.start(partial(self._keep_connecting, peer.name, address, once=True))

    def _watch(self, peer: Peer, connection: Connection) -> None:
        """In the loop: exchange heartbeats with a process, on a connection of their own."""
        if connection.peer.role == "client":
            Answers(connection, responder(), self._loop)
            return
        # Two processes that connect at the same time have two connections. Each stays: if both
        # closed the one that came second, each would see the other one's end.
        beats = Heartbeat(connection, responder(), self._loop, self._is_silent)
        self._beats.setdefault(peer, []).append(beats)

    def _is_silent(self, hello: Hello, reason: str) -> None:
        """In the loop: a process does not answer heartbeats: give it up."""
        peer = _peer_of(hello)
        for beats in self._beats.pop(peer, ()):
            beats.stop()
        self._silent[peer] = f"is gone: {reason}"
        for link in list(self._links.get(peer, ())):
            link.close()
        if peer not in self._links:
            self._silent.pop(peer, None)

    def leave(self, addresses: Sequence[str]) -> None:
        """Give up the processes of the tasks with these addresses, which have been started again
        elsewhere. An old process may still run: its host could only not be reached.
        """

        def close() -> list[Any]:
            for peer, links in list(self._links.items()):
                if self._addresses.get(peer.name) in addresses:
                    self._silent[peer] = "was started again elsewhere"
                    for link in list(links):
                        link.close()
            return []

        if addresses:
            self.report(close)

    def report(self, event: Callable[[], list[Any]]) -> None:
        """Let the loop call `event` and follow its instructions. Any thread may call this."""
        self._events.append(event)
        if not self.is_in_loop():
            self.wake()

    def wake(self) -> None:
        """Let the loop look at events and steps that are due."""
        self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._perform([])

    def _perform(self, instructions: list[Any]) -> None:
        """Follow instructions, and what follows from them."""
        do, events = self._do, self._events
        todo = instructions
        while True:
            for each in todo:
                todo += do[type(each)](each)  # goes on with these
            if events:
                todo = events.popleft()()
            elif self._state.due:
                self._state.pump()
                todo = []
            else:
                break
        if self._master.alarm < self._alarm:
            self._set_alarm()

    def _set_alarm(self) -> None:
        """Call the master when it next needs to know the time."""
        if self._timer is not None:
            self._timer.cancel()
        self._alarm = self._master.alarm
        delay = max(0.0, self._alarm - time.monotonic())
        self._timer = self._loop.call_later(delay, self._ring)

    def _ring(self) -> None:
        self._alarm, self._timer = inf, None
        self._perform(self._master.tick(time.monotonic()))

    # -- Steps that run again ----------------------------------------------------------------------
    # The machines say with what little a usual message of such a step is done. The functions return
    # whether that was all.

    def _run_again(self, peer: Peer, frame: Frame) -> bool:
        return self._post_all(self._master.run_again(peer, frame))

    def _done_again(self, peer: Peer, frame: Frame) -> bool:
        return self._post_all(self._master.done_again(peer, frame))

    def _start_again(self, peer: Peer, frame: Frame) -> bool:
        graph = self._worker.run_again(peer, frame)
        if graph is None:
            return False
        outcome = self._state.start(frame.number, graph, frame.tensors)
        if outcome is not None:
            self._ended_again(frame.number, *outcome)
        return True

    def _tensor_again(self, peer: Peer, frame: Frame) -> bool:
        found = self._state.line_of(peer, frame)
        if found is None:
            return False
        outcome = self._state.arrive(frame.number, *found, frame.tensors[0])
        if outcome is not None:
            self._ended_again(frame.number, *outcome)
        return True

    def _ended_again(
        self, step: int, fetches: list[Any] | None, error: BaseException | None
    ) -> None:
        posts = None if error is not None else self._worker.ended_again(step, tuple(fetches or ()))
        if self._post_all(posts):
            self.finished += 1
        else:
            self._events.append(lambda: self._over_here(step, fetches, error))

    def _post_all(self, posts: list[Post] | None) -> bool:
        """Send frames; return whether there was a list of them."""
        if posts is None:
            return False
        for peer, frame in posts:
            links = self._links.get(peer)
            if links:
                _put(links[0], frame)
            elif peer != self.me:
                self._events.append(partial(self._lost, peer, "is gone"))
            elif not self._again[frame.kind](peer, frame):
                message = say.decode(*frame)
                self._events.append(partial(self._received, peer, message))
        return True

    # -- Links -------------------------------------------------------------------------------------

    def _send(self, each: do.Send) -> list[Any]:
        peer, message = each
        if peer == self.me:
            return self._received(peer, message)
        links = self._links.get(peer)
        if not links:
            self.report(lambda: self._lost(peer, "is gone"))
        else:
            _post(links[0], message)
        return []

    def _lost(self, peer: Peer, why: str) -> list[Any]:
        """Tell both machines that a process is lost."""
        return [*self._worker.lost(peer, why), *self._master.lost(peer, time.monotonic(), why)]

    def link_to(self, peer: Peer) -> Link | None:
        """Return the link to a process, if there is one."""
        links = self._links.get(peer)
        return links[0] if links else None

    def _connect(self, each: do.Connect) -> list[Any]:
        if each.task not in self._connecting:
            self._connecting.add(each.task)
            workers.start(partial(self._keep_connecting, each.task, each.address))
        return []

    def _keep_connecting(self, task: str, address: str, once: bool = False) -> None:
        """In a thread of the pool: connect to a task, as soon as it is there; `once`: if it is."""
        while self._stopped is None and (once or task in self._connecting):
            try:
                found = connect(address, self._hello, self._key, _PATIENCE)
            except (OSError, errors.OpError) as error:
                _log.debug("no connection to %s yet: %s", task, error)
                if once:
                    return
                time.sleep(_RETRY)
                continue
            name = task_name(found.peer.job, found.peer.task)
            if name != task:
                found.socket.close()
                reason = (
                    f"{task} was expected at {address}, but {name} is there: it was started with "
                    "another cluster specification"
                )
                _log.error("%s", reason)
                self._connecting.discard(task)
                self.report(partial(self._refuse, task, reason))
                return
            self._hand_over(found)
            with contextlib.suppress(OSError, errors.OpError):  # the other connection ends, too
                beats = connect(address, self._hello, self._key, _PATIENCE, Service.HEARTBEATS)
                self._hand_over(beats)
            return

    def _refuse(self, task: str, reason: str) -> list[Any]:
        return self._master.refused(task, reason, time.monotonic())

    def _hand_over(self, connection: Connection) -> None:
        """Give a connection to the loop; close it if that has ended meanwhile."""
        self._loop.call_soon(partial(self._linked, connection))
        if self._stopped is not None:
            self._loop.stop()
            connection.socket.close()

    def ensure_links(self, tasks: dict[str, int]) -> None:
        """In a thread of the pool: wait until there are links to these tasks; raise AbortedError if
        one of them is another process than expected, or does not answer.
        """
        until = time.monotonic() + _PATIENCE
        for task, incarnation in tasks.items():
            peer = Peer(task, incarnation)
            while peer != self.me and peer not in self._links:
                newest = self._newest.get(task)
                restarted = newest is not None and newest.incarnation > incarnation
                if restarted or time.monotonic() > until:
                    reason = "has been restarted" if restarted else "does not answer"
                    raise errors.AbortedError(None, None, f"{task} {reason}")
                if task not in self._addresses:
                    raise errors.FailedPreconditionError(
                        None, None, f"the cluster specification of {self.name} lacks {task}"
                    )
                self.report(partial(self._connect, do.Connect(task, self._addresses[task])))
                time.sleep(0.005)

    def _fenced(self, each: do.Stop) -> list[Any]:
        _log.error("%s ends: %s", self.name, each.reason)

        def end() -> None:
            self.stop(each.reason)
            if self.on_fenced is not None:
                self.on_fenced()

        workers.start(end)
        return []

    # -- The worker's work -------------------------------------------------------------------------

    def _open_state(self, each: do.OpenState) -> list[Any]:
        try:
            devices = self._state.open(each.session, each.request)
        except Exception as error:
            return self._worker.not_opened(each.session, each.request.number, error)
        return self._worker.opened(each.session, each.request.number, devices, _clock())

    def _close_state(self, each: do.CloseState) -> list[Any]:
        self._state.close_session(each.session)
        return []

    def _build(self, each: do.Build) -> list[Any]:
        def build() -> None:
            error: BaseException | None = None
            try:
                self.ensure_links(each.request.tasks)
                self._state.build(each.graph, each.request)
            except BaseException as failed:
                error = failed
            self.report(lambda: self._worker.built(each.graph, error))

        workers.start(build)
        return []

    def _forget(self, each: do.Forget) -> list[Any]:
        self._state.forget(each.graph)
        return []

    def _start(self, each: do.Start) -> list[Any]:
        request = each.request
        outcome = self._state.start(
            each.step, each.graph, request.tensors, request.traced, request.ahead
        )
        return [] if outcome is None else self._over_here(each.step, *outcome)

    def _over_here(
        self, step: int, fetches: list[Any] | None, error: BaseException | None
    ) -> list[Any]:
        """A step that runs in the loop has ended."""
        self.finished += error is None
        return self._worker.ended(step, fetches, error)

    def send_tensor(self, edge: tuple[Peer, int, bytes], step: int, tensor: Any) -> None:
        """In the loop: send a tensor of a step to another task."""
        peer, kind, head = edge
        links = self._links.get(peer)
        if not links:
            raise errors.UnavailableError(None, None, f"{peer.name} is gone")
        link = links[0]
        link.send(Frame(kind, step, head, (shared(tensor) if link.unix else tensor,)))

    def tell(self, peer: Peer, message: Any) -> None:
        """Send a message, from any thread."""
        self.report(lambda: [do.Send(peer, message)])

    def ended(
        self,
        step: int,
        fetches: Any,
        error: BaseException | None,
        stats: Any = None,
        elements: int = 0,
    ) -> None:
        """Nothing of a step runs any more; from any thread."""
        # Threads that end steps at the same moment may lose a count, which nothing depends on.
        self.finished += error is None
        self.report(lambda: self._worker.ended(step, fetches, error, stats, elements))

    def _cancel_step(self, each: do.CancelStep) -> list[Any]:
        outcome = self._state.cancel(*each)
        return [] if outcome is None else self._over_here(each.step, *outcome)

    def _settle(self, each: do.Settle) -> list[Any]:
        self._state.settle(each.step, each.returns)
        return []

    def _deliver(self, each: do.Deliver) -> list[Any]:
        outcome = self._state.deliver(*each)
        return [] if outcome is None else self._over_here(each.step, *outcome)

    def _reset_state(self, each: do.ResetState) -> list[Any]:
        self._state.reset(each.containers)
        return []

    # -- The master's work -------------------------------------------------------------------------

    def _mirror(self, session: int) -> MirroredGraph:
        found = self._graphs.get(session)
        if found is None:
            config, devices = self._master.devices_of(session)
            made = [RemoteDevice(*each) for each in devices]
            found = self._graphs[session] = MirroredGraph(ConfigProto.FromString(config), made)
        return found

    def _extend(self, each: do.Extend) -> list[Any]:
        error: BaseException | None = None
        try:
            self._mirror(each.session).extend(each.request)
        except Exception as failed:
            error = failed
        return self._master.extended(each.request, error)

    def _drop(self, each: do.Drop) -> list[Any]:
        self._graphs.pop(each.session, None)
        return []

    def _divide(self, each: do.Divide) -> list[Any]:
        mirror = self._mirror(each.session)

        def divide() -> None:
            found, error = None, None
            try:
                found = mirror.divide(each.step, each.shapes)
            except BaseException as failed:
                error = failed
            self.report(lambda: self._master.divided(each.graph, found, error, time.monotonic()))

        workers.start(divide)
        return []


def _ignore(link: Link, frame: Frame) -> None:
    """A frame of a process that is not part of the cluster has come."""


def _peer_of(hello: Hello) -> Peer:
    """Return the process that a Hello describes."""
    name = task_name(hello.job, hello.task) if hello.role == "task" else hello.job
    return Peer(name, hello.incarnation)


def _post(link: Link, message: Any) -> None:
    """Send a message. If the connection has ended, the loop is about to say so."""
    _put(link, say.encode(message))


def _put(link: Link, frame: Frame) -> None:
    """Send a frame, as `_post`."""
    try:
        link.send(frame)
    except errors.UnavailableError:
        return
