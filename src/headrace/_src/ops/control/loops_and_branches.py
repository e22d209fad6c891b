"""Loops and branches as nodes that hold steps (see graph.structured): WHILE and IF.

No client makes them: `raise` makes them of the primitives of control flow, and calls of functional
ops become them. The compiler takes such a node whole if it can compile all of its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.step_context import current
from headrace._src.graph.internal_definitions import register_internal
from headrace._src.graph.structured import parts_of, structured
from headrace._src.lowering.rules import Anchor

__all__ = ["IF", "WHILE", "Structure", "iterations", "scalar"]


def _while_kernel(
    inputs: Sequence[Any], *, ctx: Any, cond: Any, body: Any, results: Sequence[int]
) -> list[Any]:
    for variables in iterations(inputs, ctx, cond, body):  # noqa: B007  (the last ones count)
        pass
    return [variables[i] for i in results]


def iterations(inputs: Sequence[Any], ctx: Any, cond: Any, body: Any) -> Iterator[list[Any]]:
    """A loop's variables: their initial values, and after each iteration."""
    goes_on, step = ctx.bound(cond), ctx.bound(body)
    count = len(body.fetches)
    variables, invariants = list(inputs[:count]), list(inputs[count:])
    running = current()
    yield variables
    while scalar(goes_on(variables + invariants)[0], "the condition of a loop"):
        variables = step(variables + invariants)
        if running is not None:
            running.cancellation.check()
        yield variables


def _if_kernel(inputs: Sequence[Any], *, ctx: Any, then: Any, otherwise: Any) -> list[Any]:
    taken = then if scalar(inputs[0], "the predicate of a branch") else otherwise
    return ctx.bound(taken)(inputs[1:])


def scalar(value: Any, what: str) -> Any:
    """Return a predicate, which must be a single boolean."""
    if np.ndim(value):
        raise InvalidArgumentError(
            None, None, f"{what} must be a scalar, but has shape {np.shape(value)}"
        )
    return value


@dataclass(frozen=True, eq=False)
class Structure:
    """The compiler's view of a structured node: the inputs it reads, and its parts."""

    operands: tuple[int, ...]
    parts: tuple[Any, ...]


def _describe(node: Any) -> Structure:
    handles = (dtypes.resource, dtypes.variant)
    data = [i for i, v in enumerate(node._inputs) if v.dtype not in handles]
    return Structure(tuple(data), tuple(parts_of(node).values()))


WHILE = structured(
    "_While",
    _while_kernel,
    "Repeat `body` as long as `cond` is true.",
    Anchor("while", _describe),
)
IF = structured("_If", _if_kernel, "Run one of two steps.", Anchor("if", _describe))
register_internal(WHILE, IF)
