"""What lowering rules say of one use of an op, for all types that XLA has. In: a node. Out: a
program or views, or None where the rule is not for this use.

Rules promise nothing for complex numbers. Programs of arithmetic alone, and views, mean the same
for them.
"""

from __future__ import annotations

from typing import Any

from headrace._src.graph.dataflow import Node
from headrace._src.lowering.pointwise import Pointwise
from headrace._src.lowering.rules import (
    Anchor,
    Elementwise,
    Join,
    Move,
    Pass,
    Read,
    Reduce,
    Update,
    View,
    assembly_of,
    operand_views,
    pointwise_of,
    recorded,
    reduction_of,
    update_of,
    views_of,
)
from headrace._src.xla.table import COMPLEX, FUNCTIONS, PARTLY

__all__ = ["by_function", "by_rule", "program_of", "views_seen"]

# The steps that mean for complex numbers what they mean for real ones.
_ARITHMETIC = frozenset(
    ("add", "sub", "mul", "div", "neg", "const", "select", "eq", "ne", "and", "or", "not")
    + ("exp", "log", "sqrt", "sin", "cos", "tanh")
)


def by_function(node: Node) -> bool:
    """Whether the function of an op, not its rule, is for a node."""
    if node.type not in FUNCTIONS:
        return False
    types = PARTLY.get(node.type)
    if types is None or node.input_dtypes[0] in types:
        return True
    return None in types and not by_rule(node)


def by_rule(node: Node) -> bool:
    """Whether the rule of an op is for a node."""
    rule = node.definition.lower
    if isinstance(rule, Pass | Read):
        return True
    if isinstance(rule, Elementwise):
        return program_of(rule, node) is not None
    if isinstance(rule, Update):
        return update_of(rule, node) is not None
    if isinstance(rule, Reduce):
        return reduction_of(rule, node) is not None
    if isinstance(rule, Move):
        return views_seen(rule, node) is not None
    if isinstance(rule, Join):
        return assembly_of(rule, node) is not None
    return isinstance(rule, Anchor) and node.geometry is not None


def program_of(rule: Elementwise, node: Node) -> Pointwise | None:
    """The program of an element-wise rule."""
    if not COMPLEX.intersection((*node.input_dtypes, *node.output_dtypes)):
        return pointwise_of(rule, node)
    operands = range(len(node.inputs)) if rule.operands is None else rule.operands
    if operand_views(rule, node) is None:
        return None
    program = recorded(rule.function, [node.input_dtypes[i] for i in operands], node)
    if program is None or program.output_dtypes != node.output_dtypes:
        return None
    return program if {s.opcode for s in program.steps} <= _ARITHMETIC else None


def views_seen(rule: Move, node: Node) -> tuple[View, ...] | None:
    """The views of its operand that a move's outputs are."""
    if node.input_dtypes[rule.operand] not in COMPLEX:
        return views_of(rule, node)
    found: Any = rule.view(node)
    return None if found is None else tuple(found if isinstance(found, list) else (found,))
