"""Sets of values, and edit distances of sequences. In: dense tensors, or parts of sparse ones, with
a set (or sequence) in the last dimension. Out: sets as parts of a sparse tensor, sizes, distances.

Each element becomes one integer, set index * number of distinct values + its value's rank, so that
an operation on all sets at once is one operation on integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace._src.devices.room import check_room, check_rows
from headrace._src.ops.array.group_by_key import stable_order
from headrace._src.ops.sparse.sparse_kernels import (
    check_order,
    check_parts,
    inside,
    keys,
    row_keys,
    run_starts,
)
from headrace._src.ops.strings.string_arrays import attr_bytes

Elements = tuple[np.ndarray, np.ndarray]  # (index of the set, value) of every element


def _dense_sets(array: np.ndarray) -> tuple[Elements, tuple[int, ...]]:
    if array.ndim < 2:
        raise ValueError(f"Input should be at least a matrix, got rank {array.ndim}")
    outer = array.shape[:-1]
    return (np.repeat(np.arange(math.prod(outer)), array.shape[-1]), array.ravel()), outer


def _sparse_sets(
    indices: Any, values: Any, shape: Any, validate: bool
) -> tuple[Elements, tuple[int, ...]]:
    rows, elements, sizes = check_parts(indices, values, shape)
    if len(sizes) < 2:
        raise ValueError(f"Input should be at least a matrix, got rank {len(sizes)}")
    found = keys(rows, sizes)
    if validate:
        check_order(rows, found)
    return (keys(rows[:, :-1], sizes[:-1]), elements), tuple(sizes[:-1].tolist())


_OPERATIONS = {
    b"a-b": np.setdiff1d,
    b"b-a": lambda a, b: np.setdiff1d(b, a),
    b"intersection": np.intersect1d,
    b"union": np.union1d,
}


def _operate(a: Elements, b: Elements, outer: tuple[int, ...], operation: str | bytes) -> Any:
    name = attr_bytes(operation)
    if name not in _OPERATIONS:
        raise ValueError(f"Invalid set_operation {name.decode()!r}.")
    distinct, ranks = np.unique(np.concatenate([a[1], b[1]]), return_inverse=True)
    base = max(len(distinct), 1)
    codes = np.concatenate([a[0], b[0]]) * base + ranks.reshape(-1)
    found = _OPERATIONS[name](codes[: len(a[0])], codes[len(a[0]) :])
    sets, places = np.divmod(found, base)
    starts = run_starts(sets)
    lengths = np.diff(np.append(starts, len(sets)))
    position = np.arange(len(sets)) - np.repeat(starts, lengths)
    indices = np.stack([*np.unravel_index(sets, outer), position], axis=1).astype(np.int64)
    return indices, distinct[places], np.array([*outer, lengths.max(initial=0)], np.int64)


def _check_same_groups(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    if a != b:
        raise ValueError(f"Mismatched group shapes {list(a)} and {list(b)}.")


def dense_to_dense_set_operation(set1, set2, *, set_operation):
    """Combine the sets of two dense tensors, row by row."""
    (a, outer), (b, other) = _dense_sets(np.asarray(set1)), _dense_sets(np.asarray(set2))
    _check_same_groups(outer, other)
    return _operate(a, b, outer, set_operation)


def dense_to_sparse_set_operation(
    set1, set2_indices, set2_values, set2_shape, *, set_operation, validate_indices
):
    """Combine the sets of a dense and of a sparse tensor, row by row."""
    a, outer = _dense_sets(np.asarray(set1))
    b, other = _sparse_sets(set2_indices, set2_values, set2_shape, validate_indices)
    _check_same_groups(outer, other)
    return _operate(a, b, outer, set_operation)


def sparse_to_sparse_set_operation(
    set1_indices,
    set1_values,
    set1_shape,
    set2_indices,
    set2_values,
    set2_shape,
    *,
    set_operation,
    validate_indices,
):
    """Combine the sets of two sparse tensors, row by row."""
    a, outer = _sparse_sets(set1_indices, set1_values, set1_shape, validate_indices)
    b, other = _sparse_sets(set2_indices, set2_values, set2_shape, validate_indices)
    _check_same_groups(outer, other)
    return _operate(a, b, outer, set_operation)


def set_size(set_indices, set_values, set_shape, *, validate_indices):
    """Return the number of distinct values of every set."""
    (sets, values), outer = _sparse_sets(set_indices, set_values, set_shape, validate_indices)
    distinct, ranks = np.unique(values, return_inverse=True)
    codes = np.unique(sets * max(len(distinct), 1) + ranks.reshape(-1))
    check_room(outer, np.int64, "set_shape")
    counts = np.bincount(codes // max(len(distinct), 1), minlength=math.prod(outer))
    return counts.astype(np.int32).reshape(outer)


# -- Edit distance


def _sequences(groups: np.ndarray, codes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences as rows of a padded matrix, and their lengths."""
    check_rows(count, "the shape of hypothesis and truth")
    lengths = np.bincount(groups, minlength=count)
    starts = np.cumsum(lengths) - lengths
    table = np.zeros((count, int(lengths.max(initial=0))), np.int64)
    table[groups, np.arange(len(groups)) - starts[groups]] = codes
    return table, lengths


