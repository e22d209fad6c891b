"""Diagonals and bands of matrices: extracting them, setting them, building matrices from them.

The V2 ops take a range of diagonals [lower, upper] (0 is the main one, positive ones are above it).
Several diagonals are rows of one array, the uppermost first, each starting at the left; the rows of
shorter diagonals are padded with a padding value.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import Kind, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.rules import Elementwise, Join, Move, Site, View, row_major, traced
from headrace._src.ops.base import infer
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import r

__all__ = ["matrix_diag", "matrix_diag_part", "matrix_set_diag"]


def _filled(shape: tuple[int, ...], like: np.ndarray, value: Any = 0) -> np.ndarray:
    out = np.empty(shape, like.dtype)
    out[...] = b"" if like.dtype == object and value == 0 else value
    return out


def _least(m: int | None, n: int | None) -> int | None:
    if m == 0 or n == 0:
        return 0
    return None if m is None or n is None else min(m, n)


# The main diagonal of each matrix --------------------------------------------------------------


def _matrix_diag(diagonal):
    if diagonal.ndim < 1:
        raise ValueError("diagonal must be at least 1-dim, received shape: []")
    size = diagonal.shape[-1]
    check_room((*diagonal.shape, size), diagonal.dtype, "diagonal")
    out = _filled((*diagonal.shape, size), diagonal)
    i = np.arange(size)
    out[..., i, i] = diagonal
    return out


def _matrix_diag_infer(c: Any, diagonal: TensorShape) -> Any:
    sizes = infer.with_rank_at_least(diagonal, 1).sizes
    return None if sizes is None else (*sizes, sizes[-1])


def _main_diagonals(site: Site) -> View:
    strides = row_major(site.input_shapes[0])
    return View(site.output_shapes[0], (*strides[:-2], sum(strides[-2:])))


def _on_diagonal(site: Site) -> list[View | None]:
    strides = row_major(site.output_shapes[0])
    return [View(site.input_shapes[0], (*strides[:-2], sum(strides[-2:])))]


@define(
    "MatrixDiag",
    "diagonal: T -> output: T",
    "T: type",
    infer=_matrix_diag_infer,
    kernel=_matrix_diag,
    gradient=lambda b, op, grad: b.matrix_diag_part(grad),
    samples=[Sample(r(3)), Sample(r(2, 3)), Sample(r(0))],
    lower=Join(_on_diagonal, fill=lambda site: 0),
)
def matrix_diag_op(diagonal, name=None):
    """Return matrices with the given diagonals and zeros elsewhere."""


def _check_matrices(x: np.ndarray) -> None:
    if x.ndim < 2:
        raise ValueError(f"input must be at least 2-dim, received shape: {list(x.shape)}")


def _matrix_diag_part(x):
    _check_matrices(x)
    return np.diagonal(x, axis1=-2, axis2=-1)


def _matrix_diag_part_infer(c: Any, x: TensorShape) -> Any:
    sizes = infer.with_rank_at_least(x, 2).sizes
    return None if sizes is None else (*sizes[:-2], _least(*sizes[-2:]))


def _is_square(x: Any) -> bool:
    sizes = x.shape.sizes
    return sizes is not None and sizes[-1] is not None and sizes[-1] == sizes[-2]


def _matrix_diag_part_gradient(b, op, grad):
    (x,) = op.inputs
    if _is_square(x):
        return b.matrix_diag(grad)
    return b.matrix_set_diag(b.zeros_like(x), grad)


@define(
    "MatrixDiagPart",
    "input: T -> diagonal: T",
    "T: type",
    infer=_matrix_diag_part_infer,
    kernel=_matrix_diag_part,
    gradient=_matrix_diag_part_gradient,
    kind=Kind.MOVEMENT,
    samples=[Sample(r(3, 3)), Sample(r(2, 3, 4)), Sample(r(2, 0, 4)), Sample(r(3, 2))],
    lower=Move(_main_diagonals),
)
def matrix_diag_part_op(input, name=None):
    """Return the main diagonals of matrices."""


def _matrix_set_diag(x, diagonal):
    _check_matrices(x)
    size = min(x.shape[-2:])
    if diagonal.shape != (*x.shape[:-2], size):
        raise ValueError(
            "must have diagonal.shape == input.shape[:-2] + min(input.shape[-2:]), but received "
            f"input shape: {list(x.shape)} and diagonal shape: {list(diagonal.shape)}"
        )
    out = np.array(x)
    i = np.arange(size)
    out[..., i, i] = diagonal
    return out


def _matrix_set_diag_infer(c: Any, x: TensorShape, diagonal: TensorShape) -> Any:
    infer.with_rank_at_least(x, 2)
    infer.with_rank_at_least(diagonal, 1)
    if x.sizes is not None and diagonal.sizes is not None:
        infer.with_rank(diagonal, len(x.sizes) - 1)
        wanted = (*x.sizes[:-2], _least(*x.sizes[-2:]))
        for m, n in zip(wanted, diagonal.sizes, strict=True):
            if None not in (m, n) and m != n:
                raise ValueError(f"Dimensions must be equal, but are {m} and {n}")
    if diagonal.sizes is None:
        return x
    return x.merge_with((*diagonal.sizes[:-1], None, None))


def _set_diag_nodes(op: Any, grad: Any) -> int:
    x, diagonal = (t.shape for t in op.inputs)
    if x.ndims is not None and diagonal.ndims is not None:
        x = x[:-2].merge_with(diagonal[:-1]).concatenate(x[-2:])
    return 3 if x.is_fully_defined() else 21


@counted(_set_diag_nodes)
def _matrix_set_diag_gradient(b, op, grad):
    diagonal = op.inputs[1]
    return b.matrix_set_diag(grad, b.zeros_like(diagonal)), b.matrix_diag_part(grad)


@define(
    "MatrixSetDiag",
    "input: T, diagonal: T -> output: T",
    "T: type",
    infer=_matrix_set_diag_infer,
    kernel=_matrix_set_diag,
    gradient=_matrix_set_diag_gradient,
    samples=[Sample(r(3, 3), r(3)), Sample(r(2, 3, 4), r(2, 3)), Sample(r(3, 2), r(2))],
)
def matrix_set_diag_op(input, diagonal, name=None):
    """Return matrices with their main diagonals replaced."""


def _band_part(x, lower, upper):
    _check_matrices(x)
    rows, columns = x.shape[-2:]
    if np.ndim(lower) or np.ndim(upper):
        raise ValueError("num_lower and num_upper must be scalars")
    if lower > rows or upper > columns:
        raise ValueError(
            "num_lower must be negative or less or equal to number of rows "
            f"({rows}) got: {lower}, and num_upper to number of columns ({columns}) got: {upper}"
        )
    below = np.arange(rows)[:, None] - np.arange(columns)
    inside = ((lower < 0) | (below <= lower)) & ((upper < 0) | (-below <= upper))
    return np.where(inside, x, _filled((), x)).astype(x.dtype, copy=False)


def _band_part_lowered(e: Any, x: Any, *, site: Site) -> Any:
    limits = [site.constant_input(i) for i in (1, 2)]
    if any(limit is None or limit.ndim for limit in limits):
        return None
    lower, upper = (int(limit) for limit in limits if limit is not None)
    *batch, rows, columns = site.output_shapes[0]
    if lower > rows or upper > columns:
        return None  # the kernel reports the error
    below = e.index(len(batch)) - e.index(len(batch) + 1)
    inside = [below <= lower] * (lower >= 0) + [below >= -upper] * (upper >= 0)
    for condition in inside:
        x = e.select(condition, x, 0)
    return x


@export("matrix_band_part", "linalg.band_part")
@define(
    "MatrixBandPart",
    "input: T, num_lower: Tindex, num_upper: Tindex -> band: T",
    "T: type; Tindex: {index} = int64",
    infer=infer.same_as(0),
    kernel=_band_part,
    gradient=lambda b, op, grad: (b.matrix_band_part(grad, op.inputs[1], op.inputs[2]), None, None),
    samples=[Sample(r(3, 3), 0, 1), Sample(r(2, 3, 4), -1, 0), Sample(r(0, 2), 0, -1)],
    lower=Elementwise(_band_part_lowered, operands=(0,)),
)
def matrix_band_part(input, num_lower, num_upper, name=None):
    """Return matrices with zeros outside a band around the main diagonal; negative means all.

    num_lower and num_upper: how many diagonals to keep below and above the main one; negative keeps
    all.
    """


# Tensors as matrices: [a, b] and [a, b, a, b] --------------------------------------------------

_DIAG_ATTRS = "T: {bfloat16|float16|float32|float64|int32|int64|complex64|complex128}"


def _diag(diagonal):
    if diagonal.ndim < 1:
        raise ValueError("Input must be at least rank 1, got 0")
    flat = _matrix_diag(diagonal.reshape(-1))
    return flat.reshape(diagonal.shape * 2)


def _diag_infer(c: Any, diagonal: TensorShape) -> TensorShape:
    infer.with_rank_at_least(diagonal, 1)
    return diagonal.concatenate(diagonal)


def _on_all_diagonals(site: Site) -> list[View | None]:
    shape = site.input_shapes[0]
    step = prod(shape) + 1
    return [View(shape, tuple(s * step for s in row_major(shape)))]


@export("diag", "linalg.tensor_diag")
@define(
    "Diag",
    "diagonal: T -> output: T",
    _DIAG_ATTRS,
    infer=_diag_infer,
    kernel=_diag,
    gradient=lambda b, op, grad: b.diag_part(grad),
    samples=[Sample(r(3)), Sample(r(2, 3)), Sample(r(0))],
    lower=Join(_on_all_diagonals, fill=lambda site: 0),
)
def diag(diagonal, name=None):
    """Return a tensor of twice the rank with `diagonal` where both index halves are equal."""


def _diag_part(x):
    half = x.ndim // 2
    if x.ndim == 0 or x.ndim % 2:
        raise ValueError(f"The rank of the tensor should be even and positive, got {x.ndim}")
    if x.shape[:half] != x.shape[half:]:
        raise ValueError(f"Invalid shape {list(x.shape)}: both halves must be equal")
    size = int(np.prod(x.shape[:half]))
    return x.reshape(size, size).diagonal().reshape(x.shape[:half])


def _diag_part_infer(c: Any, x: TensorShape) -> Any:
    if x.sizes is None:
        return None
    rank = len(x.sizes)
    if rank == 0 or rank % 2:
        raise ValueError(f"Input must have even and non-zero rank, input rank is {rank}")
    return x[: rank // 2].merge_with(x[rank // 2 :])


@export("diag_part", "linalg.tensor_diag_part")
@define(
    "DiagPart",
    "input: T -> diagonal: T",
    _DIAG_ATTRS,
    infer=_diag_part_infer,
    kernel=_diag_part,
    gradient=lambda b, op, grad: b.diag(grad),
    kind=Kind.MOVEMENT,
    samples=[Sample(r(3, 3)), Sample(r(2, 3, 2, 3)), Sample(r(0, 0))],
    lower=traced(_diag_part),
)
def diag_part(input, name=None):
    """Return the elements of a tensor of even rank whose index halves are equal."""


# Ranges of diagonals ---------------------------------------------------------------------------


def _range(k: np.ndarray) -> tuple[int, int]:
    """Return the lowest and the uppermost diagonal that `k`, a number or a pair, specifies."""
    found = np.ravel(k).tolist()
    if np.ndim(k) > 1 or len(found) not in (1, 2):
        raise ValueError("diag_index must be a scalar or a vector with one or two elements")
    lower, upper = found[0], found[-1]
    if lower > upper:
        raise ValueError(
            f"lower_diag_index must not be larger than upper_diag_index: {lower} > {upper}"
        )
    return lower, upper


def _check_range(lower: int, upper: int, rows: int, columns: int) -> None:
    for what, d in (("lower_diag_index", lower), ("upper_diag_index", upper)):
        if d and not -rows < d < columns:
            raise ValueError(
                f"{what} is out of bound: {d}. It must be between {-rows} and {columns}"
            )


def _longest(rows: int, columns: int, lower: int, upper: int) -> int:
    return min(rows + min(upper, 0), columns - max(lower, 0))


def _places(lower: int, upper: int, longest: int, rows: int, columns: int) -> tuple[Any, Any, Any]:
    """Return where each element of the diagonals is in the matrix: rows, columns, whether inside.

    All three are [diagonals, longest].
    """
    d = np.arange(upper, lower - 1, -1)[:, None]
    along = np.arange(longest)
    i, j = along + np.maximum(-d, 0), along + np.maximum(d, 0)
    return i, j, (i < rows) & (j < columns)


def _spread(out: np.ndarray, diagonals: np.ndarray, lower: int, upper: int) -> np.ndarray:
    """Write diagonals [..., count, longest] into the matrices of `out`."""
    i, j, inside = _places(lower, upper, diagonals.shape[-1], *out.shape[-2:])
    out[..., i[inside], j[inside]] = diagonals[..., inside]
    return out


def _rows_of(diagonal: np.ndarray, lower: int, upper: int) -> np.ndarray:
    """Return `diagonal` as [..., count, longest], even if it is a single one without that
    dimension.
    """
    if lower == upper:
        return diagonal[..., None, :]
    if diagonal.ndim < 2 or diagonal.shape[-2] != upper - lower + 1:
        raise ValueError(
            "The number of diagonals provided in the input does not match the lower_diag_index "
            f"and upper_diag_index range: {list(diagonal.shape)} for [{lower}, {upper}]"
        )
    return diagonal


def _matrix_diag_v2(diagonal, k, num_rows, num_cols, padding_value):
    lower, upper = _range(k)
    if diagonal.ndim < 1:
        raise ValueError("diagonal must be at least 1-dim, received shape: []")
    diagonals = _rows_of(diagonal, lower, upper)
    rows, columns = _matrix_sizes(diagonals.shape[-1], lower, upper, int(num_rows), int(num_cols))
    check_room((*diagonals.shape[:-2], rows, columns), diagonal.dtype, "num_rows or num_cols")
    out = _filled((*diagonals.shape[:-2], rows, columns), diagonal, np.ravel(padding_value)[0])
    return _spread(out, diagonals, lower, upper)


def _matrix_sizes(longest: int, lower: int, upper: int, rows: int, columns: int) -> tuple[int, int]:
    """Return the matrix's sizes: those given, or for -1 the smallest that hold the diagonals."""
    least_rows, least_columns = longest - min(upper, 0), longest + max(lower, 0)
    if rows == -1 and columns == -1:
        rows = columns = max(least_rows, least_columns)
    rows = least_rows if rows == -1 else rows
    columns = least_columns if columns == -1 else columns
    if rows < least_rows or columns < least_columns:
        raise ValueError(f"[{rows}, {columns}] is too small for the diagonals: length {longest}")
    if rows != least_rows and columns != least_columns:
        raise ValueError(
            f"The number of rows or columns is not consistent with the diagonals: {rows}, {columns}"
        )
    return rows, columns


