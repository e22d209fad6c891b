"""Products of matrices, single and in batches, and the contractions built on them.

The kernels use NumPy's matmul, which calls OpenBLAS for float32, float64 and complex numbers.
Narrow floats are multiplied in float32 and rounded once; integers exactly, modulo 2^bits.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, broadcast, show_shape
from headrace._src.devices import onednn
from headrace._src.graph.definition import Kind, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.anchors import contraction
from headrace._src.lowering.rules import Anchor
from headrace._src.ops.array.broadcasting import same_shapes
from headrace._src.ops.base import infer
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.onednn_kernel import onednn_kernel
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["matmul", "matvec"]


# Kernels ---------------------------------------------------------------------------------------


def _narrow_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    wide = np.matmul(x.astype(np.float32), y.astype(np.float32))
    return wide.astype(x.dtype)


# Below this many multiplications, NumPy's own integer loops beat the conversion to float64 and
# back (8 cubed: 1.3 against 2.4 us, 64 cubed: 163 against 20 us).
_FEW_MULTIPLICATIONS = 4096
_EXACT = 2**53


def _integer_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x @ y modulo 2^bits; by BLAS in float64 wherever that is exact."""
    depth = x.shape[-1]
    if not x.size or not y.size or x.size * y.shape[-1] <= _FEW_MULTIPLICATIONS:
        return np.matmul(x, y)
    if depth * _largest(x) * _largest(y) < _EXACT:
        return _float64_product(x, y).astype(x.dtype)
    if x.dtype == np.int32 and depth < 2**20:
        return _product_of_halves(x, y)
    return np.matmul(x, y)


def _largest(x: np.ndarray) -> int:
    return max(int(x.max()), -int(x.min()))


def _float64_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(np.int64)


