"""What raising is made of: the parts of structured operations, operations in order, and the reason
why some are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import StepGraph
from headrace.graph.structured import members_of

__all__ = ["Op", "Stand", "Unraisable", "holders", "in_order", "part"]

Op = Any  # an Operation, or a Structured


class Unraisable(Exception):
    """The control flow of a step is not made of loops and branches that nest."""


def part(
    operations: Iterable[Op],
    feeds: Sequence[Tensor],
    fetches: Sequence[Tensor],
    targets: Sequence[Operation] = (),
) -> StepGraph:
    """A step inside a structured operation, of operations in order."""
    return StepGraph(tuple(operations), tuple(feeds), tuple(fetches), tuple(targets), inner=True)


class Stand(Tensor):
    """A tensor in the place of one that a part has not."""

    def __init__(self, of: Tensor) -> None:
        super().__init__(of.op, of.value_index, of.dtype)
        self._shape = of._shape


def holders(operations: Iterable[Op]) -> dict[Op, Op]:
    """For each operation that stands by itself or in a structured one, the one to wait for."""
    return {m: op for op in operations for m in members_of(op)}


def in_order(operations: list[Op]) -> list[Op]:
    """The operations after what they need, otherwise as they stand."""
    maker = {t: op for op in operations for t in op._outputs}
    holder = holders(operations)
    done: dict[Op, bool] = {}
    result: list[Op] = []

    def before(op: Op) -> list[Op]:
        found = [maker[t] for t in op._inputs if t in maker]
        return found + [holder[c] for c in op._control_inputs if c in holder]

    for root in operations:
        stack = [] if root in done else [(root, iter(before(root)))]
        done.setdefault(root, False)
        while stack:
            op, remaining = stack[-1]
            for b in remaining:
                if b not in done:
                    done[b] = False
                    stack.append((b, iter(before(b))))
                    break
                if not done[b] and b is not op:
                    raise Unraisable(f"'{op.name}' and '{b.name}' wait for each other")
            else:
                stack.pop()
                done[op] = True
                result.append(op)
    return result
