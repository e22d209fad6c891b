"""Executable: a Program bound to a session's state. In: values for the feeds. Out: values of the
fetches.

Where no op steers, the order in which a ready queue would run the instructions does not depend on
values: it was computed once, by the pipeline, and running is a loop. Once an op has to wait, the
step goes on by counting dependencies, on `Step`; so run from the start all steps with ops that
steer, and those that stop half-way, have a deadline or are traced. Re-entrant: each run has slots
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import takewhile
from operator import getitem, itemgetter
from typing import Any

import numpy as np

from headrace._src.core.dtypes import resource
from headrace._src.devices.pending import Pending
from headrace._src.devices.resources import Resources
from headrace._src.devices.step_context import StepContext, active, current
from headrace._src.graph.program import Instruction, Program
from headrace._src.graph.structured import parts_of
from headrace._src.runtime.frames import Frames
from headrace._src.runtime.kernels import ShapesChanged, bind, copy_of, echo, failure, share, take
from headrace._src.runtime.python_calls import RunElsewhere, Watched, with_python_calls
from headrace._src.runtime.step import Step

__all__ = ["Executable"]


class _Waits(Exception):
    """A kernel has returned a Pending: that of instruction `number`."""

    def __init__(self, pending: Pending, number: int) -> None:
        self.pending = pending
        self.number = number


class Executable:
    """A Program ready to run in one session. `inner`: it's part of a structured operation, and its
    values stay inside the step. `guard`: puts something around each kernel. `sharing`: whoever runs
    it wants to look at values, not to have them, so that none need be copied.
    """

    def __init__(
        self,
        program: Program,
        resources: Resources,
        inner: bool = False,
        guard: Callable[[Instruction, Callable[..., Any]], Callable[..., Any]] | None = None,
        sharing: bool = False,
    ) -> None:
        self.program = program
        self.resources = resources
        self.kernels = [
            bind(i.op, resources, self._part, specialised=program.specialised, guarded=not inner)
            for i in program.instructions
        ]
        # The variables that only parts find: those are looked at before the step begins as well.
        self._looks = (
            []
            if inner
            else [
                bind(i.op, resources, specialised=program.specialised)
                for i in _found_inside(program)
            ]
        )
        if guard is not None:
            self.kernels = list(map(guard, program.instructions, self.kernels))
        self._watched = with_python_calls(program, self.kernels, resources)
        plain = not (program.is_dynamic or program.has_loops or program.asks_for_step)
        self._silent = plain and all(map(_is_silent, program.instructions))
        self._inner = inner
        self._asks = program.asks_for_step
        # Whether a step counts from the start: where an op steers, or may wait beside loops, which
        # a step must be able to cancel. Otherwise the fixed order will do until an op has to wait.
        steers = any(i.op.definition.flow is not None for i in program.instructions)
        waits = any(map(_returns_pendings, program.instructions))
        self._counts = steers or (waits and program.has_loops)
        fed = {t for t, _ in program.feeds}
        self._fetches = [
            (getitem if inner else _fetcher(t in fed, sharing, slot in program.owned), slot)
            for t, slot in program.fetches
        ]
        self._blank: list[Any] = [None] * (program.slots - len(fed))
        for slot, value in program.constants:
            self._blank[slot - len(fed)] = value
        self._code = [
            (
                i.op,
                _interrupting(kernel, k) if _returns_pendings(i) else kernel,
                _gatherer(i.inputs),
                i.output,
                i.width if _is_plain(i) else -1,
                i.frees,
            )
            for k, (i, kernel) in enumerate(zip(program.instructions, self.kernels, strict=True))
        ]
        # Compiled steps begin with finding their variables.
        finding = takewhile(lambda pair: _finds(pair[0]), zip(program.instructions, self.kernels))
        self._found = [(i.op, kernel, i.output) for i, kernel in finding]
        self._code = self._code[len(self._found) :]

    def run(self, feeds: Sequence[Any]) -> list[Any]:
        """Run all instructions; `feeds` are in the order of the program's feeds, and so are the
        results of its fetches. ShapesChanged if the program isn't for the variables as they are:
        then nothing has happened.
        """
        if self._silent:
            return self._run(feeds)
        if not self._inner:
            self.look()
            if self._counts:
                with self.resources.running(Step(self)) as step:
                    return step.run(feeds)
            if self.program.has_loops or self._asks:
                with self.resources.step(), np.errstate(all="ignore"):
                    return self._run(feeds)
        with np.errstate(all="ignore"):
            return self._run(feeds)

    def look(self) -> None:
        """ShapesChanged if a variable that a part finds hasn't the shape that was relied on."""
        for find in self._looks:
            find()

    def _run(self, feeds: Sequence[Any]) -> list[Any]:
        slots: list[Any] = [*feeds, *self._blank]
        code = self._watching(feeds, slots) if self._watched else self._code
        op = gather = waits = failed = None
        try:
            for op, kernel, output in self._found:  # noqa: B007  (an error's message names it)
                slots[output] = kernel()
            for op, kernel, gather, output, width, frees in code:
                result = kernel(*gather(slots))
                if width == 1:
                    slots[output] = result
                elif width:
                    store(slots, op, output, result)
                for i in frees:
                    slots[i] = None
                result = None
            op = None
            return [get(slots, i) for get, i in self._fetches]
        except ShapesChanged:
            raise
        except RunElsewhere as found:
            return found.results
        except _Waits as found:
            waits = found
        except Exception as error:
            failed = self._failure(error, op, gather, slots, feeds)
        if waits is not None:
            try:
                return self._go_on(current(), feeds, slots, waits.number, waits.pending)
            except BaseException as error:
                waits.pending.cancel(error)  # unless the step has: nobody takes its result any more
                raise
        assert failed is not None
        raise failed

    def _watching(self, feeds: Sequence[Any], slots: list[Any]) -> list[Any]:
        """The code of one run, in which Python functions may wait for later instructions."""
        code, context = list(self._code), current()
        for number, kernel in self._watched.items():
            place = number - len(self._found)
            watched = Watched(kernel, partial(self._go_on, context, feeds, slots, number))
            op, _, gather, output, width, frees = code[place]
            code[place] = op, watched, gather, output, width, frees
        return code

    def _failure(
        self, error: Exception, op: Any, gather: Any, slots: list[Any], feeds: Sequence[Any]
    ) -> Exception:
        if op is None:
            op, gather = self._fetched_op(slots), None
        given = gather(slots) if gather is not None else ()
        fed = [(t, v) for (t, _), v in zip(self.program.feeds, feeds, strict=True)]
        return failure(error, op, given, fed)

    def _go_on(
        self,
        context: StepContext | None,
        feeds: Sequence[Any],
        slots: list[Any],
        number: int,
        pending: Pending,
        begun: Callable[[Step], None] | None = None,
    ) -> list[Any]:
        """Run the rest of a step, while instruction `number` waits or runs in another thread."""
        with active(context), self.resources.running(Step(self)) as step:
            if begun is not None:
                begun(step)
            return step.resume(feeds, slots, number, pending)

    def _part(self, program: Program) -> Callable[[Sequence[Any]], list[Any]]:
        """The function that runs a part of a structured operation."""
        return Executable(program, self.resources, inner=True)._run

    @cached_property
    def frames(self) -> Frames:
        """What steps that count go by."""
        return Frames(self.program, self.kernels)

    def _fetched_op(self, slots: list[Any]) -> Any:
        """The operation whose fetched reference could not be read."""
        fetches = self.program.fetches
        unread = (t.op for t, slot in fetches if not getattr(slots[slot], "is_initialized", True))
        return next(unread, fetches[0][0].op)


