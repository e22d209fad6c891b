"""Kernels on ragged arrays. In: flat values, and row splits or row numbers. Out: the same, sparse
arrays, dense arrays, or variants.

Row i of `splits` is the values from `splits[i]` to `splits[i + 1]`. Of nested splits the first
belongs to the outermost rows; each cuts the rows of the next, the last cuts the values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.room import check_room
from headrace._src.ops.array.index_checks import check_indices

__all__ = [
    "Encoded",
    "from_variant",
    "gather",
    "ragged_range",
    "to_sparse",
    "to_tensor",
    "to_variant",
]


def _splits_of(lengths: np.ndarray, dtype: Any) -> np.ndarray:
    splits = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    return splits.astype(dtype, copy=False)


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return starts[0], starts[0] + 1, ... for each row, all in one vector."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


# -- RaggedRange -----------------------------------------------------------------------------------


def _range_length(start: Any, limit: Any, delta: Any) -> int:
    if delta == 0:
        raise ValueError("Requires delta != 0")
    if isinstance(start, int):
        return max(0, -((start - limit) // delta))
    length = (limit - start) / delta
    if not math.isfinite(length):
        raise ValueError(f"Requires finite bounds, got {start}, {limit} and {delta}")
    return max(0, math.ceil(length))


def ragged_range(starts: Any, limits: Any, deltas: Any, *, Tsplits: Any) -> tuple[Any, Any]:
    """Return the splits and values of one range per row. As in TensorFlow, floating-point values
    are sums of all earlier steps.
    """
    given = [np.asarray(x) for x in (starts, limits, deltas)]
    if any(x.ndim > 1 for x in given):
        raise ValueError("starts, limits, and deltas must be scalars or vectors")
    sizes = {len(x) for x in given if x.ndim}
    if len(sizes) > 1:
        raise ValueError("starts, limits, and deltas must have the same shape")
    count = sizes.pop() if sizes else 1
    rows = [np.broadcast_to(x, count) for x in given]
    kind = rows[0].dtype
    wide = int if kind.kind in "iu" else float
    lengths = [
        _range_length(wide(a), wide(b), wide(d))
        for a, b, d in zip(*(x.tolist() for x in rows), strict=True)
    ]
    check_room((sum(lengths),), kind, "a ragged range")
    sized = np.array(lengths, np.int64)
    if wide is int:
        steps = _ranges(np.zeros(count, np.int64), sized)
        with np.errstate(over="ignore"):
            values = np.repeat(rows[0], sized) + steps.astype(kind) * np.repeat(rows[2], sized)
    else:
        parts = [np.full(n, d, kind) for n, d in zip(lengths, rows[2], strict=True)]
        for part, start in zip(parts, rows[0], strict=True):
            part[:1] = start
        parts = [np.add.accumulate(part, dtype=kind) if len(part) else part for part in parts]
        values = np.concatenate([np.zeros(0, kind), *parts])
    return _splits_of(sized, Tsplits.numpy), values.astype(kind, copy=False)


# -- RaggedGather ----------------------------------------------------------------------------------


def _check_sorted(splits: np.ndarray, size: int) -> None:
    if len(splits) and splits[0] < 0:
        raise ValueError("Ragged splits must be non-negative")
    if (np.diff(splits) < 0).any():
        raise ValueError("Ragged splits must be sorted")
    if len(splits) and splits[-1] > size:
        raise ValueError("Ragged splits must not point past values")


def gather(
    params_nested_splits: Sequence[np.ndarray],
    params_dense_values: Any,
    indices: Any,
    *,
    OUTPUT_RAGGED_RANK: int,
    Tsplits: Any,
) -> list[Any]:
    """Return the nested splits and the values of some rows."""
    splits = [np.asarray(s) for s in params_nested_splits]
    values, places = np.asarray(params_dense_values), np.asarray(indices)
    if values.ndim < 1:
        raise ValueError("params.rank must be nonzero")
    if any(s.ndim != 1 for s in splits):
        raise ValueError("each splits tensor must be a vector")
    if places.ndim - 1 + len(splits) != OUTPUT_RAGGED_RANK:
        raise ValueError(
            f"indices of rank {places.ndim} and {len(splits)} splits give ragged rank "
            f"{places.ndim - 1 + len(splits)}, not {OUTPUT_RAGGED_RANK}"
        )
    sizes = [len(s) - 1 for s in splits[1:]] + [len(values)]
    for level, size in zip(splits, sizes, strict=True):
        _check_sorted(level, max(size, 0))
    rows = check_indices(places, max(len(splits[0]) - 1, 0)).ravel()
    found = []
    for size in places.shape[1:]:
        count = math.prod(places.shape[: len(found) + 1])
        found.append(np.arange(count + 1) * size)
    for level in splits:
        lengths = level[rows + 1] - level[rows]
        found.append(_splits_of(lengths, np.int64))
        check_room((int(found[-1][-1]),), np.int64, "a ragged gather")
        rows = _ranges(level[rows].astype(np.int64), lengths.astype(np.int64))
    nested = [s.astype(Tsplits.numpy) for s in found]
    if not places.ndim:  # one row: its own dimension, the first, is gone
        nested = nested[1:]
    return [*nested, values[rows]]


# -- RaggedTensorToSparse --------------------------------------------------------------------------


def to_sparse(rt_nested_splits: Sequence[np.ndarray], rt_dense_values: Any) -> tuple[Any, ...]:
    """Return indices, values and shape of the sparse array with these rows."""
    splits = [np.asarray(s) for s in rt_nested_splits]
    values = np.asarray(rt_dense_values)
    if values.ndim < 1:
        raise ValueError("rt_dense_values must be at least a vector")
    sizes = [len(s) - 1 for s in splits[1:]] + [len(values)]
    for level, size in zip(splits, sizes, strict=True):
        if level.ndim != 1:
            raise ValueError("each splits tensor must be a vector")
        if not len(level):
            raise ValueError("ragged splits may not be empty.")
        if level[0] != 0:
            raise ValueError("First value of ragged splits must be 0.")
        if (np.diff(level) < 0).any():
            raise ValueError("Ragged splits should be non decreasing.")
        if level[-1] != size:
            raise ValueError(
                "Final value of ragged splits must match the length the corresponding ragged "
                "values."
            )
    columns = [np.arange(len(splits[0]) - 1)]
    shape = [len(splits[0]) - 1]
    for level in splits:
        lengths = np.diff(level)
        columns = [np.repeat(c, lengths) for c in columns]
        columns.append(_ranges(np.zeros(len(lengths), np.int64), lengths))
        shape.append(int(lengths.max(initial=0)))
    inner = values.shape[1:]
    block = math.prod(inner)
    indices = np.empty((len(values), block, len(shape) + len(inner)), np.int64)
    for axis, column in enumerate(columns):
        indices[:, :, axis] = column[:, None]
    if inner:
        indices[:, :, len(shape) :] = np.stack(np.unravel_index(np.arange(block), inner), -1)
    return (
        indices.reshape(-1, len(shape) + len(inner)),
        values.ravel(),
        np.array([*shape, *inner], np.int64),
    )


# -- RaggedTensorToTensor --------------------------------------------------------------------------


def _row_numbers(
    tensor: np.ndarray, kind: str, rows: int, count: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each of `count` children, if it's known, and its place in that row."""
    if kind == "ROW_SPLITS":
        if len(tensor) != rows + 1:
            raise ValueError(f"{len(tensor)} row splits can't cut {rows} rows")
        if count is not None and tensor[-1] != count:
            raise ValueError(f"row splits end at {tensor[-1]}, but there are {count} values")
        check_room((int(tensor[-1]),), np.int64, "a row partition")
        lengths = np.diff(tensor)
        if tensor[0] != 0 or (lengths < 0).any():
            raise ValueError("Ragged splits must start with 0 and be sorted")
        return np.repeat(np.arange(rows), lengths), _ranges(np.zeros(rows, np.int64), lengths)
    if len(tensor) and ((np.diff(tensor) < 0).any() or tensor[0] < 0 or tensor[-1] >= rows):
        raise ValueError(f"value_rowids must be sorted, and in [0, {rows})")
    lengths = np.bincount(tensor, minlength=rows)
    return tensor.astype(np.int64), _ranges(np.zeros(rows, np.int64), lengths)


