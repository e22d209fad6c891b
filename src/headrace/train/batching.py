"""Batches by queues: tf.train.batch and its kin. In: tensors of one example (or of several). Out:
tensors of a batch, and a runner that fills the queue between them.

A sparse tensor goes through the queue as a number, for which `ops.sparse_maps` keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.core import dtypes
from headrace.core.export import export
from headrace.core.shapes import TensorShape
from headrace.graph.composite import SparseTensor
from headrace.graph.default import get_default_graph
from headrace.graph.inference import constant_value
from headrace.graph.operation import Tensor
from headrace.ops import summary_functions
from headrace.ops.control import with_dependencies
from headrace.ops.convert import convert_to_tensor, name_scope
from headrace.ops.define import b
from headrace.ops.queue_classes import FIFOQueue, PaddingFIFOQueue, QueueBase, RandomShuffleQueue
from headrace.train.queue_runners import QueueRunner, add_queue_runner

__all__ = [
    "batch",
    "batch_join",
    "maybe_batch",
    "maybe_batch_join",
    "maybe_shuffle_batch",
    "maybe_shuffle_batch_join",
    "shuffle_batch",
    "shuffle_batch_join",
    "summarize_fraction",
]


def summarize_fraction(name: str, size: Any, capacity: int) -> None:
    """Add a summary of `size` as a fraction of `capacity` to the graph's summaries."""
    fraction = b.cast(size, dtypes.float32) * (1.0 / capacity)
    summary_functions.scalar(name, fraction)


# -- What goes in ----------------------------------------------------------------------------------


def _as_list(tensors: Any) -> list[Any]:
    """The tensors of a list, or of a dictionary by sorted name."""
    return [tensors[k] for k in sorted(tensors)] if isinstance(tensors, dict) else list(tensors)


def _like(original: Any, found: Any) -> Any:
    """What a dequeue gave, as a dictionary if that is what went in."""
    if not isinstance(original, dict):
        return found
    found = found if isinstance(found, list) else [found]
    return dict(zip(sorted(original), found, strict=True))


def _converted(tensors: Sequence[Any]) -> list[Any]:
    found = [t if isinstance(t, SparseTensor) else convert_to_tensor(t) for t in tensors]
    if not found:
        raise ValueError("Expected at least one tensor in batch().")
    return found


def _converted_lists(tensors_list: Sequence[Any]) -> list[list[Any]]:
    found = [_converted(_as_list(tensors)) for tensors in tensors_list]
    if not found:
        raise ValueError("Expected at least one set of tensors")
    for tensors in found[1:]:
        types, first = _types(tensors), _types(found[0])
        if types != first:
            names = ", ".join(t.name for t in first), ", ".join(t.name for t in types)
            raise TypeError(f"Expected types to be consistent: {names[0]} vs. {names[1]}.")
    return found


def _types(tensors: Sequence[Any]) -> list[Any]:
    return [t.dtype.base_dtype for t in tensors]


def _checked_keep(keep_input: Any, enqueue_many: bool) -> Tensor:
    keep = convert_to_tensor(keep_input)
    rank = keep.shape.ndims
    if rank is None:
        raise ValueError("`keep_input` dimensions must be known at graph construction.")
    if not enqueue_many and rank == 1:
        raise ValueError("`keep_input` cannot be a vector when `enqueue_many=False`.")
    if rank > 1:
        raise ValueError("`keep_input` must be 0 or 1 dimensions.")
    return keep


def _shapes(lists: list[list[Tensor]], shapes: Any, enqueue_many: bool) -> list[TensorShape]:
    """The shapes of one example: those that were given, or what all lists have in common."""
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
    """A component that is sparse: which op keeps its tensors, their dtype and rank."""

    op: Any
    dtype: Any
    rank: int | None


def _keep_sparse(
    tensors: list[Any], enqueue_many: bool, keep: Tensor, like: list[_Kept | None] | None = None
) -> tuple[list[Tensor], list[_Kept | None]]:
    """The tensors with numbers in place of sparse ones, and what is needed to get these back."""
    dense: list[Tensor] = []
    kept: list[_Kept | None] = []
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, SparseTensor):
            dense.append(tensor)
            kept.append(None)
            continue
        same = like[i] if like is not None else None
        numbers, op = _numbered(tensor, enqueue_many, keep, same)
        # Numbers of a vector must not look like rows when batches of them are made.
        dense.append(b.expand_dims(numbers, [-1]))
        rank = tensor.shape.ndims
        if rank is not None and enqueue_many:
            rank -= 1
        kept.append(same or _Kept(op, tensor.dtype, rank))
    return dense, kept