def _distances(
    a: np.ndarray, a_lengths: np.ndarray, b: np.ndarray, b_lengths: np.ndarray
) -> np.ndarray:
    """Return Levenshtein distances of paired rows, computing one column of the table for all pairs.

    Going along a, cost[j] is the cost of turning a's prefix into b[:j]. An insertion depends on the
    previous cell of the same column; the running minimum of cost[j] - j handles all of those at
    once.
    """
    steps = np.arange(b.shape[1] + 1)
    cost = np.broadcast_to(steps, (len(a), len(steps))).copy()
    for i in range(a.shape[1]):
        kept = cost[:, :-1] + (a[:, i : i + 1] != b)
        following = np.concatenate([cost[:, :1], np.minimum(kept, cost[:, 1:] + 1)], axis=1)
        following[:, 0] = i + 1
        following = np.minimum.accumulate(following - steps, axis=1) + steps
        cost = np.where((i < a_lengths)[:, None], following, cost)
    return cost[np.arange(len(a)), b_lengths]


def edit_distance(
    hypothesis_indices,
    hypothesis_values,
    hypothesis_shape,
    truth_indices,
    truth_values,
    truth_shape,
    *,
    normalize,
):
    """Return the fewest insertions, deletions and substitutions from each hypothesis to
    its truth.
    """
    given = check_parts(hypothesis_indices, hypothesis_values, hypothesis_shape)
    right = check_parts(truth_indices, truth_values, truth_shape)
    if len(given[2]) != len(right[2]) or len(given[2]) < 2:
        raise ValueError(
            "hypothesis and truth must be of one rank, at least 2, but are of ranks "
            f"{len(given[2])} and {len(right[2])}"
        )
    outer = np.maximum(given[2][:-1], right[2][:-1])
    count = math.prod(outer.tolist())
    ranks = np.unique(np.concatenate([given[1], right[1]]), return_inverse=True)[1].reshape(-1)
    tables = []
    for (rows, _, shape), codes in zip(
        (given, right), np.split(ranks, [len(given[1])]), strict=True
    ):
        order = stable_order(row_keys(rows, shape))
        # Sequences outside the shape are not part of the result.
        order = order[inside(rows[order, :-1], np.zeros_like(outer), outer)]
        tables += _sequences(keys(rows[order, :-1], outer), codes[order], count)
    distance = _distances(*tables).astype(np.float32)
    if normalize:
        given_lengths, lengths = tables[1], tables[3]
        distance = np.where(
            lengths > 0,
            distance / np.maximum(lengths, 1),
            np.where(given_lengths > 0, np.inf, 0),
        ).astype(np.float32)
    return distance.reshape(outer.tolist())
