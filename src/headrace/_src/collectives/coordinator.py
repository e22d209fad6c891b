"""The driver of the coordinator: links to all ranks. In: an address, and how many ranks there will
be. Out: a service, in a thread of its own, that tells ranks of each other.

Nothing of a collective passes here, only who takes part. `headrace launch --ranks` runs it beside
the ranks; without a launcher, rank 0 does.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import Any

from headrace._src.collectives.membership import RankCoordinator, Refused, Tell
from headrace._src.collectives.messages import JoinRanks, Leave, Ready, decode, encode
from headrace._src.compile.native.heartbeat import responder
from headrace._src.core import errors
from headrace._src.transport.connect import Connection, listen
from headrace._src.transport.frame import Frame
from headrace._src.transport.handshake import Hello, Service
from headrace._src.transport.heartbeat import Heartbeat
from headrace._src.transport.keys import configured_key
from headrace._src.transport.link import Link
from headrace._src.transport.loop import Loop

__all__ = ["CoordinatorService"]

_log = logging.getLogger("headrace")


class CoordinatorService:
    """Serves a RankCoordinator. State, in the loop's thread: links and heartbeats by member."""

    def __init__(self, address: str, size: int, least: int | None = None) -> None:
        self._machine = RankCoordinator(size, least)
        self._links: dict[int, Link] = {}
        self._beats: dict[int, Heartbeat] = {}
        self._loop = Loop("headrace-coordinator")
        listener = listen(address, configured_key())
        self.address = listener.address
        self._loop.listen(listener, Hello("task", "coordinator"), self._connected)
        self._loop.start()

    def close(self) -> None:
        """End the service and its connections."""
        self._loop.stop()

    # -- In the loop's thread ----------------------------------------------------------------------

    def _connected(self, connection: Connection) -> None:
        id = connection.peer.incarnation
        if connection.service is Service.HEARTBEATS:
            self._beats[id] = Heartbeat(connection, responder(), self._loop, self._silent)
            return
        link = self._loop.add(connection, self._frame, self._closed)
        link.context = id
        self._links[id] = link

    def _frame(self, link: Link, frame: Frame) -> None:
        message, id = decode(frame), link.context
        if isinstance(message, JoinRanks):
            if message.member.id != id:
                self._follow([Tell(id, Refused("a process joins under another one's number"))])
            else:
                self._follow(self._machine.joined(message.member, message.rank))
        elif isinstance(message, Ready):
            self._follow(self._machine.ready(id, message.epoch))
        elif isinstance(message, Leave):
            self._lost(id, message.reason, graceful=True)

    def _closed(self, link: Link, error: Exception | None) -> None:
        self._lost(link.context, "is gone: its connection has ended")

    def _silent(self, hello: Hello, reason: str) -> None:
        self._lost(hello.incarnation, f"is gone: {reason}")

    def _lost(self, id: int, reason: str, graceful: bool = False) -> None:
        beats = self._beats.pop(id, None)
        if beats is not None:
            beats.end()
        link = self._links.pop(id, None)
        if link is not None:
            self._follow(self._machine.left(id, reason, graceful))
            self._loop.call_soon(partial(link.close))

    def _follow(self, instructions: list[Any]) -> None:
        for each in instructions:
            link = self._links.get(each.id)
            if link is not None:
                with contextlib.suppress(errors.UnavailableError):  # _closed comes
                    link.send(encode(each.message))
