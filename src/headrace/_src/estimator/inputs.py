"""Input functions from arrays in memory. In: arrays or a DataFrame. Out: a function without
arguments that returns features, or (features, labels), of one batch.

A thread feeds a queue from the arrays; the function's tensors are dequeued from it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headrace._src.core import dtypes, log
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.errors import OutOfRangeError
from headrace._src.core.export import export
from headrace._src.ops.array.constants_and_placeholders import placeholder
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.io.summary_functions import scalar
from headrace._src.ops.state.queue_classes import FIFOQueue, QueueBase, RandomShuffleQueue
from headrace._src.train.inputs.queue_runners import QueueRunner, add_queue_runner

__all__ = ["numpy_input_fn", "pandas_input_fn"]

_ARRAY = "__direct_np_input__"
_TARGET = "__target_key__"


# ---- Queues that are fed -------------------------------------------------------------------------


class _Feeder:
    """Cycles through the rows of columns: each call returns the feeds of the next rows."""

    def __init__(
        self,
        placeholders: list[Any],
        index: np.ndarray,
        columns: list[np.ndarray],
        rows: int,
        shuffle: bool,
        epochs: int | None,
    ) -> None:
        self._placeholders = placeholders
        self._index, self._columns = index, columns
        self._rows = rows
        # Start at a random row: with a small queue, shuffling alone would mix only neighbours.
        self._next = random.randrange(len(index)) if shuffle else 0
        self._left = None if epochs is None else epochs * len(index)

    def __call__(self) -> dict[Any, Any]:
        count = self._rows if self._left is None else min(self._rows, self._left)
        if count <= 0:
            raise OutOfRangeError(None, None, "All epochs were emitted already.")
        rows = (self._next + np.arange(count)) % len(self._index)
        self._next = int(rows[-1] + 1) % len(self._index)
        if self._left is not None:
            self._left -= count
        values = [self._index[rows], *(column[rows] for column in self._columns)]
        return dict(zip(self._placeholders, values, strict=True))


class _FeedingQueueRunner(QueueRunner):
    """Runs enqueue operations with the feeders' values."""

    def __init__(self, queue: QueueBase, feeders: dict[Any, _Feeder]) -> None:
        super().__init__(queue, list(feeders))
        self._feeders = feeders

    def _enqueuer(self, sess: Any, enqueue_op: Any) -> Callable[[], Any]:
        feeder = self._feeders[enqueue_op]
        return lambda: sess.run(enqueue_op, feeder())

    def to_proto(self, export_scope: str | None = None) -> None:
        """Return None: the feeders are Python objects, which a saved graph can't hold."""
        return None


def _enqueued(
    index: np.ndarray,
    columns: Mapping[str, np.ndarray],
    capacity: int,
    shuffle: bool,
    threads: int,
    rows: int,
    epochs: int | None,
) -> QueueBase:
    """Make a queue of rows: the index, then the columns."""
    arrays = list(columns.values())
    types = [as_dtype(index.dtype), *(as_dtype(array.dtype) for array in arrays)]
    shapes = [(), *(array.shape[1:] for array in arrays)]
    _warn_of_threads(threads, shuffle, epochs)
    with name_scope("enqueue_input"):
        least = capacity // 4 if shuffle else 0
        if shuffle:
            queue: QueueBase = RandomShuffleQueue(capacity, least, types, shapes)
        else:
            queue = FIFOQueue(capacity, types, shapes)
        feeders = {}
        for _ in range(threads):
            placeholders = [placeholder(dtype) for dtype in types]
            enqueue = queue.enqueue_many(placeholders)
            feeders[enqueue] = _Feeder(placeholders, index, arrays, rows, shuffle, epochs)
        add_queue_runner(_FeedingQueueRunner(queue, feeders))
        over = b.cast(b.maximum(0, queue.size() - least), dtypes.float32)
        name = f"queue/{queue.name}fraction_over_{least}_of_{capacity - least}_full"
        scalar(name, over * (1.0 / (capacity - least)))
        return queue


def _warn_of_threads(threads: int, shuffle: bool, epochs: int | None) -> None:
    if threads > 1 and epochs is not None:
        log.warning(
            "num_epochs is applied per thread: with num_threads > 1 there will be more epochs than "
            "you probably intend. If you want to limit epochs, use one thread."
        )
    if threads > 1 and not shuffle:
        log.warning(
            "shuffle=False and num_threads > 1: several threads read the data in order, so that "
            "examples don't come in order. Use one thread, or enable shuffling."
        )


def _batch(queue: QueueBase, size: int, epochs: int | None) -> list[Any]:
    """Return the columns of a batch: a full one, unless the input ends."""
    dequeue = queue.dequeue_many if epochs is None else queue.dequeue_up_to
    return dequeue(size)[1:]