def _known_range(c: Any, index: int) -> tuple[int, int] | None:
    k = c.value(index)
    return None if k is None else _range(k)


def _matrix_diag_v2_infer(c: Any, diagonal: TensorShape, *others: TensorShape) -> Any:
    infer.with_rank_at_least(diagonal, 1)
    limits, rows, columns = _known_range(c, 1), c.value(2), c.value(3)
    if limits is None or diagonal.sizes is None:
        return None
    batch = diagonal.sizes[: -1 if limits[0] == limits[1] else -2]
    longest = diagonal.sizes[-1]
    if longest is None or rows is None or columns is None:
        return (*batch, None, None)
    return (*batch, *_matrix_sizes(longest, *limits, int(rows), int(columns)))


@counted(1)
def _matrix_diag_v2_gradient(b, op, grad):
    diagonal, k = op.inputs[:2]
    inside = b.matrix_diag_part_v2(grad, k, b.zeros([], grad.dtype))
    outside = b.matrix_set_diag_v2(grad, b.zeros_like(diagonal), k)
    return inside, None, None, None, b.reduce_sum(outside)


@define(
    "MatrixDiagV2",
    "diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T -> output: T",
    "T: type",
    infer=_matrix_diag_v2_infer,
    kernel=_matrix_diag_v2,
    gradient=_matrix_diag_v2_gradient,
    samples=[
        Sample(r(3), 0, -1, -1, r()),
        Sample(r(2, 3), 1, -1, -1, r()),
        Sample(r(2, 3), [-1, 0], 3, 4, r()),
        Sample(r(2, 2, 3), [0, 1], -1, -1, r()),
    ],
)
def matrix_diag_v2(diagonal, k, num_rows, num_cols, padding_value, name=None):
    """Return matrices with the given range of diagonals and `padding_value` elsewhere."""


