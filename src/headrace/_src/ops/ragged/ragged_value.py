"""Ragged arrays: what sessions return for ragged tensors, and accept for them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from headrace._src.core.export import export

__all__ = ["RaggedTensorValue"]


@export("ragged.RaggedTensorValue")
class RaggedTensorValue:
    """The value of a RaggedTensor: `values`, an array or another RaggedTensorValue, and the
    `row_splits` that cut it into rows.
    """

    def __init__(self, values: Any, row_splits: Any) -> None:
        if (
            not isinstance(row_splits, np.ndarray)
            or row_splits.dtype not in (np.int32, np.int64)
            or row_splits.ndim != 1
        ):
            raise TypeError("row_splits must be a 1D int32 or int64 numpy array")
        if not isinstance(values, np.ndarray | np.generic | RaggedTensorValue):
            raise TypeError("values must be a numpy array or a RaggedTensorValue")
        if isinstance(values, RaggedTensorValue) and values.row_splits.dtype != row_splits.dtype:
            raise ValueError("row_splits and values.row_splits must have the same dtype")
        self._values: Any = values
        self._row_splits = row_splits

    @property
    def values(self) -> Any:
        """The rows, joined along their first dimension."""
        return self._values

    @property
    def row_splits(self) -> Any:
        """Where each row starts, and where the last one ends."""
        return self._row_splits

    @property
    def flat_values(self) -> Any:
        """The innermost values, an array."""
        inner = isinstance(self._values, RaggedTensorValue)
        return self._values.flat_values if inner else self._values

    @property
    def nested_row_splits(self) -> tuple[Any, ...]:
        """The row splits of all ragged dimensions, the outermost first."""
        inner = isinstance(self._values, RaggedTensorValue)
        return (self._row_splits, *(self._values.nested_row_splits if inner else ()))

    @property
    def ragged_rank(self) -> int:
        """The number of ragged dimensions."""
        return len(self.nested_row_splits)

    @property
    def dtype(self) -> np.dtype:
        return self._values.dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The size of each dimension, None if it is ragged."""
        return (self._row_splits.shape[0] - 1, None, *self._values.shape[1:])

    def to_list(self) -> list[Any]:
        """Return the rows as nested lists."""
        inner = isinstance(self._values, RaggedTensorValue)
        values = self._values.to_list() if inner else self._values.tolist()
        ends = self._row_splits.tolist()
        return [values[a:b] for a, b in pairwise(ends)]

    def __str__(self) -> str:
        return f"<tf.RaggedTensorValue {self.to_list()}>"

    def __repr__(self) -> str:
        return f"tf.RaggedTensorValue(values={self._values!r}, row_splits={self._row_splits!r})"


def of_parts(flat_values: Any, nested_row_splits: Any) -> Any:
    """Return the RaggedTensorValue of flat values and nested row splits, the outermost first."""
    for splits in reversed(list(nested_row_splits)):
        flat_values = RaggedTensorValue(flat_values, splits)
    return flat_values
