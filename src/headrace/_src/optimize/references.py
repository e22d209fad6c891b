"""Ops that take a reference instead of a value. In: a definition. Out: a copy whose schema takes
references.

A Switch, a Merge and the ops at a loop's boundary forward their inputs unchanged, and a tensor
array stores them: the kernels are the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace._src.graph.control_roles import Flow
from headrace._src.graph.definition import Definition
from headrace._src.graph.internal_definitions import form
from headrace._src.lowering.list_anchors import row_kept

__all__ = ["carrying", "holds_data", "keeping"]


def holds_data(node: Any, index: int) -> bool:
    """Return whether an output of a control-flow node is one of its inputs: a Merge also outputs
    which one.
    """
    return index == 0 or node.definition.flow is not Flow.MERGE


@form("carrying")
def carrying(definition: Definition) -> Definition:
    """Return the definition of a control-flow node that forwards references."""
    schema = definition.schema
    predicate = 1 if definition.flow is Flow.SWITCH else None
    inputs = [i for i in range(len(schema.inputs)) if i != predicate]
    merges = definition.flow is Flow.MERGE
    outputs = [i for i in range(len(schema.outputs)) if i == 0 or not merges]
    return replace(definition, schema=schema.by_reference(inputs, outputs))


@form("keeping")
def keeping(definition: Definition) -> Definition:
    """Return the definition of a node that puts a reference into a tensor array."""
    kept = row_kept(definition)
    assert kept is not None
    return replace(definition, schema=definition.schema.by_reference([kept], []))
