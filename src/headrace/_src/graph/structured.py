"""Structured loops and branches: one node that holds the steps of its parts.

Raising (optimize.raising) builds them from the primitives. In a Dataflow a structured node is one
of the definitions below or in ops.control.loops_and_branches (WHILE, IF), whose attributes are
Dataflows, and in a Program an instruction whose attributes are Programs. The parts take and give
plain lists of values:

    WHILE   cond: (variables, invariants) -> [go on?]   body: (variables, invariants) -> variables
            inputs: variables, invariants               outputs: those variables that `results` says
    IF      then, otherwise: inputs -> outputs          inputs: predicate, inputs
    CALL    callee: inputs -> outputs                   inputs: inputs; until it's specialised
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from headrace._src.graph.control_roles import DEAD
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Definition, Effect, LoweringRule
from headrace._src.graph.schema import Schema

__all__ = [
    "CALL",
    "UNDEFINED",
    "Called",
    "Unraisable",
    "effect_of",
    "is_loop",
    "parts_of",
    "structured",
    "with_effect",
]

PARTS = ("cond", "body", "then", "otherwise", "callee")  # attributes that are steps


class Unraisable(Exception):
    """The control flow of a step is not made of nested loops and branches, each on one device."""


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


_plain: dict[Definition, Definition] = {}  # of each definition with an effect


def with_effect(definition: Definition, effect: Effect) -> Definition:
    """The one definition of structured nodes of this kind whose parts have an effect."""
    plain = _plain.get(definition, definition)
    return plain if plain.effect is effect else _with_effect(plain, effect)


@cache
def _with_effect(plain: Definition, effect: Effect) -> Definition:
    made = replace(plain, effect=effect)
    _plain[made] = plain
    return made


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


_SIGNATURE = "inputs: *Tin -> outputs: *Tout"
_TYPES = "Tin: list(type) >= 0; Tout: list(type) >= 0"


def is_undefined(op: Any) -> bool:
    """Return whether an operation or node is a placeholder for a value that only the other branch
    makes.
    """
    return getattr(op, "definition", None) is UNDEFINED


def structured(
    op_type: str, kernel: Callable[..., Any], doc: str, lower: LoweringRule | None = None
) -> Definition:
    """The definition of a node that holds steps."""
    return Definition(
        schema=Schema(op_type, _SIGNATURE, _TYPES),
        infer=_no_rule,
        kernel=kernel,
        gradient=NOT_DIFFERENTIABLE,
        lower=lower,
        doc=doc,
    )


CALL = structured(
    "_Call", lambda inputs, *, ctx, callee: ctx.bound(callee)(inputs), "Run a function's body."
)
UNDEFINED = structured(
    "_Undefined",
    lambda inputs, *, Tout: [DEAD] * len(Tout),
    "A placeholder for a value that only the other branch makes; it is never read.",
)
