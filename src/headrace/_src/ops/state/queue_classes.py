"""Queues in programs: tf.FIFOQueue and the other queue classes. In: types, shapes, names. Out:
objects whose methods build the ops of `queues`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core import dtypes as types
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import Dimension, TensorShape
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.random.random_functions import get_seed
from headrace._src.ops.state import queue_ops as queues

__all__ = ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "QueueBase", "RandomShuffleQueue"]


def type_list(dtypes: Any) -> list[DType]:
    """Return one dtype, or several, as a list."""
    given = dtypes if isinstance(dtypes, list | tuple) else [dtypes]
    return [as_dtype(t) for t in given]


def shape_list(
    shapes: Any, *, unknown_sizes: bool = False, unknown_rank: bool = False
) -> list[TensorShape] | None:
    """Return one shape, or several, as a list; ValueError if one is not known well enough."""
    if shapes is None:
        return None
    if isinstance(shapes, TensorShape):
        shapes = [shapes]
    if not isinstance(shapes, list | tuple):
        raise TypeError("shapes must be a TensorShape or a list or tuple of TensorShapes.")
    if all(s is None or isinstance(s, int) for s in shapes):
        shapes = [shapes]
    found = [TensorShape(s) for s in shapes]
    if not unknown_sizes and not all(s.is_fully_defined() for s in found):
        raise ValueError(f"All shapes must be fully defined: {found}")
    if not unknown_rank and any(s.sizes is None for s in found):
        raise ValueError(f"All shapes must have a defined rank: {found}")
    return found


def name_list(names: Any, dtypes: Sequence[DType]) -> list[str] | None:
    """Return one name, or several, as a list with one per dtype."""
    if names is None:
        return None
    found = list(names) if isinstance(names, list | tuple) else [names]
    if len(found) != len(dtypes):
        raise ValueError("List of names must have the same length as the list of dtypes")
    return found


def as_components(names: Sequence[str] | None, values: Any, what: str = "Queue") -> list[Any]:
    """Return the given components: by name if and only if the queue has names."""
    if isinstance(values, dict):
        if not names:
            raise ValueError(f"{what} must have names to enqueue a dictionary")
        if sorted(names, key=str) != sorted(values, key=str):
            raise ValueError(
                f"Keys in dictionary to enqueue do not match names of {what}.  Dictionary: "
                f"({sorted(values)}), {what}: ({sorted(names)})"
            )
        return [values[k] for k in names]
    if names:
        raise ValueError(f"You must enqueue a dictionary in a {what} with names")
    return list(values) if isinstance(values, list | tuple) else [values]


@export("QueueBase", "queue.QueueBase", "io.QueueBase")
class QueueBase:
    """A queue of tuples of tensors. Its methods build operations.

    dtypes, shapes: of the components. names: of the components, in which case elements are
    dictionaries; or None. queue_ref: the handle.
    """

    def __init__(
        self,
        dtypes: Sequence[DType],
        shapes: Sequence[Any] | None,
        names: Sequence[str] | None,
        queue_ref: Tensor,
    ) -> None:
        self._dtypes = list(dtypes)
        if shapes is None:
            self._shapes = [TensorShape(None)] * len(self._dtypes)
        elif len(shapes) != len(self._dtypes):
            raise ValueError("Queue shapes must have the same length as dtypes")
        else:
            self._shapes = [TensorShape(s) for s in shapes]
        if names is not None and len(names) != len(self._dtypes):
            raise ValueError("Queue names must have the same length as dtypes")
        self._names = None if names is None else list(names)
        self._queue_ref = queue_ref
        self._name = queue_ref.op.name.rpartition("/")[2]
        self._is_ref = queue_ref.dtype.base_dtype is not types.resource

    @staticmethod
    def from_list(index: Any, queues: list[QueueBase]) -> QueueBase:
        """Return a queue that stands for `queues[index]`; the step chooses it."""
        given = queues if isinstance(queues, list) else []
        if not given or not all(isinstance(q, QueueBase) for q in given):
            raise TypeError("A list of queues expected")
        first = given[0]
        if any(q.dtypes != first.dtypes for q in given):
            raise TypeError("Queues do not have matching component dtypes.")
        if any(q.names != first.names for q in given):
            raise TypeError("Queues do not have matching component names.")
        shapes = [
            functools.reduce(TensorShape.most_specific_compatible_shape, alternatives)
            for alternatives in zip(*(q.shapes for q in given), strict=True)
        ]
        chosen = b.gather(b.stack([q.queue_ref for q in given]), index)
        return QueueBase(first.dtypes, shapes, first.names, chosen)

    @property
    def queue_ref(self) -> Tensor:
        """The handle, in the form that the ops take."""
        return self._queue_ref

    @property
    def name(self) -> str:
        return self._queue_ref.op.name

    @property
    def dtypes(self) -> list[DType]:
        return self._dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        return self._shapes

    @property
    def names(self) -> list[str] | None:
        return self._names

    # -- Adding ------------------------------------------------------------------------------------

    def enqueue(self, vals: Any, name: str | None = None) -> Operation:
        """Add one element: a tensor, a list with one per component, or a dictionary by name. Block
        while the queue is full.
        """
        with name_scope(name, f"{self._name}_enqueue", _flat(vals)) as scope:
            tensors = self._components(vals)
            for tensor, shape in zip(tensors, self._shapes, strict=False):
                tensor.shape.assert_is_compatible_with(shape)
            return self._op("queue_enqueue")(self._queue_ref, tensors, name=scope)

    def enqueue_many(self, vals: Any, name: str | None = None) -> Operation:
        """Add the rows of tensors, in order; block while the queue is full."""
        with name_scope(name, f"{self._name}_EnqueueMany", _flat(vals)) as scope:
            tensors = self._components(vals)
            count = Dimension(None)
            for tensor, shape in zip(tensors, self._shapes, strict=False):
                rows = tensor.shape.with_rank_at_least(1)
                count = count.merge_with(rows[0])
                rows[1:].assert_is_compatible_with(shape)
            return self._op("queue_enqueue_many")(self._queue_ref, tensors, name=scope)

    def _components(self, values: Any) -> list[Tensor]:
        given = as_components(self._names, values)
        return [
            convert_to_tensor(v, dtype, name=f"component_{i}")
            for i, (v, dtype) in enumerate(zip(given, self._dtypes, strict=False))
        ]

    # -- Taking ------------------------------------------------------------------------------------

    def dequeue(self, name: str | None = None) -> Any:
        """Take one element; block while the queue is empty, and fail once it is closed
        and empty.
        """
        name = name or f"{self._name}_Dequeue"
        tensors = self._op("queue_dequeue")(self._queue_ref, self._dtypes, name=name)
        return self._given(tensors, self._shapes)

    def dequeue_many(self, n: Any, name: str | None = None) -> Any:
        """Take `n` elements as one batch, with a new first dimension."""
        return self._batch("queue_dequeue_many", n, name or f"{self._name}_DequeueMany")

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Any:
        """Take `n` elements as one batch, or the rest of a closed queue."""
        return self._batch("queue_dequeue_up_to", n, name or f"{self._name}_DequeueUpTo")

    def _batch(self, builder: str, n: Any, name: str) -> Any:
        tensors = self._op(builder)(self._queue_ref, n, self._dtypes, name=name)
        count = None
        if builder == "queue_dequeue_many":  # the other op may return fewer
            known = constant_value(tensors[0].op.inputs[1])
            count = None if known is None else int(known)
        shapes = [TensorShape([count]).concatenate(shape) for shape in self._shapes]
        return self._given(tensors, shapes)

    def _given(self, tensors: list[Tensor], shapes: Sequence[TensorShape]) -> Any:
        """Return the result of a dequeue: a dictionary by name, one tensor, or a list."""
        for tensor, shape in zip(tensors, shapes, strict=True):
            tensor.set_shape(shape)
        if self._names:
            return dict(zip(self._names, tensors, strict=True))
        return tensors[0] if len(tensors) == 1 else tensors

    # -- The queue itself --------------------------------------------------------------------------

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """Close the queue to new elements; pending enqueues finish or, on request, are
        cancelled.
        """
        return self._op("queue_close")(
            self._queue_ref, cancel_pending_enqueues, name=name or f"{self._name}_Close"
        )

    def is_closed(self, name: str | None = None) -> Tensor:
        """Return whether the queue is closed."""
        name = name or f"{self._name}_Is_Closed"
        return self._op("queue_is_closed")(self._queue_ref, name=name)

    def size(self, name: str | None = None) -> Tensor:
        """Return the number of elements in the queue."""
        return self._op("queue_size")(self._queue_ref, name=name or f"{self._name}_Size")

    def _op(self, builder: str) -> Callable[..., Any]:
        return getattr(b, f"{builder}_ref" if self._is_ref else builder)


def _flat(values: Any) -> list[Any]:
    if isinstance(values, dict):
        return list(values.values())
    return list(values) if isinstance(values, list | tuple) else [values]


@export("FIFOQueue", "queue.FIFOQueue")
class FIFOQueue(QueueBase):
    """A queue that returns elements in the order in which they were added.

    capacity: the most elements that it holds, -1 for no limit. shapes: fully defined, needed for
    dequeue_many; None allows elements of any shape.

    dtypes and names: of the components; with names, elements are dictionaries. shared_name: queues
    of this name share their elements.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        name: str | None = "fifo_queue",
    ) -> None:
        dtypes = type_list(dtypes)
        shapes = shape_list(shapes)
        names = name_list(names, dtypes)
        handle = queues.fifo_queue(dtypes, shapes, capacity, None, shared_name, name=name)
        super().__init__(dtypes, shapes, names, handle)


