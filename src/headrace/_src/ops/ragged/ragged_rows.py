"""Rows of several ragged tensors: whether they are the same, and how they broadcast.

Dimensions are compared from the last one, as NumPy does. A uniform dimension of size 1 is repeated,
also along a ragged one; a ragged dimension must have the same row lengths as the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.ragged.ragged_tensor import RaggedTensor

__all__ = ["after", "assert_splits_match", "broadcast_rows"]


def assert_splits_match(
    all_splits: list[tuple[Tensor, ...]], message: str = "Inputs must have identical ragged splits"
) -> list[Any]:
    """Return checks that nested row splits are equal; an error if they are known not to be."""
    first, *others = all_splits
    checks = []
    for other in others:
        if len(other) != len(first):
            raise ValueError(message)
        for a, c in zip(first, other, strict=True):
            if a is c:
                continue
            left, right = constant_value(a), constant_value(c)
            if not a.shape.is_compatible_with(c.shape) or (
                left is not None and right is not None and not np.array_equal(left, right)
            ):
                raise InvalidArgumentError(None, None, message)
            if left is None or right is None:
                checks.append(b.assert_equal(a, c, message=message))
    return checks


def after(checks: list[Any], values: Any) -> Any:
    """Return values, of a tensor or a ragged tensor, that are available once checks have passed."""
    if not checks:
        return values
    if isinstance(values, RaggedTensor):
        return values.with_flat_values(b.with_dependencies(checks, values.flat_values))
    return b.with_dependencies(checks, values)


# -- Broadcasting ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Axis:
    """One dimension of an operand: the row splits of a ragged one, else the size, a tensor or a
    number. `step` is 0 if the dimension is repeated, 1 if not.
    """

    splits: Tensor | None
    size: Any
    step: Any

    @property
    def is_whole(self) -> bool:
        """Whether it's known that the dimension isn't repeated."""
        return isinstance(self.step, int) and self.step == 1

    def rows(self, parents: Tensor) -> tuple[Any, Any]:
        """Return where the rows of some elements of the dimension before begin, and their lengths
        (one number for a uniform dimension).
        """
        if self.splits is None:
            return parents * self.size, self.size
        starts = b.gather(self.splits, parents)
        return starts, b.gather(self.splits, parents + 1) - starts


def _uniform(size: Any) -> _Axis:
    if isinstance(size, int):
        return _Axis(None, size, 0 if size == 1 else 1)
    return _Axis(None, size, b.cast(b.not_equal(size, 1), size.dtype.base_dtype))


def broadcast_rows(x: Any, y: Any) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Return the flat values of x and y, at least one of which is ragged, repeated where needed for
    an element-wise op, and the nested row splits of the result.
    """
    pair = [x, y]
    nested = max((v.nested_row_splits for v in pair if isinstance(v, RaggedTensor)), key=len)
    flat = [v.flat_values if isinstance(v, RaggedTensor) else v for v in pair]
    same = [v.nested_row_splits for v in pair if isinstance(v, RaggedTensor)]
    if len(same) == 2 and same[0] == same[1]:
        return flat[0], flat[1], nested
    ranks = [v.shape.ndims for v in pair]
    if 0 in ranks:
        return flat[0], flat[1], nested
    if None in ranks:
        raise ValueError("Unable to broadcast: unknown rank")
    rank = max(ranks)
    depth = max(
        rank - r + v.ragged_rank
        for v, r in zip(pair, ranks, strict=True)
        if isinstance(v, RaggedTensor)
    )
    if min(ranks) < rank - depth:  # it's broadcast along the inner dimensions alone
        return flat[0], flat[1], nested
    kind = nested[0].dtype.base_dtype
    left, right = (_axes(v, rank, depth, kind) for v in pair)
    places, splits, checks = _places(left, right, kind)
    sizes = {left[0].size, right[0].size}
    if all(isinstance(n, int) for n in sizes):
        splits[0].set_shape([max(sizes - {1}, default=1) + 1])
    values = [_merged(f, rank, depth, kind) for f in flat]
    found = [
        after(checks, v) if all(axis.is_whole for axis in axes) else b.gather(v, p)
        for v, p, axes in zip(values, places, (left, right), strict=True)
    ]
    return found[0], found[1], tuple(splits)