def _matrix_diag_part_v2(x, k, padding_value):
    _check_matrices(x)
    lower, upper = _range(k)
    rows, columns = x.shape[-2:]
    _check_range(lower, upper, rows, columns)
    longest = _longest(rows, columns, lower, upper)
    i, j, inside = _places(lower, upper, longest, rows, columns)
    shape = (*x.shape[:-2], upper - lower + 1, longest)
    out = _filled(shape, x, np.ravel(padding_value)[0])
    out[..., inside] = x[..., i[inside], j[inside]]
    return out[..., 0, :] if lower == upper else out


def _matrix_diag_part_v2_infer(c: Any, x: TensorShape, *others: TensorShape) -> Any:
    infer.with_rank_at_least(x, 2)
    limits = _known_range(c, 1)
    if x.sizes is None or limits is None:
        return None
    lower, upper = limits
    *batch, rows, columns = x.sizes
    longest = None
    if rows is not None and columns is not None:
        _check_range(lower, upper, rows, columns)
        longest = _longest(rows, columns, lower, upper)
    return (*batch, longest) if lower == upper else (*batch, upper - lower + 1, longest)


@counted(lambda op, grad: 1 if op.inputs[0].shape[-2:].is_fully_defined() else 2)
def _matrix_diag_part_v2_gradient(b, op, grad):
    x, k, _ = op.inputs
    inside = b.matrix_set_diag_v2(b.zeros_like(x), grad, k)
    return inside, None, b.subtract(b.reduce_sum(grad), b.reduce_sum(inside))


