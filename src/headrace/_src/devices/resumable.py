"""State from which a restarted program can resume. In: an object that changes from step to step.
Out: arrays by name; and back.

A queue's elements are packed here too: one array per component if all elements have the same shape,
else one per element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.errors import DataLossError, UnimplementedError
from headrace._src.devices.batches import rows, stack

__all__ = ["Resumable", "pack", "unpack"]

Arrays = dict[str, np.ndarray]


class Resumable:
    """An object that can be saved as arrays, such as a random generator, a sampler or a queue."""

    __slots__ = ()

    def saved(self) -> Arrays:
        """Return the current state, in arrays that share no memory with it."""
        raise NotImplementedError

    def resume(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `saved` returned."""
        raise NotImplementedError


def pack(elements: Sequence[tuple[Any, ...]], types: Sequence[DType]) -> Arrays:
    """Return the components of elements by number, each as one array or one per element."""
    found: Arrays = {"count": np.array(len(elements), np.int64)}
    for number, dtype in enumerate(types):
        if dtype in (dtypes.resource, dtypes.variant):
            raise UnimplementedError(None, None, f"elements of type {dtype.name} can't be saved")
        column = [(element[number],) for element in elements]
        if len({np.shape(value) for (value,) in column}) == 1:
            (found[f"{number}"],) = stack(column, [dtype], None)
        else:
            for i, single in enumerate(column):
                (found[f"{number}/{i}"],) = stack([single], [dtype], None)
    return found


def unpack(saved: Mapping[str, np.ndarray], types: Sequence[DType]) -> list[tuple[Any, ...]]:
    """Return the elements that `pack` packed."""
    _check_types(saved, types)
    try:
        count = int(saved["count"])
        columns = []
        for number in range(len(types)):
            together = saved.get(f"{number}")
            parts = (
                [together]
                if together is not None
                else [saved[f"{number}/{i}"] for i in range(count)]
            )
            columns.append([value for part in parts for (value,) in rows([part])])
        elements = list(zip(*columns, strict=True))
    except (KeyError, ValueError) as error:
        raise DataLossError(
            None, None, f"the elements of a queue are incomplete: {error}"
        ) from None
    if len(elements) != count:
        raise DataLossError(None, None, f"{count} elements were saved, {len(elements)} were found")
    return elements


def _check_types(saved: Mapping[str, np.ndarray], types: Sequence[DType]) -> None:
    """Raise ValueError if the elements were saved by a queue of other types."""
    found = {key.partition("/")[0]: array.dtype for key, array in saved.items() if key != "count"}
    if found and found != {f"{number}": dtype.numpy for number, dtype in enumerate(types)}:
        before = ", ".join(f"{found[number]}" for number in sorted(found, key=int))
        now = ", ".join(dtype.name for dtype in types)
        raise ValueError(f"elements of ({before}) were saved for a queue of ({now})")
