"""Run a task's part of a step in the one thread that also receives its tensors. In: a Line, feeds,
and tensors of other tasks by the numbers of their edges. Out: tensors for other tasks, and the
fetches or the first error, once.

Small steps take as long as what surrounds their kernels. Here that is little: one thread runs the
step, so it has no locks; its edges have numbers, so there is no rendezvous; and it runs on as soon
as the tensor is there that it waits for. All other steps are `runtime.served`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headrace._src.devices.device import Device
from headrace._src.devices.resources import Resources
from headrace._src.graph.definition import asks_for_step
from headrace._src.ops.base.transfers import NOTHING, RECV, SEND, SEND_CONTROL
from headrace._src.runtime.executor import Executable, store
from headrace._src.runtime.partitions import PartitionedExecutable

__all__ = ["BriefStep", "Line", "Owner", "line_of"]

_RUN, _RECV, _SEND = range(3)


class Owner(Protocol):
    """Whoever runs a step."""

    def send(self, edge: Any, value: Any) -> None:
        """Send a tensor to another task."""

    def over(self, fetches: list[Any] | None, error: BaseException | None) -> None:
        """The step has ended: called once."""


class Line:
    """A partition's instructions in their fixed order, with the edges of Sends and Recvs."""

    __slots__ = ("code", "part")

    def __init__(self, part: Executable, code: list[tuple[Any, ...]]) -> None:
        self.part = part
        self.code = code


def line_of(
    executable: PartitionedExecutable,
    incoming: Callable[[Any], Any],
    outgoing: Callable[[Any], Any],
) -> Line | None:
    """Return the instructions of a brief step, None if another kind of step is needed: it has
    several partitions, or something in it counts dependencies, blocks, or asks for the step.

    incoming, outgoing: return the edge of a Recv or a Send, None if there is none.
    """
    if len(executable.parts) != 1 or executable.counts:
        return None
    (part,) = executable.parts
    if part.program.has_loops:
        return None
    code = [_coded(entry, part.resources, incoming, outgoing) for entry in part.code]
    return None if None in code else Line(part, code)  # type: ignore[arg-type]


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
        return _RECV, op, edge, None, output, width, frees
    return _SEND, op, edge, gather if definition is SEND else None, output, width, frees


class BriefStep:
    """One run of a Line. All calls come from the same thread.

    State: the slots, the next instruction, the edge that it waits for, and tensors that have
    arrived and are not used yet.
    """

    __slots__ = ("_arrived", "_awaited", "_ended", "_feeds", "_line", "_next", "_owner", "_slots")

    def __init__(self, line: Line, feeds: Sequence[Any], owner: Owner) -> None:
        self._line = line
        self._feeds = feeds
        self._owner = owner
        self._slots: list[Any] = []
        self._next = 0
        self._awaited: Any = None
        self._arrived: dict[Any, Any] = {}
        self._ended = False

    def start(self) -> None:
        """Find the variables, and run as far as possible."""
        part = self._line.part
        try:
            part.look()
            self._slots = slots = part.blank(self._feeds)
            part.find(slots)
        except BaseException as error:
            self._end(None, error)
            return
        self._advance()

    def arrive(self, edge: Any, value: Any) -> None:
        """Take a tensor of another task, and go on if it is the one that is waited for."""
        if self._ended:
            return
        self._arrived[edge] = value
        if edge == self._awaited:
            del value
            self._advance()

    def abort(self, error: BaseException) -> None:
        """End the step with an error, unless it has ended."""
        if not self._ended:
            self._end(None, error)

    def _advance(self) -> None:
        line = self._line
        code, slots, number = line.code, self._slots, self._next
        count = len(code)
        op = gather = fetches = failed = None
        try:
            while number < count:
                kind, op, call, gather, output, width, frees = code[number]
                if kind == _RUN:
                    result = call(*gather(slots))
                    if width == 1:
                        slots[output] = result
                    elif width:
                        store(slots, op, output, result)
                    result = None
                elif kind == _SEND:
                    self._owner.send(call, NOTHING if gather is None else gather(slots)[0])
                elif call in self._arrived:
                    slots[output] = self._arrived.pop(call)
                else:
                    self._next, self._awaited = number, call
                    return
                for i in frees:
                    slots[i] = None
                number += 1
            op = gather = None
            fetches = line.part.fetched(slots, self._feeds)
        except Exception as error:
            failed = (
                error if op is None else line.part.failure(error, op, gather, slots, self._feeds)
            )
        except BaseException as error:
            failed = error
        self._end(fetches, failed)

    def _end(self, fetches: list[Any] | None, error: BaseException | None) -> None:
        self._ended = True
        self._slots = []
        self._arrived = {}
        self._owner.over(fetches, error)
