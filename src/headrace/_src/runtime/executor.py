"""Run a Program that is bound to a session's state. In: values of the feeds. Out: values of the
fetches.

Without control flow ops, the order of the instructions does not depend on values. The pipeline has
computed it once, and a run is a loop over the instructions. When an op blocks, the run continues on
`Step`, which counts dependencies. Some runs use `Step` from the start: those with control flow ops,
partial runs, and those that have a deadline or are traced. An Executable is re-entrant, since each
run has its own slots.
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
from headrace._src.devices.step_context import (
    StepContext,
    active,
    current,
    recorded,
    takings,
)
from headrace._src.graph.program import Instruction, Program
from headrace._src.graph.structured import parts_of
from headrace._src.runtime.frames import Frames
from headrace._src.runtime.kernels import ShapesChanged, bind, copy_of, echo, failure, share, take
from headrace._src.runtime.python_calls import RunElsewhere, Watched, with_python_calls
from headrace._src.runtime.step import Observer, Step
from headrace._src.runtime.takings import holds

__all__ = ["Executable"]


class _Waits(Exception):
    """The kernel of instruction `number` has returned a Pending."""

    def __init__(self, pending: Pending, number: int) -> None:
        self.pending = pending
        self.number = number


class Executable:
    """A Program that is ready to run in one session.

    inner: the program is part of a structured operation, and its values stay inside the step.
    guard: a function that wraps each kernel.
    sharing: the caller only looks at the fetched values, so none of them is copied.
    others_wait: the program is a partition of a step, and another one may block on something else
    than a partition.
    """

    def __init__(
        self,
        program: Program,
        resources: Resources,
        inner: bool = False,
        guard: Callable[[Instruction, Callable[..., Any]], Callable[..., Any]] | None = None,
        sharing: bool = False,
        others_wait: bool = False,
    ) -> None:
        self.program = program
        self.resources = resources
        self.kernels = [
            bind(i.op, resources, self._part, specialised=program.specialised, guarded=not inner)
            for i in program.instructions
        ]
        # Only parts find these variables; their shapes too are checked before the step begins.
        self.looks = (
            []
            if inner
            else [
                bind(i.op, resources, specialised=program.specialised)
                for i in _found_inside(program)
            ]
        )
        if guard is not None:
            self.kernels = list(map(guard, program.instructions, self.kernels))
        self._watched = with_python_calls(program, self.kernels, resources, others_wait)
        self._inner = inner
        self._asks = program.asks_for_step
        self._holds = not inner and holds(i.op for i in program.instructions)
        # A step counts dependencies from the start if it has control flow ops, or if it has loops
        # beside an op that may block, since it must be able to cancel the loops. All other steps
        # use the fixed order until an op blocks.
        steers = any(i.op.definition.flow is not None for i in program.instructions)
        waits = any(map(_returns_pendings, program.instructions))
        self._counts = steers or (waits and program.has_loops)
        plain = not (steers or program.has_loops or self._asks or self._holds)
        self._silent = plain and all(map(_is_silent, program.instructions))
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
        # Compiled steps first find their variables.
        finding = takewhile(lambda pair: _finds(pair[0]), zip(program.instructions, self.kernels))
        self.found = [(i.op, kernel, i.output) for i, kernel in finding]
        self._code = self._code[len(self.found) :]

    def run(self, feeds: Sequence[Any]) -> list[Any]:
        """Run all instructions and return the fetches, in the order of the program's fetches.

        `feeds` are in the order of the program's feeds. Raises ShapesChanged, before any effect, if
        the variables do not have the shapes that the program is specialised for.
        """
        if self._silent:
            return self._run(feeds)
        if not self._inner:
            self.look()
            if self._counts:
                with self.resources.running(Step(self)) as step:
                    return step.run(feeds)
            run = partial(recorded, self.resources, self._run) if self._holds else self._run
            if self.program.has_loops or self._asks:
                with self.resources.step(), np.errstate(all="ignore"):
                    return run(feeds)
            if self._holds:
                with np.errstate(all="ignore"):
                    return run(feeds)
        with np.errstate(all="ignore"):
            return self._run(feeds)

    def look(self) -> None:
        """Raise ShapesChanged if a variable that a part finds does not have the expected shape."""
        for find in self.looks:
            find()

    def step(self, deadline: float | None = None, observe: Observer | None = None) -> Step:
        """Return one run that has a deadline or is observed."""
        return Step(self, deadline, observe)

    # -- The pieces of a run, for a partition that stops where it must wait ------------------------

    @property
    def watches(self) -> bool:
        """Whether Python functions of the step may wait for each other."""
        return bool(self._watched)

    @property
    def code(self) -> Sequence[tuple[Any, ...]]:
        """The instructions, except those that find variables: operation, kernel, function that
        gathers its inputs, first output, number of outputs (-1: a sequence), slots to free.
        """
        return self._code

    def blank(self, feeds: Sequence[Any]) -> list[Any]:
        """Return the slots of a run before anything has run."""
        return [*feeds, *self._blank]

    def find(self, slots: list[Any]) -> int:
        """Find the variables, and return how many instructions that were; ShapesChanged if a
        variable does not have the expected shape.
        """
        for _, kernel, output in self.found:
            slots[output] = kernel()
        return len(self.found)

    def fetched(self, slots: list[Any], feeds: Sequence[Any]) -> list[Any]:
        """Return the fetches of a run that is over."""
        try:
            return [get(slots, i) for get, i in self._fetches]
        except Exception as error:
            failed = self.failure(error, None, None, slots, feeds)
        raise failed

    def _run(self, feeds: Sequence[Any]) -> list[Any]:
        slots: list[Any] = [*feeds, *self._blank]
        code = self._watching(feeds, slots) if self._watched else self._code
        op = gather = waits = failed = None
        try:
            for op, kernel, output in self.found:  # noqa: B007  (an error's message names it)
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
            # Its traceback would keep this frame, and with it the step's values, for longer. (No
            # call: Ctrl-C would come between it and the assignment.)
            waits = found
            waits.__traceback__ = None
        except Exception as error:
            failed = self.failure(error, op, gather, slots, feeds)
        if waits is not None:
            try:
                return self._go_on(current(), feeds, slots, waits.number, waits.pending)
            except BaseException as error:
                waits.pending.cancel(error)  # no effect if the step did: its result is unused
                raise
        assert failed is not None
        raise failed

    def _watching(self, feeds: Sequence[Any], slots: list[Any]) -> list[Any]:
        """Return the code of one run in which Python functions may wait for later instructions."""
        code, context = list(self._code), current()
        for number, kernel in self._watched.items():
            place = number - len(self.found)
            watched = Watched(kernel, partial(self._go_on, context, feeds, slots, number))
            op, _, gather, output, width, frees = code[place]
            code[place] = op, watched, gather, output, width, frees
        return code

    def failure(
        self, error: Exception, op: Any, gather: Any, slots: list[Any], feeds: Sequence[Any]
    ) -> Exception:
        """Return the error of a step whose instruction for `op` raised `error`; None: a fetch."""
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
        """Run the rest of a step while instruction `number` blocks or runs in another thread."""
        with active(context):
            step = Step(self, inside=self._inner)
            if self._holds:
                step.hold(takings(self.resources))
            with step.refusing(number, pending), self.resources.running(step):
                if begun is not None:
                    begun(step)
                return step.resume(feeds, slots, number, pending)

    def _part(self, program: Program) -> Callable[[Sequence[Any]], list[Any]]:
        """Return the function that runs a part of a structured operation."""
        return Executable(program, self.resources, inner=True)._run

    @cached_property
    def frames(self) -> Frames:
        """Return the frames of the program, which `Step` runs."""
        return Frames(self.program, self.kernels)

    def _fetched_op(self, slots: list[Any]) -> Any:
        """Return the operation whose fetched reference could not be read."""
        fetches = self.program.fetches
        unread = (t.op for t, slot in fetches if not getattr(slots[slot], "is_initialized", True))
        return next(unread, fetches[0][0].op)


def _fetcher(fed: bool, sharing: bool, owned: bool) -> Callable[[list[Any], int], Any]:
    """Return the function that takes a fetched value from a step's slots for the caller."""
    return echo if fed else share if sharing else take if owned else copy_of