@define(
    "MatrixDiagPartV2",
    "input: T, k: int32, padding_value: T -> diagonal: T",
    "T: type",
    infer=_matrix_diag_part_v2_infer,
    kernel=_matrix_diag_part_v2,
    gradient=_matrix_diag_part_v2_gradient,
    samples=[
        Sample(r(3, 3), 0, r()),
        Sample(r(2, 3, 4), 1, r()),
        Sample(r(2, 3, 4), [-1, 2], r()),
        Sample(r(4, 3), [-2], r()),
    ],
)
def matrix_diag_part_v2(input, k, padding_value, name=None):
    """Return a range of diagonals of matrices, short ones padded with `padding_value`."""


def _matrix_set_diag_v2(x, diagonal, k):
    _check_matrices(x)
    lower, upper = _range(k)
    rows, columns = x.shape[-2:]
    _check_range(lower, upper, rows, columns)
    count = () if lower == upper else (upper - lower + 1,)
    wanted = (*x.shape[:-2], *count, _longest(rows, columns, lower, upper))
    if diagonal.shape != wanted:
        raise ValueError(
            f"diagonals of shape {list(wanted)} are needed for input shape: {list(x.shape)} and "
            f"diag_index [{lower}, {upper}], but received {list(diagonal.shape)}"
        )
    return _spread(np.array(x), _rows_of(diagonal, lower, upper), lower, upper)


