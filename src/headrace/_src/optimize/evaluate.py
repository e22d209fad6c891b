"""Evaluate a node at compile time. In: a node whose inputs are constants, or whose value follows
from its shapes. Out: the values of its outputs, computed by its own kernel.

Only pure ops are evaluated, and only those that the interpreter computes by the same kernel, so
that the result is the same to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.graph.dataflow import Node, ValueType
from headrace._src.graph.definition import Effect
from headrace._src.graph.inference import run_kernel

__all__ = ["evaluate", "is_known"]


def evaluate(node: Node, limit: int) -> tuple[np.ndarray, ...] | None:
    """Return the values of the node's outputs, if they are known and no intermediate value has more
    than `limit` elements.
    """
    definition = node.definition
    if definition.fold is not None:
        folded = definition.fold(node)
        if folded is not None:
            return _arrays(node, folded)
    if definition.effect is not Effect.PURE or definition.kernels or not node.inputs:
        return None
    inputs = [v.constant for v in node.inputs]
    if any(v is None or v.size > limit for v in inputs) or _is_large(node, limit):
        return None
    results = run_kernel(node, inputs)  # type: ignore[arg-type]
    values = None if results is None else _arrays(node, results)
    return None if values is None or any(v.size > limit for v in values) else values


def is_known(node: Node, values: tuple[np.ndarray, ...]) -> Node:
    """Return the node as a constant, with its controls; the caller must pass these on."""
    types = tuple(ValueType(t.dtype, v.shape) for t, v in zip(node.types, values, strict=True))
    definition, name, attrs, origin = node.definition, node.name, node.attrs, node.origin
    return Node(definition, name, attrs, (), node.controls, types, origin, values, node.device)


def _is_large(node: Node, limit: int) -> bool:
    return any(t.sizes is not None and math.prod(t.sizes) > limit for t in node.types)


def _arrays(node: Node, results: Sequence[Any]) -> tuple[np.ndarray, ...] | None:
    """Return the results as arrays of the outputs' types; None if they are only partly known."""
    found = []
    for t, value in zip(node.types, results, strict=True):
        wanted = t.dtype.numpy
        array = value if isinstance(value, np.ndarray) else np.asarray(value, wanted)
        if array.dtype != wanted:
            return None
        found.append(array)
    return tuple(found)
