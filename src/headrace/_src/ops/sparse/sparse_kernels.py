"""Sparse tensors in coordinate form. In: indices (a row of coordinates per element), values, dense
shape. Out: arrays, or the parts of another sparse tensor.

A row of coordinates maps to one integer, its key, which orders elements as rows are ordered. With
keys, merging is sorting, grouping is finding runs, and looking up is searching: no kernel here
iterates over elements. Elements need not be in order unless a kernel says so. Rows are selected
with `take` and `compress`, which on short rows are many times faster than indexing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import show_shape
from headrace._src.devices.room import check_room
from headrace._src.ops.array.group_by_key import row_groups, stable_order
from headrace._src.ops.math.sum_precision import widened

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]

_LARGEST = np.iinfo(np.int64).max
_FEW = 64  # rows


def check_parts(indices: Any, values: Any, shape: Any) -> Parts:
    """Return the parts as arrays, after checking that they form a sparse tensor."""
    indices, values, shape = np.asarray(indices), np.asarray(values), np.asarray(shape)
    if indices.ndim != 2:
        raise ValueError(f"Input indices should be a matrix but received shape {_show(indices)}")
    if values.ndim != 1:
        raise ValueError(f"Input values should be a vector but received shape {_show(values)}")
    check_shape(shape)
    if len(indices) != len(values):
        raise ValueError(f"{len(indices)} indices for {len(values)} values")
    if indices.shape[1] != len(shape):
        raise ValueError(
            f"Indices have {indices.shape[1]} coordinates for a shape of {len(shape)} dimensions"
        )
    return indices, values, shape


def check_shape(shape: np.ndarray) -> None:
    """Raise ValueError unless `shape` is a vector of sizes."""
    if shape.ndim != 1:
        raise ValueError(f"Input shape should be a vector but received shape {_show(shape)}")
    if (shape < 0).any():
        raise ValueError(f"Input shape has a negative size: {shape.tolist()}")


def _show(array: np.ndarray) -> str:
    return show_shape(array.shape)


def inside(indices: np.ndarray, start: Any, stop: Any) -> np.ndarray:
    """Return which rows are in the box from `start` up to `stop`. Rows are short, so go
    by columns.
    """
    if len(indices) <= _FEW:  # all at once is faster
        return ((indices >= start) & (indices < stop)).all(axis=1)
    found = np.ones(len(indices), bool)
    for axis in range(indices.shape[1]):
        column = indices[:, axis]
        found &= (column >= start[axis]) & (column < stop[axis])
    return found


def check_bounds(indices: np.ndarray, shape: Any) -> None:
    """Raise ValueError that names the first row outside `shape`."""
    found = inside(indices, np.zeros(len(shape), np.int64), shape)
    if not found.all():
        row = int(np.argmin(found))
        raise ValueError(
            f"indices[{row}] = {_coordinates(indices[row])} is out of bounds: need 0 <= index < "
            f"{_coordinates(np.asarray(shape))}"
        )


def _coordinates(row: np.ndarray) -> str:
    return "[" + ",".join(map(str, row.tolist())) + "]"


def keys(indices: np.ndarray, shape: Any) -> np.ndarray:
    """Return one integer per row, in the order of the rows; every row must be inside `shape`."""
    sizes = [int(n) for n in shape]
    check_bounds(indices, np.asarray(shape, np.int64))
    total = 1
    for n in sizes:
        total *= max(n, 1)
    found = np.zeros(len(indices), np.int64)
    for axis, n in enumerate(sizes):
        column = indices[:, axis].astype(np.int64, copy=False)
        if total > _LARGEST:
            # The shape has more cells than int64 has numbers: number those that occur instead.
            found = np.unique(found, return_inverse=True)[1].reshape(-1)
            column, n = np.unique(column, return_inverse=True)[1].reshape(-1), len(column)
        found = found * max(n, 1) + column
    return found


def joint_keys(*tables: np.ndarray) -> list[np.ndarray]:
    """Return keys that compare rows of several index matrices, of any shape."""
    rows = np.concatenate(tables)
    rows = rows - rows.min(axis=0, initial=0)
    found = keys(rows, rows.max(axis=0, initial=0) + 1)
    return np.split(found, np.cumsum([len(t) for t in tables[:-1]]))


def is_sorted(found: np.ndarray) -> bool:
    return bool((found[1:] >= found[:-1]).all())


def run_starts(found: np.ndarray) -> np.ndarray:
    """Return where each run of equal, sorted keys begins."""
    return np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]]))[: len(found)]


def check_order(indices: np.ndarray, found: np.ndarray) -> None:
    """Raise ValueError unless the keys of `indices` increase."""
    steps = found[1:] <= found[:-1]
    if not steps.any():
        return
    row = int(np.argmax(steps)) + 1
    where = f"indices[{row}] = {_coordinates(indices[row])}"
    if found[row] == found[row - 1]:
        raise ValueError(f"{where} is repeated")
    raise ValueError(
        f"{where} is out of order. Many sparse ops require sorted indices.\n"
        "    Use `tf.sparse.reorder` to create a correctly ordered copy."
    )


def check_same_shape(a_shape: np.ndarray, b_shape: np.ndarray) -> None:
    if a_shape.tolist() != b_shape.tolist():
        raise ValueError(
            f"Operands' shapes do not match: {_coordinates(a_shape)} and {_coordinates(b_shape)}"
        )


# -- To and from dense


def sparse_to_dense(
    sparse_indices, output_shape, sparse_values, default_value, *, validate_indices
):
    """Scatter values into an array of the default; a single value is written to every index."""
    indices, shape = np.asarray(sparse_indices), np.asarray(output_shape)
    values, default = np.asarray(sparse_values), np.asarray(default_value)
    if indices.ndim > 2:
        raise ValueError(
            f"sparse_indices should be a scalar, vector, or matrix, got {_show(indices)}"
        )
    if indices.ndim < 2:
        indices = indices.reshape(-1, 1)
    if values.ndim > 1:
        raise ValueError(f"sparse_values must be a scalar or a vector, got shape {_show(values)}")
    if default.ndim:
        raise ValueError("default_value should be a scalar.")
    if values.ndim == 0:
        values = np.broadcast_to(values, len(indices))
    indices, values, shape = check_parts(indices, values, shape)
    if validate_indices:
        check_order(indices, keys(indices, shape))
    elif not inside(indices, np.zeros_like(shape), shape).all():
        raise ValueError(f"Indices are not valid (out of bounds).  Shape: {_coordinates(shape)}")
    check_room(shape.tolist(), default.dtype, "output_shape")
    dense = np.full(
        shape.tolist(), default.item() if default.dtype == object else default, default.dtype
    )
    dense[tuple(indices.T)] = values
    return dense


# -- Arithmetic


def row_keys(indices: np.ndarray, shape: Any) -> np.ndarray:
    """Return keys of rows that may be outside `shape`: ops that only sort rows allow them."""
    if inside(indices, np.zeros(len(shape), np.int64), shape).all():
        return keys(indices, shape)
    return joint_keys(indices)[0]


def in_order(indices: np.ndarray, values: np.ndarray, shape: Any) -> Parts:
    """Return (indices, values, keys) sorted by key."""
    found = row_keys(indices, shape)
    if is_sorted(found):
        return indices, values, found
    order = stable_order(found)
    return indices.take(order, axis=0), values[order], found[order]


def _merged(a: Parts, b: Parts) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the union of two index sets: (indices, values of a or 0, values of b or 0,
    in both?).
    """
    check_same_shape(a[2], b[2])
    ka, kb = joint_keys(a[0], b[0])
    a_at, b_at = _merged_places(ka, kb)
    count = int(max(a_at.max(initial=-1), b_at.max(initial=-1))) + 1
    indices = np.empty((count, a[0].shape[1]), a[0].dtype)
    indices[a_at], indices[b_at] = a[0], b[0]
    left, right = np.zeros(count, a[1].dtype), np.zeros(count, b[1].dtype)
    left[a_at], right[b_at] = a[1], b[1]
    times = np.zeros(count, np.int8)
    times[a_at] += 1
    times[b_at] += 1
    return indices, left, right, times == 2


