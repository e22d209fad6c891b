"""The client's side of a session in a cluster. In: a target and a graph. Out: values of steps.

The client sends its graph as it grows, and each combination of fetches and feeds once. A run is
then one frame with the fed values, and one with the fetched ones.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from headrace._src.core import dtypes, errors
from headrace._src.core.locks import Lock
from headrace._src.core.proto import ConfigProto, GraphDef
from headrace._src.distributed import messages as say
from headrace._src.distributed.values import is_wrapped, sendable, unwrapped
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_def import graph_def
from headrace._src.ops.state.session_handles import TensorHandle, device_of, gives_handles
from headrace._src.optimize.races import Race
from headrace._src.pipeline.reports import report_races
from headrace._src.transport.channel import Channel
from headrace._src.transport.connect import Connection, connect
from headrace._src.transport.frame import Frame
from headrace._src.transport.handshake import Hello, Service
from headrace._src.transport.keys import configured_key
from headrace._src.transport.probe import Probe

__all__ = ["MasterClient", "RemoteStep"]

SCHEME = "grpc://"
_GRACE = 2.0  # seconds that an interrupted step has to end
_RETRY = 0.2  # seconds between attempts to connect

_new: Any = tuple.__new__  # makes a frame of its fields with one call less
_process = f"{os.getpid()}-{secrets.token_hex(8)}"
_clients = itertools.count(1)


class MasterClient:
    """A session at the master that a target names."""

    def __init__(self, target: str, config: Any, whole: bool = True) -> None:
        """Open a session; `whole`: even operations that do not run need a device."""
        self.target = target
        self._notices = _Notices()
        timeout = 0 if config is None else config.operation_timeout_in_ms
        until = time.monotonic() + timeout / 1e3 if timeout else None
        self._channel, connection = _connected(target, self._notices, until)
        # A session that is not closed ends when nothing refers to it: the server notices.
        weakref.finalize(self, _hang_up, self._channel, connection)
        self._numbers = itertools.count(1)
        self._lock = Lock()
        self._asking: set[int] = set()  # requests without an answer yet
        self._closed = False
        self._graph: tuple[int, int] | None = None  # version and mutations of what was sent
        self._functions: set[tuple[str, str | None]] = set()  # sent, with their gradients' names
        self._kept: dict[tuple[str, str], tuple[RemoteStep, RemoteStep]] = {}
        made = ConfigProto()
        if config is not None:
            made.CopyFrom(config)
        if not whole:
            made.graph_options.place_pruned_graph = True
        request = say.OpenSession(next(self._numbers), made.SerializeToString())
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
        piecewise: bool = False,
    ) -> RemoteStep:
        """Return a step of the graph. `mixed`: whether contractions compute in bfloat16;
        `piecewise`: whether it is for partial runs.
        """
        self._notices.graph = weakref.ref(graph)
        self.extend(graph)
        names = [t.name for t in fetches], [op.name for op in targets], [t.name for t in feeds]
        step = self._prepare(graph, *names, mixed, piecewise)
        step.wrapped = {i: t.dtype for i, t in enumerate(fetches) if _comes_wrapped(t)}
        step.fed = [i for i, t in enumerate(fetches) if t in set(feeds) and i not in step.wrapped]
        step.fed_wrapped = [i for i, t in enumerate(feeds) if is_wrapped(t.dtype)]
        return step

    def _prepare(
        self,
        graph: Graph,
        fetches: list[str],
        targets: list[str],
        feeds: list[str],
        mixed: bool = False,
        piecewise: bool = False,
    ) -> RemoteStep:
        names = fetches, targets, feeds
        number = next(self._numbers)
        request = say.Prepare(number, self._session, *names, int(mixed), int(piecewise))
        step = self._ask(request, graph).step
        return RemoteStep(self, graph, step, say.RUN_STEP_HEAD.pack(self._session, step, 0, 0))

    def extend(self, graph: Graph) -> None:
        """Send the operations that the graph has gained; all of it, if some were changed."""
        with self._lock:
            now = graph.version, graph.mutations
            if now == self._graph:
                return
            sent = self._graph
            grown = sent is not None and sent[1] == now[1]
            if not grown:
                self._functions.clear()
            first = sent[0] if grown and sent else 0
            change = graph_def(graph, first, add_shapes=True, known=self._functions)
            self._extend(change, anew=not grown)
            self._graph = now
            gradients = {each.function_name: each.gradient_func for each in change.library.gradient}
            names = [each.signature.name for each in change.library.function]
            self._functions |= {(name, gradients.get(name)) for name in names}
            if not grown:
                self._kept.clear()

    def _extend(self, change: Any, anew: bool) -> None:
        data = change.SerializeToString()
        self._ask(say.ExtendGraph(next(self._numbers), self._session, int(anew), data))

    def kept(self, graph: Graph, dtype: Any, device: str) -> tuple[RemoteStep, RemoteStep]:
        """Return the steps that read and delete a tensor of this type that the session keeps on a
        device. Their operations are in the master's graph only.
        """
        self.extend(graph)
        with self._lock:
            steps = self._kept.get((dtype.name, device))
            if steps is None:
                name = f".kept/{len(self._kept)}"
                self._extend(_kept_nodes(name, dtype, device), anew=False)
                read = self._prepare(graph, [f"{name}/tensor:0"], [], [f"{name}/handle:0"])
                delete = self._prepare(graph, [], [f"{name}/delete"], [f"{name}/handle:0"])
                steps = self._kept[dtype.name, device] = read, delete
        return steps

    def run(self, step: int, graph: Graph, values: Sequence[Any], timeout: int, traced: int) -> Any:
        """Run a prepared step and return Ran."""
        number = next(self._numbers)
        return self._ask_to_run(
            say.RunStep(number, self._session, step, timeout, traced, tuple(values)), graph
        )

    def run_again(self, head: bytes, graph: Graph, values: Sequence[Any]) -> Sequence[Any]:
        """Run a prepared step without a deadline or traces, given the head of its RunStep; return
        its fetches.
        """
        number = next(self._numbers)
        request = _new(Frame, (say.RUN_STEP, number, head, tuple(values)))
        try:
            answer = self._exchange(request, graph)
        except KeyboardInterrupt:
            self._cancel(number)
            raise
        if answer.kind == say.STEP_RAN and answer.head == say.UNTRACED_RAN:
            return answer.tensors
        return say.decode(*answer).tensors

    def _ask_to_run(self, request: Any, graph: Graph) -> Any:
        """Return the answer to a request to run something; Ctrl-C cancels it."""
        number = request.number
        try:
            return self._ask(request, graph)
        except KeyboardInterrupt:
            self._cancel(number)
            raise

    def _cancel(self, number: int) -> None:
        """Cancel a run, and let it end, as in one process."""
        self._tell(say.CancelRun(0, self._session, number))
        with contextlib.suppress(errors.OpError):
            self._channel.wait(number, _GRACE)

    def advance(
        self,
        step: RemoteStep,
        run: str,
        fetches: Sequence[Any],
        targets: Sequence[Any],
        values: Mapping[Any, Any],
    ) -> list[Any]:
        """Feed values of a partial run, run targets, and return the values of fetches."""
        fed = [sendable(v) if is_wrapped(t.dtype) else v for t, v in values.items()]
        request = say.AdvanceRun(
            next(self._numbers),
            self._session,
            step.number,
            run,
            [t.name for t in values],
            [t.name for t in fetches],
            [op.name for op in targets],
            tuple(fed),
        )
        ran = self._ask_to_run(request, step.graph)
        found = []
        for tensor, value in zip(fetches, ran.tensors, strict=True):
            if value is None:
                raise errors.InvalidArgumentError(
                    None,
                    tensor.op,
                    f"Retval does not have value: '{tensor.name}' is dead, since the branch that "
                    "would have made it was not taken",
                )
            wrapped = _comes_wrapped(tensor)
            found.append(step.unwrapped(value, tensor.dtype) if wrapped else _own(value))
        return found

    def close(self) -> None:
        """Close the session; its steps in other threads are cancelled."""
        with contextlib.suppress(errors.OpError):  # the master is gone, and the session with it
            self._ask(say.CloseSession(next(self._numbers), self._session), closes=True)

    @staticmethod
    def reset(target: str, containers: Sequence[str], filters: Sequence[str]) -> None:
        """Drop the state in containers of all tasks."""
        channel, connection = _connected(target, _Notices())
        try:
            message = say.ResetContainers(1, list(containers), list(filters))
            _checked(channel.request(say.encode(message)), None)
        finally:
            _hang_up(channel, connection)

    def _ask(self, message: Any, graph: Graph | None = None, closes: bool = False) -> Any:
        """Return the answer to a request."""
        return say.decode(*self._exchange(say.encode(message), graph, closes))

    def _exchange(self, frame: Frame, graph: Graph | None, closes: bool = False) -> Frame:
        """Return the answer to a request; raise the error that it reports. The last request that is
        answered after the session was closed ends the connection.
        """
        number = frame[1]
        self._asking.add(number)
        if closes:
            self._closed = True
        try:
            return _checked(self._channel.request(frame), graph)
        except (errors.AbortedError, errors.UnavailableError):
            if not self._closed:
                raise
            raise errors.CancelledError(None, None, "the session was closed") from None
        finally:
            self._asking.discard(number)
            if self._closed and not self._asking:
                self._channel.close()

    def _tell(self, message: Any) -> None:
        try:
            self._channel.send(say.encode(message))
        except errors.UnavailableError:
            return  # there is nobody to tell


class RemoteStep:
    """A prepared step at a master. It has the parts of `session.specialisations.Variants` that a
    plan of a session uses.
    """

    watch = None

    def __init__(self, master: MasterClient, graph: Graph, number: int, head: bytes) -> None:
        self.master = master
        self.graph = graph
        self.number = number
        self._head = head  # of its RunSteps, without a deadline or traces
        # The fetches and the feeds that travel as strings: handles and variants.
        self.wrapped: dict[int, Any] = {}
        self.fed_wrapped: list[int] = []
        self.fed: list[int] = []  # the fetches that are fed: arrays of any rank

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Run the step and return its fetches."""
        if self.fed_wrapped or self.fed or self.wrapped:
            return self.run_with(values, 0)[0]
        return list(map(_own, self.master.run_again(self._head, self.graph, values)))

    def shared(self) -> RemoteStep:
        """Return the step whose results are for reading only."""
        return self

    def seen(self) -> set[Any]:
        """Return the shapes that the step is specialised for, which the master knows."""
        return set()

    def run_with(
        self, values: Sequence[Any], timeout: int, times: bool = False, graphs: bool = False
    ) -> tuple[list[Any], list[Any]]:
        """Run the step; return its fetches, and RunMetadata of each task if it is to record times
        or graphs.
        """
        traced = times * say.TIMES | graphs * say.GRAPHS
        if self.fed_wrapped:
            values = list(values)
            for i in self.fed_wrapped:
                values[i] = sendable(values[i])
        ran = self.master.run(self.number, self.graph, values, timeout, traced)
        count = len(ran.tensors) - ran.traced
        fetched = list(map(_own, ran.tensors[:count]))
        for i in self.fed:
            fetched[i] = np.asarray(fetched[i])
        for i, dtype in self.wrapped.items():
            fetched[i] = self.unwrapped(fetched[i], dtype)
        return fetched, list(ran.tensors[count:])

    def unwrapped(self, value: Any, dtype: Any) -> Any:
        """Return a fetched handle or variant."""
        return unwrapped(value, dtype, partial(RemoteHandle, self.master, self.graph))


