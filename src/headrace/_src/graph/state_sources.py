"""References and handles: the values that lead to state, and the nodes that look state up."""

from __future__ import annotations

from headrace._src.core import dtypes
from headrace._src.graph.dataflow import Node, Value, ValueType

__all__ = ["carries_state", "is_source"]


def carries_state(value: Value | ValueType) -> bool:
    """Whether a value (or one of this type) is a reference or a handle."""
    return value.dtype._is_ref_dtype or value.dtype is dtypes.resource


def is_source(node: Node) -> bool:
    """Whether a node only looks up state: it makes references or handles, and changes nothing."""
    if node.inputs or not node.types or node.definition.may_wait:
        return False  # a Recv, for example, passes on what another device has looked up
    return all(map(carries_state, node.types))
