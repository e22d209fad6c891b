"""Run a task's part of a step in the one thread that also receives its tensors. In: a Line, feeds,
and tensors of other tasks by the numbers of their edges. Out: tensors for other tasks, and the
fetches or the first error, once.

Small steps take as long as what surrounds their kernels. Here that is little: one thread runs the
step, so it has no locks; its edges have numbers, so there is no rendezvous; and it runs on as soon
as the tensor is there that it waits for. All other steps are `runtime.served`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import thread_time
from typing import Any

from headrace._src.core.errors import DeadlineExceededError, InvalidArgumentError
from headrace._src.devices.device import Device
from headrace._src.devices.resources import Resources
from headrace._src.graph.dataflow import ValueType, origin_of
from headrace._src.graph.definition import asks_for_step
from headrace._src.ops.base.simplify_movement_rules import passes_on
from headrace._src.ops.base.transfers import NOTHING, RECV, SEND, SEND_CONTROL
from headrace._src.runtime.executor import Executable, store
from headrace._src.runtime.pace import Pace
from headrace._src.runtime.partitions import PartitionedExecutable

__all__ = ["BriefStep", "Line", "MeasuredStep", "Outcome", "check", "line_of"]

_RUN, _RECV, _SEND = range(3)

Outcome = tuple[list[Any] | None, BaseException | None]  # the fetches, or the error


class Line:
    """A partition's instructions in their fixed order, with the edges of Sends and Recvs; and what
    comes before and after them in a run (see Executable).
    """

    __slots__ = ("blank", "code", "fetches", "found", "looks", "part")

    def __init__(self, part: Executable, code: list[tuple[Any, ...]]) -> None:
        self.part = part
        self.code = code
        self.looks, self.blank = part.looks, part.blank(())
        self.found = [(kernel, output) for _, kernel, output in part.found]
        self.fetches = bool(part.program.fetches)


def line_of(
    executable: PartitionedExecutable,
    incoming: Callable[[Any], Any],
    outgoing: Callable[[Any], Any],
) -> Line | None:
    """Return the instructions of a brief step, None if another kind of step is needed: it has
    several partitions, or something in it counts dependencies, blocks, or asks for the step.

    incoming, outgoing: return the edge of a Recv or a Send, None if there is none. The edge of a
    Send is a tuple that begins with the receiver.
    """
    if len(executable.parts) != 1 or executable.counts:
        return None
    (part,) = executable.parts
    if part.program.has_loops:
        return None
    code = [_coded(entry, part.resources, incoming, outgoing) for entry in part.code]
    return None if None in code else Line(part, _sent_together(code))  # type: ignore[arg-type]


def _sent_together(code: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Let a Send wait for the next one to the same receiver if nothing that takes time is between
    them: several tensors in one go cost hardly more than one.
    """
    made = []
    more: set[Any] = set()  # the receivers of the Sends that follow at once
    for entry in reversed(code):
        kind, op, edge, gather, output, _, frees = entry
        if kind == _SEND:
            made.append((kind, op, edge, gather, output, edge[0] in more, frees))
            more.add(edge[0])
            continue
        made.append(entry)
        if kind == _RECV or not passes_on(op.definition):
            more.clear()
    return made[::-1]


def _coded(
    entry: tuple[Any, ...],
    resources: Resources,
    incoming: Callable[[Any], Any],
    outgoing: Callable[[Any], Any],
) -> tuple[Any, ...] | None:
    op, kernel, gather, output, width, frees = entry
    definition = op.definition
    device = type(resources.device(op.device))
    if definition not in (RECV, SEND, SEND_CONTROL):
        return None if asks_for_step(op) else (_RUN, op, kernel, gather, output, width, frees)
    if device.put is not Device.put or device.get is not Device.get:
        return None
    edge = incoming(op) if definition is RECV else outgoing(op)
    if edge is None:
        return None
    if definition is RECV:
        expected = op.types[0].dtype.base_dtype.numpy, op.types[0].sizes
        return _RECV, op, edge, None, output, expected, frees
    return _SEND, op, edge, gather if definition is SEND else None, output, width, frees


