"""Accumulators: sum gradients of several steps until there are enough. In: gradients, each with its
step. Out: their sum or mean, once.

A gradient of an earlier step than the accumulator's own is stale and is dropped. Taking the result
begins the next step. Takers wait in line.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.waiting import Waiting

__all__ = ["Accumulator", "DenseAccumulator", "SparseAccumulator"]

_log = logging.getLogger("headrace")


class Accumulator(Waiting):
    """The base of both kinds.

    count: the number of gradients since the last `take`. step: the first step that isn't stale.
    dropped: the number of stale gradients so far.
    """

    def __init__(self, name: str, dtype: DType, shape: TensorShape, reduction: str) -> None:
        super().__init__(in_order=True)
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.reduction = reduction
        self.count = 0
        self.step = 0
        self.dropped = 0

    def add(self, step: int, gradient: Any) -> None:
        """Add a gradient, unless it's stale."""

        def act() -> None:
            if step < self.step:
                self.dropped += 1
                return
            self.check(gradient)
            self.include(gradient)
            self.count += 1

        self.attempt(act)

    def take(self, required: int) -> Any:
        """Take the result of all gradients, once there are at least `required`."""
        if required <= 0:
            raise InvalidArgumentError(
                None, None, f"Argument num_required must be positive, but got {required}"
            )

        def act() -> Any:
            taken = self.result()
            self.count = 0
            self.step += 1
            return taken

        return self.attempt(
            act,
            lambda: self.count >= required,
            f"{required} gradients of accumulator '{self.name}'",
            "TakeGrad",
        )

    def set_step(self, step: int) -> None:
        """Set the accumulator's step."""
        if step < self.step:
            _log.warning(
                "Attempt to set current_global_step_ to smaller value: current_global_step_ = %d "
                ">= new_global_step = %d",
                self.step,
                step,
            )

        def act() -> None:
            self.step = step

        self.attempt(act)

    def check(self, gradient: Any) -> None:
        """Raise InvalidArgumentError if a gradient has the wrong shape; with the lock held."""
        raise NotImplementedError

    def include(self, gradient: Any) -> None:
        """Add a gradient to the sum, with the lock held."""
        raise NotImplementedError

    def result(self) -> Any:
        """Return the sum or mean of all gradients, and clear it; with the lock held."""
        raise NotImplementedError


class DenseAccumulator(Accumulator):
    """Sums arrays."""

    kind = "ConditionalAccumulator"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._sum: np.ndarray | None = None

    def check(self, gradient: Any) -> None:
        found = np.shape(gradient)
        expected = self.shape if self._sum is None else TensorShape.of(self._sum.shape)
        if not expected.is_compatible_with(found):
            raise InvalidArgumentError(
                None,
                None,
                f"Shape mismatch: expected {show_shape(expected)}, got {show_shape(found)}",
            )

    def include(self, gradient: Any) -> None:
        if not self.count or self._sum is None:
            self._sum = np.array(gradient)
        else:
            self._sum += gradient

    def result(self) -> Any:
        total, self._sum = self._sum, None
        assert total is not None
        if self.reduction == "SUM":
            return total
        return (total / total.dtype.type(self.count)).astype(total.dtype)


class SparseAccumulator(Accumulator):
    """Sums rows. The mean of a row is over the gradients that contain it.

    A gradient is (row numbers, rows, shape of the whole or None). As in TensorFlow, gradients are
    merged in one pass, as if their row numbers were sorted and distinct: where they are not, a row
    may occur several times in the result.
    """

    kind = "SparseConditionalAccumulator"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rows = self._counts = np.empty(0, np.int64)
        self._sums: np.ndarray | None = None

    def check(self, gradient: Any) -> None:
        indices, values, shape = gradient
        if np.ndim(indices) != 1 or not np.ndim(values) or len(indices) != len(values):
            raise InvalidArgumentError(
                None,
                None,
                f"a sparse gradient needs a row for each index, but has shapes "
                f"{show_shape(np.shape(indices))} and {show_shape(np.shape(values))}",
            )
        if len(indices) and int(np.min(indices)) < 0:
            raise InvalidArgumentError(None, None, f"Row index is {int(np.min(indices))}, below 0")
        whole = [None, *np.shape(values)[1:]] if shape is None else list(shape)
        # As in TensorFlow, the accumulator's shape may say the first sizes only.
        if not self.shape.is_compatible_with(whole[: len(self.shape.sizes or ())]):
            raise InvalidArgumentError(
                None,
                None,
                f"Shape mismatch: expected shape {show_shape(self.shape)}, got {show_shape(whole)}",
            )
        if shape is not None and list(shape)[1:] != list(np.shape(values)[1:]):
            raise InvalidArgumentError(
                None,
                None,
                f"rows of shape {show_shape(np.shape(values)[1:])} don't fit into "
                f"{show_shape(whole)}",
            )
        if self._sums is not None and self._sums.shape[1:] != np.shape(values)[1:]:
            raise InvalidArgumentError(
                None,
                None,
                f"Shape mismatch: expected rows of shape {show_shape(self._sums.shape[1:])}"
                f", got {show_shape(np.shape(values)[1:])}",
            )

    def include(self, gradient: Any) -> None:
        indices, values = np.array(gradient[0]), np.array(gradient[1])
        if self._sums is None:
            self._rows, self._sums, self._counts = indices, values, np.ones(len(indices), np.int64)
            return
        old, new = _places(self._rows, indices)
        rows = np.empty(max(old.max(initial=-1), new.max(initial=-1)) + 1, indices.dtype)
        rows[old], rows[new] = self._rows, indices
        sums = np.zeros((len(rows), *values.shape[1:]), values.dtype)
        sums[old] = self._sums
        sums[new] += values
        counts = np.zeros(len(rows), np.int64)
        counts[old] = self._counts
        counts[new] += 1
        self._rows, self._sums, self._counts = rows, sums, counts

    def result(self) -> Any:
        total, self._sums = self._sums, None
        assert total is not None
        if self.reduction == "MEAN":
            divisors = self._counts.reshape(-1, *[1] * (total.ndim - 1)).astype(total.dtype)
            total = (total / divisors).astype(total.dtype)
        sizes = self.shape.sizes or (None, *total.shape[1:])
        whole = np.array([-1 if n is None else n for n in sizes], np.int64)
        return self._rows.astype(np.int64), total, whole


def _places(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of two lists of row numbers in their merger: a number that is in both at
    the same time has one place.
    """
    if _increasing(old) and _increasing(new):
        rows = np.union1d(old, new)
        return np.searchsorted(rows, old), np.searchsorted(rows, new)
    first, second = old.tolist(), new.tolist()
    places: tuple[list[int], list[int]] = [], []
    at = i = j = 0
    while i < len(first) or j < len(second):
        of_first = j == len(second) or (i < len(first) and first[i] <= second[j])
        of_second = i == len(first) or (j < len(second) and second[j] <= first[i])
        if of_first:
            places[0].append(at)
            i += 1
        if of_second:
            places[1].append(at)
            j += 1
        at += 1
    return np.array(places[0], np.int64), np.array(places[1], np.int64)


def _increasing(numbers: np.ndarray) -> bool:
    return bool(np.all(numbers[1:] > numbers[:-1]))