def _matrix_set_diag_v2_infer(c: Any, x: TensorShape, diagonal: TensorShape, k: TensorShape) -> Any:
    infer.with_rank_at_least(x, 2)
    infer.with_rank_at_least(diagonal, 1)
    limits = _known_range(c, 2)
    if limits is None or diagonal.sizes is None:
        return x
    lower, upper = limits
    batch = diagonal.sizes[: -1 if lower == upper else -2]
    return x.merge_with((*batch, None, None))


@counted(lambda op, grad: 3 if op.inputs[1].shape.is_fully_defined() else 70)
def _matrix_set_diag_v2_gradient(b, op, grad):
    _, diagonal, k = op.inputs
    outside = b.matrix_set_diag_v2(grad, b.zeros_like(diagonal), k)
    return outside, b.matrix_diag_part_v2(grad, k, b.zeros([], grad.dtype)), None


@define(
    "MatrixSetDiagV2",
    "input: T, diagonal: T, k: int32 -> output: T",
    "T: type",
    infer=_matrix_set_diag_v2_infer,
    kernel=_matrix_set_diag_v2,
    gradient=_matrix_set_diag_v2_gradient,
    samples=[
        Sample(r(3, 3), r(3), 0),
        Sample(r(2, 3, 4), r(2, 3), 1),
        Sample(r(2, 3, 4), r(2, 4, 3), [-1, 2]),
    ],
)
def matrix_set_diag_v2(input, diagonal, k, name=None):
    """Return matrices with a range of their diagonals replaced."""


