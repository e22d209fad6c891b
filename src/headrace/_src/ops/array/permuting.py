"""Reordering elements: transpose, reverse, roll."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Kind, Precision, Sample
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering.rules import traced
from headrace._src.ops.array.filling import range_op
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.simplify_movement_rules import transposed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["invert_permutation", "matrix_transpose", "reverse_sequence", "roll", "transpose"]


# -- Transpose -------------------------------------------------------------------------------------


def _permutation(perm: Any, rank: int) -> list[int]:
    """Return a checked permutation of the axes 0 ... rank - 1."""
    axes = np.asarray(perm).tolist()
    if np.ndim(perm) != 1 or len(axes) != rank:
        raise ValueError(
            f"transpose expects a vector of size {rank}. But input(1) is a vector of size "
            f"{np.size(perm)}"
        )
    for axis in axes:
        if not 0 <= axis < rank:
            raise ValueError(f"{axis} is out of range [0 .. {rank})")
    missing = sorted(set(range(rank)) - set(axes))
    if missing:
        listed = ",".join(map(str, axes))
        raise ValueError(f"{missing[0]} is missing from {{{listed}}}.")
    return axes


def _transpose_infer(c: Any, x: TensorShape, perm: TensorShape) -> Any:
    axes, rank = c.value(1), x.rank
    if rank is None:
        rank = perm.num_elements() if axes is None else axes.size
        if rank is None or rank < 2:
            return None  # a single element may also stand for a scalar
        x = x.with_rank(rank)
    count = perm.with_rank(1).as_list()[0]
    if count not in (None, rank):
        raise ValueError(f"Dimension must be {rank} but is {count}")
    if axes is None:
        return (None,) * rank
    for axis in axes.tolist():
        if not -rank <= axis < rank:
            raise ValueError(f"perm dim {axis} is out of range of input rank {rank}")
    return tuple(x.as_list()[axis] for axis in axes.tolist())


def _transpose_kernel(x: np.ndarray, perm: np.ndarray) -> np.ndarray:
    return x.transpose(_permutation(perm, np.ndim(x)))


def _transpose_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    return b.transpose(dy, b.invert_permutation(op.inputs[1])), None


_TRANSPOSITIONS = [
    Sample(r(2, 3), [1, 0]),
    Sample(r(2, 3, 4), [2, 0, 1]),
    Sample(r(0, 2), [1, 0]),
    Sample(r(), np.zeros(0)),
]


@define(
    "Transpose",
    "x: T, perm: Tperm -> y: T",
    "T: type; Tperm: {index} = int32",
    infer=_transpose_infer,
    kernel=_transpose_kernel,
    gradient=_transpose_gradient,
    kind=Kind.MOVEMENT,
    samples=_TRANSPOSITIONS,
    lower=traced(_transpose_kernel),
    simplify=transposed,
    precision=Precision.EITHER,
)
def transpose_op(x, perm, name=None):
    """Permute the axes: axis i of the result is axis perm[i] of the input."""


def _conjugate_kernel(x: np.ndarray, perm: np.ndarray) -> np.ndarray:
    result = _transpose_kernel(x, perm)
    return np.conjugate(result) if result.dtype.kind == "c" else result


def _conjugate_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    return b.transpose(dy, b.invert_permutation(op.inputs[1]), conjugate=True), None


@define(
    "ConjugateTranspose",
    "x: T, perm: Tperm -> y: T",
    "T: type; Tperm: {index} = int32",
    infer=_transpose_infer,
    kernel=_conjugate_kernel,
    gradient=_conjugate_gradient,
    samples=_TRANSPOSITIONS,
    lower=traced(_transpose_kernel),
)
def conjugate_transpose(x, perm, name=None):
    """Permute the axes and conjugate the elements."""


def _invert_kernel(x: np.ndarray) -> np.ndarray:
    if np.ndim(x) != 1:
        raise ValueError(f"invert_permutation expects a vector, not shape {list(np.shape(x))}")
    count = len(x)
    if count and not 0 <= x.min() <= x.max() < count:
        outside = (x < 0) | (x >= count)
        raise ValueError(f"{x[outside][0]} is not between 0 and {count}")
    result = np.full(count, -1, x.dtype)
    result[x] = np.arange(count, dtype=x.dtype)
    if count and result.min() < 0:
        counts = np.bincount(x.astype(np.intp), minlength=count)
        raise ValueError(f"{counts.argmax()} is duplicated in the input.")
    return result


@export("invert_permutation", "math.invert_permutation")
@define(
    "InvertPermutation",
    "x: T -> y: T",
    "T: {index} = int32",
    infer=lambda c, x: x.with_rank(1),
    kernel=_invert_kernel,
    samples=[Sample([2, 0, 1]), Sample(np.zeros(0))],
)
def invert_permutation(x, name=None):
    """Return the inverse permutation: y[x[i]] = i."""


@composed
@export("transpose")
def transpose(
    a: Any, perm: Any = None, name: str | None = "transpose", conjugate: bool = False
) -> Tensor:
    """Permute the axes, or reverse their order if `perm` is None; optionally conjugate."""
    with name_scope(name, "transpose", [a]) as scope:
        build = transpose_op
        if conjugate or perm is None:  # otherwise the op converts it, and the constant is its `x`
            a = convert_to_tensor(a, name="a")
            if conjugate and a.dtype.base_dtype in (dtypes.complex64, dtypes.complex128):
                build = conjugate_transpose
        if perm is None:
            rank = a.shape.rank
            if rank is None:
                count = b.rank_op(a)
                last = b.subtract(count, 1, name="sub")
                perm = b.subtract(last, range_op(0, count, 1), name="sub")
            else:
                perm = np.arange(rank)[::-1].astype(np.int32)
        return build(a, perm, name=scope)


@composed
@export("matrix_transpose", "linalg.matrix_transpose", "linalg.transpose")
def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """Transpose the last two axes; the others are batch dimensions."""
    with name_scope(name, values=[a]):
        a = convert_to_tensor(a, name="a")
        rank = a.shape.rank
        if rank is None:
            count = b.rank(a)
            front = range_op(0, b.subtract(count, 2, name="sub"), 1)
            last = [b.subtract(count, 1, name="sub"), b.subtract(count, 2, name="sub")]
            perm = b.concat([front, last], 0)
        else:
            if rank < 2:
                raise ValueError(
                    f"Argument 'a' should be a (batch) matrix, with rank >= 2. Found: {a.shape}"
                )
            perm = [*range(rank - 2), rank - 1, rank - 2]
        return transpose(a, perm=perm, conjugate=conjugate)


# -- Reverse ---------------------------------------------------------------------------------------

_REVERSIBLE = (
    "uint8|int8|uint16|int16|int32|int64|bool|{}float16|float32|float64|complex64|complex128|string"
)


def _reverse_old_kernel(x: np.ndarray, dims: np.ndarray) -> np.ndarray:
    if np.shape(dims) != (np.ndim(x),):
        raise ValueError(
            f"reverse 'dims' must be a vector of length {np.ndim(x)}, not {list(np.shape(dims))}"
        )
    return x[(*(slice(None, None, -1 if flip else 1) for flip in dims.tolist()), ...)]


def _reverse_old_infer(c: Any, x: TensorShape, dims: TensorShape) -> TensorShape:
    (length,) = dims.with_rank(1).as_list()
    return x if length is None else x.merge_with((None,) * length)


@define(
    "Reverse",
    "tensor: T, dims: bool -> output: T",
    "T: {" + _REVERSIBLE.format("") + "}",
    infer=_reverse_old_infer,
    kernel=_reverse_old_kernel,
    gradient=lambda b, op, dy: (b.reverse_old(dy, op.inputs[1]), None),
    samples=[Sample(r(2, 3), [True, False]), Sample(r(2, 3), [True, True])],
    lower=traced(_reverse_old_kernel),
)
def reverse_old(tensor, dims, name=None):
    """Reverse the axes whose entry in `dims` is true."""


def _flipped_axes(axis: Any, rank: int) -> list[int]:
    if np.ndim(axis) != 1:
        raise ValueError(f"'axis' must be a vector, not of shape {list(np.shape(axis))}")
    axes = np.asarray(axis).tolist()
    for i, a in enumerate(axes):
        if not -rank <= a < rank:
            raise ValueError(f"'axis'[{i}] = {a} is out of valid range [0, {rank - 1}]")
    axes = [a % rank for a in axes]
    for a in axes:
        if axes.count(a) > 1:
            raise ValueError(f"axis {a} specified more than once.")
    return axes


def _reverse_infer(c: Any, x: TensorShape, axis: TensorShape) -> TensorShape:
    axis.with_rank(1)
    axes = c.value(1)
    if axes is not None and x.rank is not None:
        _flipped_axes(axes, x.rank)
    return x


def _reverse_kernel(x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    axes = _flipped_axes(axis, np.ndim(x))
    return x[(*(slice(None, None, -1 if i in axes else 1) for i in range(np.ndim(x))), ...)]


@export("reverse", "reverse_v2", "manip.reverse")
@define(
    "ReverseV2",
    "tensor: T, axis: Tidx -> output: T",
    "Tidx: {index} = int32; T: {" + _REVERSIBLE.format("bfloat16|") + "}",
    infer=_reverse_infer,
    kernel=_reverse_kernel,
    gradient=lambda b, op, dy: (b.reverse(dy, op.inputs[1]), None),
    kind=Kind.MOVEMENT,
    samples=[Sample(r(2, 3), [0]), Sample(r(2, 3), [-1, 0]), Sample(r(2), np.zeros(0))],
    lower=traced(_reverse_kernel),
    precision=Precision.EITHER,
)
def reverse(tensor, axis, name=None):
    """Reverse a tensor along the given axes."""


def _sequence_kernel(
    x: np.ndarray, seq_lengths: np.ndarray, *, seq_dim: int, batch_dim: int
) -> np.ndarray:
    _check_sequence_axes(np.ndim(x), seq_dim, batch_dim)
    if batch_dim == seq_dim:
        raise ValueError(f"batch_dim == seq_dim == {seq_dim}")
    count = x.shape[seq_dim]
    if np.shape(seq_lengths) != (x.shape[batch_dim],):
        raise ValueError(
            f"Length of seq_lens != input.dims({batch_dim}), ({np.size(seq_lengths)} vs. "
            f"{x.shape[batch_dim]})"
        )
    lengths = seq_lengths.astype(np.intp)
    if lengths.size and (lengths.min() < 0 or lengths.max() > count):
        raise ValueError(f"seq_lens must be in [0, {count}], but are {lengths.tolist()}")
    steps = np.arange(count)
    source = np.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    moved = np.moveaxis(x, (batch_dim, seq_dim), (0, 1))
    result = moved[np.arange(len(lengths))[:, None], source]
    return np.moveaxis(result, (0, 1), (batch_dim, seq_dim))


def _check_sequence_axes(rank: int, seq_dim: int, batch_dim: int) -> None:
    for what, axis in (("batch_dim", batch_dim), ("seq_dim", seq_dim)):
        if not 0 <= axis < rank:
            raise ValueError(f"{what} must be < input rank: {axis} vs. {rank}")


def _sequence_infer(c: Any, x: TensorShape, lengths: TensorShape) -> Any:
    (count,) = lengths.with_rank(1).as_list()
    if x.sizes is None:
        return None
    batch = c.attrs["batch_dim"]
    _check_sequence_axes(len(x.sizes), c.attrs["seq_dim"], batch)
    sizes = [count if i == batch else None for i in range(len(x.sizes))]
    return x.merge_with(TensorShape.of(tuple(sizes)))


def _sequence_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    attrs = {k: op._attrs[k] for k in ("seq_dim", "batch_dim")}
    return b.reverse_sequence_op(dy, op.inputs[1], **attrs), None


@define(
    "ReverseSequence",
    "input: T, seq_lengths: Tlen -> output: T",
    "seq_dim: int; batch_dim: int = 0; T: type; Tlen: {index} = int64",
    infer=_sequence_infer,
    kernel=_sequence_kernel,
    gradient=_sequence_gradient,
    samples=[
        Sample(r(2, 4), [3, 0], seq_dim=1),
        Sample(r(4, 2, 3), [3, 1], seq_dim=0, batch_dim=1),
        Sample(r(2, 3, 2), [1, 2], seq_dim=1, batch_dim=2),
    ],
)
def reverse_sequence_op(input, seq_lengths, seq_dim, batch_dim=None, name=None):
    """Reverse the first seq_lengths[i] elements of row i."""


@composed
@export("reverse_sequence")
def reverse_sequence(
    input: Any,
    seq_lengths: Any,
    seq_axis: int | None = None,
    batch_axis: int | None = None,
    name: str | None = None,
    seq_dim: int | None = None,
    batch_dim: int | None = None,
) -> Tensor:
    """Reverse the first seq_lengths[i] elements, along seq_axis, of row i of batch_axis.

    seq_dim and batch_dim: old names of seq_axis and batch_axis.
    """
    seq_dim = renamed_argument("seq_axis", seq_axis, "seq_dim", seq_dim)
    batch_dim = renamed_argument("batch_axis", batch_axis, "batch_dim", batch_dim)
    return reverse_sequence_op(input, seq_lengths, seq_dim=seq_dim, batch_dim=batch_dim, name=name)


# -- Roll ------------------------------------------------------------------------------------------


def _roll_infer(c: Any, x: TensorShape, shift: TensorShape, axis: TensorShape) -> TensorShape:
    shift.with_rank_at_most(1).merge_with(axis.with_rank_at_most(1))
    return x.with_rank_at_least(1)


def _roll_kernel(x: np.ndarray, shift: np.ndarray, axis: np.ndarray) -> np.ndarray:
    if not np.ndim(x):
        raise ValueError("input must be 1-D or higher")
    if np.shape(shift) != np.shape(axis) or np.ndim(shift) > 1:
        raise ValueError(
            "shift and axis must have the same size, and be scalars or vectors, not of shapes "
            f"{list(np.shape(shift))} and {list(np.shape(axis))}"
        )
    axes = np.asarray(axis).ravel().tolist()
    for a in axes:
        if not -x.ndim <= a < x.ndim:
            raise ValueError(f"axis {a} is out of range")
    return np.roll(x, tuple(np.asarray(shift).ravel().tolist()), tuple(axes))


@export("roll", "manip.roll")
@define(
    "Roll",
    "input: T, shift: Tshift, axis: Taxis -> output: T",
    "T: type; Tshift: {index}; Taxis: {index}",
    infer=_roll_infer,
    kernel=_roll_kernel,
    gradient=lambda b, op, dy: (b.roll(dy, b.negative(op.inputs[1]), op.inputs[2]), None, None),
    samples=[
        Sample(r(3, 4), 1, 0),
        Sample(r(3, 4), [1, -2], [0, 1]),
        Sample(r(3), [1, 4], [0, 0]),
    ],
)
def roll(input, shift, axis, name=None):
    """Shift elements along axes; those shifted past one end reappear at the other.

    shift: how far to shift along each axis; positive shifts move towards larger indices.
    """
