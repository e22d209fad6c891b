"""The client's side of a session in a cluster. In: a target and a graph. Out: values of steps.

The client sends its graph as it grows, and each combination of fetches and feeds once. A run is
then one frame with the fed values, and one with the fetched ones.
"""

from __future__ import annotations

import itertools
import os
import secrets
import sys
import time
from collections.abc import Sequence
from typing import Any

from headrace._src.core import errors
from headrace._src.core.locks import Lock
from headrace._src.distributed import messages as say
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_def import graph_def
from headrace._src.transport.channel import Channel
from headrace._src.transport.connect import connect
from headrace._src.transport.frame import Frame
from headrace._src.transport.handshake import Hello, Service
from headrace._src.transport.keys import configured_key
from headrace._src.transport.probe import Probe

__all__ = ["Master", "RemoteStep", "process_name"]

SCHEME = "grpc://"
_RETRY = 0.2  # seconds between attempts to connect

_process = f"{os.getpid()}-{secrets.token_hex(8)}"
_clients = itertools.count(1)


def process_name() -> str:
    """Return a name of this process: functions of Python run only in the process that made them."""
    return _process


class Master:
    """A session at the master that a target names."""

    def __init__(self, target: str, config: Any) -> None:
        self.target = target
        self._channel = _connected(target)
        self._numbers = itertools.count(1)
        self._lock = Lock()
        self._graph: tuple[int, int] | None = None  # version and mutations of what was sent
        config = b"" if config is None else config.SerializeToString()
        request = say.OpenSession(next(self._numbers), _process, config)
        try:
            opened = self._ask(request)
        except BaseException:
            self._channel.close()
            raise
        self._session: int = opened.session
        self.devices: list[list[Any]] = opened.devices

    def prepare(
        self,
        graph: Graph,
        fetches: Sequence[Any],
        targets: Sequence[Any],
        feeds: Sequence[Any],
        mixed: bool,
    ) -> RemoteStep:
        """Return a step of the graph. `mixed`: whether contractions compute in bfloat16."""
        self.extend(graph)
        prepared = self._ask(
            say.Prepare(
                next(self._numbers),
                self._session,
                [t.name for t in fetches],
                [op.name for op in targets],
                [t.name for t in feeds],
                int(mixed),
            )
        )
        return RemoteStep(self, graph, prepared.step)

    def extend(self, graph: Graph) -> None:
        """Send the operations that the graph has gained; all of it, if some were changed."""
        with self._lock:
            now = graph.version, graph.mutations
            if now == self._graph:
                return
            sent = self._graph
            grown = sent is not None and sent[1] == now[1]
            change = graph_def(graph, sent[0] if grown and sent else 0)
            request = say.ExtendGraph(
                next(self._numbers), self._session, int(not grown), change.SerializeToString()
            )
            self._ask(request)
            self._graph = now

    def run(self, step: int, graph: Graph, values: Sequence[Any], timeout: int, traced: int) -> Any:
        """Run a prepared step and return Ran."""
        number = next(self._numbers)
        run = say.Run(number, self._session, step, timeout, traced, tuple(values))
        try:
            return self._ask(run, graph)
        except KeyboardInterrupt:
            self._tell(say.CancelRun(0, self._session, number))
            raise

    def advance(self, request: dict[str, Any], graph: Graph) -> Any:
        """Continue a partial run; `request`: the fields of a PartialRun."""
        run = say.PartialRun(number=next(self._numbers), session=self._session, **request)
        return self._ask(run, graph)

    def close(self) -> None:
        """Close the session; its steps in other threads are cancelled."""
        try:
            self._ask(say.CloseSession(next(self._numbers), self._session))
        except errors.OpError:
            return  # the master is gone, and the session with it
        finally:
            self._channel.close()

    @staticmethod
    def reset(target: str, containers: Sequence[str], filters: Sequence[str]) -> None:
        """Drop the state in containers of all tasks."""
        channel = _connected(target)
        try:
            message = say.ResetContainers(1, list(containers), list(filters))
            _answer(channel.request(Frame(*say.encode(message))), None)
        finally:
            channel.close()

    def _ask(self, message: Any, graph: Graph | None = None) -> Any:
        return _answer(self._channel.request(Frame(*say.encode(message))), graph)

    def _tell(self, message: Any) -> None:
        try:
            self._channel.send(Frame(*say.encode(message)))
        except errors.UnavailableError:
            return  # there is nobody to tell


class RemoteStep:
    """A prepared step at a master. It has the parts of `session.specialisations.Variants` that a
    plan of a session uses.
    """

    watch = None

    def __init__(self, master: Master, graph: Graph, number: int) -> None:
        self.master = master
        self.graph = graph
        self.number = number

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Run the step and return its fetches."""
        return list(map(_own, self.master.run(self.number, self.graph, values, 0, 0).tensors))

    def shared(self) -> RemoteStep:
        """Return the step whose results are for reading only."""
        return self

    def seen(self) -> set[Any]:
        """Return the shapes that the step is specialised for, which the master knows."""
        return set()

    def run_with(
        self, values: Sequence[Any], timeout: int, traced: bool
    ) -> tuple[list[Any], list[Any]]:
        """Run the step; return its fetches, and the StepStats of each task, if it is traced."""
        ran = self.master.run(self.number, self.graph, values, timeout, int(traced))
        count = len(ran.tensors) - ran.traced
        return list(map(_own, ran.tensors[:count])), list(ran.tensors[count:])


def _own(value: Any) -> Any:
    """Return a fetched value as the caller's own."""
    if not value.ndim:
        return value[()]
    return value if value.flags.writeable else value.copy()


def _connected(target: str) -> Channel:
    """Return a connection to the master that a target names; wait for a server that starts late."""
    address = target.removeprefix(SCHEME)
    hello = Hello("client", f"client-{_process}-{next(_clients)}", 0, secrets.randbits(62) + 1)
    key = configured_key()
    told = False
    while True:
        try:
            probe = Probe(connect(address, hello, key, service=Service.HEARTBEATS))
            try:
                return Channel(connect(address, hello, key), on_notice=_tell, probe=probe)
            except BaseException:
                probe.close()
                raise
        except errors.UnavailableError as error:
            if not told:
                print(f"headrace: waiting for a server at {address}: {error}", file=sys.stderr)
            told = True
            time.sleep(_RETRY)


def _answer(frame: Frame, graph: Graph | None) -> Any:
    """Return the message of an answer; raise the error that it reports."""
    message = say.decode(*frame)
    if not isinstance(message, say.Failed):
        return message
    operation = None
    if graph is not None:
        operation = graph._by_name.get(message.operation)
    error = say.error_of(message, operation)
    for line in filter(None, message.details.split("\n")):
        error.add_detail(line)
    raise error


def _tell(frame: Frame) -> None:
    """Show what a request waits for."""
    message = say.decode(*frame)
    if isinstance(message, say.Notice):
        print(f"headrace: {message.text}", file=sys.stderr, flush=True)
