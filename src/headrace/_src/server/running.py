"""What a worker keeps: its devices, the state of its sessions, the executables of registered
graphs, and the steps that run.

A graph is interpreted when it first runs and compiled when it comes back, as in a session of one
process (pipeline.tiers). A brief step runs in the loop's thread, where its frames arrive: as a line
of instructions if it can (runtime.brief_step). Another step runs in a thread of the pool; if it
turns out to be brief, later runs are such lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from headrace._src.core import errors, faults
from headrace._src.core.proto import ConfigProto, GraphDef, RunMetadata
from headrace._src.devices import workers
from headrace._src.devices.device import new_devices, within
from headrace._src.devices.rendezvous import Key, RemoteRendezvous
from headrace._src.devices.resources import ResourceHandle, Resources
from headrace._src.devices.step_context import StepContext
from headrace._src.devices.variable_state import VariableState, shared
from headrace._src.distributed import messages as say
from headrace._src.distributed.cluster_spec import task_of
from headrace._src.distributed.instructions import Peer
from headrace._src.distributed.values import is_wrapped, sendable, unwrapped
from headrace._src.graph.control_roles import DEAD
from headrace._src.graph.dataflow import Dataflow, ValueType
from headrace._src.graph.flow_def import decode_flow
from headrace._src.graph.graph import Graph
from headrace._src.ops.base.transfers import is_recv, is_send, key_of
from headrace._src.ops.state.session_handles import TensorHandle
from headrace._src.partition.shares import feeds_of
from headrace._src.pipeline import Options, compile_at, finish_partitions
from headrace._src.runtime import PartitionedExecutable, guarded
from headrace._src.runtime.brief import brief, may_turn_out_brief
from headrace._src.runtime.brief_step import BriefStep, MeasuredStep, Outcome, check, line_of
from headrace._src.runtime.kernels import copy_of
from headrace._src.runtime.pace import Pace
from headrace._src.runtime.served import ServedStep
from headrace._src.server.piecewise import CLIENT
from headrace._src.server.registration import unpack
from headrace._src.server.shared_results import sends_in_place
from headrace._src.session import configuration
from headrace._src.session.function_runs import FunctionRuns
from headrace._src.session.tracing import TraceRecorder, listed
from headrace._src.transport.frame import Frame
from headrace._src.transport.slabs import shared_slabs

__all__ = ["Running", "WorkerState"]


class _Session:
    """A session on this worker."""

    def __init__(self, options: Options, resources: Resources) -> None:
        self.options = options
        self.resources = resources
        self.graph = Graph()
        resources.functions = FunctionRuns(lambda: self.options, resources)


class _Graph:
    """The partitions of a registered step, and the executable that runs them now.

    outgoing: for each key of a Send to another task, the number of the edge and the receiver.
    incoming: the keys by the numbers of the edges.
    heads: the numbers of the edges by the senders, and the heads of their SentTensors.
    """

    def __init__(
        self, me: Peer, master: Peer, session: _Session, request: say.RegisterGraph
    ) -> None:
        about = request.about
        self.session = session
        self.parts: list[tuple[str, Dataflow]] = []
        for device, encoded in zip(about["devices"], unpack(request.payload), strict=True):
            message = GraphDef.FromString(encoded)
            self.parts.append((device, decode_flow(message, session.graph)))
        self._as_is = bool(about["as_is"])
        # A piecewise step may have shown its client what it has taken.
        self.holds = bool(about.get("holds", False))
        self.is_shared = len(request.tasks) > 1
        self.outgoing: dict[tuple[str, str, str], tuple[int, Peer]] = {}
        self.incoming: dict[int, tuple[str, int, str, str]] = {}
        self.heads: dict[tuple[Peer, bytes], int] = {}
        for number, sender, receiver, tensor in about["edges"]:
            peer = Peer(task_of(receiver), request.tasks[task_of(receiver)])
            if peer == me:
                self.incoming[number] = (sender, request.tasks[task_of(sender)], receiver, tensor)
                source = Peer(task_of(sender), request.tasks[task_of(sender)])
                head = say.encode(say.SentTensor(0, number, 0, "", ())).head
                self.heads[source, head] = number
            else:
                self.outgoing[sender, receiver, tensor] = number, peer
        for number, device, tensor in about.get("fed", ()):
            self.incoming[number] = (CLIENT, 0, device, tensor)
        for number, device, tensor in about.get("sent", ()):
            self.outgoing[device, CLIENT, tensor] = number, master
        self._feeds = feeds_of(flow for _, flow in self.parts)
        types = self._received_types()
        # Handles and variants travel as strings.
        self.wrapped_edges = {e: t.dtype for e, t in types.items() if is_wrapped(t.dtype)}
        self.types = {e: type_ for e, type_ in types.items() if e not in self.wrapped_edges}
        # Such values, and steps that are fed and fetched piece by piece, need more than a line.
        self._is_special = bool(about.get("sent")) or any(map(_has_wrapped, self.parts))
        jit = session.options.jit
        when = [] if self._as_is else [compile_at(flow, jit) for _, flow in self.parts]
        self._when = min(filter(None, when), default=0)
        self._runs = 0
        self._use(compiled=self._when == 1)

    def _received_types(self) -> dict[int, ValueType]:
        """Return the types of what is received from other tasks, by the numbers of the edges."""
        types = {
            (n.attrs["send_device"], n.attrs["recv_device"], n.attrs["tensor_name"]): n.types[0]
            for _, flow in self.parts
            for n in flow.nodes
            if is_recv(n)
        }
        return {
            number: types[sender, receiver, tensor]
            for number, (sender, _, receiver, tensor) in self.incoming.items()
            if (sender, receiver, tensor) in types
        }

    def fed(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the values of the feeds."""
        if len(tensors) != len(self._feeds):
            raise errors.InvalidArgumentError(
                None, None, f"the step takes {len(self._feeds)} values, and {len(tensors)} came"
            )
        values = list(tensors)
        for i, feed in enumerate(self._feeds):
            if is_wrapped(feed.type.dtype):
                values[i] = self.unwrapped(values[i], feed.type.dtype)
            else:
                check(values[i], feed.type, f"the value of {feed.name}")
        return values

    def unwrapped(self, value: Any, dtype: Any) -> Any:
        """Return the handle or variant that came as strings."""
        resources = self.session.resources
        found = unwrapped(value, dtype, partial(TensorHandle, resources))
        if isinstance(found, ResourceHandle):
            kinds = [VariableState, *type(resources.peek(found)).__mro__]
            known = [kind for kind in kinds if kind.__name__ == found.kind.__name__]
            return replace(found, kind=known[0]) if known else found
        return found

    def _use(self, compiled: bool) -> None:
        options = self.session.options
        with within(options.devices):
            program = finish_partitions(self.parts, options, compiled, self._as_is)
            resources = self.session.resources
            if options.check_numerics:
                guard: Any = partial(guarded, resources)
            else:
                guard = sends_in_place(program, resources)
            self.executable = PartitionedExecutable(program, resources, guard, self.holds)
        self.brief = brief(program)
        self.line = self.pace = None
        if self._is_special or options.check_numerics:
            return
        if self.brief or may_turn_out_brief(program):
            self.line = line_of(self.executable, self._incoming, self._outgoing)
            self.pace = None if self.brief or self.line is None else Pace()

    def _incoming(self, recv: Any) -> int | None:
        """Return the number of the edge that a Recv reads."""
        key = tuple(key_of(recv.attrs)[:4])
        return next((number for number, edge in self.incoming.items() if edge == key), None)

    def _outgoing(self, send: Any) -> tuple[Peer, int, bytes] | None:
        """Return the receiver of a Send, and kind and head of the frames that its tensors travel
        in.
        """
        key = key_of(send.attrs)
        found = self.outgoing.get((key.sender, key.receiver, key.tensor))
        if found is None or any(is_wrapped(value.dtype) for value in send.inputs):
            return None
        number, peer = found
        kind, _, head, _ = say.encode(say.SentTensor(0, number, 0, "", ()))
        return peer, kind, head

    def begin_line(
        self, number: int, feeds: list[Any], send: Callable[[Any, int, Any, bool], None]
    ) -> BriefStep | None:
        """In the loop: return a run that the loop's thread is to make; None if another has to."""
        if self.line is None:
            return None
        if self.pace is None:
            return BriefStep(number, self.line, feeds, send)
        return (
            MeasuredStep(number, self.line, feeds, send, self.pace) if self.pace.is_brief else None
        )

    def is_due(self) -> bool:
        """In the loop: count a run; return whether the graph is to be compiled before it."""
        self._runs += 1
        return self._runs == self._when > 1

    def compile(self) -> None:
        """Run native code from now on."""
        self._use(compiled=True)


