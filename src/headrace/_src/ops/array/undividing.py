"""Rows that were divided by key, put back into their order. In: the keys, and the rows of each key.
Out: the rows, as they were before DynamicPartition divided them.

A lookup in shards divides ids by shard, and positions in the same way; it merges what it finds by
these positions, and its gradient gathers by them. The keys alone say as much: UNDIVIDE merges by
them, and rows that are gathered by every part of the positions are rows that are divided. So the
rules below make do without the positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.dataflow import Node, Value, ValueType
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Definition, Kind, lookup
from headrace._src.graph.internal_definitions import register_internal
from headrace._src.graph.schema import Schema
from headrace._src.lowering import generated
from headrace._src.ops.array.group_by_key import stable_order
from headrace._src.ops.base.simplify_rules import Answer

__all__ = ["UNDIVIDE", "check_keys", "gathered_positions", "is_plain", "merged_positions", "width"]


def is_plain(array: np.ndarray) -> bool:
    """Return whether generated code can read an array."""
    flags = array.flags
    return flags.c_contiguous and flags.aligned and not array.dtype.hasobject


def width(dtype: np.dtype, rest: tuple[int, ...]) -> int:
    """Return the bytes of rows of one element, which a register holds; 0 for other rows."""
    return dtype.itemsize if math.prod(rest) == 1 and dtype.itemsize in (4, 8) else 0


def check_keys(keys: np.ndarray, count: int) -> None:
    """Raise ValueError unless all keys are in [0, count)."""
    outside = (keys < 0) | (keys >= count)
    if outside.any():
        at = int(np.argmax(outside))
        raise ValueError(f"partitions[{at}] = {keys[at]} is not in [0, {count})")


def _undivide(keys: np.ndarray, parts: Sequence[np.ndarray]) -> np.ndarray:
    rest = parts[0].shape[1:]
    for rows in parts:
        if not rows.ndim or rows.shape[1:] != rest:
            raise ValueError(f"rows differ in shape: {[*parts[0].shape]} and {[*rows.shape]}")
    if all(map(is_plain, parts)) and is_plain(keys) and generated.worthwhile(parts[0].size):
        merge = generated.routine("undivide_rows", width(parts[0].dtype, rest))
        found = None if merge is None else merge(keys, parts)
        if found is not None:
            return found
    check_keys(keys, len(parts))
    for key, rows in enumerate(parts):
        count = np.count_nonzero(keys == key)
        if len(rows) != count:
            raise ValueError(
                "data.shape must start with indices.shape: "
                f"part {key} has {len(rows)} rows, and {count} indices"
            )
    merged = np.empty((len(keys), *rest), parts[0].dtype)
    merged[stable_order(keys)] = np.concatenate(parts)
    return merged


def _infer(c: Any, keys: TensorShape, parts: list[TensorShape]) -> TensorShape:
    rest = TensorShape(None)
    for rows in parts:
        if rows.sizes is not None:
            rest = rest.merge_with(rows[1:])
    return keys.with_rank(1).concatenate(rest)


UNDIVIDE = Definition(
    schema=Schema("_Undivide", "keys: int32, parts: N*T -> rows: T", "N: int >= 1; T: type"),
    infer=_infer,
    kernel=_undivide,
    gradient=NOT_DIFFERENTIABLE,
    kind=Kind.MOVEMENT,
    doc="Merge rows that were divided by key: row i is the next one of part keys[i].",
)
register_internal(UNDIVIDE)


def _division(positions: Value) -> Node | None:
    """Return the node that has divided the positions 0, 1, ... of all rows, if a value is a part of
    these.
    """
    source = positions.producer
    if not isinstance(source, Node) or source.definition is not lookup("DynamicPartition"):
        return None
    if source.constant is not None:
        return None
    numbers, keys = source.constant_input(0), source.inputs[1]
    if numbers is None or numbers.ndim != 1 or keys.type.sizes != numbers.shape:
        return None
    return source if np.array_equal(numbers, np.arange(len(numbers))) else None


def merged_positions(node: Node) -> Answer:
    """DynamicStitch: rows that are merged by all parts of divided positions are undivided."""
    count = len(node.inputs) // 2
    indices, parts = node.inputs[:count], node.inputs[count:]
    division = _division(indices[0])
    if division is None or indices != division.outputs:
        return None
    attrs = {"N": count, "T": node.attrs["T"]}
    return replace(node, definition=UNDIVIDE, attrs=attrs, inputs=(division.inputs[1], *parts))


def gathered_positions(node: Node) -> Answer:
    """GatherV2: rows that are gathered by a part of divided positions are that part of the rows.
    Nodes that gather by the other parts have the same form, so that the rows are divided once.
    """
    params, indices, _ = node.inputs
    axis, sizes = node.constant_input(2), params.type.sizes
    division = _division(indices)
    if division is None or axis is None or axis != 0 or node.attrs["batch_dims"]:
        return None
    if not sizes or sizes[:1] != division.inputs[1].type.sizes:
        return None
    rows = ValueType(params.dtype, None, (None, *sizes[1:]))
    divided = Node(
        division.definition,
        node.name,
        {"num_partitions": len(division.types), "T": params.dtype},
        (params, division.inputs[1]),
        node.controls,
        (rows,) * len(division.types),
        node.origin,
        device=node.device,
    )
    return [divided.outputs[indices.index]]