class RemoteHandle(TensorHandle):
    """A tensor that a session keeps on a task."""

    def __init__(self, master: MasterClient, graph: Graph, handle: str, dtype: Any) -> None:
        self._master = master
        self._graph = graph
        self._handle = handle
        self._dtype = dtype

    def _steps(self) -> tuple[RemoteStep, RemoteStep]:
        return self._master.kept(self._graph, self._dtype, device_of(self._handle))

    def eval(self) -> Any:
        """Return the tensor's value."""
        return self._steps()[0].run([np.array(self._handle.encode(), object)])[0]

    def delete(self) -> None:
        """Delete the tensor."""
        self._steps()[1].run([np.array(self._handle.encode(), object)])


def _kept_nodes(name: str, dtype: Any, device: str) -> GraphDef:
    """Return nodes that read and delete a tensor that a session keeps, by its handle."""
    made = GraphDef()
    holder: Any = made.node.add(name=f"{name}/handle", op="Placeholder", device=device)
    holder.attr["dtype"].type = dtypes.string.enum
    source = [f"{name}/handle"]
    read = made.node.add(name=f"{name}/tensor", op="GetSessionTensor", input=source, device=device)
    read.attr["dtype"].type = dtype.enum
    made.node.add(name=f"{name}/delete", op="DeleteSessionTensor", input=source, device=device)
    return made