@export("PaddingFIFOQueue", "queue.PaddingFIFOQueue", "io.PaddingFIFOQueue")
class PaddingFIFOQueue(QueueBase):
    """A FIFO queue whose shapes may have unknown sizes: a batch is as large as the largest element
    in it, and the others are padded with zeros or empty strings.

    The other arguments are those of FIFOQueue.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any,
        names: Any = None,
        shared_name: str | None = None,
        name: str = "padding_fifo_queue",
    ) -> None:
        dtypes = type_list(dtypes)
        if shapes is None:
            raise ValueError("When providing partial shapes, a list of shapes must be provided.")
        shapes = shape_list(shapes, unknown_sizes=True)
        assert shapes is not None
        names = name_list(names, dtypes)
        if len(dtypes) != len(shapes):
            raise ValueError(
                f"Shapes must be provided for all components, but received {len(dtypes)} dtypes "
                f"and {len(shapes)} shapes."
            )
        handle = queues.padding_fifo_queue(dtypes, shapes, capacity, None, shared_name, name=name)
        super().__init__(dtypes, shapes, names, handle)


@export("RandomShuffleQueue", "queue.RandomShuffleQueue", "io.RandomShuffleQueue")
class RandomShuffleQueue(QueueBase):
    """A queue that returns elements in random order.

    min_after_dequeue: how many elements stay in it until it is closed, so that the order is random.

    The other arguments are those of FIFOQueue.
    """

    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        seed: int | None = None,
        shared_name: str | None = None,
        name: str = "random_shuffle_queue",
    ) -> None:
        dtypes = type_list(dtypes)
        shapes = shape_list(shapes)
        names = name_list(names, dtypes)
        handle = queues.random_shuffle_queue(
            dtypes,
            shapes,
            capacity,
            min_after_dequeue,
            *_shuffle_seeds(seed, shared_name),
            None,
            shared_name,
            name=name,
        )
        super().__init__(dtypes, shapes, names, handle)


def _shuffle_seeds(seed: int | None, shared_name: str | None) -> tuple[int, int]:
    first, second = get_seed(seed)
    if first is None or second is None:
        return 0, 0
    if seed is None and shared_name is not None:
        # Graphs that share the queue may differ in their number of ops, and so in op seeds.
        digest = hashlib.md5(f"{first}{shared_name}".encode(), usedforsecurity=False).hexdigest()
        second = int(digest[:8], 16) & 0x7FFFFFFF
    return first, second


@export("PriorityQueue", "queue.PriorityQueue", "io.PriorityQueue")
class PriorityQueue(QueueBase):
    """A queue that returns the element with the smallest first component first: an int64 scalar
    that precedes the components of `types` and `shapes`.
    """

    def __init__(
        self,
        capacity: int,
        types: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        name: str = "priority_queue",
    ) -> None:
        given = type_list(types)
        shapes = shape_list(shapes)
        if shapes is None:
            raise TypeError(
                "Expected list for 'shapes' argument to 'priority_queue_v2' Op, not None."
            )
        handle = queues.priority_queue(shapes, given, capacity, None, shared_name, name=name)
        dtypes = [as_dtype("int64"), *given]
        super().__init__(dtypes, [(), *shapes], names, handle)
