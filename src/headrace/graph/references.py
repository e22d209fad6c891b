"""Ops that take a reference where they would take a value. In: a definition. Out: one like it,
whose schema asks for references.

A Switch, a Merge and what is at the border of a loop pass on whatever they are given, and a tensor
array keeps it: the kernels are the same.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from headrace.graph.definition import Definition
from headrace.graph.flow import Flow
from headrace.graph.lists import row_kept

__all__ = ["carrying", "holds_data", "keeping"]


def holds_data(node: Any, index: int) -> bool:
    """Whether an output of a node that steers is one of its inputs: a Merge also says which one."""
    return index == 0 or node.definition.flow is not Flow.MERGE


@cache
def carrying(definition: Definition) -> Definition:
    """The definition of a node that steers and passes on references."""
    schema = definition.schema
    predicate = 1 if definition.flow is Flow.SWITCH else None
    inputs = [i for i in range(len(schema.inputs)) if i != predicate]
    merges = definition.flow is Flow.MERGE
    outputs = [i for i in range(len(schema.outputs)) if i == 0 or not merges]
    return replace(definition, schema=schema.by_reference(inputs, outputs))


@cache
def keeping(definition: Definition) -> Definition:
    """The definition of a node that puts a reference into a tensor array."""
    kept = row_kept(definition)
    assert kept is not None
    return replace(definition, schema=definition.schema.by_reference([kept], []))
