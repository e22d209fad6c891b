"""Queues: the ops that create, fill, empty and close them.

The runtime value of a queue's handle is a ResourceHandle, also in the older ops, whose handles are
references to strings. An enqueue or dequeue that can't finish at once returns a Pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType, show_type
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.batches import own, rows
from headrace._src.devices.queues import (
    FIFOQueueState,
    PaddingFIFOQueueState,
    PriorityQueueState,
    Queue,
    RandomShuffleQueueState,
)
from headrace._src.devices.resources import ResourceHandle
from headrace._src.devices.resumable import Resumable
from headrace._src.devices.step_context import takings
from headrace._src.graph.definition import Effect, Sample
from headrace._src.ops.base import infer
from headrace._src.ops.random.philox import PhiloxState, words
from headrace._src.ops.state.shared_state import define_pair, find_state, on

__all__: list[str] = []

_SCALAR = TensorShape(())
_DRAWN_AT_ONCE = 64


# -- Creating queues -------------------------------------------------------------------------------


def _find(
    ctx: Any, kind: type[Queue], types: Any, shapes: Any, capacity: int, place: Any, **options: Any
) -> ResourceHandle:
    """Return the handle of a queue, creating the queue if it doesn't exist; an existing one must
    match the request.
    """
    if kind is not PaddingFIFOQueueState:
        for shape in shapes:
            if not shape.is_fully_defined():
                raise InvalidArgumentError(
                    None, None, f"Shape {show_shape(shape)} is not fully defined"
                )
    handle, queue, shared = find_state(
        ctx, Queue, place, lambda name: kind(name, types, shapes or None, capacity, **options)
    )
    if shared:
        _check_same(queue, ctx.op.type, kind, types, shapes, capacity)
    return handle


def _check_same(
    queue: Queue, op_type: str, kind: type[Queue], types: Any, shapes: Any, capacity: int
) -> None:
    if type(queue) is not kind:
        raise InvalidArgumentError(None, None, f"Expected {queue.kind}, found {op_type}")
    for what, has, wanted in (
        ("capacity", queue.given_capacity, capacity),
        ("component types", _show_types(queue.types), _show_types(types)),
        ("component shapes", _show_shapes(queue.shapes or ()), _show_shapes(shapes)),
    ):
        if has != wanted:
            raise InvalidArgumentError(
                None,
                None,
                f"Shared queue '{queue.name}' has {what} {has} but requested {what} "
                f"{'was' if what == 'capacity' else 'were'} {wanted}",
            )


def _show_types(types: Any) -> str:
    return ", ".join(map(show_type, types))


def _show_shapes(shapes: Any) -> str:
    return f"[{','.join(map(show_shape, shapes))}]"


def _fifo_kernel(*, ctx, component_types, shapes, capacity, container, shared_name):
    place = container, shared_name
    return _find(ctx, FIFOQueueState, component_types, shapes, capacity, place)


def _padding_kernel(*, ctx, component_types, shapes, capacity, container, shared_name):
    place = container, shared_name
    return _find(ctx, PaddingFIFOQueueState, component_types, shapes, capacity, place)


def _priority_kernel(*, ctx, component_types, shapes, capacity, container, shared_name):
    types, shapes = (dtypes.int64, *component_types), (_SCALAR, *shapes)
    return _find(ctx, PriorityQueueState, types, shapes, capacity, (container, shared_name))


def _shuffle_kernel(
    *,
    ctx,
    component_types,
    shapes,
    capacity,
    min_after_dequeue,
    seed,
    seed2,
    container,
    shared_name,
):
    if min_after_dequeue < 0:
        raise InvalidArgumentError(
            None, None, f"min_after_dequeue {min_after_dequeue} must be >= 0"
        )
    if 0 <= capacity <= min_after_dequeue:
        raise InvalidArgumentError(
            None, None, f"min_after_dequeue {min_after_dequeue} must be < capacity {capacity}"
        )
    place, keep, seeds = (container, shared_name), min_after_dequeue, (seed, seed2)
    handle = _find(
        ctx,
        RandomShuffleQueueState,
        component_types,
        shapes,
        capacity,
        place,
        keep=keep,
        seeds=seeds,
        draws=_Draws(seed, seed2),
    )
    if shared_name:
        queue = ctx.find(handle)
        if queue.keep != keep:
            raise InvalidArgumentError(
                None,
                None,
                f"Shared queue '{queue.name}' has min_after_dequeue {queue.keep} but requested "
                f"min_after_dequeue was {keep}.",
            )
        if any(seeds) and queue.seeds != seeds:
            raise InvalidArgumentError(
                None,
                None,
                f"Shared queue '{queue.name}' has random seeds {queue.seeds} but requested seeds "
                f"are {seeds}.",
            )
    return handle


class _Draws(Resumable):
    """Random words, the same that TensorFlow draws for these seeds.

    State: a generator, where the last words that it gave begin, and how many of them are used.
    """

    def __init__(self, seed: int, seed2: int) -> None:
        self._random = PhiloxState(seed, seed2)
        self._begin(0)

    def _begin(self, used: int) -> None:
        self._start, self._used = self._random.saved(), 0
        self.next = self._words().__next__
        for _ in range(used):
            self.next()

    def _words(self) -> Iterator[int]:
        while True:
            self._start = self._random.saved()
            drawn = words(self._random.reserve(_DRAWN_AT_ONCE), _DRAWN_AT_ONCE).ravel().tolist()
            for self._used, word in enumerate(drawn, 1):
                yield word

    def saved(self) -> dict[str, np.ndarray]:
        return self._start | {"used": np.array(self._used, np.int64)}

    def resume(self, saved: Mapping[str, np.ndarray]) -> None:
        self._random.resume(saved)
        self._begin(int(saved["used"]))


_TYPES = "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1"
_PRIORITY = "component_types: list(type) >= 0 = []; shapes: list(shape) >= 0; capacity: int = -1"
_SHUFFLE = "min_after_dequeue: int = 0; seed: int = 0; seed2: int = 0"
_PLACE = "container: string = ''; shared_name: string = ''"


def _define_queue(op_type: str, newer: str, attributes: str, kernel: Callable[..., Any]) -> Any:
    return define_pair(
        op_type,
        newer,
        "-> handle: resource",
        f"{attributes}; {_PLACE}",
        infer=infer.scalar,
        kernel=kernel,
        effect=Effect.READS,
        samples=[Sample(component_types=["float32", "string"], shapes=[[2], []])],
    )


@_define_queue("FIFOQueue", "FIFOQueueV2", _TYPES, _fifo_kernel)
def fifo_queue(component_types, shapes=(), capacity=-1, container="", shared_name="", name=None):
    """Return a queue that returns elements in the order in which they were added."""


@_define_queue("PaddingFIFOQueue", "PaddingFIFOQueueV2", _TYPES, _padding_kernel)
def padding_fifo_queue(
    component_types, shapes=(), capacity=-1, container="", shared_name="", name=None
):
    """Return a queue whose batches pad elements to the size of the largest."""


@_define_queue("PriorityQueue", "PriorityQueueV2", _PRIORITY, _priority_kernel)
def priority_queue(
    shapes, component_types=(), capacity=-1, container="", shared_name="", name=None
):
    """Return a queue that returns the element with the smallest first component first."""


@_define_queue(
    "RandomShuffleQueue", "RandomShuffleQueueV2", f"{_TYPES}; {_SHUFFLE}", _shuffle_kernel
)
def random_shuffle_queue(
    component_types,
    shapes=(),
    capacity=-1,
    min_after_dequeue=0,
    seed=0,
    seed2=0,
    container="",
    shared_name="",
    name=None,
):
    """Return a queue that returns elements in random order."""


# -- Checks ----------------------------------------------------------------------------------------


def _check_timeout(timeout_ms: int) -> None:
    if timeout_ms != -1:
        raise InvalidArgumentError(None, None, "Timeout not supported yet.")


def _check_types(queue: Queue, given: tuple[DType, ...], way: str) -> None:
    """Check that the components have the queue's types; `way` formats an op's types."""
    if queue.types != given:
        raise InvalidArgumentError(
            None,
            None,
            f"Signature mismatch, have: {way.format(_show_types(given))} expected: "
            f"{way.format(_show_types(queue.types))}",
        )


def _check_shape(index: int, expected: tuple[int | None, ...] | None, value: Any) -> None:
    found = np.shape(value)
    if found == expected or expected is None:
        return
    if len(found) != len(expected) or any(
        n is not None and n != m for n, m in zip(expected, found, strict=True)
    ):
        raise InvalidArgumentError(
            None,
            None,
            f"Shape mismatch in tuple component {index}. Expected {show_shape(expected)}, got "
            f"{show_shape(found)}",
        )


# -- Using queues ----------------------------------------------------------------------------------


def _enqueue_kernel(queue, components, *, Tcomponents, timeout_ms):
    if queue.types != Tcomponents or timeout_ms != -1:
        _check_types(queue, Tcomponents, "resource, {}->")
        _check_timeout(timeout_ms)
    if queue.sizes is not None:
        for i, value in enumerate(components):
            _check_shape(i, queue.sizes[i], value)
    return queue.enqueue(tuple(map(own, components)))


def _enqueue_many_kernel(queue, components, *, Tcomponents, timeout_ms):
    _check_types(queue, Tcomponents, "resource, {}->")
    _check_timeout(timeout_ms)
    if queue.sizes is None:
        _check_lengths(components)
    else:
        count = np.shape(components[0])[:1]
        for i, value in enumerate(components):
            sizes = queue.sizes[i]
            _check_shape(i, None if sizes is None else (*(count or (None,)), *sizes), value)
    return queue.enqueue_many(rows(components))


def _check_lengths(components: Any) -> None:
    """Check that all components have the same number of rows."""
    count = None
    for i, value in enumerate(components):
        shape = np.shape(value)
        if not shape:
            raise InvalidArgumentError(
                None, None, f"Component {i} is a scalar, and has no rows to enqueue"
            )
        count = shape[0] if count is None else count
        if shape[0] != count:
            raise InvalidArgumentError(
                None,
                None,
                "All input tensors must have the same size in the 0th dimension. Component "
                f"{i} has {shape[0]}, and should have {count}",
            )


def _dequeue_kernel(queue, *, ctx, component_types, timeout_ms):
    if queue.types != component_types or timeout_ms != -1:
        _check_types(queue, component_types, "resource->{}")
        _check_timeout(timeout_ms)
    return queue.dequeue(takings(ctx.resources))


def _dequeuing(some: bool) -> Callable[..., Any]:
    name = "DequeueUpToOp" if some else "DequeueManyOp"

    def kernel(queue, n, *, ctx, component_types, timeout_ms):
        _check_types(queue, component_types, "resource, int32->{}")
        _check_timeout(timeout_ms)
        if np.size(n) != 1:
            raise InvalidArgumentError(
                None, None, f"{name}: n must be a scalar, but has shape {show_shape(np.shape(n))}"
            )
        count = int(np.reshape(n, ()))
        if count < 0:
            raise InvalidArgumentError(None, None, f"{name} requested {count} < 0 elements")
        return queue.dequeue_many(count, some, takings(ctx.resources))

    return on(Queue, kernel)


def _many_infer(c: Any, handle: TensorShape, n: TensorShape) -> Any:
    infer.with_rank(n, 0)
    return infer.unknown(c)


def _close_kernel(queue, *, cancel_pending_enqueues):
    return queue.close(cancel_pending_enqueues)


_IN = "Tcomponents: list(type) >= 1; timeout_ms: int = -1"
_OUT = "component_types: list(type) >= 1; timeout_ms: int = -1"


@define_pair(
    "QueueEnqueue",
    "QueueEnqueueV2",
    "handle: resource, components: *Tcomponents ->",
    _IN,
    infer=infer.no_outputs,
    kernel=on(Queue, _enqueue_kernel),
)
def queue_enqueue(handle, components, timeout_ms=-1, name=None):
    """Add an element to a queue; block until there is room."""


@define_pair(
    "QueueEnqueueMany",
    "QueueEnqueueManyV2",
    "handle: resource, components: *Tcomponents ->",
    _IN,
    infer=infer.no_outputs,
    kernel=on(Queue, _enqueue_many_kernel),
)
def queue_enqueue_many(handle, components, timeout_ms=-1, name=None):
    """Add the rows of `components` to a queue as room becomes available."""


@define_pair(
    "QueueDequeue",
    "QueueDequeueV2",
    "handle: resource -> components: *component_types",
    _OUT,
    infer=infer.unknown,
    kernel=on(Queue, _dequeue_kernel),
)
def queue_dequeue(handle, component_types, timeout_ms=-1, name=None):
    """Take an element from a queue; block until there is one."""


@define_pair(
    "QueueDequeueMany",
    "QueueDequeueManyV2",
    "handle: resource, n: int32 -> components: *component_types",
    _OUT,
    infer=_many_infer,
    kernel=_dequeuing(some=False),
    fresh=True,
)
def queue_dequeue_many(handle, n, component_types, timeout_ms=-1, name=None):
    """Take `n` elements from a queue as one batch."""


@define_pair(
    "QueueDequeueUpTo",
    "QueueDequeueUpToV2",
    "handle: resource, n: int32 -> components: *component_types",
    _OUT,
    infer=_many_infer,
    kernel=_dequeuing(some=True),
    fresh=True,
)
def queue_dequeue_up_to(handle, n, component_types, timeout_ms=-1, name=None):
    """Take `n` elements from a queue as one batch, or the rest if it is closed."""


@define_pair(
    "QueueClose",
    "QueueCloseV2",
    "handle: resource ->",
    "cancel_pending_enqueues: bool = False",
    infer=infer.no_outputs,
    kernel=on(Queue, _close_kernel),
)
def queue_close(handle, cancel_pending_enqueues=False, name=None):
    """Close a queue to new elements."""


@define_pair(
    "QueueIsClosed",
    "QueueIsClosedV2",
    "handle: resource -> is_closed: bool",
    infer=infer.scalar,
    kernel=on(Queue, lambda queue: np.bool_(queue.closed)),
)
def queue_is_closed(handle, name=None):
    """Return whether a queue is closed."""


@define_pair(
    "QueueSize",
    "QueueSizeV2",
    "handle: resource -> size: int32",
    infer=infer.scalar,
    kernel=on(Queue, lambda queue: np.int32(queue.size())),
)
def queue_size(handle, name=None):
    """Return the number of elements in a queue."""
