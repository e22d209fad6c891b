"""Common subexpressions. In: a Dataflow. Out: the same, with equal nodes merged.

Nodes are equal if they have the same definition, attributes, inputs, controls and device; operands
of a commutative op may be in any order. Since every write of a state is among the controls of the
next read, two equal reads see the same value. Writing, random and blocking nodes, and reads of
external state, are never merged. Constants are equal if they are bit for bit.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.dataflow import Dataflow, Node, Value, rewrite
from headrace._src.graph.definition import Effect
from headrace._src.graph.state_sources import carries_state, is_source
from headrace._src.graph.structured import parts_of

__all__ = ["merge_common"]

_MOST_BYTES = 1 << 16  # the largest constant that is compared by its bytes


def merge_common(flow: Dataflow) -> Dataflow:
    """Keep the first of each set of equal nodes."""
    first: dict[Hashable, Node] = {}
    several = len(flow.devices) > 1

    def merge(node: Node) -> tuple[Value, ...] | None:
        key = _key(node)
        if key is None:
            return None
        if several and node.constant is None:
            key = key, node.device
        known = first.setdefault(key, node)
        return None if known is node else known.outputs

    return rewrite(flow, merge)


def _key(node: Node) -> Hashable:
    """Return a key that equal nodes share; None for a node that equals no other."""
    if not node.types:
        return None
    if node.constant is not None:
        return tuple(map(_array_key, node.constant))
    if not _is_mergeable(node):
        return None
    inputs = node.inputs
    if node.definition.commutative:
        inputs = tuple(sorted(inputs, key=id))
    attrs = _attributes_key(node)
    return None if attrs is None else (id(node.definition), attrs, inputs, node.controls)


def _is_mergeable(node: Node) -> bool:
    if parts_of(node):
        return False  # loops and branches with equal inputs may differ inside
    effect = node.definition.effect
    if effect is Effect.PURE:
        return bool(node.inputs)  # otherwise it's a placeholder, or a constant
    return effect is Effect.READS and not is_source(node) and any(map(carries_state, node.inputs))


def _attributes_key(node: Node) -> Hashable:
    """Return the attributes that have a meaning; None if they can't be compared."""
    try:
        known = node.definition.schema.attributes
        key = tuple((name, _attribute_key(node.attrs.get(name))) for name in known)
        hash(key)
    except TypeError:
        return None
    return key


def _attribute_key(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return _array_key(value)
    if isinstance(value, TensorShape):
        return (TensorShape, value.sizes)
    if isinstance(value, tuple | list):
        return tuple(map(_attribute_key, value))
    return (type(value), repr(value)) if isinstance(value, float) else (type(value), value)


def _array_key(array: np.ndarray) -> Hashable:
    if array.nbytes > _MOST_BYTES:
        return id(array)
    if not array.dtype.hasobject:
        return array.dtype, array.shape, array.tobytes()
    elements = array.ravel().tolist()
    strings = all(type(e) is bytes for e in elements)
    return (array.dtype, array.shape, *elements) if strings else id(array)
