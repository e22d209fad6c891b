"""SparseMap: sparse tensors by number, so that a queue can carry one number instead of three
arrays. In: indices, values, shape. Out: a number, and later the same tensor, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.locks import Lock

__all__ = ["Sparse", "SparseMap"]


class Sparse(NamedTuple):
    """A sparse tensor."""

    indices: np.ndarray
    values: np.ndarray
    shape: tuple[int, ...]


class SparseMap:
    """Sparse tensors that were added and not yet taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = Lock()
        self._next = 0
        self._kept: dict[int, Sparse] = {}

    def add(self, tensors: Iterable[Sparse]) -> list[int]:
        """Store tensors and return their numbers."""
        with self._lock:
            numbers = []
            for tensor in tensors:
                self._kept[self._next] = tensor
                numbers.append(self._next)
                self._next += 1
            return numbers

    def take(self, numbers: Iterable[int]) -> list[Sparse]:
        """Remove and return tensors; if one is missing, remove none and raise."""
        wanted = list(numbers)
        with self._lock:
            lacking = [n for n, count in Counter(wanted).items() if count > (n in self._kept)]
            for number in lacking:
                raise InvalidArgumentError(
                    None, None, f"Unable to find SparseTensor: {number} in map: {self.name}"
                )
            return [self._kept.pop(number) for number in wanted]
