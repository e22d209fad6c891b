"""Input producers: queues that are filled repeatedly with the rows of a tensor. In: a tensor. Out:
a queue, and its runner in the graph's collection.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_n_to_tensor, convert_to_tensor, name_scope
from headrace._src.ops.control.grouping import Assert
from headrace._src.ops.io.file_ops import matching_files
from headrace._src.ops.random.random_functions import random_shuffle
from headrace._src.ops.state.queue_classes import FIFOQueue
from headrace._src.train.inputs.batching import summarize_fraction
from headrace._src.train.inputs.queue_runners import QueueRunner, add_queue_runner
from headrace._src.variables.variable import Variable

__all__ = [
    "input_producer",
    "limit_epochs",
    "match_filenames_once",
    "range_input_producer",
    "slice_input_producer",
    "string_input_producer",
]


@export("train.match_filenames_once", "io.match_filenames_once")
def match_filenames_once(pattern: Any, name: str | None = None) -> Variable:
    """Return a local variable with the names of the files that match `pattern` when it's
    initialised.
    """
    with name_scope(name, "matching_filenames", [pattern]) as scope:
        return Variable(
            matching_files(pattern),
            trainable=False,
            validate_shape=False,
            collections=[GraphKeys.LOCAL_VARIABLES],
            name=scope,
        )


@export("train.limit_epochs")
def limit_epochs(tensor: Any, num_epochs: int | None = None, name: str | None = None) -> Tensor:
    """Return `tensor` for `num_epochs` steps, then raise OutOfRangeError; None: no limit.

    It counts in a local variable: run tf.local_variables_initializer() first.
    """
    if num_epochs is None:
        return tensor
    if num_epochs <= 0:
        raise ValueError(f"num_epochs must be > 0 not {num_epochs}.")
    with name_scope(name, "limit_epochs", [tensor]) as scope:
        zero = b.constant(0, dtype=dtypes.int64)
        epochs = Variable(
            zero, name="epochs", trainable=False, collections=[GraphKeys.LOCAL_VARIABLES]
        )
        counter = epochs.count_up_to(num_epochs)
        with get_default_graph().control_dependencies([counter]):
            return identity(tensor, name=scope)


@export("train.input_producer")
def input_producer(
    input_tensor: Any,
    element_shape: Any = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    summary_name: str | None = None,
    name: str | None = None,
    cancel_op: Any = None,
) -> FIFOQueue:
    """Return a queue of the rows of `input_tensor`, in another random order each time if
    `shuffle`, `num_epochs` times, or for ever if None. summary_name: the name of a summary of how
    full it is.
    """
    with name_scope(name, "input_producer", [input_tensor]):
        tensor = convert_to_tensor(input_tensor, name="input_tensor")
        shape = tensor.shape[1:].merge_with(element_shape)
        if not shape.is_fully_defined():
            raise ValueError(
                "Either `input_tensor` must have a fully defined shape or `element_shape` must be "
                "specified"
            )
        if shuffle:
            tensor = random_shuffle(tensor, seed=seed)
        tensor = limit_epochs(tensor, num_epochs)
        queue = FIFOQueue(capacity, [tensor.dtype.base_dtype], [shape], None, shared_name, name)
        enqueue = queue.enqueue_many([tensor])
        add_queue_runner(QueueRunner(queue, [enqueue], cancel_op=cancel_op))
        if summary_name is not None:
            summarize_fraction(summary_name, queue.size(), capacity)
        return queue


@export("train.string_input_producer")
def string_input_producer(
    string_tensor: Any,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
    cancel_op: Any = None,
) -> FIFOQueue:
    """Return a queue of strings, such as the names of files; see `input_producer`."""
    message = "string_input_producer requires a non-null input tensor"
    if not isinstance(string_tensor, Tensor | Variable) and not len(string_tensor):
        raise ValueError(message)
    with name_scope(name, "input_producer", [string_tensor]) as scope:
        strings = convert_to_tensor(string_tensor, dtypes.string)
        check = Assert(b.greater(b.size(strings), 0), [message])
        with get_default_graph().control_dependencies([check]):
            strings = identity(strings)
        return input_producer(
            strings,
            element_shape=[],
            num_epochs=num_epochs,
            shuffle=shuffle,
            seed=seed,
            capacity=capacity,
            shared_name=shared_name,
            summary_name=f"fraction_of_{capacity}_full",
            name=scope,
            cancel_op=cancel_op,
        )


@export("train.range_input_producer")
def range_input_producer(
    limit: Any,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> FIFOQueue:
    """Return a queue of the integers from 0 up to `limit`; see `input_producer`."""
    with name_scope(name, "input_producer", [limit]) as scope:
        numbers, summary_name = b.range(limit), f"fraction_of_{capacity}_full"
        return input_producer(
            numbers, [], num_epochs, shuffle, seed, capacity, shared_name, summary_name, scope
        )


@export("train.slice_input_producer")
def slice_input_producer(
    tensor_list: Any,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> list[Tensor]:
    """Return one row of each tensor in a list, the same row of all, another one at each step."""
    with name_scope(name, "input_producer", list(tensor_list)):
        tensors = convert_n_to_tensor(tensor_list)
        if not tensors:
            raise ValueError("Expected at least one tensor in slice_input_producer().")
        count = b.shape(tensors[0])[0]
        queue = range_input_producer(count, num_epochs, shuffle, seed, capacity, shared_name)
        index = queue.dequeue()
        return [b.gather(t, index) for t in tensors]