def _fetcher(fed: bool, sharing: bool, owned: bool) -> Callable[[list[Any], int], Any]:
    """The function from a step's slots to what the caller gets."""
    return echo if fed else share if sharing else take if owned else copy_of


def _gatherer(slots: tuple[int, ...]) -> Callable[[list[Any]], Sequence[Any]]:
    """A function from a step's slots to the values in these; itemgetter is faster than a loop."""
    if len(slots) > 1:
        return itemgetter(*slots)
    first = slots[0] if slots else 0
    return itemgetter(slice(first, first + len(slots)))


def _interrupting(kernel: Callable[..., Any], number: int) -> Callable[..., Any]:
    """A kernel that leaves the fixed order when it has to wait."""

    def call(*inputs: Any) -> Any:
        result = kernel(*inputs)
        try:
            if isinstance(result, Pending):
                raise _Waits(result, number)
        except KeyboardInterrupt as error:
            if isinstance(result, Pending):
                result.cancel(error)
            raise
        return result

    return call


def _returns_pendings(instruction: Instruction) -> bool:
    """Whether the kernel itself may; that of a Python function does so only in a thread."""
    definition = instruction.op.definition
    return definition.may_wait and not definition.calls_python


def _is_silent(instruction: Instruction) -> bool:
    """Whether NumPy does no arithmetic, of which it could warn: native code, finding variables."""
    return _finds(instruction) or getattr(instruction.op.definition.kernel, "is_silent", False)


def _finds(instruction: Instruction) -> bool:
    """Whether all that it does is to find a variable, which lasts as long as the step."""
    if instruction.inputs or instruction.frees or instruction.width != 1:
        return False
    op = instruction.op
    given = [t.dtype for t in op._outputs]
    one = len(given) == 1 and (given[0]._is_ref_dtype or given[0] is resource)
    return one and not (op.definition.may_wait or op.definition.schema.has_list_outputs)


def _found_inside(program: Program) -> Iterator[Instruction]:
    """The instructions in parts of structured ones that find variables."""
    for instruction in program.instructions:
        for part in parts_of(instruction.op).values():
            yield from filter(_finds, part.instructions)
            yield from _found_inside(part)


def _is_plain(instruction: Instruction) -> bool:
    """Whether the kernel returns the output itself: no tuple, no list."""
    return instruction.width == 0 or (
        instruction.width == 1 and not instruction.op.definition.schema.has_list_outputs
    )


def store(slots: list[Any], op: Any, output: int, result: Any) -> None:
    """Put the results of a kernel with several outputs into their slots."""
    count = len(op._outputs)
    if len(result) != count:
        raise RuntimeError(f"the kernel of {op.type} gave {len(result)} outputs, not {count}")
    slots[output : output + count] = result