def _merged_places(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the elements of two lists of keys in the merged list; equal keys
    share one position.
    """
    if not (np.all(a[1:] > a[:-1]) and np.all(b[1:] > b[:-1])):
        return _walked_places(a.tolist(), b.tolist())
    place = np.searchsorted(a, b)
    both = place < len(a)
    both[both] = a[place[both]] == b[both]
    new = place[~both]  # elements only in b; each is inserted before this element of a
    shift = np.cumsum(np.bincount(new, minlength=len(a) + 1))[: len(a)]
    a_at = np.arange(len(a)) + shift
    b_at = np.empty(len(b), np.int64)
    b_at[~both] = new + np.arange(len(new))
    b_at[both] = a_at[place[both]]
    return a_at, b_at


def _walked_places(a: list[int], b: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The same for lists that are unsorted or have repetitions, element by element in TensorFlow's
    order.
    """
    a_at, b_at = np.empty(len(a), np.int64), np.empty(len(b), np.int64)
    i = j = count = 0
    while i < len(a) or j < len(b):
        takes_a = j == len(b) or (i < len(a) and a[i] <= b[j])
        takes_b = i == len(a) or (j < len(b) and b[j] <= a[i])
        if takes_a:
            a_at[i] = count
            i += 1
        if takes_b:
            b_at[j] = count
            j += 1
        count += 1
    return a_at, b_at


def sparse_add(a_indices, a_values, a_shape, b_indices, b_values, b_shape, thresh):
    """Return a + b; a sum of two elements that is smaller than `thresh` is left out."""
    a, b = check_parts(a_indices, a_values, a_shape), check_parts(b_indices, b_values, b_shape)
    limit = np.asarray(thresh)
    if limit.ndim:
        raise ValueError(f"The magnitude threshold must be a scalar: got shape {_show(limit)}")
    indices, left, right, both = _merged(a, b)
    total = left + right
    keep = ~both | (np.abs(total) >= limit)
    return indices.compress(keep, axis=0), total[keep], a[2]


def _lookup(table: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return values[i] where table[i] == wanted, 0 where wanted isn't in the table."""
    if not len(table):
        return np.zeros(len(wanted), values.dtype)
    order = stable_order(table)
    place = order[np.minimum(np.searchsorted(table, wanted, sorter=order), len(table) - 1)]
    return np.where(table[place] == wanted, values[place], np.zeros((), values.dtype))


def sparse_add_grad(backprop_val_grad, a_indices, b_indices, sum_indices):
    """Return the gradient of each operand's values: that of the sum's element, 0 if it was left
    out.
    """
    grad = np.asarray(backprop_val_grad)
    tables = [np.asarray(t) for t in (a_indices, b_indices, sum_indices)]
    if any(t.ndim != 2 or t.shape[1] != tables[0].shape[1] for t in tables):
        raise ValueError("Input indices should be matrices of one width")
    if grad.shape != (len(tables[2]),):
        raise ValueError(f"{_show(grad)} gradients for {len(tables[2])} elements of the sum")
    a, b, total = joint_keys(*tables)
    return _lookup(total, grad, a), _lookup(total, grad, b)


def sparse_extremum(choose: Any) -> Any:
    """Return the kernel of SparseSparseMaximum or -Minimum; a missing element counts as 0."""

    def kernel(a_indices, a_values, a_shape, b_indices, b_values, b_shape):
        a, b = check_parts(a_indices, a_values, a_shape), check_parts(b_indices, b_values, b_shape)
        indices, left, right, _ = _merged(a, b)
        return indices, choose(left, right)

    return kernel


def divide(x: Any, y: Any) -> Any:
    """Return x / y, rounded toward zero for integers."""
    if np.asarray(x).dtype.kind not in "iu":
        return x / y
    if not np.all(y):
        raise ValueError("Integer division by zero")
    quotient = x // y
    return quotient + ((x % y != 0) & ((x < 0) != (y < 0))).astype(quotient.dtype)


def _broadcast_to_sparse(dense: Any, shape: np.ndarray) -> np.ndarray:
    dense = np.asarray(dense)
    sizes = tuple(shape.tolist())
    tail = sizes[len(sizes) - dense.ndim :]
    if dense.ndim > len(sizes) or any(
        m not in (n, 1) for m, n in zip(dense.shape, tail, strict=True)
    ):
        raise ValueError(
            "SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: "
            f"{_coordinates(shape)} vs. {_show(dense)}"
        )
    return np.broadcast_to(dense, sizes)


def sparse_dense_cwise(operation: Any) -> Any:
    """Return the kernel of an element-wise op of a sparse tensor and a dense one that broadcasts to
    it.
    """

    def kernel(sp_indices, sp_values, sp_shape, dense):
        indices, values, shape = check_parts(sp_indices, sp_values, sp_shape)
        whole = _broadcast_to_sparse(dense, shape)
        check_bounds(indices, shape)
        return operation(values, whole[tuple(indices.T)])

    return kernel


def sparse_tensor_dense_add(a_indices, a_values, a_shape, b):
    """Add the elements of a sparse tensor into a copy of a dense one."""
    indices, values, shape = check_parts(a_indices, a_values, a_shape)
    total = np.array(b)
    if total.shape != tuple(shape.tolist()):
        raise ValueError(
            "Shapes do not match (no broadcasting is supported): sparse side "
            f"{_coordinates(shape)} vs dense side {_show(total)}"
        )
    check_bounds(indices, shape)
    np.add.at(total, tuple(indices.T), values)
    return total


def sparse_tensor_dense_mat_mul(a_indices, a_values, a_shape, b, *, adjoint_a, adjoint_b):
    """Return the matrix product of a sparse and a dense matrix."""
    indices, values, shape = check_parts(a_indices, a_values, a_shape)
    dense = np.asarray(b)
    if len(shape) != 2 or dense.ndim != 2:
        raise ValueError(f"Tensors must be matrices, got ranks {len(shape)} and {dense.ndim}")
    if adjoint_b:
        dense = dense.conj().T
    rows, columns = indices[:, 0], indices[:, 1]
    names = "mk"
    sizes = [int(n) for n in shape]
    if adjoint_a:
        rows, columns, values, names, sizes = columns, rows, values.conj(), "km", sizes[::-1]
    if sizes[1] != len(dense):
        raise ValueError(
            f"Cannot multiply A and B because inner dimension does not match: {sizes[1]} vs. "
            f"{len(dense)}.  Did you forget a transpose?  Dimensions of A: "
            f"{_coordinates(shape)}.  Dimensions of B: {_show(np.asarray(b))}"
        )
    _check_factor(indices, shape, names)
    check_room((sizes[0], dense.shape[1]), dense.dtype, "a_shape")
    product = np.zeros((sizes[0], dense.shape[1]), dense.dtype)
    if not len(values) or not product.size:
        return product
    wide, values = widened(dense), widened(values)
    for found, places in row_groups(rows, dense.shape[1]):
        terms = wide.take(columns[places], 0)
        terms *= values[places][..., None]
        product[found] = terms.sum(axis=0, dtype=terms.dtype)
    return product


def _check_factor(indices: np.ndarray, shape: np.ndarray, names: str) -> None:
    for side in (0, 1):
        outside = (indices[:, side] < 0) | (indices[:, side] >= shape[side])
        if outside.any():
            row = int(np.argmax(outside))
            raise ValueError(
                f"{names[side]} ({indices[row, side]}) from index[{row},{side}] out of bounds "
                f"(>={shape[side]})"
            )


# -- Reductions


def _axes(reduction_axes: Any, rank: int) -> list[int]:
    if np.ndim(reduction_axes) > 1:
        raise ValueError(
            "Expected reduction_axes to be a scalar or a vector; got shape: "
            f"{_show(np.asarray(reduction_axes))}"
        )
    axes = np.asarray(reduction_axes).ravel().tolist()
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(
                f"Invalid reduction dimension {axis}, for input with {rank} dimensions."
            )
    return sorted({axis % rank for axis in axes})


def _reduced(ufunc: Any, parts: Parts, reduction_axes: Any, keep_dims: bool) -> Parts:
    """Return one element per group of elements that differ only in reduced coordinates,
    in order.
    """
    indices, values, shape = parts
    axes = _axes(reduction_axes, len(shape))
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    groups = row_keys(indices[:, kept], shape[kept])
    if not is_sorted(groups):
        order = stable_order(groups)
        indices, values, groups = indices.take(order, axis=0), values[order], groups[order]
    starts = run_starts(groups)
    found = indices.take(starts, axis=0)
    if keep_dims:
        found[:, axes] = 0
        shape = np.where(np.isin(np.arange(len(shape)), axes), 1, shape)
    else:
        found, shape = found[:, kept], shape[kept]
    if len(starts):
        values = ufunc.reduceat(values, starts, dtype=values.dtype)
    return found, values, shape


def sparse_reduce(ufunc: Any) -> Any:
    """Return the kernel of a reduction to a dense tensor; a cell without elements is 0."""

    def kernel(input_indices, input_values, input_shape, reduction_axes, *, keep_dims):
        parts = check_parts(input_indices, input_values, input_shape)
        indices, values, shape = _reduced(ufunc, parts, reduction_axes, keep_dims)
        check_room(shape.tolist(), values.dtype, "input_shape")
        dense = np.zeros(shape.tolist(), values.dtype)
        dense.reshape(-1)[keys(indices, shape)] = values
        return dense

    return kernel


def sparse_reduce_sparse(ufunc: Any) -> Any:
    """Return the kernel of a reduction to a sparse tensor."""

    def kernel(input_indices, input_values, input_shape, reduction_axes, *, keep_dims):
        parts = check_parts(input_indices, input_values, input_shape)
        return _reduced(ufunc, parts, reduction_axes, keep_dims)

    return kernel


def sparse_softmax(sp_indices, sp_values, sp_shape):
    """Return the softmax over the present elements of each row of the last dimension."""
    indices, values, shape = check_parts(sp_indices, sp_values, sp_shape)
    if len(shape) < 2:
        raise ValueError(f"Input should be at least a matrix but received rank {len(shape)}")
    groups = np.unique(row_keys(indices[:, :-1], shape[:-1]), return_inverse=True)[1].reshape(-1)
    if not len(groups):
        return values
    order = stable_order(groups)
    starts = run_starts(groups[order])
    powers = np.exp(values - np.maximum.reduceat(values[order], starts)[groups])
    return powers / np.add.reduceat(powers[order], starts)[groups]