class BriefStep:
    """One run of a Line. All calls come from the same thread; the one with which the step ends
    returns its outcome, the others None.

    send: called with an edge, the step's number, a tensor for another task, and whether another one
        for that task follows at once.
    State: the slots, the next instruction, the edge that it waits for, and tensors that have
    arrived and are not used yet.
    """

    __slots__ = ("_arrived", "_awaited", "_feeds", "_line", "_next", "_send", "_slots", "number")

    def __init__(
        self,
        number: int,
        line: Line,
        feeds: Sequence[Any],
        send: Callable[[Any, int, Any, bool], None],
    ) -> None:
        self.number = number
        self._line = line
        self._feeds = feeds
        self._send = send
        self._next = 0
        self._awaited: Any = None
        self._arrived: dict[Any, Any] = {}

    def start(self) -> Outcome | None:
        """Find the variables, and run as far as possible."""
        line = self._line
        try:
            for find in line.looks:
                find()
            self._slots = slots = [*self._feeds, *line.blank]
            for kernel, output in line.found:
                slots[output] = kernel()
        except BaseException as error:
            return None, error
        return self._advance()

    def arrive(self, edge: Any, value: Any) -> Outcome | None:
        """Take a tensor of another task, and go on if it is the one that is waited for."""
        self._arrived[edge] = value
        if edge != self._awaited:
            return None
        del value
        return self._advance()

    def lateness(self) -> BaseException:
        """Return the error of a step whose deadline has passed while it waited."""
        recv = self._line.code[self._next][1]
        op = origin_of(recv)
        return DeadlineExceededError(
            None,
            op,
            "Timed out waiting for notification: the step's deadline passed while "
            f"{op.type} '{op.name}' waited for {recv.attrs['tensor_name']} from "
            f"{recv.attrs['send_device']}",
        )

    def _advance(self) -> Outcome | None:
        code, slots, arrived = self._line.code, self._slots, self._arrived
        op = gather = failed = None
        try:
            for number in range(self._next, len(code)):
                kind, op, call, gather, output, width, frees = code[number]
                if kind == _RUN:
                    result = call(*gather(slots))
                    if width == 1:
                        slots[output] = result
                    elif width:
                        store(slots, op, output, result)
                    result = None
                elif kind == _SEND:
                    value = NOTHING if gather is None else gather(slots)[0]
                    self._send(call, self.number, value, width)
                    value = None
                elif call in arrived:
                    slots[output] = value = arrived.pop(call)
                    dtype, sizes = width
                    if (
                        value is None
                        or value.dtype != dtype
                        or (value.shape != sizes and sizes is not None)
                    ):
                        check(value, op.types[0], "a tensor of another task")
                    value = None
                else:
                    self._next, self._awaited = number, call
                    return None
                for i in frees:
                    slots[i] = None
            op = gather = None
            line = self._line
            return line.part.fetched(slots, self._feeds) if line.fetches else [], None
        except Exception as error:
            part = self._line.part
            failed = error if op is None else part.failure(error, op, gather, slots, self._feeds)
        except BaseException as error:
            failed = error
        return None, failed


class MeasuredStep(BriefStep):
    """A brief step that notes how long it has run."""

    __slots__ = ("_pace", "_seconds")

    def __init__(
        self,
        number: int,
        line: Line,
        feeds: Sequence[Any],
        send: Callable[[Any, int, Any, bool], None],
        pace: Pace,
    ) -> None:
        super().__init__(number, line, feeds, send)
        self._pace = pace
        self._seconds = 0.0

    def _advance(self) -> Outcome | None:
        start = thread_time()
        outcome = super()._advance()
        self._seconds += thread_time() - start
        if outcome is not None:
            self._pace.note(self._seconds)
        return outcome


def check(value: Any, wanted: ValueType, what: str) -> None:
    """Raise if a value from another process does not have the type that is declared."""
    if value is None:
        raise InvalidArgumentError(None, None, f"{what} is dead, and not {wanted}")
    dtype, sizes = wanted.dtype.base_dtype.numpy, wanted.sizes
    if value.dtype != dtype or (sizes is not None and value.shape != sizes):
        got = f"{value.dtype}[{','.join(map(str, value.shape))}]"
        raise InvalidArgumentError(None, None, f"{what} is {got}, and not {wanted}")