def to_tensor(
    shape: Any,
    values: Any,
    default_value: Any,
    row_partition_tensors: Sequence[Any],
    *,
    row_partition_types: Sequence[Any],
) -> np.ndarray:
    """Return the dense array of ragged rows; `shape` cuts or fills it, where it isn't -1."""
    kinds = [t.decode() if isinstance(t, bytes) else t for t in row_partition_types]
    tensors = [np.asarray(t) for t in row_partition_tensors]
    values, default = np.asarray(values), np.asarray(default_value)
    if any(t.ndim != (kind != "FIRST_DIM_SIZE") for t, kind in zip(tensors, kinds, strict=True)):
        raise ValueError("row_partition_tensors must be vectors, FIRST_DIM_SIZE a scalar")
    if values.ndim < 1:
        raise ValueError("values must be at least a vector")
    if kinds[0] == "FIRST_DIM_SIZE":
        rows = int(tensors[0])
        kinds, tensors = kinds[1:], tensors[1:]
    else:
        rows = len(tensors[0]) - 1
    if rows < 0:
        raise ValueError("row splits may not be empty")
    check_room((rows,), np.int64, "the first dimension")
    places = [np.arange(rows)]
    bounds = [rows]
    counts = [
        len(t) - 1 if k == "ROW_SPLITS" else None for k, t in zip(kinds, tensors, strict=True)
    ]
    for kind, tensor, count in zip(kinds, tensors, [*counts[1:], len(values)], strict=True):
        parents, within = _row_numbers(tensor, kind, rows, count)
        places = [p[parents] for p in places] + [within]
        bounds.append(int(within.max(initial=-1)) + 1)
        rows = len(parents)
    if rows != len(values):
        raise ValueError(f"the row partition has {rows} values, not {len(values)}")
    sizes = [*bounds, *values.shape[1:]]
    wanted = np.asarray(shape)
    if wanted.ndim:
        if len(wanted) != len(sizes):
            raise ValueError(f"shape has {len(wanted)} dimensions, the values have {len(sizes)}")
        sizes = [n if w < 0 else int(w) for n, w in zip(sizes, wanted, strict=True)]
    elif wanted != -1:
        raise ValueError("the only valid scalar shape is the fully unknown shape -1")
    if tuple(sizes[len(bounds) :]) != values.shape[1:]:
        raise ValueError(f"shape {sizes} doesn't end with the values' {list(values.shape[1:])}")
    check_room(sizes, values.dtype, "a dense tensor of ragged rows")
    result = np.empty(sizes, values.dtype)
    result[...] = np.broadcast_to(default, values.shape[1:])
    inside = np.ones(len(values), bool)
    for place, size in zip(places, sizes, strict=False):
        inside &= place < size
    result[tuple(p[inside] for p in places)] = values[inside]
    return result


