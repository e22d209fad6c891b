"""Make batches of elements, and elements of batches. In: elements (tuples of values), or arrays
with a row for each element. Out: the other form.

Rows are views of the array that they come from; a batch is copied once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType

__all__ = ["own", "pad_together", "rows", "stack"]

Sizes = tuple[int | None, ...] | None


def own(value: Any) -> Any:
    """Return a copy of `value` that the caller can't change; an immutable value needs none."""
    return value.copy() if isinstance(value, np.ndarray) else value


def rows(components: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the elements of a batch."""
    return list(zip(*map(_rows, components), strict=True))


def _rows(batch: np.ndarray) -> list[Any]:
    if batch.ndim > 1:
        return list(own(batch))
    if batch.dtype.kind != "O":
        return list(batch)  # scalars, which are copies
    batch = own(batch)
    return [batch[i, ...] for i in range(len(batch))]  # arrays, not the objects in them


def stack(
    elements: Sequence[tuple[Any, ...]], types: Sequence[DType], sizes: Sequence[Sizes] | None
) -> list[Any]:
    """Return the components of elements of equal shapes, each as one array. If there are no
    elements, `sizes` determine the shapes.
    """
    if not elements:
        assert sizes is not None
        return [
            np.empty((0, *(n or 0 for n in size or ())), dtype.numpy)
            for dtype, size in zip(types, sizes, strict=True)
        ]
    return [
        _stack(column, dtype)
        for column, dtype in zip(zip(*elements, strict=True), types, strict=True)
    ]


def _stack(values: Sequence[Any], dtype: DType) -> np.ndarray:
    first = values[0]
    shape = np.shape(first)
    if shape and dtype.numpy.kind != "O":
        return np.concatenate(values).reshape(len(values), *shape)
    if not shape and dtype.numpy.kind != "O":
        return np.array(values, dtype.numpy)
    batch = np.empty((len(values), *shape), object)
    for i, value in enumerate(values):
        if isinstance(value, np.ndarray):
            batch[i, ...] = value  # copies the contents, even of an array of one
        else:
            batch[i] = value
    return batch


def pad_together(
    elements: Sequence[tuple[Any, ...]], types: Sequence[DType], sizes: Sequence[Sizes]
) -> list[Any]:
    """Return the components of elements, each as one array. An unknown size becomes the largest
    one; shorter values are padded with zeros or empty strings.
    """
    if not elements:
        return stack(elements, types, sizes)
    columns = zip(*elements, strict=True)
    return [_pad(*column) for column in zip(columns, types, sizes, strict=True)]


def _pad(values: Sequence[Any], dtype: DType, sizes: Sizes) -> np.ndarray:
    shapes = {np.shape(v) for v in values}
    if len(shapes) == 1:
        return _stack(values, dtype)
    largest = tuple(max(lengths) for lengths in zip(*shapes, strict=True))
    blank = b"" if dtype.numpy.kind == "O" else 0
    batch = np.full((len(values), *largest), blank, dtype.numpy)
    for i, value in enumerate(values):
        batch[(i, *(slice(n) for n in np.shape(value)))] = value
    return batch