def _product_of_halves(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return an int32 product from exact ones of 16-bit halves; that of the upper
    halves overflows.
    """
    x_high, x_low = x >> 16, x & 0xFFFF
    y_high, y_low = y >> 16, y & 0xFFFF
    mixed = _float64_product(x_high, y_low) + _float64_product(x_low, y_high)
    return (_float64_product(x_low, y_low) + (mixed << 16)).astype(np.int32)


_PRODUCTS = {
    np.dtype(np.float16): _narrow_product,
    np.dtype(ml_dtypes.bfloat16): _narrow_product,
    np.dtype(np.int32): _integer_product,
    np.dtype(np.int64): _integer_product,
}


def _product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _PRODUCTS.get(x.dtype, np.matmul)(x, y)


def _check_matrices(x: np.ndarray, y: np.ndarray) -> None:
    for i, operand in enumerate((x, y)):
        if operand.ndim != 2:
            raise ValueError(f"In[{i}] is not a matrix: it has shape {list(operand.shape)}")


def _check_depth(x: np.ndarray, y: np.ndarray) -> None:
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(
            f"Matrix size-incompatible: In[0]: {show_shape(x.shape)}, In[1]: {show_shape(y.shape)}"
        )


def _mat_mul(x, y, *, transpose_a, transpose_b):
    _check_matrices(x, y)
    x, y = x.T if transpose_a else x, y.T if transpose_b else y
    _check_depth(x, y)
    return _product(x, y)


def _adjoint(x: np.ndarray) -> np.ndarray:
    swapped = np.swapaxes(x, -1, -2)
    return swapped.conj() if x.dtype.kind == "c" else swapped


def _batch_mat_mul_v2(x, y, *, adj_x, adj_y):
    for i, operand in enumerate((x, y)):
        if operand.ndim < 2:
            raise ValueError(f"In[{i}] ndims must be >= 2: {operand.ndim}")
    depths = x.shape[-2 if adj_x else -1], y.shape[-1 if adj_y else -2]
    if depths[0] != depths[1]:
        raise ValueError(
            f"In[0] mismatch In[1] shape: {depths[0]} vs. {depths[1]}: {show_shape(x.shape)} "
            f"{show_shape(y.shape)} {int(adj_x)} {int(adj_y)}"
        )
    x, y = _adjoint(x) if adj_x else x, _adjoint(y) if adj_y else y
    return _product(x, y)


def _batch_mat_mul(x, y, *, adj_x, adj_y):
    if x.shape[:-2] != y.shape[:-2]:
        raise ValueError(
            "In[0] and In[1] must have compatible batch dimensions: "
            f"{list(x.shape)} vs. {list(y.shape)}"
        )
    return _batch_mat_mul_v2(x, y, adj_x=adj_x, adj_y=adj_y)


# oneDNN spreads a batch over the cores, NumPy passes it to OpenBLAS matrix by matrix. Times in us
# of NumPy and of oneDNN (two AVX-512 cores, float32):      16 x [64,64] [64,64]     115   234
# 64 x [128,64] [64,128]    1564    558     512 x [32,32] [32,32]     559   549      768 x [64,64]
# [64,64]      5940   3055     256 x [64,64] [64,64]    1675  1142        4 x [512,512] [512,512]
# 5106   5392 bfloat16 stays with float32 BLAS ([256,256]: 332 against 554).
_MUCH_WORK = 2**25
_MUCH_WORK_EACH = 2**24

# A single pair, in GF/s of OpenBLAS and of oneDNN's gemm: [2048,2048] [2048,2048] 250 and 312,
# [128,3136] [3136,1024] 154 and 212; [64,64] [64,64] takes 7 us and 13. Where a step also has
# convolutions, OpenBLAS's waiting threads take the cores from oneDNN's: 6.2 ms and 3.0 for the
# second pair right after a convolution.
_MUCH_WORK_IN_ONE = 2**21


def _native_mat_mul(a, b, *, transpose_a, transpose_b):
    if (
        a.dtype != np.float32
        or a.ndim != 2
        or a.size * b.shape[0 if transpose_b else -1] < (_MUCH_WORK_IN_ONE)
    ):
        return NotImplemented  # NumPy's product is as fast
    return onednn.gemm(a, b, transpose_a, transpose_b)


def _native_batch_mat_mul(x, y, *, adj_x, adj_y):
    if x.dtype != np.float32 or min(x.ndim, y.ndim) < 2:
        return NotImplemented  # NumPy's product is as fast
    rows, depth = x.shape[-2:]
    one = rows * depth * y.shape[-2 if adj_y else -1]
    count = max(x.size // (rows * depth or 1), y.size // (y.shape[-1] * y.shape[-2] or 1))
    if one > _MUCH_WORK_EACH or one * count < _MUCH_WORK:
        return NotImplemented  # NumPy's product is as fast
    return onednn.matmul(x, y, adj_x, adj_y)


# Ops -------------------------------------------------------------------------------------------


def _inner(x: Any, y: Any) -> None:
    if None not in (x, y) and x != y:
        raise ValueError(f"Dimensions must be equal, but are {x} and {y}")


def _mat_mul_infer(c: Any, x: TensorShape, y: TensorShape) -> Any:
    rows, depth = _matrix_sizes(infer.with_rank(x, 2), c.attrs["transpose_a"])
    depth_of_y, columns = _matrix_sizes(infer.with_rank(y, 2), c.attrs["transpose_b"])
    _inner(depth, depth_of_y)
    return rows, columns


def _matrix_sizes(shape: TensorShape, transposed: bool) -> Any:
    assert shape.sizes is not None
    return shape.sizes[:-3:-1] if transposed else shape.sizes[-2:]


def _mat_mul_gradient(b, op, grad):
    x, y = b.conj(op.inputs[0]), b.conj(op.inputs[1])
    return _product_gradients(b.mat_mul, x, y, grad, *_transposes(op))


def _transposes(op: Any) -> tuple[bool, bool]:
    return op._attrs["transpose_a"], op._attrs["transpose_b"]


def _product_gradients(product: Any, x: Any, y: Any, grad: Any, tx: bool, ty: bool) -> Any:
    """Return the gradients of op(x) op(y); `product(a, b, transpose_a, transpose_b)` multiplies."""
    dx = product(y, grad, ty, True) if tx else product(grad, y, False, not ty)
    dy = product(grad, x, True, tx) if ty else product(x, grad, not tx, False)
    return dx, dy


@define(
    "MatMul",
    "a: T, b: T -> product: T",
    "transpose_a: bool = False; transpose_b: bool = False; "
    "T: {bfloat16|float16|float32|float64|int32|int64|complex64|complex128}",
    infer=_mat_mul_infer,
    kernel=_mat_mul,
    gradient=_mat_mul_gradient,
    kernels={"CPU": [onednn_kernel(_native_mat_mul)]},
    lower=Anchor("contraction", contraction),
    kind=Kind.CONTRACTION,
    samples=lambda: [
        Sample(r(2, 3), r(3, 4)),
        Sample(r(3, 2), r(3, 4), transpose_a=True),
        Sample(r(2, 3), r(4, 3), transpose_b=True),
        Sample(r(3, 2), r(4, 3), transpose_a=True, transpose_b=True),
        Sample(r(2, 0), r(0, 3)),
        Sample(r(0, 2), r(2, 3)),
        # Sizes that the native kernel accepts, with its type:
        Sample(_wave(128, 96), _wave(96, 256), T="float32"),
        Sample(_wave(96, 128), _wave(256, 96), transpose_a=True, transpose_b=True, T="float32"),
    ],
)
def mat_mul(a, b, transpose_a=False, transpose_b=False, name=None):
    """Return the product of two matrices, each optionally transposed first."""


def _sparse_mat_mul(x, y, *, transpose_a, transpose_b):
    x, y = x.astype(np.float32, copy=False), y.astype(np.float32, copy=False)
    return _mat_mul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)


def _sparse_mat_mul_nodes(op, grad):
    """TensorFlow transposes a second factor by an operation, and needs more if a rank
    is unknown.
    """
    x, y = op.inputs
    casts = sum(t.dtype is not dtypes.float32 for t in op.inputs)
    transposed = {(False, False): [y], (True, True): [grad, x], (True, False): [grad]}
    second = transposed.get(_transposes(op), [])
    return 2 + casts + sum(2 if t.shape.ndims is not None else 8 for t in second)


@counted(_sparse_mat_mul_nodes)
def _sparse_mat_mul_gradient(b, op, grad):
    x, y = (b.cast(t, dtypes.float32) for t in op.inputs)
    found = _product_gradients(b.mat_mul, x, y, grad, *_transposes(op))
    return tuple(b.cast(g, t.dtype) for g, t in zip(found, op.inputs, strict=True))


@export("sparse_matmul")
@define(
    "SparseMatMul",
    "a: Ta, b: Tb -> product: float32",
    "transpose_a: bool = False; transpose_b: bool = False; a_is_sparse: bool = False; "
    "b_is_sparse: bool = False; Ta: {float32|bfloat16} = float32; Tb: {float32|bfloat16} = float32",
    infer=_mat_mul_infer,
    kernel=_sparse_mat_mul,
    gradient=_sparse_mat_mul_gradient,
    kind=Kind.CONTRACTION,
    samples=[
        Sample(r(2, 3), r(3, 4), a_is_sparse=True),
        Sample(r(3, 2), r(4, 3), transpose_a=True, transpose_b=True, b_is_sparse=True),
    ],
)
def sparse_matmul(
    a,
    b,
    transpose_a=False,
    transpose_b=False,
    a_is_sparse=False,
    b_is_sparse=False,
    name=None,
):
    """Return the product of two dense matrices that may contain many zeros."""


def _batch_infer(c: Any, x: TensorShape, y: TensorShape, join: Any) -> Any:
    batch_of_x, rows, depth = _batch_and_sizes(x, c.attrs["adj_x"])
    batch_of_y, depth_of_y, columns = _batch_and_sizes(y, c.attrs["adj_y"])
    _inner(depth, depth_of_y)
    return join(batch_of_x, batch_of_y).concatenate((rows, columns))


def _batch_and_sizes(x: TensorShape, transposed: bool) -> tuple[TensorShape, Any, Any]:
    if infer.with_rank_at_least(x, 2).sizes is None:
        return x, None, None
    return x[:-2], *_matrix_sizes(x, transposed)


def _adjoint_gradients(op: Any, grad: Any) -> Any:
    def product(x: Any, y: Any, adj_x: bool, adj_y: bool) -> Any:
        return batch_mat_mul_v2(x, y, adj_x=adj_x, adj_y=adj_y)

    x, y = op.inputs
    return _product_gradients(product, x, y, grad, op._attrs["adj_x"], op._attrs["adj_y"])


@counted(lambda op, grad: 2 if same_shapes(*op.inputs) else 17)
def _batch_mat_mul_v2_gradient(b, op, grad):
    dx, dy = _adjoint_gradients(op, grad)
    return b.sum_to(dx, op.inputs[0]), b.sum_to(dy, op.inputs[1])


_BATCH_ATTRS = (
    "T: {bfloat16|float16|float32|float64|int32|int64|complex64|complex128}; "
    "adj_x: bool = False; adj_y: bool = False"
)


def _batch_samples() -> list[Sample]:
    return [
        Sample(r(2, 2, 3), r(2, 3, 4)),
        Sample(r(2, 3, 2), r(2, 4, 3), adj_x=True, adj_y=True),
        Sample(r(2, 3, 2), r(2, 3, 4), adj_x=True),
        Sample(r(1, 2, 2, 3), r(1, 2, 4, 3), adj_y=True),
        Sample(r(2, 3), r(3, 1)),
        Sample(r(0, 2, 3), r(0, 3, 4)),
        # A size that the native kernel accepts, with its type:
        Sample(_wave(128, 64, 64), _wave(128, 64, 64), adj_y=True, T="float32"),
    ]


def _wave(*shape: int) -> np.ndarray:
    return np.sin(np.arange(np.prod(shape))).reshape(shape) * 3


@define(
    "BatchMatMul",
    "x: T, y: T -> output: T",
    _BATCH_ATTRS,
    infer=lambda c, x, y: _batch_infer(c, x, y, lambda m, n: m.merge_with(n)),
    kernel=_batch_mat_mul,
    gradient=lambda b, op, grad: _adjoint_gradients(op, grad),
    kernels={"CPU": [onednn_kernel(_native_batch_mat_mul)]},
    lower=Anchor("contraction", contraction),
    kind=Kind.CONTRACTION,
    samples=_batch_samples,
)
def batch_mat_mul(x, y, adj_x=False, adj_y=False, name=None):
    """Return the products of corresponding matrices in two batches of the same shape."""


@define(
    "BatchMatMulV2",
    "x: T, y: T -> output: T",
    _BATCH_ATTRS,
    infer=lambda c, x, y: _batch_infer(c, x, y, broadcast),
    kernel=_batch_mat_mul_v2,
    gradient=_batch_mat_mul_v2_gradient,
    kernels={"CPU": [onednn_kernel(_native_batch_mat_mul)]},
    lower=Anchor("contraction", contraction),
    kind=Kind.CONTRACTION,
    samples=lambda: [
        *_batch_samples(),
        Sample(r(2, 1, 2, 3), r(3, 3, 2)),
        Sample(r(2, 3), r(2, 2, 3), adj_y=True),
    ],
)
def batch_mat_mul_v2(x, y, adj_x=False, adj_y=False, name=None):
    """Return the products of matrices whose batch dimensions broadcast."""


# Public functions ------------------------------------------------------------------------------

_SPARSE_TYPES = (dtypes.bfloat16, dtypes.float32)


@composed
@export("matmul", "linalg.matmul")
@dispatched
def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the product of matrices, or of batches of them, which broadcast.

    `transpose_*` and `adjoint_*` first swap an operand's last two dimensions, the latter with
    conjugation. `*_is_sparse` says that a float32 or bfloat16 matrix contains many zeros.
    """
    with name_scope(name, "MatMul", [a, b]) as scope:
        for which, transpose, adjoint in (
            ("a", transpose_a, adjoint_a),
            ("b", transpose_b, adjoint_b),
        ):
            if transpose and adjoint:
                raise ValueError(f"Only one of transpose_{which} and adjoint_{which} can be True.")
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, name="b")
        if _may_be_batch(a, b) and not (a_is_sparse or b_is_sparse):
            return batch_mat_mul_v2(
                _conjugate_if(transpose_a, a),
                _conjugate_if(transpose_b, b),
                adj_x=transpose_a or adjoint_a,
                adj_y=transpose_b or adjoint_b,
                name=scope,
            )
        a, b = _conjugate_if(adjoint_a, a), _conjugate_if(adjoint_b, b)
        transposes = transpose_a or adjoint_a, transpose_b or adjoint_b
        if not _is_sparse_product(a, b, a_is_sparse or b_is_sparse):
            return mat_mul(a, b, *transposes, name=scope)
        product = sparse_matmul(a, b, *transposes, a_is_sparse, b_is_sparse, name=scope)
        if a.dtype is b.dtype is dtypes.bfloat16:
            return _b.cast(product, dtypes.bfloat16)
        return product


