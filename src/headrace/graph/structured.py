"""Structured loops and branches: one node that holds the steps of its parts.

Raising (optimize.raising) builds them from the primitives. In a Dataflow a structured node is one
of the definitions below, whose attributes are Dataflows, and in a Program an instruction whose
attributes are Programs. The parts take and give plain lists of values:

    WHILE   cond: (variables, invariants) -> [go on?]   body: (variables, invariants) -> variables
            inputs: variables, invariants               outputs: those variables that `results` says
    IF      then, otherwise: inputs -> outputs          inputs: predicate, inputs
    CALL    callee: inputs -> outputs                   inputs: inputs; until it's specialised
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from headrace.core import dtypes
from headrace.core.errors import InvalidArgumentError
from headrace.devices.step_context import current
from headrace.graph.definition import NOT_DIFFERENTIABLE, Definition, Effect
from headrace.graph.flow import DEAD
from headrace.graph.lowering import Anchor
from headrace.graph.schema import Schema

__all__ = [
    "CALL",
    "IF",
    "UNDEFINED",
    "WHILE",
    "Called",
    "effect_of",
    "is_loop",
    "iterations",
    "parts_of",
    "with_effect",
]

PARTS = ("cond", "body", "then", "otherwise", "callee")  # attributes that are steps


class Called(NamedTuple):
    """The structured form of an operation that calls functions: its kind, and the function of each
    part.
    """

    kind: Definition
    parts: Mapping[str, Any]
    attrs: Mapping[str, Any] = MappingProxyType({})


def parts_of(op: Any) -> dict[str, Any]:
    """The steps that a structured operation, node or instruction holds, by attribute."""
    known = op.definition.schema.attributes  # those of functional ops, which name functions
    return {n: op._attrs[n] for n in PARTS if n in op._attrs and n not in known}


def is_loop(op: Any) -> bool:
    """Return whether a structured operation, node or instruction is a WHILE."""
    return "body" in parts_of(op)


@cache
def with_effect(definition: Definition, effect: Effect) -> Definition:
    """The definition of structured nodes whose parts have an effect."""
    return replace(definition, effect=effect)


def effect_of(parts: Iterable[Any]) -> Effect:
    """Return the effect of a structured node with these parts."""
    nodes = (n for part in parts for n in part.nodes)
    effects = {n.definition.effect for n in nodes if n.constant is None}
    for effect in (Effect.WRITES, Effect.READS, Effect.RANDOM):
        if effect in effects:
            return effect
    return Effect.PURE


def _no_rule(*_: Any) -> Any:
    raise AssertionError("the types of a structured node come from its parts")


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


_SIGNATURE = "inputs: *Tin -> outputs: *Tout"
_TYPES = "Tin: list(type) >= 0; Tout: list(type) >= 0"


@dataclass(frozen=True, eq=False)
class Structure:
    """The compiler's view of a structured node: the inputs it reads, and its parts."""

    operands: tuple[int, ...]
    parts: tuple[Any, ...]


def _describe(node: Any) -> Structure:
    handles = (dtypes.resource, dtypes.variant)
    data = [i for i, v in enumerate(node._inputs) if v.dtype not in handles]
    return Structure(tuple(data), tuple(parts_of(node).values()))


def is_undefined(op: Any) -> bool:
    """Return whether an operation or node is a placeholder for a value that only the other branch
    makes.
    """
    return getattr(op, "definition", None) is UNDEFINED


def _definition(
    op_type: str, kernel: Callable[..., Any], doc: str, family: str | None = None
) -> Definition:
    return Definition(
        schema=Schema(op_type, _SIGNATURE, _TYPES),
        infer=_no_rule,
        kernel=kernel,
        gradient=NOT_DIFFERENTIABLE,
        lower=None if family is None else Anchor(family, _describe),
        doc=doc,
    )


WHILE = _definition("_While", _while_kernel, "Repeat `body` as long as `cond` is true.", "while")
IF = _definition("_If", _if_kernel, "Run one of two steps.", "if")
CALL = _definition(
    "_Call", lambda inputs, *, ctx, callee: ctx.bound(callee)(inputs), "Run a function's body."
)
UNDEFINED = _definition(
    "_Undefined",
    lambda inputs, *, Tout: [DEAD] * len(Tout),
    "A placeholder for a value that only the other branch makes; it is never read.",
)