def _comes_wrapped(tensor: Any) -> bool:
    """Return whether a fetch is a handle or a variant, which comes as strings."""
    return is_wrapped(tensor.dtype) or gives_handles(tensor.op)


def _own(value: Any) -> Any:
    """Return a fetched value as the caller's own."""
    if not value.ndim:
        return value[()]
    return value if value.flags.writeable else value.copy()


def _hang_up(channel: Channel, connection: Connection) -> None:
    """End a connection that no thread uses."""
    channel.close()
    connection.socket.close()


def _connected(
    target: str, notices: _Notices, until: float | None = None
) -> tuple[Channel, Connection]:
    """Return a connection to the master that a target names; wait for a server that starts late."""
    address = target.removeprefix(SCHEME)
    hello = Hello("client", f"client-{_process}-{next(_clients)}", 0, secrets.randbits(62) + 1)
    key = configured_key()
    told = False
    while True:
        try:
            probe = Probe(connect(address, hello, key, service=Service.HEARTBEATS))
            try:
                connection = connect(address, hello, key)
                return Channel(connection, on_notice=notices.show, probe=probe), connection
            except BaseException:
                probe.close()
                raise
        except errors.UnavailableError as error:
            if until is not None and time.monotonic() > until:
                text = f"there was no server at {address} in time: {error.message}"
                raise errors.DeadlineExceededError(None, None, text) from None
            if not told:
                print(f"headrace: waiting for a server at {address}: {error}", file=sys.stderr)
            told = True
            time.sleep(_RETRY)


def _checked(answer: Frame, graph: Graph | None) -> Frame:
    """Return an answer; raise the error that it reports."""
    if answer[0] != say.FAILED:
        return answer
    message = say.decode(*answer)
    operation = None
    if graph is not None:
        operation = graph._by_name.get(message.operation)
    error = say.error_of(message, operation)
    for line in filter(None, message.details.split("\n")):
        error.add_detail(line)
    raise error


class _Notices:
    """Shows what a master has to say. `graph`: the session's, which knows the lines."""

    graph: Callable[[], Graph | None] | None = None

    def show(self, frame: Frame) -> None:
        """Show what a request waits for, and warn of accesses that nothing orders."""
        message = say.decode(*frame)
        if not isinstance(message, say.Notice):
            return
        if message.text:
            print(message.text, file=sys.stderr, flush=True)
        graph = self.graph() if self.graph is not None else None
        if graph is not None and message.races:
            report_races([*_races(graph, message.races)], remote=True)


def _races(graph: Graph, found: Sequence[Any]) -> Iterator[Race]:
    """Return races of a graph, given the names of what takes part."""
    for variable, *names in found:
        read, write = map(graph._by_name.get, names)
        if read is not None and write is not None:
            yield Race(("", variable), read, write)