def _numbered(
    tensor: SparseTensor, enqueue_many: bool, keep: Tensor, same: _Kept | None
) -> tuple[Tensor, Any]:
    """The number under which a sparse tensor is kept (or those of its rows), and by which op."""
    build = b.add_many_sparse_to_tensors_map if enqueue_many else b.add_sparse_to_tensors_map
    shared = same.op.name if same is not None else ""

    def add() -> Tensor:
        return build(tensor.indices, tensor.values, tensor.dense_shape, "", shared)

    if keep.shape.ndims == 1:
        # Rows that won't be enqueued must not be kept, or nobody would ever take them.
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
    """The rows of a sparse tensor that are to be kept, numbered anew."""
    chosen = b.cast(keep, dtypes.int64)
    rows = tensor.indices[:, 0]
    mask = b.gather(keep, rows)
    places = b.gather(b.cumsum(chosen) - 1, b.boolean_mask(rows, mask))
    inner = b.boolean_mask(tensor.indices, mask)[:, 1:]
    indices = b.concat([b.expand_dims(places, 1), inner], 1)
    shape = b.concat([b.reshape(b.reduce_sum(chosen), [1]), tensor.dense_shape[1:]], 0)
    return SparseTensor(indices, b.boolean_mask(tensor.values, mask), shape)


def _restore_sparse(dequeued: Any, kept: list[_Kept | None]) -> Any:
    """What a dequeue gave, with sparse tensors for their numbers."""
    if not any(kept):
        return dequeued
    tensors = dequeued if isinstance(dequeued, list) else [dequeued]
    found = [
        t if k is None else _taken(b.squeeze(t, [1]), k) for t, k in zip(tensors, kept, strict=True)
    ]
    # Numbers that were dequeued must be taken, whatever of the batch is used.
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


# -- Queues between --------------------------------------------------------------------------------


def _enqueue_op(queue: QueueBase, tensors: list[Tensor], enqueue_many: bool, keep: Tensor) -> Any:
    """An operation that enqueues what is to be kept."""
    enqueue = queue.enqueue_many if enqueue_many else queue.enqueue
    if keep.shape.ndims == 1:
        which = b.cast(keep, dtypes.int32)
        return enqueue([b.dynamic_partition(t, which, 2)[1] for t in tensors])
    known = constant_value(keep)
    if known is not None:
        return enqueue(tensors) if known else b.no_op()
    return b.cond(keep, lambda: enqueue(tensors), b.no_op)


def _batch(
    scope: str,
    lists: list[list[Any]],
    threads: int | None,
    make_queue: Callable[[list[Any], list[TensorShape]], QueueBase],
    summarize: Callable[[QueueBase], None],
    batch_size: Any,
    keep_input: Any,
    enqueue_many: bool,
    shapes: Any,
    allow_smaller: bool,
) -> Any:
    """Put lists of tensors (one thread for each; `threads` if there is one list) into a queue, and
    return batches from it.
    """
    keep = _checked_keep(keep_input, enqueue_many)
    dense, kept = _keep_sparse(lists[0], enqueue_many, keep)
    all_dense = [dense] + [_keep_sparse(t, enqueue_many, keep, kept)[0] for t in lists[1:]]
    queue = make_queue(_types(dense), _shapes(all_dense, shapes, enqueue_many))
    if threads is None:
        ops = [_enqueue_op(queue, tensors, enqueue_many, keep) for tensors in all_dense]
    else:
        ops = [_enqueue_op(queue, dense, enqueue_many, keep)] * threads
    add_queue_runner(QueueRunner(queue, ops))
    summarize(queue)
    dequeue = queue.dequeue_up_to if allow_smaller else queue.dequeue_many
    return _restore_sparse(dequeue(batch_size, name=scope), kept)


def _fifo(capacity: int, dynamic_pad: bool, shared_name: str | None) -> Any:
    kind = PaddingFIFOQueue if dynamic_pad else FIFOQueue

    def make(types: list[Any], shapes: list[TensorShape]) -> QueueBase:
        return kind(capacity=capacity, dtypes=types, shapes=shapes, shared_name=shared_name)

    def summarize(queue: QueueBase) -> None:
        summarize_fraction(f"fraction_of_{capacity}_full", queue.size(), capacity)

    return make, summarize


def _too_small(capacity: int, least: int) -> ValueError:
    return ValueError(f"capacity {capacity} must be bigger than min_after_dequeue {least}.")


def _shuffled(capacity: int, least: int, seed: int | None, shared_name: str | None) -> Any:
    if capacity == least:
        raise _too_small(capacity, least)

    def make(types: list[Any], shapes: list[TensorShape]) -> QueueBase:
        return RandomShuffleQueue(
            capacity=capacity,
            min_after_dequeue=least,
            seed=seed,
            dtypes=types,
            shapes=shapes,
            shared_name=shared_name,
        )

    def summarize(queue: QueueBase) -> None:
        room = capacity - least
        over = b.maximum(0, queue.size() - least)
        summarize_fraction(f"fraction_over_{least}_of_{room}_full", over, room)

    return make, summarize