# -- Variants --------------------------------------------------------------------------------------


class Encoded:
    """A ragged array in a variant: its nested splits and its values."""

    __slots__ = ("splits", "values")

    def __init__(self, splits: Sequence[np.ndarray], values: np.ndarray) -> None:
        self.splits = tuple(splits)
        self.values = values


def to_variant(
    rt_nested_splits: Sequence[np.ndarray], rt_dense_values: Any, *, batched_input: bool
) -> Any:
    """Return a ragged array as a variant, or as one variant per row."""
    splits = [np.asarray(s) for s in rt_nested_splits]
    values = np.asarray(rt_dense_values)
    sizes = [len(s) - 1 for s in splits[1:]] + [len(values)]
    for level, size in zip(splits, sizes, strict=True):
        _check_sorted(level, max(size, 0))
    if not batched_input:
        return Encoded(splits, values)
    rows = np.empty(max(len(splits[0]) - 1, 0), object)
    for i in range(len(rows)):
        first, last = int(splits[0][i]), int(splits[0][i + 1])
        cut = []
        for level in splits[1:]:
            part = level[first : last + 1]
            cut.append(part - part[0])
            first, last = int(part[0]), int(part[-1])
        rows[i] = Encoded(cut, values[first:last])
    return rows


def _invalid(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(None, None, message)


def from_variant(
    encoded_ragged: Any,
    *,
    input_ragged_rank: int,
    output_ragged_rank: int,
    Tvalues: Any,
    Tsplits: Any,
) -> list[Any]:
    """Return the nested splits and values of an array of variants: its dimensions come first."""
    outer = np.shape(encoded_ragged)
    depth = output_ragged_rank - len(outer) if input_ragged_rank < 0 else input_ragged_rank
    if depth < 0 or depth + len(outer) != output_ragged_rank:
        raise _invalid(
            "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(); "
            f"output_ragged_rank: {output_ragged_rank}, input_ragged_rank: {input_ragged_rank}, "
            f"encoded_ragged.dims(): {len(outer)}"
        )
    given = encoded_ragged
    rows = given.ravel().tolist() if isinstance(given, np.ndarray) else [given]
    for row in rows:
        if not isinstance(row, Encoded):
            raise _invalid(f"Input is not a ragged tensor. Saw: '{type(row).__name__}'")
        if len(row.splits) != depth:
            raise _invalid(
                "Encoded input Variant must hold either input_ragged_rank + 1 Tensors or an empty "
                f"Tensor; input_ragged_rank: {depth}, it holds {len(row.splits) + 1}"
            )
        if any(s.dtype != Tsplits.numpy for s in row.splits):
            raise _invalid(f"Expected splits Tensor dtype: {Tsplits.name}")
        if row.values.dtype != Tvalues.numpy:
            raise _invalid(f"Expected values Tensor dtype: {Tvalues.name}")
    if not outer:
        return [*rows[0].splits, rows[0].values]
    nested = [np.arange(math.prod(outer[:axis]) + 1) * outer[axis] for axis in range(1, len(outer))]
    counts = [len(row.splits[0]) - 1 if depth else len(row.values) for row in rows]
    nested.append(_splits_of(np.array(counts, np.int64), np.int64))
    for level in range(depth):
        lengths = [np.diff(row.splits[level]) for row in rows]
        nested.append(_splits_of(np.concatenate([np.zeros(0, np.int64), *lengths]), np.int64))
    shapes = {row.values.shape[1:] for row in rows}
    if len(shapes) > 1:
        raise _invalid(f"All flat_values must have compatible shapes, got {sorted(shapes)}")
    inner = shapes.pop() if shapes else ()
    values = np.concatenate([np.zeros((0, *inner), Tvalues.numpy), *(row.values for row in rows)])
    return [*(s.astype(Tsplits.numpy) for s in nested), values]
