"""Matrix products by oneDNN, with leading batch dimensions that broadcast as NumPy's do."""

import math

import numpy as np

from headrace._src.devices.buffers import address, empty_aligned
from headrace._src.devices.onednn import library as c
from headrace._src.devices.onednn.primitive_chains import (
    PlanBuilder,
    PrimitiveChain,
    Shape,
    cached,
    common_dtype,
    ready,
    require,
)


def _order(rank: int, transposed: bool) -> Shape:
    batch = tuple(range(rank - 2))
    return (*batch, rank - 1, rank - 2) if transposed else (*batch, rank - 2, rank - 1)


def _logical(shape: Shape, rank: int, transposed: bool) -> Shape:
    """Return an operand's dimensions once transposed, with leading ones up to `rank`."""
    rows, columns = reversed(shape[-2:]) if transposed else shape[-2:]
    return (1,) * (rank - len(shape)) + shape[:-2] + (rows, columns)


def _worth_reordering(a_dims: Shape, b_dims: Shape) -> bool:
    """Return whether to reorder the right operand first, to the layout that oneDNN prefers.

    The kernels for plain layouts lose speed once the right operand outgrows the caches (2560 cubed:
    91 GF/s, reordered 268), but with few rows the reorder costs more than it gains (16 rows by
    4096x4096: 79 GF/s, reordered 35). Between these, 1024 cubed was equal.
    """
    return len(b_dims) == 2 and a_dims[-2] >= 512 and math.prod(b_dims) >= 2**20


@cached
def matmul_plan(
    dtype: int,
    a_shape: Shape,
    b_shape: Shape,
    transpose_a: bool,
    transpose_b: bool,
    multiplied: int | None = None,
) -> tuple[PrimitiveChain, Shape]:
    """Return the plan of `matmul`, with arrays a, b and product, and the product's shape.

    multiplied: another type to convert a and b to first.
    """
    require(min(len(a_shape), len(b_shape)) >= 2, "matmul of an array with fewer than 2 dimensions")
    require(0 not in a_shape + b_shape, "empty array")
    rank = max(len(a_shape), len(b_shape))
    a_dims = _logical(a_shape, rank, transpose_a)
    b_dims = _logical(b_shape, rank, transpose_b)
    try:
        batch = np.broadcast_shapes(a_dims[:-2], b_dims[:-2])
    except ValueError:
        raise c.Unsupported(f"oneDNN: batches of {a_shape} and {b_shape} do not fit") from None
    shape = (*batch, a_dims[-2], b_dims[-1])
    # Two operations per multiplication, at the 100 operations per ns that one core may reach.
    builder = PlanBuilder(estimate_ns=math.prod(shape) * a_dims[-1] / 50)
    a = builder.dense(a_dims, _order(rank, transpose_a), dtype)
    b = builder.dense(b_dims, _order(rank, transpose_b), dtype)
    y = builder.dense(shape, _order(rank, False), dtype)
    a_in = a if multiplied is None else builder.any_layout(a_dims, multiplied)
    b_in = b
    if multiplied is not None or _worth_reordering(a_dims, b_dims):
        b_in = builder.any_layout(b_dims, multiplied or dtype)
    desc = builder.primitive_desc("matmul", a_in, b_in, None, y)
    left, right, product = builder.array(a), builder.array(b), builder.array(y)
    left = builder.as_input(left, builder.query(desc, c.QUERY_SRC))
    right = builder.as_input(right, builder.query(desc, c.QUERY_WEIGHTS))
    builder.execute(desc, {c.ARG_SRC: left, c.ARG_WEIGHTS: right, c.ARG_DST: product})
    return builder.finish(), shape


def matmul(
    a: np.ndarray, b: np.ndarray, transpose_a: bool = False, transpose_b: bool = False
) -> np.ndarray:
    """Return a @ b, each operand's last two dimensions exchanged first where asked for."""
    dtype = common_dtype(a, b)
    plan, shape = matmul_plan(dtype, a.shape, b.shape, bool(transpose_a), bool(transpose_b))
    y = empty_aligned(shape, a.dtype)
    plan.run(ready(a), ready(b), y)
    return y


def gemm(
    a: np.ndarray, b: np.ndarray, transpose_a: bool = False, transpose_b: bool = False
) -> np.ndarray:
    """Return the product of two float32 matrices, each transposed first where asked for.

    One call of the C library, without the plan that `matmul` keeps: 2-D float32 only.
    """
    require(a.ndim == b.ndim == 2, "gemm of arrays that are not matrices")
    require(a.dtype == b.dtype == np.float32, "gemm of types other than float32")
    rows, depth = a.shape[::-1] if transpose_a else a.shape
    depth_of_b, columns = b.shape[::-1] if transpose_b else b.shape
    require(depth == depth_of_b and 0 not in (rows, depth, columns), "shapes do not fit")
    a, b = ready(a), ready(b)
    y = empty_aligned((rows, columns), np.float32)
    c.library().call(
        "dnnl_sgemm",
        b"T" if transpose_a else b"N",
        b"T" if transpose_b else b"N",
        rows,
        columns,
        depth,
        1.0,
        address(a),
        a.shape[1],
        address(b),
        b.shape[1],
        0.0,
        address(y),
        columns,
    )
    return y