# -- For programs ----------------------------------------------------------------------------------


@export("train.batch")
def batch(
    tensors: Any,
    batch_size: Any,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Return batches of `batch_size` examples, which a queue collects from `tensors` (a list or a
    dictionary), with a new first dimension; with `enqueue_many` each step gives several examples.

    dynamic_pad: examples may differ in size, and are filled up with zeros to the largest of a
    batch. allow_smaller_final_batch: the last batch may have fewer examples.
    """
    return maybe_batch(
        tensors,
        True,
        batch_size,
        num_threads,
        capacity,
        enqueue_many,
        shapes,
        dynamic_pad,
        allow_smaller_final_batch,
        shared_name,
        name,
    )


@export("train.maybe_batch")
def maybe_batch(
    tensors: Any,
    keep_input: Any,
    batch_size: Any,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like `batch`, of those examples for which `keep_input` is true."""
    given = _as_list(tensors)
    with name_scope(name, "batch", [*given, keep_input]) as scope:
        make, summarize = _fifo(capacity, dynamic_pad, shared_name)
        found = _batch(
            scope,
            [_converted(given)],
            num_threads,
            make,
            summarize,
            batch_size,
            keep_input,
            enqueue_many,
            shapes,
            allow_smaller_final_batch,
        )
        return _like(tensors, found)


@export("train.batch_join")
def batch_join(
    tensors_list: Any,
    batch_size: Any,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like `batch`, from several lists (or dictionaries) of tensors, with a thread for each."""
    return maybe_batch_join(
        tensors_list,
        True,
        batch_size,
        capacity,
        enqueue_many,
        shapes,
        dynamic_pad,
        allow_smaller_final_batch,
        shared_name,
        name,
    )


@export("train.maybe_batch_join")
def maybe_batch_join(
    tensors_list: Any,
    keep_input: Any,
    batch_size: Any,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like `batch_join`, of those examples for which `keep_input` is true."""
    flat = [t for tensors in tensors_list for t in _as_list(tensors)]
    with name_scope(name, "batch_join", [*flat, keep_input]) as scope:
        make, summarize = _fifo(capacity, dynamic_pad, shared_name)
        found = _batch(
            scope,
            _converted_lists(tensors_list),
            None,
            make,
            summarize,
            batch_size,
            keep_input,
            enqueue_many,
            shapes,
            allow_smaller_final_batch,
        )
        return _like(tensors_list[0], found)


@export("train.shuffle_batch")
def shuffle_batch(
    tensors: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like `batch`, of examples in random order: at least `min_after_dequeue` stay in the queue to
    choose from.
    """
    return maybe_shuffle_batch(
        tensors,
        batch_size,
        capacity,
        min_after_dequeue,
        True,
        num_threads,
        seed,
        enqueue_many,
        shapes,
        allow_smaller_final_batch,
        shared_name,
        name,
    )


@export("train.maybe_shuffle_batch")
def maybe_shuffle_batch(
    tensors: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Any,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like `shuffle_batch`, of those examples for which `keep_input` is true."""
    if capacity < min_after_dequeue:
        raise _too_small(capacity, min_after_dequeue)
    given = _as_list(tensors)
    with name_scope(name, "shuffle_batch", [*given, keep_input]) as scope:
        make, summarize = _shuffled(capacity, min_after_dequeue, seed, shared_name)
        found = _batch(
            scope,
            [_converted(given)],
            num_threads,
            make,
            summarize,
            batch_size,
            keep_input,
            enqueue_many,
            shapes,
            allow_smaller_final_batch,
        )
        return _like(tensors, found)


@export("train.shuffle_batch_join")
def shuffle_batch_join(
    tensors_list: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like `shuffle_batch`, from several lists (or dictionaries) of tensors, with a thread for
    each.
    """
    return maybe_shuffle_batch_join(
        tensors_list,
        batch_size,
        capacity,
        min_after_dequeue,
        True,
        seed,
        enqueue_many,
        shapes,
        allow_smaller_final_batch,
        shared_name,
        name,
    )


@export("train.maybe_shuffle_batch_join")
def maybe_shuffle_batch_join(
    tensors_list: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Any,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like `shuffle_batch_join`, of those examples for which `keep_input` is true."""
    flat = [t for tensors in tensors_list for t in _as_list(tensors)]
    with name_scope(name, "shuffle_batch_join", [*flat, keep_input]) as scope:
        make, summarize = _shuffled(capacity, min_after_dequeue, seed, shared_name)
        found = _batch(
            scope,
            _converted_lists(tensors_list),
            None,
            make,
            summarize,
            batch_size,
            keep_input,
            enqueue_many,
            shapes,
            allow_smaller_final_batch,
        )
        return _like(tensors_list[0], found)