def _has_wrapped(part: tuple[str, Dataflow]) -> bool:
    """Return whether values that travel as strings may enter or leave a partition."""
    flow = part[1]
    crossing = [v for n in flow.nodes if is_send(n) for v in n.inputs] + list(flow.fetches)
    crossing += [feed.value for feed in flow.feeds]
    crossing += [v for n in flow.nodes if is_recv(n) for v in n.outputs]
    return any(is_wrapped(v.dtype) for v in crossing)


class Running:
    """A step on this worker that is not a line, from its start to its end."""

    def __init__(
        self, number: int, graph: _Graph, traced: int, ahead: int, feeds: list[Any], host: Any
    ) -> None:
        self.number = number
        self.graph = graph
        self.traced = traced
        self.ahead = ahead
        self.host = host
        self.step: ServedStep | None = None
        self.feeds = feeds
        self.stopped: tuple[BaseException, bool] | None = None
        self.rendezvous: RemoteRendezvous | None = None
        self.recorder: TraceRecorder | None = None
        self.brief = False

    def push(self, key: Key, value: Any, error: BaseException | None) -> None:
        """Send a tensor to another task."""
        if error is not None:
            raise error
        number, peer = self.graph.outgoing[key.sender, key.receiver, key.tensor]
        if key.receiver == CLIENT:
            value = None if value is DEAD else sendable(copy_of([value], 0))
            self.host.tell(peer, say.FetchedPiece(self.number, number, (value,)))
            return
        link = self.host.link_to(peer)
        if link is None:
            raise errors.UnavailableError(None, None, f"{peer.name} is gone")
        tensor = None if value is DEAD else sendable(shared(value) if link.unix else value)
        frame = key.frame if isinstance(key.frame, str) else ""
        message = say.SentTensor(self.number, number, key.iteration, frame, (tensor,))
        link.send(say.encode(message))

    def deliver(self, message: say.SentTensor) -> None:
        """Take a tensor of another task."""
        assert self.rendezvous is not None
        edge = self.graph.incoming.get(message.edge)
        if edge is None:
            return  # a peer that takes part, but sends nonsense, harms only its own step
        key = Key(*edge, message.frame or 0, message.iteration)
        value = message.tensors[0]
        if message.edge in self.graph.wrapped_edges and value is not None:
            value = self.graph.unwrapped(value, self.graph.wrapped_edges[message.edge])
        elif message.edge in self.graph.types and value is not None:
            check(value, self.graph.types[message.edge], "a tensor of another task")
        self.rendezvous.arrive(key, DEAD if value is None else value)

    def done(self, fetches: list[Any] | None, error: BaseException | None) -> None:
        """Called once, when nothing of the step runs any more."""
        stats = None
        fetches, error = _to_send(fetches, error)
        if self.recorder is not None and error is None:
            stats = np.frombuffer(self._recorded(), np.uint8)
        self.host.ended(self.number, fetches, error, stats, self._elements())

    def _elements(self) -> int:
        """Return what became of the elements that the step has taken (see StepDone)."""
        step, graph = self.step, self.graph
        if step is None or graph is None or not graph.is_shared:
            return 0
        return say.HELD * step.taken | say.USED * step.used

    def _recorded(self) -> bytes:
        """Return the RunMetadata of this part of the step."""
        assert self.recorder is not None
        program = self.graph.executable.program
        return self.recorder.part(self.ahead, program.devices[0], program.instructions)