def _gatherer(slots: tuple[int, ...]) -> Callable[[list[Any]], Sequence[Any]]:
    """Return a function that reads these slots of a step; itemgetter is faster than a loop."""
    if len(slots) > 1:
        return itemgetter(*slots)
    first = slots[0] if slots else 0
    return itemgetter(slice(first, first + len(slots)))


def _interrupting(kernel: Callable[..., Any], number: int) -> Callable[..., Any]:
    """Wrap a kernel so that it raises _Waits, and so leaves the fixed order, when it blocks."""

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
    """Return whether the kernel may return a Pending; Python functions do so only in a thread."""
    definition = instruction.op.definition
    return definition.may_wait and not definition.calls_python


def _is_silent(instruction: Instruction) -> bool:
    """Return whether the kernel does no NumPy arithmetic, which could emit warnings. Collectives
    have native code, and ignore warnings where they use NumPy.
    """
    definition = instruction.op.definition
    return (
        _finds(instruction) or definition.shares or getattr(definition.kernel, "is_silent", False)
    )


def _finds(instruction: Instruction) -> bool:
    """Return whether the instruction only finds a variable that lasts as long as the step."""
    if instruction.inputs or instruction.frees or instruction.width != 1:
        return False
    op = instruction.op
    given = [t.dtype for t in op._outputs]
    one = len(given) == 1 and (given[0]._is_ref_dtype or given[0] is resource)
    return one and not (op.definition.may_wait or op.definition.schema.has_list_outputs)


def _found_inside(program: Program) -> Iterator[Instruction]:
    """Yield the instructions in parts of structured operations that find variables."""
    for instruction in program.instructions:
        for part in parts_of(instruction.op).values():
            yield from filter(_finds, part.instructions)
            yield from _found_inside(part)


def _is_plain(instruction: Instruction) -> bool:
    """Return whether the kernel returns the output itself, not a tuple or list of outputs."""
    return instruction.width == 0 or (
        instruction.width == 1 and not instruction.op.definition.schema.has_list_outputs
    )


def store(slots: list[Any], op: Any, output: int, result: Any) -> None:
    """Put the results of a kernel with several outputs into their slots."""
    count = len(op._outputs)
    if len(result) != count:
        raise RuntimeError(f"the kernel of {op.type} gave {len(result)} outputs, not {count}")
    slots[output : output + count] = result
