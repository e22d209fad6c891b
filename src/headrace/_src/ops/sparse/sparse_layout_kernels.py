"""Joining, slicing and rearranging sparse tensors. In and out: indices, values, dense shape (see
sparse_kernels).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from headrace._src.core import dtypes, proto
from headrace._src.core.tensor_proto import to_array
from headrace._src.devices.room import check_room
from headrace._src.ops.array.group_by_key import stable_order
from headrace._src.ops.sparse.sparse_kernels import (
    check_bounds,
    check_order,
    check_parts,
    check_shape,
    in_order,
    inside,
    joint_keys,
    keys,
)
from headrace._src.ops.strings.string_arrays import of_strings

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]


def sparse_reorder(input_indices, input_values, input_shape):
    """Return the same elements in the order of their indices."""
    return in_order(*check_parts(input_indices, input_values, input_shape))[:2]


def complete_shape(sizes: list[int], total: int) -> list[int]:
    """Return `sizes` with a -1 among them replaced so that their product is `total`."""
    if any(n < -1 for n in sizes):
        raise ValueError(f"size must be non-negative or -1, got {sizes}")
    if sizes.count(-1) > 1:
        raise ValueError("only one output dimension may be -1")
    known = math.prod(n for n in sizes if n != -1)
    if -1 in sizes:
        if known == 0:
            raise ValueError("reshape cannot infer the missing input size for an empty tensor")
        if total % known:
            raise ValueError(
                f"Input to reshape is a SparseTensor with {total} dense values, but the requested "
                f"shape requires a multiple of {known}"
            )
        sizes = [total // known if n == -1 else n for n in sizes]
    elif known != total:
        raise ValueError(
            f"Input to reshape is a tensor with {total} dense values, but the requested shape has "
            f"{known}"
        )
    return sizes


def sparse_reshape(input_indices, input_shape, new_shape):
    """Return the indices of the same elements in a tensor of another shape."""
    indices, shape, wanted = (
        np.asarray(input_indices),
        np.asarray(input_shape),
        np.asarray(new_shape),
    )
    indices, _, shape = check_parts(indices, np.zeros(len(indices) if indices.ndim else 0), shape)
    if wanted.ndim != 1:
        raise ValueError(f"Target shape should be a vector, got rank {wanted.ndim}")
    total = math.prod(shape.tolist())
    if total > np.iinfo(np.int64).max:
        raise ValueError(f"A tensor of shape {shape.tolist()} has too many elements to reshape")
    sizes = complete_shape(wanted.tolist(), total)
    # A row may be outside the shape: its position then is too, and may be negative.
    flat = np.zeros(len(indices), np.int64)
    for axis, n in enumerate(shape.tolist()):
        flat = flat * n + indices[:, axis]
    result = np.empty((len(flat), len(sizes)), np.int64)
    for axis in range(len(sizes) - 1, 0, -1):
        result[:, axis] = np.fmod(flat, max(sizes[axis], 1))
        flat = (flat - result[:, axis]) // max(sizes[axis], 1)
    result[:, :1] = flat[:, None]
    return result, np.array(sizes, np.int64)


def sparse_concat(indices, values, shapes, *, concat_dim):
    """Return the elements of all inputs, in order, each input's shifted past those before it."""
    parts = [check_parts(*part) for part in zip(indices, values, shapes, strict=True)]
    rank = len(parts[0][2])
    if not -rank <= concat_dim < rank:
        raise ValueError(f"Concat dimension must be in range [{-rank}, {rank}), got {concat_dim}")
    axis = concat_dim % rank
    result = np.array(parts[0][2])
    moved = []
    offset = 0
    for position, (rows, _, shape) in enumerate(parts):
        if len(shape) != rank:
            raise ValueError(
                f"Ranks of all input tensors must match: expected {rank}, got {len(shape)}"
            )
        differing = [d for d in range(rank) if d != axis and shape[d] != result[d]]
        if differing:
            d = differing[0]
            raise ValueError(
                f"Input shapes must match: expected {result[d]} for dimension {d} but got "
                f"{shape[d]} at position {position}"
            )
        shift = np.zeros(rank, np.int64)
        shift[axis] = offset
        moved.append(rows + shift)
        offset += int(shape[axis])
    result[axis] = offset
    joined = np.concatenate([v for _, v, _ in parts])
    return *in_order(np.concatenate(moved), joined, result)[:2], result


