"""Step: one execution by counting. In: values, now or later. Out: values, as soon as they exist.

State of a step: `_pending[i]`, the number of instructions and feeds that instruction i still waits
for; `_ready`, a queue of instructions that wait for nothing; `_readers[s]`, how many readers slot s
still has (at zero its value is dropped). Used where the fixed order of `Executable.run` does not
do: partial runs, deadlines, tracing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from headrace.core import errors
from headrace.graph.dataflow import Node, origin_of
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import Program
from headrace.runtime.executor import Executable, store
from headrace.runtime.kernels import ShapesChanged, echo, failure, take, translate

__all__ = ["Observer", "Step"]

# Called after each kernel with its operation, start and end in seconds, and its results.
Observer = Callable[[Operation | Node, float, float, list[Any]], None]


class _Plan:
    """What does not change between the steps of one program: who waits for whom."""

    def __init__(self, program: Program) -> None:
        self.index = {i.op: k for k, i in enumerate(program.instructions)}
        self.writer: dict[int, int] = {}
        for k, i in enumerate(program.instructions):
            for slot in range(i.output, i.output + i.width):
                self.writer[slot] = k
        self.feed_slots = {slot for _, slot in program.feeds}
        self.fed = {t for t, _ in program.feeds}
        self.pending = [0] * len(program.instructions)
        self.after: list[list[int]] = [[] for _ in program.instructions]
        self.after_feed: dict[int, list[int]] = {slot: [] for slot in self.feed_slots}
        self.readers = [0] * program.slots
        constants = {slot for slot, _ in program.constants}
        for k, i in enumerate(program.instructions):
            for slot in i.inputs:
                self.readers[slot] += 1
                if slot not in constants:
                    waits = self.after_feed.get(slot)
                    (self.after[self.writer[slot]] if waits is None else waits).append(k)
            for earlier in i.after:
                self.after[earlier].append(k)
            self.pending[k] = sum(s not in constants for s in i.inputs) + len(i.after)
        for _, slot in program.fetches:
            self.readers[slot] += 1


class Step:
    """One run of an executable that can be fed and fetched piece by piece."""

    def __init__(
        self,
        executable: Executable,
        deadline: float | None = None,
        observe: Observer | None = None,
    ) -> None:
        self._executable = executable
        program = executable.program
        self._plan = plan = _Plan(program)
        self._program = program
        self._slots: list[Any] = [None] * program.slots
        self._present = [False] * program.slots
        for slot, value in program.constants:
            self._slots[slot] = value
            self._present[slot] = True
        self._pending = list(plan.pending)
        self._readers = list(plan.readers)
        self._done = [False] * len(program.instructions)
        self._ready = deque(k for k, n in enumerate(self._pending) if not n)
        self._deadline = deadline
        self._observe = observe
        self._fed: list[tuple[Tensor, Any]] = []

    def feed(self, values: Mapping[int, Any]) -> None:
        """Put values into feed slots; what waited for them becomes ready."""
        tensors = {slot: t for t, slot in self._program.feeds}
        for slot, value in values.items():
            self._fed.append((tensors[slot], value))
            self._slots[slot] = value
            self._present[slot] = True
            self._satisfied(self._plan.after_feed[slot])

    def run_until(self, slots: Iterable[int], operations: Iterable[Operation]) -> None:
        """Run what `slots` and `operations` need; their feeds must be there (see `unfed`)."""
        wanted = self._needed(slots, operations)
        postponed: list[int] = []
        with np.errstate(all="ignore"):
            while self._ready:
                k = self._ready.popleft()
                if k in wanted:
                    self._execute(k)
                else:
                    postponed.append(k)
        self._ready.extend(postponed)

    def unfed(self, slots: Iterable[int], operations: Iterable[Operation]) -> set[int]:
        """The feed slots that `slots` and `operations` need and that have no value yet."""
        read = {s for k in self._needed(slots, operations) for s in self._inputs(k)}
        return {s for s in (*read, *slots) if s in self._plan.feed_slots and not self._present[s]}

    def run_all(self) -> None:
        """Run every instruction."""
        with np.errstate(all="ignore"):
            while self._ready:
                self._execute(self._ready.popleft())
        self._check_deadline(None)

    def fetch(self, tensor: Tensor, slot: int) -> Any:
        """Return the value of a fetched tensor; each fetch can be taken once."""
        try:
            value = (echo if tensor in self._plan.fed else take)(self._slots, slot)
        except errors.OpError as error:
            raise translate(error, tensor.op) from None
        self._release(slot)
        return value

    def _inputs(self, k: int) -> tuple[int, ...]:
        return self._program.instructions[k].inputs

    def _needed(self, slots: Iterable[int], operations: Iterable[Operation]) -> set[int]:
        """The instructions that have yet to run before `slots` and `operations` are done."""
        writer, index = self._plan.writer, self._plan.index
        stack = [writer[s] for s in slots if s in writer]
        stack += [index[op] for op in operations if op in index]  # a constant has no instruction
        needed: set[int] = set()
        while stack:
            k = stack.pop()
            if k in needed or self._done[k]:
                continue
            needed.add(k)
            stack += [writer[s] for s in self._inputs(k) if s in writer]
            stack += self._program.instructions[k].after
        return needed

    def _execute(self, k: int) -> None:
        instruction = self._program.instructions[k]
        op, slots = instruction.op, self._slots
        self._check_deadline(op)
        start = time.time()
        failed = None
        try:
            result = self._executable.kernels[k](*[slots[s] for s in instruction.inputs])
            if instruction.width == 1 and not op.definition.schema.has_list_outputs:
                slots[instruction.output] = result
            elif instruction.width:
                store(slots, op, instruction.output, result)
        except ShapesChanged:
            raise
        except Exception as error:
            failed = failure(error, op, [slots[s] for s in instruction.inputs], self._fed)
        if failed is not None:
            raise failed
        outputs = range(instruction.output, instruction.output + instruction.width)
        if self._observe is not None:
            self._observe(op, start, time.time(), [slots[s] for s in outputs])
        self._done[k] = True
        for s in outputs:
            self._present[s] = True
            if not self._readers[s]:
                slots[s] = None
        for s in instruction.inputs:
            self._release(s)
        self._satisfied(self._plan.after[k])

    def _check_deadline(self, op: Operation | Node | None) -> None:
        """Stop if the time is up before `op`, or before the end."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            where = f"before '{op.name}'" if op is not None else "before it ended"
            raise errors.DeadlineExceededError(
                None, origin_of(op), f"the step's deadline passed {where}"
            )

    def _release(self, slot: int) -> None:
        self._readers[slot] -= 1
        if self._readers[slot] <= 0:
            self._slots[slot] = None

    def _satisfied(self, waiting: Iterable[int]) -> None:
        for k in waiting:
            self._pending[k] -= 1
            if not self._pending[k]:
                self._ready.append(k)
