"""The group of processes that this one belongs to. In: whoever connects them. Out: the group, for
the kernels of collective ops and for allocations of their inputs.

State: `_group`, set by `headrace.horovod.init` for the life of the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from headrace._src.core import errors

__all__ = ["RankGroup", "RankLostError", "group", "has_group", "set_group", "shared_memory"]


class RankLostError(errors.UnknownError):
    """A collective cannot be completed, because a rank has left, died, or given up."""


class RankGroup(Protocol):
    """Processes that run collectives together. A collective is known by its name; each process may
    start its collectives in an order of its own. Every method returns values or a Pending.
    """

    @property
    def rank(self) -> int:
        """This process's rank."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    @property
    def memory(self) -> Any:
        """Memory that the other processes of this host can use; None if there are none."""

    def all_reduce(
        self,
        name: str,
        arrays: Sequence[np.ndarray],
        merge: str,
        average: bool,
        background: bool = False,
        in_place: bool = False,
    ) -> Any:
        """Combine the arrays of all ranks, element by element: a list of arrays. background: the
        caller has something else to do meanwhile. in_place: the results may take the memory of the
        arrays, which nothing else uses.
        """
        ...

    def all_gather(self, name: str, array: np.ndarray) -> Any:
        """Join the arrays of all ranks along their first dimension."""
        ...

    def broadcast(self, name: str, array: np.ndarray, root: int) -> Any:
        """Return the array of the rank `root`."""
        ...


_group: RankGroup | None = None


def set_group(found: RankGroup | None) -> None:
    """Make a group this process's."""
    global _group
    _group = found


def has_group() -> bool:
    """Return whether this process belongs to a group."""
    return _group is not None


def group() -> RankGroup:
    """Return this process's group; raise FailedPreconditionError if it has none."""
    if _group is None:
        raise errors.FailedPreconditionError(
            None,
            None,
            "Horovod has not been initialized; use hvd.init().",
            hint="import headrace.horovod as hvd; hvd.init()",
        )
    return _group


def shared_memory() -> Any:
    """Return the memory that kernels should put inputs of collectives into, None for any."""
    return None if _group is None else _group.memory