def _axes(value: Any, rank: int, depth: int, kind: Any) -> list[_Axis]:
    """Return the first `depth` + 1 dimensions of an operand, extended to `rank` on the left."""
    found = [_uniform(1) for _ in range(rank - value.shape.ndims)]
    flat = value
    if isinstance(value, RaggedTensor):
        rows = value.shape[0].value
        found.append(_uniform(value.nrows() if rows is None else rows))
        found += [_Axis(splits, None, 1) for splits in value.nested_row_splits]
        flat = value.flat_values
    shape = b.shape(flat, out_type=kind)
    sizes = flat.shape.as_list()
    for axis in range(0 if flat is value else 1, len(sizes)):
        found.append(_uniform(shape[axis] if sizes[axis] is None else sizes[axis]))
    return found[: depth + 1]


def _merged(flat: Any, rank: int, depth: int, kind: Any) -> Tensor:
    """Return the values of an operand with all but the inner dimensions merged into one."""
    inner = rank - depth - 1
    if flat.shape.ndims == inner + 1:
        return flat
    shape = b.shape(flat, out_type=kind)
    rest = shape[flat.shape.ndims - inner :] if inner else shape[:0]
    return b.reshape(flat, b.concat([b.constant([-1], kind), rest], axis=0))


def _places(
    left: list[_Axis], right: list[_Axis], kind: Any
) -> tuple[list[Tensor], list[Tensor], list[Any]]:
    """Return which value of each operand an element of the result has, the nested row splits of the
    result, and the checks that the operands fit together.
    """
    places = [b.constant([0], kind), b.constant([0], kind)]
    nested: list[Tensor] = []
    checks: list[Any] = []
    for number, pair in enumerate(zip(left, right, strict=True)):
        found = [axis.rows(parents) for axis, parents in zip(pair, places, strict=True)]
        lengths = _lengths(pair, [length for _, length in found])
        lengths = lengths + b.zeros_like(places[0])  # one per row, also if all are equal
        added = [
            check
            for axis, (_, own) in zip(pair, found, strict=True)
            for check in _checks(axis, own, lengths, number)
        ]
        checks += added
        lengths = after(added, lengths)
        within = b.ragged_range_op(b.zeros_like(lengths), lengths, 1, kind)
        if number:
            nested.append(within.rt_nested_splits)
        places = [
            _moved(starts, lengths, axis.step, within.rt_dense_values, kind)
            for axis, (starts, _) in zip(pair, found, strict=True)
        ]
    return places, nested, checks


def _lengths(pair: tuple[_Axis, _Axis], own: list[Any]) -> Any:
    """Return the lengths of the result's rows."""
    x, y = pair
    if x.splits is not None or (isinstance(x.step, int) and x.step):
        return own[0]
    if y.splits is not None or (isinstance(x.step, int) and not x.step):
        return own[1]
    return x.step * own[0] + (1 - x.step) * own[1]


def _checks(axis: _Axis, own: Any, lengths: Any, number: int) -> list[Any]:
    """Return the checks that an operand's rows have the result's lengths, or are repeated."""
    if own is lengths or (isinstance(axis.step, int) and axis.step == 0):
        return []
    fits = b.reduce_all(b.equal((lengths - own) * axis.step, 0))
    message = "Unable to broadcast: dimension size mismatch in dimension"
    return [b.Assert(fits, [message, number, "lengths=", own, "dim_size=", lengths])]


def _moved(starts: Tensor, lengths: Tensor, step: Any, within: Tensor, kind: Any) -> Tensor:
    """Return the places of rows that begin at `starts`; all of a row are its start if the step
    is 0.
    """
    places = b.ragged_range_op(starts, starts + lengths, 1, kind).rt_dense_values
    if isinstance(step, int):
        return places if step else places - within
    return places - (1 - step) * within
