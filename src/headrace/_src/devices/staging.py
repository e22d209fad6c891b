"""Staging areas: tuples that one part of a step leaves for a later one. In: values. Out: values, or
Pendings.

capacity: the most elements that an area holds, 0 for no limit; memory_limit: the same in bytes. An
op that adds to a full area is blocked, and so is one that finds no element to take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError, ResourceExhaustedError
from headrace._src.devices.waiting import Waiting

__all__ = ["MapStaging", "Staging"]


def _bytes(values: Any) -> int:
    return sum(np.asarray(v).nbytes for v in values)


def _check_order(indices: Sequence[int]) -> None:
    """Raise InvalidArgumentError unless each index is above the one before it."""
    if any(second <= first for first, second in pairwise(indices)):
        raise InvalidArgumentError(
            None, None, f"Indices are not strictly ordered: {[int(i) for i in indices]}"
        )


class _Area(Waiting):
    """The base of both kinds of areas, with their limits."""

    def __init__(self, name: str, capacity: int, memory_limit: int) -> None:
        super().__init__()
        self.name = name
        self.capacity = capacity
        self.memory_limit = memory_limit
        self.used = 0

    def _check_size(self, size: int) -> None:
        if self.memory_limit and size > self.memory_limit:
            raise ResourceExhaustedError(
                None,
                None,
                f"Attempted to insert tensors with combined size of '{size}' bytes into Staging "
                f"Area with a memory limit of '{self.memory_limit}'.",
            )

    def _fits(self, count: int, size: int) -> bool:
        return not (self.capacity and count >= self.capacity) and not (
            self.memory_limit and self.used + size > self.memory_limit
        )


class Staging(_Area):
    """Elements in order of arrival."""

    def __init__(self, name: str, capacity: int, memory_limit: int) -> None:
        super().__init__(name, capacity, memory_limit)
        self._elements: deque[tuple[Any, ...]] = deque()

    def put(self, values: Sequence[Any]) -> Any:
        """Add an element."""
        element, size = tuple(values), _bytes(values)
        self._check_size(size)

        def act() -> None:
            self._elements.append(element)
            self.used += size

        return self.attempt(
            act,
            lambda: self._fits(len(self._elements), size),
            f"room in staging area '{self.name}'",
            "Stage",
        )

    def get(self) -> Any:
        """Take the oldest element."""

        def act() -> tuple[Any, ...]:
            element = self._elements.popleft()
            self.used -= _bytes(element)
            return element

        what = f"an element of staging area '{self.name}'"
        return self.attempt(act, lambda: bool(self._elements), what, "Unstage")

    def peek(self, index: int) -> Any:
        """Return an element and leave it there."""
        if index < 0:
            raise InvalidArgumentError(None, None, f"index {index} is negative")
        return self.attempt(
            lambda: self._elements[index],
            lambda: len(self._elements) > index,
            f"element {index} of staging area '{self.name}'",
            "StagePeek",
        )

    def size(self) -> int:
        return len(self._elements)

    def clear(self) -> None:
        """Forget all elements."""

        def act() -> None:
            self._elements.clear()
            self.used = 0

        self.attempt(act)


class MapStaging(_Area):
    """Elements by key. Components may arrive one by one; an element is complete once it has all.

    ordered: whether the element with the smallest key is taken first, else any.
    """

    def __init__(self, name: str, capacity: int, memory_limit: int, ordered: bool) -> None:
        super().__init__(name, capacity, memory_limit)
        self._ordered = ordered
        self._complete: dict[int, dict[int, Any]] = {}
        self._incomplete: dict[int, dict[int, Any]] = {}

    def put(self, key: int, indices: Sequence[int], values: Sequence[Any], count: int) -> Any:
        """Add the components `indices` of element `key`, which has `count` components."""
        _check_order(indices)
        for index in indices:
            if not 0 <= index < count:
                raise InvalidArgumentError(
                    None, None, f"Index '{index}' for key '{key}' is out of bounds '{count}'."
                )
        if len(indices) != len(values):
            raise InvalidArgumentError(
                None, None, f"{len(indices)} indices, but {len(values)} values"
            )
        size = _bytes(values)
        self._check_size(size)

        def act() -> None:
            if key in self._complete:
                raise InvalidArgumentError(
                    None, None, f"Cannot insert value for key {key} as it is already there"
                )
            parts = self._incomplete.get(key, {})
            for index in indices:
                if index in parts:
                    raise InvalidArgumentError(
                        None,
                        None,
                        f"The tensor for index '{index}' for key '{key}' was already initialized",
                    )
            parts.update(zip(indices, values, strict=True))
            self.used += size
            if len(parts) == count:
                self._incomplete.pop(key, None)
                self._complete[key] = parts
            else:
                self._incomplete[key] = parts

        def ready() -> bool:
            if key in self._incomplete:
                return self._fits(0, size)
            return self._fits(len(self._complete) + len(self._incomplete), size)

        return self.attempt(act, ready, f"room in staging area '{self.name}'", "MapStage")

    def get(self, key: int, indices: Sequence[int]) -> Any:
        """Take components of element `key`, which is removed once all are taken."""
        _check_order(indices)
        return self.attempt(
            lambda: self._take(key, indices),
            lambda: self._has(key, indices),
            f"element {key} of staging area '{self.name}'",
            "MapUnstage",
        )

    def get_any(self, indices: Sequence[int]) -> Any:
        """Take components of some element; return its key, followed by them."""
        _check_order(indices)

        def candidates() -> list[int]:
            keys = sorted(self._complete) if self._ordered else list(self._complete)
            return keys[:1] if self._ordered else [k for k in keys if self._has(k, indices)][:1]

        def act() -> list[Any]:
            (key,) = candidates()
            return [np.int64(key), *self._take(key, indices)]

        what = f"an element of staging area '{self.name}'"
        return self.attempt(act, lambda: bool(candidates()), what, "MapUnstage")

    def peek(self, key: int, indices: Sequence[int]) -> Any:
        """Return components of element `key` and leave them there."""
        _check_order(indices)
        return self.attempt(
            lambda: [self._complete[key][i] for i in indices],
            lambda: self._has(key, indices),
            f"element {key} of staging area '{self.name}'",
            "MapPeek",
        )

    def size(self) -> int:
        return len(self._complete)

    def incomplete_size(self) -> int:
        return len(self._incomplete)

    def clear(self) -> None:
        """Forget all elements."""

        def act() -> None:
            self._complete.clear()
            self._incomplete.clear()
            self.used = 0

        self.attempt(act)

    def _has(self, key: int, indices: Sequence[int]) -> bool:
        parts = self._complete.get(key)
        return parts is not None and all(i in parts for i in indices)

    def _take(self, key: int, indices: Sequence[int]) -> list[Any]:
        parts = self._complete[key]
        if not all(i in parts for i in indices):
            raise InvalidArgumentError(
                None, None, f"components {list(indices)} of element {key} have been taken"
            )
        taken = [parts.pop(i) for i in indices]
        if not parts:
            del self._complete[key]
        self.used -= _bytes(taken)
        return taken
