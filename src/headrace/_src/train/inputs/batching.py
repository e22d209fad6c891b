"""Batches by queues: tf.train.batch and similar functions. In: tensors of one example (or of
several). Out: tensors of a batch, and a runner that fills the queue between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.io import summary_functions
from headrace._src.ops.state.queue_classes import (
    FIFOQueue,
    PaddingFIFOQueue,
    QueueBase,
    RandomShuffleQueue,
)
from headrace._src.train.inputs.batch_inputs import (
    as_list,
    checked_keep,
    converted,
    converted_lists,
    example_shapes,
    keep_sparse,
    like,
    restore_sparse,
    types_of,
)
from headrace._src.train.inputs.queue_runners import QueueRunner, add_queue_runner

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


# -- Queues between --------------------------------------------------------------------------------


def _enqueue_op(queue: QueueBase, tensors: list[Tensor], enqueue_many: bool, keep: Tensor) -> Any:
    """Return an operation that enqueues the examples to keep."""
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
    keep = checked_keep(keep_input, enqueue_many)
    dense, kept = keep_sparse(lists[0], enqueue_many, keep)
    all_dense = [dense] + [keep_sparse(t, enqueue_many, keep, kept)[0] for t in lists[1:]]
    queue = make_queue(types_of(dense), example_shapes(all_dense, shapes, enqueue_many))
    if threads is None:
        ops = [_enqueue_op(queue, tensors, enqueue_many, keep) for tensors in all_dense]
    else:
        ops = [_enqueue_op(queue, dense, enqueue_many, keep)] * threads
    add_queue_runner(QueueRunner(queue, ops))
    summarize(queue)
    dequeue = queue.dequeue_up_to if allow_smaller else queue.dequeue_many
    return restore_sparse(dequeue(batch_size, name=scope), kept)


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


# Batches have the form of the examples: a list, a dictionary, or a single tensor.
Tensors = TypeVar("Tensors")

# -- For programs ----------------------------------------------------------------------------------


@export("train.batch")
def batch(
    tensors: Tensors,
    batch_size: Any,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Tensors:
    """Return batches of `batch_size` examples, which a queue collects from `tensors` (a list or a
    dictionary), with a new first dimension; with `enqueue_many`, `tensors` hold several examples.

    dynamic_pad: examples may differ in size, and are padded with zeros to the largest of a batch.
    allow_smaller_final_batch: the last batch may have fewer examples.
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
    tensors: Tensors,
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
) -> Tensors:
    """Like `batch`, of those examples for which `keep_input` is true."""
    given = as_list(tensors)
    with name_scope(name, "batch", [*given, keep_input]) as scope:
        make, summarize = _fifo(capacity, dynamic_pad, shared_name)
        found = _batch(
            scope,
            [converted(given)],
            num_threads,
            make,
            summarize,
            batch_size,
            keep_input,
            enqueue_many,
            shapes,
            allow_smaller_final_batch,
        )
        return like(tensors, found)


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
    flat = [t for tensors in tensors_list for t in as_list(tensors)]
    with name_scope(name, "batch_join", [*flat, keep_input]) as scope:
        make, summarize = _fifo(capacity, dynamic_pad, shared_name)
        found = _batch(
            scope,
            converted_lists(tensors_list),
            None,
            make,
            summarize,
            batch_size,
            keep_input,
            enqueue_many,
            shapes,
            allow_smaller_final_batch,
        )
        return like(tensors_list[0], found)


@export("train.shuffle_batch")
def shuffle_batch(
    tensors: Tensors,
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
) -> Tensors:
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
    tensors: Tensors,
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
) -> Tensors:
    """Like `shuffle_batch`, of those examples for which `keep_input` is true."""
    if capacity < min_after_dequeue:
        raise _too_small(capacity, min_after_dequeue)
    given = as_list(tensors)
    with name_scope(name, "shuffle_batch", [*given, keep_input]) as scope:
        make, summarize = _shuffled(capacity, min_after_dequeue, seed, shared_name)
        found = _batch(
            scope,
            [converted(given)],
            num_threads,
            make,
            summarize,
            batch_size,
            keep_input,
            enqueue_many,
            shapes,
            allow_smaller_final_batch,
        )
        return like(tensors, found)


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
    flat = [t for tensors in tensors_list for t in as_list(tensors)]
    with name_scope(name, "shuffle_batch_join", [*flat, keep_input]) as scope:
        make, summarize = _shuffled(capacity, min_after_dequeue, seed, shared_name)
        found = _batch(
            scope,
            converted_lists(tensors_list),
            None,
            make,
            summarize,
            batch_size,
            keep_input,
            enqueue_many,
            shapes,
            allow_smaller_final_batch,
        )
        return like(tensors_list[0], found)