def _check_shuffle(shuffle: Any) -> None:
    if not isinstance(shuffle, bool):
        raise ValueError(
            "shuffle must be provided and explicitly set as boolean (it is recommended to set it "
            f"as True for training); got {shuffle}"
        )


# ---- Arrays --------------------------------------------------------------------------------------


@export("estimator.inputs.numpy_input_fn")
def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], Any]:
    """Return an input_fn that iterates over arrays of equal length.

    x: an array, or a dict of arrays. y: labels, likewise, or None. num_epochs: how often to
    iterate; None: for ever. shuffle: True or False; there's no default.
    """
    _check_shuffle(shuffle)

    def input_fn() -> Any:
        features = _named_features(x)
        targets = _named_targets(y, features)
        columns = features | targets
        _check_lengths(features, targets, y)
        index = np.arange(len(next(iter(columns.values()))))
        queue = _enqueued(
            index, columns, queue_capacity, bool(shuffle), num_threads, batch_size, num_epochs
        )
        batch = dict(zip(columns, _batch(queue, batch_size, num_epochs), strict=True))
        found: Any = {key: batch[key] for key in features}
        if isinstance(x, np.ndarray):
            found = batch[_ARRAY]
        if y is None:
            return found
        labels = {key: batch[key] for key in targets}
        return found, labels if isinstance(y, dict) else next(iter(labels.values()))

    return input_fn


def _named_features(x: Any) -> dict[str, np.ndarray]:
    if isinstance(x, dict):
        if not x:
            raise ValueError("x cannot be an empty dict")
        return {key: x[key] for key in sorted(x)}
    if not isinstance(x, np.ndarray):
        raise TypeError(f"x must be a dict or array; got {type(x).__name__}")
    if x.size == 0:
        raise ValueError("x cannot be an empty array")
    return {_ARRAY: x}


def _named_targets(y: Any, features: Mapping[str, Any]) -> dict[str, np.ndarray]:
    if y is None:
        return {}
    if not isinstance(y, dict):
        key = _TARGET
        while key in features:
            key += "_n"
        return {key: y}
    if not y:
        raise ValueError("y cannot be empty dict, use None instead.")
    if both := features.keys() & y.keys():
        raise ValueError(f"{len(both)} duplicate keys are found in both x and y: {both}")
    return {key: y[key] for key in sorted(y)}


def _check_lengths(features: Mapping[str, Any], targets: Mapping[str, Any], y: Any) -> None:
    if len({len(column) for column in (*features.values(), *targets.values())}) != 1:
        shapes = {key: column.shape for key, column in targets.items()}
        if not isinstance(y, dict):
            shapes = next(iter(shapes.values()), None)
        raise ValueError(
            "Length of tensors in x and y is mismatched. All elements in x and y must have the "
            f"same length.\nShapes in x: { {k: v.shape for k, v in features.items()} }\n"
            f"Shapes in y: {shapes}\n"
        )


# ---- DataFrames ----------------------------------------------------------------------------------


@export("estimator.inputs.pandas_input_fn")
def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], Any]:
    """Return an input_fn that iterates over a pandas DataFrame.

    y: labels, a Series (stored internally under the name `target_column`) or a DataFrame, with the
    index of x. Other arguments as for numpy_input_fn.
    """
    if not (hasattr(x, "columns") and hasattr(x, "index")):
        raise TypeError(f"x must be a pandas DataFrame; got {type(x).__name__}")
    _check_shuffle(shuffle)
    if not isinstance(target_column, str):
        raise TypeError("target_column must be a string type")
    # Copies, since the frame may change before the function is called.
    index = np.array(x.index)
    features = {name: np.array(x[name]) for name in x.columns}
    targets = _frame_targets(y, target_column, index, features)

    def input_fn() -> Any:
        columns = features | targets
        queue = _enqueued(
            index, columns, queue_capacity, bool(shuffle), num_threads, batch_size, num_epochs
        )
        batch = dict(zip(columns, _batch(queue, batch_size, num_epochs), strict=True))
        found = {name: batch[name] for name in features}
        if y is None:
            return found
        labels = {name: batch[name] for name in targets}
        return found, labels if hasattr(y, "columns") else labels[target_column]

    return input_fn


def _frame_targets(
    y: Any, name: str, index: np.ndarray, features: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    if y is None:
        return {}
    if not np.array_equal(index, np.array(y.index)):
        raise ValueError(
            f"Index for x and y are mismatched.\nIndex for x: {index}\nIndex for y: {y.index}\n"
        )
    found = {c: np.array(y[c]) for c in y.columns} if hasattr(y, "columns") else {name: np.array(y)}
    if both := features.keys() & found.keys():
        raise ValueError(
            f"Cannot use name {', '.join(sorted(both))} for target column: DataFrame already has "
            f"a column with that name: {list(features)}"
        )
    return found
