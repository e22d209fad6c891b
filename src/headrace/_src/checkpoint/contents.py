"""The contents of a checkpoint of any format: the common interface of bundles and V1 files.

`stored` maps each name to its dtype, its shape and, if it was saved in parts, their slices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._src.checkpoint.slices import TensorSlice
from headrace._src.core.dtypes import DType
from headrace._src.core.errors import DataLossError, InvalidArgumentError, NotFoundError

__all__ = ["OpenCheckpoint", "Stored", "assemble"]


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor of a checkpoint; `parts` is empty if it was saved as a whole."""

    dtype: DType
    shape: tuple[int, ...]
    parts: tuple[TensorSlice, ...] = ()


class OpenCheckpoint(ABC):
    """A checkpoint opened for reading; close it, or use it in a `with` statement."""

    stored: dict[str, Stored]

    @abstractmethod
    def missing(self, name: str) -> str:
        """Return the error message for a missing tensor of that name."""

    @abstractmethod
    def read_part(self, name: str, part: TensorSlice | None) -> np.ndarray:
        """Read one part as it was saved; `part` is None for a tensor that was saved as a whole."""

    def has_moved(self) -> bool:
        """Return whether files of the checkpoint were moved, replaced or removed since it was
        opened: then a failed read may succeed after opening it again.
        """
        return False

    def close(self) -> None:
        """Drop the contents, and release the resources used for reading."""
        self.stored = {}

    def __enter__(self) -> OpenCheckpoint:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def find(self, name: str) -> Stored:
        """Return a tensor's description; raise NotFoundError if it isn't there."""
        found = self.stored.get(name)
        if found is None:
            raise NotFoundError(None, None, self.missing(name))
        return found

    def read(self, name: str, part: TensorSlice | None = None) -> np.ndarray:
        """Read a tensor, or a slice of it (with its lengths given), from the saved parts."""
        stored = self.find(name)
        wanted = (part or TensorSlice.whole(len(stored.shape))).within(stored.shape)
        if not stored.parts:
            value = self.read_part(name, None)
            return value if wanted.covers(stored.shape) else value[wanted.index([0] * value.ndim)]
        return assemble(self, name, wanted)


def assemble(checkpoint: OpenCheckpoint, name: str, wanted: TensorSlice) -> np.ndarray:
    """Read a slice of a tensor that was saved in parts."""
    stored = checkpoint.find(name)
    places = {part: part.within(stored.shape) for part in stored.parts}
    for part, place in places.items():
        if place == wanted:
            return checkpoint.read_part(name, part)
    result = np.empty(wanted.lengths, stored.dtype.numpy)
    shared = {p: common for p, place in places.items() if (common := place.common(wanted))}
    _check_cover(name, wanted, list(shared.values()))
    for part, common in shared.items():
        value = checkpoint.read_part(name, part)
        origin = places[part].starts
        result[common.index(wanted.starts)] = value[common.index(origin)]
    return result


def _check_cover(name: str, wanted: TensorSlice, pieces: list[TensorSlice]) -> None:
    """Check that the pieces are disjoint and cover the wanted slice."""
    starts, ends = (np.array([getattr(p, k) for p in pieces]) for k in ("starts", "ends"))
    for i in range(len(pieces)):
        meets = (starts[i + 1 :] < ends[i]) & (starts[i] < ends[i + 1 :])
        if meets.all(axis=1).any():
            raise DataLossError(None, None, f"{name}: its slices overlap")
    if sum(piece.size for piece in pieces) != wanted.size:
        raise InvalidArgumentError(
            None, None, f"{name}: the slice {wanted} isn't covered by the slices in the checkpoint"
        )
