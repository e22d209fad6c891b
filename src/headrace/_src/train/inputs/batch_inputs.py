"""The inputs of a batching queue. In: tensors as a program passes them, in lists or dictionaries.
Out: matching lists of tensors, with handles for sparse ones; and back.

A sparse tensor goes through the queue as an integer handle, under which `ops.sparse.sparse_maps`
stores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.control.grouping import with_dependencies

__all__ = [
    "as_list",
    "checked_keep",
    "converted",
    "converted_lists",
    "example_shapes",
    "keep_sparse",
    "like",
    "restore_sparse",
]


def as_list(tensors: Any) -> list[Any]:
    """Return the tensors of a list, or of a dictionary sorted by name."""
    return [tensors[k] for k in sorted(tensors)] if isinstance(tensors, dict) else list(tensors)


def like(original: Any, found: Any) -> Any:
    """Return dequeued tensors, as a dictionary if the inputs were one."""
    if not isinstance(original, dict):
        return found
    found = found if isinstance(found, list) else [found]
    return dict(zip(sorted(original), found, strict=True))


def converted(tensors: Sequence[Any]) -> list[Any]:
    found = [t if isinstance(t, SparseTensor) else convert_to_tensor(t) for t in tensors]
    if not found:
        raise ValueError("Expected at least one tensor in batch().")
    return found


def converted_lists(tensors_list: Sequence[Any]) -> list[list[Any]]:
    _check_keys(tensors_list)
    found = [converted(as_list(tensors)) for tensors in tensors_list]
    if not found:
        raise ValueError("Expected at least one set of tensors")
    for tensors in found[1:]:
        if _sparse(tensors) != _sparse(found[0]):
            raise ValueError(f"Inconsistent SparseTensors list: {found[0]} vs. {tensors}")
        types, first = types_of(tensors), types_of(found[0])
        if types != first:
            names = ", ".join(t.name for t in first), ", ".join(t.name for t in types)
            raise TypeError(f"Expected types to be consistent: {names[0]} vs. {names[1]}.")
    return found


def _check_keys(tensors_list: Sequence[Any]) -> None:
    keys = [set(tensors) if isinstance(tensors, dict) else None for tensors in tensors_list]
    if any(found != keys[0] for found in keys[1:]):
        if None in keys:
            raise TypeError("tensors_list must have dictionaries only, or none")
        raise ValueError("All dictionaries in tensors_list must have the same keys")


def _sparse(tensors: Sequence[Any]) -> list[bool]:
    return [isinstance(t, SparseTensor) for t in tensors]


def types_of(tensors: Sequence[Any]) -> list[Any]:
    return [t.dtype.base_dtype for t in tensors]


def checked_keep(keep_input: Any, enqueue_many: bool) -> Tensor:
    keep = convert_to_tensor(keep_input)
    rank = keep.shape.ndims
    if rank is None:
        raise ValueError("`keep_input` dimensions must be known at graph construction.")
    if not enqueue_many and rank == 1:
        raise ValueError("`keep_input` cannot be a vector when `enqueue_many=False`.")
    if rank > 1:
        raise ValueError("`keep_input` must be 0 or 1 dimensions.")
    return keep


def example_shapes(lists: list[list[Tensor]], shapes: Any, enqueue_many: bool) -> list[TensorShape]:
    """Return the shapes of one example: the given ones, or the most specific ones that fit all
    lists.
    """
    if shapes is not None:
        return [TensorShape(s) for s in shapes]
    return [_common_shape([_row_shape(t, enqueue_many) for t in same]) for same in zip(*lists)]


def _row_shape(tensor: Tensor, enqueue_many: bool) -> TensorShape:
    return tensor.shape.with_rank_at_least(1)[1:] if enqueue_many else tensor.shape


def _common_shape(shapes: list[TensorShape]) -> TensorShape:
    first = shapes[0]
    for shape in shapes[1:]:
        first = first.most_specific_compatible_shape(shape)
    return first


# -- Sparse tensors --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kept:
    """A sparse component: the op that stores its tensors, their dtype and rank."""

    op: Any
    dtype: Any
    rank: int | None


def keep_sparse(
    tensors: list[Any], enqueue_many: bool, keep: Tensor, like: list[_Kept | None] | None = None
) -> tuple[list[Tensor], list[_Kept | None]]:
    """Return the tensors with handles in place of sparse ones, and the data needed to restore
    these.
    """
    dense: list[Tensor] = []
    kept: list[_Kept | None] = []
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, SparseTensor):
            dense.append(tensor)
            kept.append(None)
            continue
        same = like[i] if like is not None else None
        numbers, op = _numbered(tensor, enqueue_many, keep, same)
        # A vector of handles must not be taken for rows when it is batched.
        dense.append(b.expand_dims(numbers, [-1]))
        rank = tensor.shape.ndims
        if rank is not None and enqueue_many:
            rank -= 1
        kept.append(same or _Kept(op, tensor.dtype, rank))
    return dense, kept


def _numbered(
    tensor: SparseTensor, enqueue_many: bool, keep: Tensor, same: _Kept | None
) -> tuple[Tensor, Any]:
    """Return the handle of a stored sparse tensor (or those of its rows), and the op that stores
    it.
    """
    build = b.add_many_sparse_to_tensors_map if enqueue_many else b.add_sparse_to_tensors_map
    shared = same.op.name if same is not None else ""

    def add() -> Tensor:
        return build(tensor.indices, tensor.values, tensor.dense_shape, "", shared)

    if keep.shape.ndims == 1:
        # Rows that won't be enqueued must not be stored, since nothing would ever remove them.
        tensor = _sparse_rows(tensor, keep)
        numbers = add()
        count = b.shape(keep, out_type=dtypes.int64)
        return b.scatter_nd(b.where(keep), numbers, count), numbers.op
    if constant_value(keep) is not None:
        numbers = add()
        return numbers, numbers.op
    made: list[Tensor] = []

    def kept() -> Tensor:
        made.append(add())
        return made[0]

    def dropped() -> Tensor:
        if not enqueue_many:
            return b.constant(-1, dtype=dtypes.int64)
        count = b.reshape(tensor.dense_shape[0], [1])
        return b.fill(count, b.constant(-1, dtype=dtypes.int64))

    return b.cond(keep, kept, dropped), made[0].op


def _sparse_rows(tensor: SparseTensor, keep: Tensor) -> SparseTensor:
    """Return the rows of a sparse tensor to keep, renumbered."""
    chosen = b.cast(keep, dtypes.int64)
    rows = tensor.indices[:, 0]
    mask = b.gather(keep, rows)
    mask.set_shape([None])  # a sparse tensor of unknown shape also has a vector of rows
    places = b.gather(b.cumsum(chosen) - 1, b.boolean_mask(rows, mask))
    inner = b.boolean_mask(tensor.indices, mask)[:, 1:]
    indices = b.concat([b.expand_dims(places, 1), inner], 1)
    shape = b.concat([b.reshape(b.reduce_sum(chosen), [1]), tensor.dense_shape[1:]], 0)
    return SparseTensor(indices, b.boolean_mask(tensor.values, mask), shape)


def restore_sparse(dequeued: Any, kept: list[_Kept | None]) -> Any:
    """Return dequeued tensors, with sparse tensors in place of their handles."""
    if not any(kept):
        return dequeued
    tensors = dequeued if isinstance(dequeued, list) else [dequeued]
    found = [
        t if k is None else _taken(b.squeeze(t, [1]), k) for t, k in zip(tensors, kept, strict=True)
    ]
    # Dequeued handles must be redeemed even if that part of the batch isn't used.
    takes = [t.op for t in found if isinstance(t, SparseTensor)]
    found = [t if isinstance(t, SparseTensor) else with_dependencies(takes, t) for t in found]
    return found if isinstance(dequeued, list) else found[0]


def _taken(numbers: Tensor, kept: _Kept) -> SparseTensor:
    container = kept.op.get_attr("container")
    name = kept.op.get_attr("shared_name") or kept.op.name
    with get_default_graph().colocate_with(kept.op):
        parts = b.take_many_sparse_from_tensors_map(numbers, kept.dtype, container, name)
    indices, values, shape = parts
    rank = None if kept.rank is None else kept.rank + 1
    indices.set_shape([None, rank])
    shape.set_shape([rank])
    return SparseTensor(indices, values, shape)
