"""The driver of a task: connects the machines of master and worker with the task's peers, with the
pipeline and with the runtime. In: frames, and work that has ended. Out: what the machines instruct.

One thread, the loop's, receives frames and calls the machines; nothing else calls them. Work that
takes long (dividing, building, connecting, steps that are not brief) is done by threads of the
pool, which report to the loop.
"""

from __future__ import annotations

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

from headrace._src.core import errors
from headrace._src.core.proto import ConfigProto
from headrace._src.devices import workers
from headrace._src.devices.variable_state import shared
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.cluster_spec import ClusterSpec, task_name
from headrace._src.distributed.instructions import Peer, Post
from headrace._src.distributed.master import Master
from headrace._src.distributed.worker import Worker
from headrace._src.server.dividing import MirroredGraph, RemoteDevice, shapes_of
from headrace._src.server.peers import Peers, post, put
from headrace._src.server.running import WorkerState
from headrace._src.session import configuration
from headrace._src.transport.frame import Frame
from headrace._src.transport.handshake import Hello
from headrace._src.transport.link import Link
from headrace._src.transport.loop import Loop, LoopTimer

__all__ = ["Task", "new_incarnation"]

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
        addresses = spec.addresses()
        self._worker = Worker(self.name, self.incarnation)
        self._master = Master(self.name, self.incarnation, addresses, shapes_of, _clock)
        self._state = WorkerState(self.name, self.incarnation, config or ConfigProto(), self)
        self.finished = 0  # steps that have ended well, for the server's status
        self._graphs: dict[int, MirroredGraph] = {}  # of sessions
        self._masters: dict[str, Peer] = {}  # other tasks that have opened sessions here
        self._events: deque[Callable[[], list[Any]]] = deque()
        self._alarm = inf  # when the timer rings
        self._timer: LoopTimer | None = None
        self._over = threading.Condition()
        self._stopped: str | None = None
        self._loop = Loop()
        self._thread = 0  # the loop's
        self._peers = Peers(
            Hello("task", job, index, self.incarnation),
            addresses,
            self._loop,
            self._worker,
            self._master,
            self._frame,
            self._perform,
            self.report,
        )
        self._links = self._peers.links  # the same ones: frames find theirs without a detour
        self.on_fenced: Callable[[], Any] | None = None  # after the end
        self._do: dict[type[Any], Callable[[Any], list[Any]]] = {
            do.Send: self._send,
            do.Connect: self._peers.connect,
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
            say.Spec: self._peers.compare,
            say.OpenSession: self._open_session,
        }

    # -- Life --------------------------------------------------------------------------------------

    def listen(self, address: str) -> str:
        """Open the port; return the address, with the port that was chosen if none was named."""
        return self._peers.listen(address)

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
        return bool(self._masters) and self._peers.clean.issuperset(self._masters.values())

    def stop(self, reason: str = "", clean: bool = True) -> None:
        """End the task: tell the others if that is meant, and close everything."""
        with self._over:
            if self._stopped is not None:
                return
            self._stopped = reason
            self._peers.end()
            self._over.notify_all()
        if clean:
            self._peers.say_goodbye()
        self._state.close()
        self._loop.stop()

    def leave(self, addresses: Sequence[str]) -> None:
        """Give up the processes of the tasks with these addresses (see Peers.leave)."""
        self._peers.leave(addresses)

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
        if peer.name in self._peers.addresses:
            return self._worker.received(peer, message)
        return self._to_master(peer, message)

    def _goodbye(self, peer: Peer, message: say.Goodbye) -> list[Any]:
        with self._over:
            self._peers.clean.add(peer)
            self._over.notify_all()
        return []

    def _open_session(self, peer: Peer, message: say.OpenSession) -> list[Any]:
        try:
            config = ConfigProto.FromString(message.config)
            configuration.options(config, remote=True)
            self._peers.adopt(config)
        except Exception as error:
            return [do.Send(peer, say.failed(message.number, error))]
        return self._to_master(peer, message)

    def _open_worker_session(self, peer: Peer, message: say.OpenWorkerSession) -> list[Any]:
        try:
            self._peers.adopt(ConfigProto.FromString(message.config))
        except Exception as error:
            return [do.Send(peer, say.failed(message.number, error))]
        if peer != self.me:
            self._masters[peer.name] = peer
        return self._worker.received(peer, message)

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
                put(links[0], frame)
            elif peer != self.me:
                self._events.append(partial(self._peers.lost, peer, "is gone"))
            elif not self._again[frame.kind](peer, frame):
                message = say.decode(*frame)
                self._events.append(partial(self._received, peer, message))
        return True

    # -- Messages ----------------------------------------------------------------------------------

    def _send(self, each: do.Send) -> list[Any]:
        peer, message = each
        if peer == self.me:
            return self._received(peer, message)
        links = self._links.get(peer)
        if not links:
            self.report(lambda: self._peers.lost(peer, "is gone"))
        else:
            post(links[0], message)
        return []

    def link_to(self, peer: Peer) -> Link | None:
        """Return the link to a process, if there is one."""
        links = self._links.get(peer)
        return links[0] if links else None

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
                self._peers.ensure_links(each.request.tasks)
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

    def send_tensor(
        self, edge: tuple[Peer, int, bytes], step: int, tensor: Any, more: bool
    ) -> None:
        """In the loop: send a tensor of a step to another task. more: see Link.send."""
        peer, kind, head = edge
        links = self._links.get(peer)
        if not links:
            raise errors.UnavailableError(None, None, f"{peer.name} is gone")
        link = links[0]
        link.send(Frame(kind, step, head, (shared(tensor) if link.unix else tensor,)), more)

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