_b = b  # access to the other families where `b` is the right operand


def _may_be_batch(a: Tensor, b: Tensor) -> bool:
    return any(t.shape.sizes is None or len(t.shape.sizes) > 2 for t in (a, b))


def _conjugate_if(wanted: bool, t: Tensor) -> Tensor:
    return _b.conj(t) if wanted and t.dtype.is_complex else t


def _is_sparse_product(a: Tensor, b: Tensor, marked: bool) -> bool:
    """Whether to use SparseMatMul: if requested, or if bfloat16 is multiplied by another type."""
    types = a.dtype.base_dtype, b.dtype.base_dtype
    if marked:
        return all(t in _SPARSE_TYPES for t in types)
    return dtypes.bfloat16 in types and types[0] is not types[1]


@composed
@export("linalg.matvec")
def matvec(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the product of a matrix and a vector, or of batches of them.

    transpose_a and adjoint_a: swap the matrix's last two dimensions first, the latter with
    conjugation. a_is_sparse and b_is_sparse: see tf.matmul.
    """
    with name_scope(name, "MatVec", [a, b]):
        column = _b.expand_dims(b, axis=-1)
        product = matmul(
            a,
            column,
            transpose_a=transpose_a,
            adjoint_a=adjoint_a,
            a_is_sparse=a_is_sparse,
            b_is_sparse=b_is_sparse,
        )
        return _b.squeeze(product, axis=-1)