def _to_send(fetches: list[Any] | None, error: BaseException | None) -> Outcome:
    """Return the outcome of a step with fetches that can travel."""
    try:
        return (list(map(sendable, fetches)) if fetches else fetches), error
    except errors.OpError as failed:
        return None, failed


class WorkerState:
    """All that a worker keeps."""

    def __init__(self, task: str, incarnation: int, config: ConfigProto, host: Any) -> None:
        self._host = host
        self._devices = new_devices(task, incarnation, dict(config.device_count))
        for device in self._devices:
            device.allocator.shared = shared_slabs()
        self._own = {device.name for device in self._devices}
        self._state = Resources(self._devices)
        self._sessions: dict[Any, _Session] = {}
        self._graphs: dict[Any, _Graph] = {}
        self._running: dict[int, Running] = {}
        self._held: dict[int, StepContext] = {}  # of ended steps that have taken elements
        self._lines: dict[int, tuple[BriefStep, _Graph]] = {}
        self.due: deque[ServedStep] = deque()
        self._brief: set[ServedStep] = set()

    # -- Sessions and graphs -----------------------------------------------------------------------

    def open(self, key: Any, request: say.OpenWorkerSession) -> list[list[Any]]:
        """Make the state of a session; return its devices."""
        config = ConfigProto.FromString(request.config)
        options = replace(configuration.options(config, remote=True), devices=self._devices)
        shared = None if request.isolated else self._state
        self._sessions[key] = _Session(options, Resources(self._devices, shared=shared))
        return [
            [d.name, d.device_type, d.memory_limit_bytes, d.incarnation]
            for d in map(listed, self._devices)
        ]

    def close_session(self, key: Any) -> None:
        """Drop the state of a session."""
        session = self._sessions.pop(key, None)
        if session is not None:
            closed = errors.CancelledError(None, None, "the session was closed")
            session.resources.close(closed)

    def close(self) -> None:
        """Drop all sessions."""
        for key in list(self._sessions):
            self.close_session(key)

    def build(self, key: Any, request: say.RegisterGraph) -> None:
        """Make the executable of a registered graph."""
        session = self._sessions.get(key[0])
        if session is None:
            raise errors.AbortedError(None, None, "the session was closed")
        if faults.armed:
            faults.reach("register")
        self._graphs[key] = _Graph(self._host.me, key[0][0], session, request)

    def forget(self, key: Any) -> None:
        """Drop the executable of a graph."""
        self._graphs.pop(key, None)

    def reset(self, containers: list[str]) -> None:
        """Drop the state in these containers; in all of them if none is named."""
        self._state.reset(containers)

    # -- Steps -------------------------------------------------------------------------------------

    def start(
        self, number: int, key: Any, tensors: Sequence[Any], traced: int = 0, ahead: int = 0
    ) -> Outcome | None:
        """In the loop: start a step; return its outcome if it has ended. traced, ahead: see
        RunGraph.
        """
        graph = self._graphs[key]
        try:
            feeds = graph.fed(tensors)
        except errors.OpError as error:
            return None, error
        due = graph.is_due()
        step = None
        if not due and not traced:
            step = graph.begin_line(number, feeds, self._host.send_tensor)
        if step is not None:
            outcome = step.start()
            if outcome is None:
                self._lines[number] = step, graph
                return None
            return _to_send(*outcome)
        running = Running(number, graph, traced, ahead, feeds, self._host)
        self._running[number] = running
        running.rendezvous = RemoteRendezvous(self._own.__contains__, running.push)
        running.brief = graph.brief and not due
        if running.brief:
            self._begin(running)
        else:
            workers.start(lambda: self._begin_long(running, due))
        return None

    def _begin_long(self, running: Running, due: bool) -> None:
        """In a thread of the pool: compile a step if that is due, and start it."""
        try:
            if due:
                running.graph.compile()
        except BaseException as error:
            self._running.pop(running.number, None)
            running.done(None, error)
            return
        self._begin(running)
        assert running.step is not None
        running.step.pump()

    def _begin(self, running: Running) -> None:
        graph, traced = running.graph, running.traced
        assert running.rendezvous is not None
        observe = None
        if traced:
            running.recorder = recorder = TraceRecorder(
                RunMetadata(), bool(traced & say.TIMES), bool(traced & say.GRAPHS)
            )
            observe = recorder.observe if recorder.observes else None

        def done(fetches: list[Any] | None, error: BaseException | None) -> None:
            self._running.pop(running.number, None)
            step = running.step
            if step is not None:
                self._brief.discard(step)
                if step.taken and graph.is_shared:
                    self._held[running.number] = step.context
                if graph.pace is not None and error is None and observe is None:
                    graph.pace.note(step.seconds)
            running.done(fetches, error)

        step = ServedStep(graph.executable, running.rendezvous, self, observe=observe, done=done)
        if running.brief:
            self._brief.add(step)
        running.step = step
        if running.stopped is not None:
            step.cancel(*running.stopped)
        step.start(running.feeds)
        if running.brief:
            self.due.append(step)

    def schedule(self, step: ServedStep) -> None:
        """Pump a step soon; any thread may call this."""
        if step not in self._brief:
            workers.start(step.pump)
        else:
            self.due.append(step)
            if not self._host.is_in_loop():
                self._host.wake()

    def pump(self) -> None:
        """In the loop: run the brief steps that are due."""
        while self.due:
            self.due.popleft().pump()

    def cancel(self, number: int, error: BaseException, gentle: bool) -> Outcome | None:
        """Stop a step; return its outcome if it has ended."""
        if number in self._lines:
            if gentle:
                return None  # it waits for nothing but other tasks
            step, _ = self._lines.pop(number)
            late = isinstance(error, errors.DeadlineExceededError)
            return None, step.lateness() if late else error
        running = self._running.get(number)
        if running is None:
            return None
        if running.step is not None and isinstance(error, errors.DeadlineExceededError):
            error = running.step.lateness()  # names what runs, or is waited for
        running.stopped = error, gentle
        if running.step is None:
            return None
        if gentle:
            running.step.cancel(error, gentle)
        else:
            running.step.abort(error)
        return None

    def settle(self, number: int, returns: bool) -> None:
        """Put the elements that a step has taken back to their queues, or drop them."""
        context = self._held.pop(number, None)
        if context is not None and returns:
            context.put_back()

    def line_of(self, peer: Peer, frame: Frame) -> tuple[BriefStep, int] | None:
        """A process has sent a SentTensor. Return the step in the loop that it is for, and the
        number of its edge; None if there is more to find out.
        """
        line = self._lines.get(frame.number)
        if line is None or len(frame.tensors) != 1:
            return None
        step, graph = line
        edge = graph.heads.get((peer, frame.head))
        return None if edge is None else (step, edge)

    def arrive(self, number: int, step: BriefStep, edge: int, value: Any) -> Outcome | None:
        """Give a tensor to a step in the loop; return its outcome if it has ended."""
        outcome = step.arrive(edge, value)
        if outcome is None:
            return None
        del self._lines[number]
        return _to_send(*outcome)

    def deliver(self, number: int, message: say.SentTensor) -> Outcome | None:
        """Give a tensor to a step; return its outcome if it has ended."""
        line = self._lines.get(number)
        if line is not None:
            return self.arrive(number, line[0], message.edge, message.tensors[0])
        running = self._running.get(number)
        if running is None:
            return None
        try:
            running.deliver(message)
        except errors.InvalidArgumentError as error:
            return self.cancel(number, error, gentle=False)
        return None
