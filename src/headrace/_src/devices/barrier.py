"""Barrier: tuples whose components arrive one by one, by key. In: components. Out: complete tuples,
in the order of the inserts that added their keys.

State, behind one lock: the incomplete tuples, with the number of each, and whether new keys are
refused. Complete tuples are in a priority queue, by number. An insert that adds keys uses one
number, however many it adds; an insert that only completes tuples uses none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from headrace._src.core.locks import Lock
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.queues import PriorityQueueState

__all__ = ["BarrierState"]


class _Ready(PriorityQueueState):
    """Complete tuples: (number, key, *components)."""

    kind = "Barrier"

    def exhausted_error(self, wanted: int, size: int) -> OutOfRangeError:
        return OutOfRangeError(
            None,
            None,
            f"{self} is closed and has insufficient elements (requested {wanted}, total size "
            f"{size})",
        )


class BarrierState:
    """A barrier, which collects the components of tuples."""

    def __init__(
        self, name: str, types: tuple[DType, ...], shapes: tuple[TensorShape, ...]
    ) -> None:
        self.name = name
        self.types = types
        self.shapes = shapes or (TensorShape(None),) * len(types)
        self.closed = False
        scalar = TensorShape(())
        queue_types = (dtypes.int64, dtypes.string, *types)
        self._ready = _Ready(name, queue_types, (scalar, scalar, *self.shapes), -1)
        self._incomplete: dict[bytes, tuple[int, dict[int, Any]]] = {}
        self._next = int(np.iinfo(np.int64).min)
        self._lock = Lock()

    def insert(self, component: int, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        """Add a component of each of the tuples `keys`."""
        if not 0 <= component < len(self.types):
            raise InvalidArgumentError(
                None,
                None,
                f"The component ID is out of range {component} > num_components "
                f"(= {len(self.types)})",
            )
        for value in values:
            if not self.shapes[component].is_compatible_with(np.shape(value)):
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Shape mismatch in tuple component {component}. Expected "
                    f"{show_shape(self.shapes[component])}, got {show_shape(np.shape(value))}",
                )
        with self._lock:
            self._check(component, keys)
            adds_keys = any(key not in self._incomplete for key in keys)
            complete = [e for k, v in zip(keys, values) if (e := self._add(component, k, v))]
            self._next += adds_keys
            last = self.closed and not self._incomplete
            # Waiting takers may continue in this thread, but they never call this barrier again.
            self._ready.enqueue_many(complete)
            if last and not self._ready.closed:
                self._ready.close(False)

    def _check(self, component: int, keys: Sequence[bytes]) -> None:
        new = [k for k in keys if k not in self._incomplete]
        if self.closed and new:
            raise CancelledError(
                None,
                None,
                f"Barrier {self.name} is closed.  Pending enqueues cancelled: "
                f"{int(self._ready.closed)}.  Number of new insertions: {len(set(new))}.  Number "
                f"of incomplete keys: {len(self._incomplete)}.",
            )
        for i, key in enumerate(keys):
            if component in self._incomplete.get(key, (0, {}))[1] or key in keys[:i]:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Key {key.decode(errors='replace')} already has a value for component "
                    f"{component} in barrier {self.name}",
                )

    def _add(self, component: int, key: bytes, value: Any) -> tuple[Any, ...] | None:
        """Store a component; return the tuple if that was its last."""
        found = self._incomplete.get(key)
        if found is None:
            found = self._incomplete[key] = (self._next, {})
        number, parts = found
        parts[component] = value
        if len(parts) < len(self.types):
            return None
        del self._incomplete[key]
        components = (parts[i] for i in range(len(self.types)))
        return np.int64(number), np.array(key, object), *components

    def take(self, count: int, some: bool) -> Any:
        """Take `count` complete tuples.

        If the barrier is closed, `some` takes the tuples that are complete now, at most `count`;
        without it, the call waits for incomplete tuples, too. Raise OutOfRangeError if those are
        too few, or none.
        """
        with self._lock:
            if self.closed:
                there = self._ready.size()
                if some:
                    count = min(count, there)
                else:
                    there += len(self._incomplete)
                if there < max(count, 1):
                    raise self._ready.exhausted_error(count, there)
            # Under the lock, so that no other taker gets the tuples that were counted here.
            return self._ready.dequeue_many(count, some)

    def close(self, cancel_pending: bool) -> None:
        """Refuse new keys and, if `cancel_pending`, drop the incomplete tuples."""
        with self._lock:
            if self.closed and (self._ready.closed or not cancel_pending):
                raise CancelledError(None, None, f"Barrier '{self.name}' is already closed.")
            self.closed = True
            if cancel_pending:
                self._incomplete.clear()
            if not self._incomplete:
                self._ready.close(cancel_pending)

    def ready_size(self) -> int:
        return self._ready.size()

    def incomplete_size(self) -> int:
        return len(self._incomplete)
