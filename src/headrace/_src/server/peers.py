"""The peers of a task: the processes that it is connected with, and the tasks that it tries to
reach. In: connections and their ends, heartbeats that stay away, the specifications of others. Out:
links to send on, and events for the machines of master and worker.

Invariants: of each task only the newest process that was ever connected is heard; older ones are
fenced. All links of a process end together, and it is then lost to both machines: messages that
were under way on the one that ended may be lost. A task with another specification is refused, and
no longer heard. A task that an instruction names is looked for until it is there; a process that
was lost, once, unless it has said goodbye or was refused.

The loop's thread changes the state. Threads of the pool connect, and read it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headrace._src.compile.native.heartbeat import responder
from headrace._src.core import errors
from headrace._src.devices import workers
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.cluster_spec import ClusterSpec, conflict, task_name
from headrace._src.distributed.instructions import Peer
from headrace._src.distributed.master import Master
from headrace._src.distributed.worker import Worker
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
from headrace._src.transport.loop import Loop

__all__ = ["Peers", "post", "put"]

_LINGER = 2.0  # seconds that a fenced process has to read why
_RETRY = 0.2  # seconds between attempts to connect
_PATIENCE = 5.0  # seconds for one attempt

_log = logging.getLogger("headrace")


class Peers:
    """The peers of one task. hello: of this process.

    addresses: of the tasks, by name. links: to each process; messages go to the first. clean: the
    processes that have said goodbye. on_frame: is called with each frame. perform: follows
    instructions, in the loop. report: lets the loop call an event and follow its instructions.
    """

    def __init__(
        self,
        hello: Hello,
        addresses: dict[str, str],
        loop: Loop,
        worker: Worker,
        master: Master,
        on_frame: Callable[[Link, Frame], None],
        perform: Callable[[list[Any]], None],
        report: Callable[[Callable[[], list[Any]]], None],
    ) -> None:
        self._me = _peer_of(hello)
        self.name = self._me.name
        self._hello = hello
        self._loop = loop
        self._key = configured_key()
        self._worker = worker
        self._master = master
        self._frame = on_frame
        self._perform = perform
        self._report = report
        self._ends = False
        self.addresses = addresses
        self.links: dict[Peer, list[Link]] = {}
        self.clean: set[Peer] = set()
        self._newest: dict[str, Peer] = {}  # the last process of each task
        self._beats: dict[Peer, list[Heartbeat]] = {}
        self._refused: set[Peer] = set()  # tasks with another specification
        self._silent: dict[Peer, str] = {}  # why processes are given up that are still connected
        self._connecting: set[str] = set()

    def listen(self, address: str) -> str:
        """Open the port; return the address, with the port that was chosen if none was named."""
        responder()  # before others can connect: it takes a moment, in which nothing would answer
        listener = listen(address, self._key)
        self._loop.listen(listener, self._hello, self._linked)
        if split_address(address)[1] == 0:
            self.addresses[self.name] = listener.address
        return listener.address

    def end(self) -> None:
        """The task ends: connect no more."""
        self._ends = True

    def say_goodbye(self) -> None:
        """Tell the others that this process ends by itself."""
        for links in list(self.links.values()):
            for link in links:
                post(link, say.Goodbye())

    def adopt(self, config: Any) -> None:
        """Take note of the tasks of a session's own cluster; InvalidArgumentError if it gives a
        task of this one another address.
        """
        if not config.HasField("cluster_def"):
            return
        theirs = ClusterSpec(config.cluster_def).addresses()
        found = conflict(self.addresses, theirs, same_address)
        if found is None and self.name not in theirs:
            found = (
                f"it lacks {self.name}, which has to take part under the name it was started with"
            )
        if found is not None:
            text = f"ConfigProto.cluster_def does not fit the cluster of {self.name}: {found}"
            raise errors.InvalidArgumentError(None, None, text)
        self.addresses |= {task: a for task, a in theirs.items() if task not in self.addresses}

    # -- Connections -------------------------------------------------------------------------------

    def _linked(self, connection: Connection) -> None:
        """In the loop: a process has connected, or this one has connected to it."""
        if self._ends:
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
            self.links.setdefault(peer, []).append(link)
            return
        self._connecting.discard(peer.name)
        if self._newest.setdefault(peer.name, peer).incarnation > peer.incarnation:
            self._fence(link)
            self._perform(self._master.connect_again(peer.name))
            return
        self._newest[peer.name] = peer
        replaced = [old for old in self.links if old.name == peer.name and old != peer]
        self.links.setdefault(peer, []).append(link)
        post(link, say.Spec(0, list(self.addresses), list(self.addresses.values())))
        self._perform(self._master.connected(peer, time.monotonic()))
        for old in replaced:
            for stale in self.links.pop(old):
                self._fence(stale)
            self._perform(self._worker.lost(old, "was restarted"))

    def _fence(self, link: Link) -> None:
        """Tell an old process of a task that there is a newer one, and no longer listen to it."""
        link.on_frame = _ignore
        post(link, say.Fenced(0, f"{link.context.name} has been started again elsewhere"))
        self._loop.call_later(_LINGER, link.close)

    def compare(self, peer: Peer, message: say.Spec) -> list[Any]:
        """Refuse a task whose specification gives some task another address."""
        theirs = dict(zip(message.tasks, message.addresses, strict=False))
        found = conflict(self.addresses, theirs, same_address)
        if found is None:
            return []
        reason = (
            f"{self.name} and {peer.name} have different cluster specifications: {found}. "
            "Start both with the same one."
        )
        _log.error("%s", reason)
        refused = self._master.refused(peer.name, reason, time.monotonic())
        self._refused.add(peer)
        for link in list(self.links.get(peer, ())):
            link.on_frame = _ignore
            self._loop.call_later(_RETRY, link.close)  # not before it has our specification
        return refused

    def _watch(self, peer: Peer, connection: Connection) -> None:
        """In the loop: exchange heartbeats with a process, on a connection of their own."""
        if connection.peer.role == "client":
            Answers(connection, responder(), self._loop)
            return
        # Two processes that connect at the same time have two connections. Each stays: if both
        # closed the one that came second, each would see the other one's end.
        beats = Heartbeat(connection, responder(), self._loop, self._is_silent)
        self._beats.setdefault(peer, []).append(beats)

    # -- Ends --------------------------------------------------------------------------------------

    def _unlinked(self, link: Link, error: Exception | None) -> None:
        """In the loop: a connection has ended. What was under way on it is lost, so the process is
        lost, even if there is another connection to it.
        """
        peer = link.context
        if link not in self.links.get(peer, ()):
            return
        for other in self.links.pop(peer):
            if other is not link:
                other.on_frame = _ignore
                other.close()
        for beats in self._beats.pop(peer, ()):
            beats.stop()
        why = self._silent.pop(peer, "is gone: its connection has ended")
        self._perform(self.lost(peer, why))
        address = self.addresses.get(peer.name)
        expected = peer not in self.clean and peer not in self._refused
        if address and expected and not self._ends:
            # If it gave this process up and knows a successor of it, it says so.
            workers.start(partial(self._keep_connecting, peer.name, address, once=True))

    def _is_silent(self, hello: Hello, reason: str) -> None:
        """In the loop: a process does not answer heartbeats: give it up."""
        peer = _peer_of(hello)
        for beats in self._beats.pop(peer, ()):
            beats.stop()
        self._silent[peer] = f"is gone: {reason}"
        for link in list(self.links.get(peer, ())):
            link.close()
        if peer not in self.links:
            self._silent.pop(peer, None)

    def leave(self, addresses: Sequence[str]) -> None:
        """Give up the processes of the tasks with these addresses, which have been started again
        elsewhere. An old process may still run: its host could only not be reached.
        """

        def close() -> list[Any]:
            for peer, links in list(self.links.items()):
                if self.addresses.get(peer.name) in addresses:
                    self._silent[peer] = "was started again elsewhere"
                    for link in list(links):
                        link.close()
            return []

        if addresses:
            self._report(close)

    def lost(self, peer: Peer, why: str) -> list[Any]:
        """Tell both machines that a process is lost."""
        return [*self._worker.lost(peer, why), *self._master.lost(peer, time.monotonic(), why)]

    # -- Attempts to connect -----------------------------------------------------------------------

    def connect(self, each: do.Connect) -> list[Any]:
        if each.task not in self._connecting:
            self._connecting.add(each.task)
            workers.start(partial(self._keep_connecting, each.task, each.address))
        return []

    def _keep_connecting(self, task: str, address: str, once: bool = False) -> None:
        """In a thread of the pool: connect to a task, as soon as it is there; `once`: if it is."""
        while not self._ends and (once or task in self._connecting):
            try:
                found = connect(address, self._hello, self._key, _PATIENCE)
            except errors.UnauthenticatedError as error:  # of the keys: to wait changes nothing
                if not once:
                    self._give_up(task, f"{task} cannot be reached: {error.message}")
                return
            except (OSError, errors.OpError) as error:
                _log.debug("no connection to %s yet: %s", task, error)
                if once:
                    return
                time.sleep(_RETRY)
                continue
            name = task_name(found.peer.job, found.peer.task)
            if name != task:
                found.socket.close()
                self._give_up(
                    task,
                    f"{task} was expected at {address}, but {name} is there: it was started with "
                    "another cluster specification",
                )
                return
            self._hand_over(found)
            with contextlib.suppress(OSError, errors.OpError):  # the other connection ends, too
                beats = connect(address, self._hello, self._key, _PATIENCE, Service.HEARTBEATS)
                self._hand_over(beats)
            return

    def _give_up(self, task: str, reason: str) -> None:
        """In a thread of the pool: fail the sessions that wait for a task."""
        _log.error("%s", reason)
        self._connecting.discard(task)
        self._report(partial(self._refuse, task, reason))

    def _refuse(self, task: str, reason: str) -> list[Any]:
        return self._master.refused(task, reason, time.monotonic())

    def _hand_over(self, connection: Connection) -> None:
        """Give a connection to the loop; close it if that has ended meanwhile."""
        self._loop.call_soon(partial(self._linked, connection))
        if self._ends:
            self._loop.stop()
            connection.socket.close()

    def ensure_links(self, tasks: dict[str, int]) -> None:
        """In a thread of the pool: wait until there are links to these tasks; raise AbortedError if
        one of them is another process than expected, or does not answer.
        """
        until = time.monotonic() + _PATIENCE
        for task, incarnation in tasks.items():
            peer = Peer(task, incarnation)
            while peer != self._me and peer not in self.links:
                newest = self._newest.get(task)
                restarted = newest is not None and newest.incarnation > incarnation
                if restarted or time.monotonic() > until:
                    reason = "has been restarted" if restarted else "does not answer"
                    raise errors.AbortedError(None, None, f"{task} {reason}")
                if task not in self.addresses:
                    raise errors.FailedPreconditionError(
                        None, None, f"the cluster specification of {self.name} lacks {task}"
                    )
                self._report(partial(self.connect, do.Connect(task, self.addresses[task])))
                time.sleep(0.005)


def _ignore(link: Link, frame: Frame) -> None:
    """A frame of a process that is not part of the cluster has come."""


def _peer_of(hello: Hello) -> Peer:
    """Return the process that a Hello describes."""
    name = task_name(hello.job, hello.task) if hello.role == "task" else hello.job
    return Peer(name, hello.incarnation)


def post(link: Link, message: Any) -> None:
    """Send a message. If the connection has ended, the loop is about to say so."""
    put(link, say.encode(message))


def put(link: Link, frame: Frame) -> None:
    """Send a frame, as `post`."""
    try:
        link.send(frame)
    except errors.UnavailableError:
        return