# Public functions ------------------------------------------------------------------------------


def _is(value: Any, default: int) -> bool:
    return isinstance(value, int | float | np.number) and value == default


@composed
@export("matrix_diag", "linalg.diag")
def matrix_diag(
    diagonal: Any,
    name: str = "diag",
    k: Any = 0,
    num_rows: Any = -1,
    num_cols: Any = -1,
    padding_value: Any = 0,
) -> Tensor:
    """Return matrices with the given diagonals: the main one, or the range `k` of them.

    num_rows and num_cols: the matrix's sizes; -1 means the smallest that hold the diagonals.
    padding_value: fills the rest of the matrix.
    """
    plain = _is(k, 0) and _is(num_rows, -1) and _is(num_cols, -1) and _is(padding_value, 0)
    if plain:
        return matrix_diag_op(diagonal, name=name)
    return matrix_diag_v2(diagonal, k, num_rows, num_cols, padding_value, name=name)


@composed
@export("matrix_diag_part", "linalg.diag_part")
@dispatched
def matrix_diag_part(
    input: Any,
    name: str = "diag_part",
    k: Any = 0,
    padding_value: Any = 0,
) -> Tensor:
    """Return the main diagonals of matrices, or the range `k` of them, padded with
    `padding_value`.
    """
    if _is(k, 0):
        return matrix_diag_part_op(input, name=name)
    return matrix_diag_part_v2(input, k, padding_value, name=name)


@composed
@export("matrix_set_diag", "linalg.set_diag")
def matrix_set_diag(
    input: Any,
    diagonal: Any,
    name: str = "set_diag",
    k: Any = 0,
) -> Tensor:
    """Return matrices with their main diagonals, or the range `k` of them, replaced."""
    if _is(k, 0):
        return matrix_set_diag_op(input, diagonal, name=name)
    return matrix_set_diag_v2(input, diagonal, k, name=name)
