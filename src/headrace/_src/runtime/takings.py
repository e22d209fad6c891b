"""What a program does with elements that it takes. In: a Program. Out: the instructions that use
them, so that a cancelled step knows which elements it may put back.

A step that takes an element and then blocks on something else can be cancelled in between. The
element then goes back to where it was, unless something that others can see was made of it: a
variable was written, an element was added to a queue, a Python function was called. A step that
fails by itself keeps what it has taken, as in TensorFlow: the element may be the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headrace._src.graph.definition import Effect
from headrace._src.graph.program import Instruction
from headrace._src.ops.base.transfers import is_recv, is_send, leaves_task

__all__ = ["Uses", "holds", "uses_of"]


class Uses(NamedTuple):
    """The numbers of the instructions whose effects may depend on a taken element: those that
    others can see, and the Sends to other tasks.
    """

    effects: frozenset[int]
    sends: frozenset[int]


def holds(ops: Iterable[Any]) -> bool:
    """Return whether a step of these operations or nodes may be blocked after it has taken an
    element: another one may block, or the same one again, in a loop.
    """
    count, steers, takes = 0, False, False
    for op in ops:
        if op.definition.effect is Effect.BLOCKS and not is_recv(op):
            count += 1
            takes = takes or bool(op._outputs)
        steers = steers or op.definition.flow is not None
    return takes and (count > 1 or steers)


def uses_of(instructions: Sequence[Instruction]) -> Uses:
    """Return the uses of what is taken here, or was received and may have been taken elsewhere."""
    writers = {
        slot: k for k, i in enumerate(instructions) for slot in range(i.output, i.output + i.width)
    }
    behind = {
        k for k, i in enumerate(instructions) if i.op.definition.effect is Effect.BLOCKS and i.width
    }
    effects: set[int] = set()
    size = -1
    while size < len(behind):  # once more for each loop around another
        size = len(behind)
        for k, i in enumerate(instructions):
            if i.op.definition.calls is not None or i.op.definition.calls_python:
                effects.add(k)  # a function may take elements itself, and use them
            before = [*(writers.get(slot) for slot in i.inputs), *i.after]
            if k not in behind and behind.isdisjoint(before):
                continue
            if _is_seen(i):
                effects.add(k)
            behind.add(k)
    sends = frozenset(k for k in behind if leaves_task(instructions[k].op))
    return Uses(frozenset(k for k in effects if not is_send(instructions[k].op)), sends)


def _is_seen(instruction: Instruction) -> bool:
    """Return whether others can see the effect of an instruction: it writes, or adds elements."""
    effect = instruction.op.definition.effect
    return effect is Effect.WRITES or (effect is Effect.BLOCKS and not instruction.width)