def sparse_split(split_dim, indices, values, shape, *, num_split):
    """Split into `num_split` pieces along a dimension; the first ones are longer by one if
    necessary.
    """
    rows, elements, sizes = check_parts(indices, values, shape)
    dim = np.asarray(split_dim)
    if dim.size != 1:
        raise ValueError("split_dim must be a scalar")
    axis = int(dim.reshape(()))
    if not 0 <= axis < len(sizes):
        raise ValueError(f"Input split_dim should be between 0 and rank ({len(sizes)}), got {axis}")
    size = int(sizes[axis])
    if not 1 <= num_split <= size:
        raise ValueError(
            "Input num_split should be between 1 and the splitting dimension size "
            f"({size}), got {num_split}"
        )
    if (rows[:, axis] >= size).any():
        check_bounds(rows, sizes)
    lengths = [size // num_split + (i < size % num_split) for i in range(num_split)]
    starts = np.cumsum([0, *lengths])
    piece = np.maximum(np.searchsorted(starts, rows[:, axis], side="right") - 1, 0)
    outputs: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for i, length in enumerate(lengths):
        mine = piece == i
        moved = rows.compress(mine, axis=0)
        moved[:, axis] -= starts[i]
        outputs[0].append(moved)
        outputs[1].append(elements[mine])
        outputs[2].append(np.where(np.arange(len(sizes)) == axis, length, sizes))
    return [*outputs[0], *outputs[1], *outputs[2]]


def sparse_slice(indices, values, shape, start, size):
    """Return the elements inside a box, whose corner becomes the origin."""
    rows, elements, sizes = check_parts(indices, values, shape)
    corner, extent = np.asarray(start), np.asarray(size)
    if corner.shape != sizes.shape or extent.shape != sizes.shape:
        raise ValueError(f"start and size must have one element per dimension ({len(sizes)})")
    if (corner < 0).any() or (extent < 0).any():
        raise ValueError("start and size must not be negative")
    result = np.clip(np.minimum(extent, sizes - corner), 0, None)
    kept = inside(rows, corner, corner + result)
    return rows.compress(kept, axis=0) - corner, elements[kept], result


def sparse_slice_grad(backprop_val_grad, input_indices, input_start, output_indices):
    """Return the gradient of each input element: that of its element in the slice, 0 outside."""
    grad, start = np.asarray(backprop_val_grad), np.asarray(input_start)
    rows, kept = np.asarray(input_indices), np.asarray(output_indices)
    if rows.ndim != 2 or kept.ndim != 2 or not start.shape == rows.shape[1:] == kept.shape[1:]:
        raise ValueError("Input and output indices should be matrices with len(start) columns")
    if grad.shape != (len(kept),):
        raise ValueError(f"{grad.shape} gradients for {len(kept)} elements of the slice")
    mine, wanted = joint_keys(rows, kept + start)
    result = np.zeros(len(rows), grad.dtype)
    if len(mine):
        order = stable_order(mine)
        place = order[np.minimum(np.searchsorted(mine, wanted, sorter=order), len(mine) - 1)]
        if (mine[place] != wanted).any():
            raise ValueError("an element of the slice is not in the input")
        result[place] = grad
    elif len(wanted):
        raise ValueError("an element of the slice is not in the input")
    return result


def sparse_fill_empty_rows(indices, values, dense_shape, default_value):
    """Return the elements by row, with a default at column 0 of every empty row."""
    rows, elements, shape = check_parts(indices, values, dense_shape)
    default = np.asarray(default_value)
    if default.ndim:
        raise ValueError(f"default_value must be a scalar, saw shape: {list(default.shape)}")
    if not len(shape):
        raise ValueError("Dense shape cannot be empty.")
    count = int(shape[0])
    row = rows[:, 0]
    if len(row) and (row.min() < 0 or row.max() >= count):
        bad = int(np.argmax((row < 0) | (row >= count)))
        raise ValueError(f"indices({bad}, 0) is invalid: {row[bad]} >= {count}")
    check_room((count, len(shape)), np.int64, "dense_shape")
    empty = np.bincount(row, minlength=count) == 0 if count else np.zeros(0, bool)
    missing = np.zeros((int(empty.sum()), len(shape)), np.int64)
    missing[:, 0] = np.flatnonzero(empty)
    joined = np.concatenate([rows, missing])
    order = stable_order(joined[:, 0])
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    filler = np.full(
        len(missing), default.item() if default.dtype == object else default, default.dtype
    )
    filled = np.concatenate([elements, filler])[order]
    return joined.take(order, axis=0), filled, empty, position[: len(rows)]


def sparse_fill_empty_rows_grad(reverse_index_map, grad_values):
    """Return the gradients of the values and of the default."""
    places, grad = np.asarray(reverse_index_map), np.asarray(grad_values)
    if places.ndim != 1 or grad.ndim != 1:
        raise ValueError("reverse_index_map and grad_values must be vectors")
    if len(places) and (places.min() < 0 or places.max() >= len(grad)):
        raise ValueError(f"Elements in reverse index must be in [0, {len(grad)})")
    rest = np.ones(len(grad), bool)
    rest[places] = False
    return grad[places], np.asarray(grad[rest].sum(dtype=grad.dtype))


# -- Serialization


def _message(array: np.ndarray) -> bytes:
    """Return the bytes of a TensorProto with packed content: for strings, all lengths, then all
    bytes.
    """
    array = np.ascontiguousarray(array)
    message: Any = proto.TensorProto()
    message.dtype = dtypes.of_array(array).as_datatype_enum
    for size in array.shape:
        message.tensor_shape.dim.add(size=size)
    if array.dtype == object:
        texts = array.ravel().tolist()
        message.tensor_content = b"".join(_varint(len(t)) for t in texts) + b"".join(texts)
    else:
        message.tensor_content = array.tobytes()
    return message.SerializeToString()


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _array(data: Any, what: str) -> np.ndarray:
    """Return the array of a serialized TensorProto, or of a variant, which contains it directly."""
    if isinstance(data, np.ndarray):
        return data
    message = proto.TensorProto()
    try:
        message.ParseFromString(data)
        if message.dtype == dtypes.string.as_datatype_enum and message.tensor_content:
            return _strings(message)
        return to_array(message)
    except Exception as error:
        raise ValueError(f"Could not parse serialized_sparse ({what}): {error}") from None


def _strings(message: Any) -> np.ndarray:
    shape = tuple(d.size for d in message.tensor_shape.dim)
    content, at, lengths = message.tensor_content, 0, []
    for _ in range(math.prod(shape)):
        length = shift = 0
        while True:
            byte = content[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        lengths.append(length)
    ends = (at + np.cumsum(lengths, dtype=np.int64)).tolist()
    if (ends[-1] if ends else at) != len(content):
        raise ValueError("the strings' lengths do not add up")
    return of_strings((content[e - n : e] for e, n in zip(ends, lengths, strict=True)), shape)


def _packed(parts: Parts, as_variant: bool) -> list[Any]:
    return list(parts) if as_variant else [_message(part) for part in parts]


def _table(rows: list[list[Any]]) -> np.ndarray:
    """Return an object array with a row per sparse tensor; np.array would unpack the elements."""
    table = np.empty((len(rows), 3), object)
    for i, row in enumerate(rows):
        for k, item in enumerate(row):
            table[i, k] = item
    return table


def serialize_sparse(sparse_indices, sparse_values, sparse_shape, *, out_type):
    """Return the three parts as serialized TensorProtos."""
    parts = check_parts(sparse_indices, sparse_values, sparse_shape)
    return _table([_packed(parts, out_type is dtypes.variant)])[0]


def serialize_many_sparse(sparse_indices, sparse_values, sparse_shape, *, out_type):
    """Return a row of three serialized TensorProtos per entry of the first dimension."""
    indices, values, shape = check_parts(sparse_indices, sparse_values, sparse_shape)
    if len(shape) < 2:
        raise ValueError(f"Rank of input SparseTensor should be > 1, but saw rank: {len(shape)}")
    check_order(indices, keys(indices, shape))
    check_room((shape[0], 3), object, "sparse_shape")
    order = stable_order(indices[:, 0])
    rows, elements = indices[order], values[order]
    bounds = np.searchsorted(rows[:, 0], np.arange(int(shape[0]) + 1)).tolist()
    as_variant = out_type is dtypes.variant
    return _table(
        [
            _packed((rows[i:k, 1:], elements[i:k], shape[1:]), as_variant)
            for i, k in itertools.pairwise(bounds)
        ]
    )


def _parsed(row: np.ndarray, dtype: Any) -> Parts:
    indices, values, shape = (_array(item, f"part {k}") for k, item in enumerate(row.tolist()))
    if indices.dtype != np.int64 or shape.dtype != np.int64 or values.dtype != dtype.numpy:
        raise ValueError(
            f"Expected int64 indices and shape and {dtype.name} values, got {indices.dtype}, "
            f"{shape.dtype} and {values.dtype}"
        )
    check_shape(shape)
    return check_parts(indices, values, shape)


def deserialize_sparse(serialized_sparse, *, dtype):
    """Stack serialized sparse tensors: leading dimensions are those of the input."""
    packed = np.asarray(serialized_sparse)
    if packed.ndim < 1 or packed.shape[-1] != 3:
        raise ValueError(
            f"Serialized sparse should have 3 as the last dimension, got {packed.shape}"
        )
    outer = packed.shape[:-1]
    if not packed.size:
        raise ValueError(
            "Must have at least 1 serialized SparseTensor, but input matrix has 0 rows"
        )
    parts = [_parsed(row, dtype) for row in packed.reshape(-1, 3)]
    if not outer:
        return parts[0]
    ranks = {len(shape) for _, _, shape in parts}
    if len(ranks) > 1:
        raise ValueError(f"Inconsistent rank across SparseTensors: {sorted(ranks)}")
    counts = [len(values) for _, values, _ in parts]
    where = np.stack(np.unravel_index(np.repeat(np.arange(len(parts)), counts), outer), axis=1)
    inner = np.concatenate([indices for indices, _, _ in parts])
    return (
        np.concatenate([where.astype(np.int64), inner], axis=1),
        np.concatenate([values for _, values, _ in parts]),
        np.concatenate([np.array(outer, np.int64), np.max([s for _, _, s in parts], axis=0)]),
    )


def deserialize_many_sparse(serialized_sparse, *, dtype):
    """As deserialize_sparse, for a matrix."""
    packed = np.asarray(serialized_sparse)
    if packed.ndim != 2:
        raise ValueError(f"Serialized sparse should be a matrix, got rank {packed.ndim}")
    return deserialize_sparse(packed, dtype=dtype)
