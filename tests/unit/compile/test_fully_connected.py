"""Small-batch layers against NumPy in float64: forward, and both gradients in one pass."""

import numpy as np
import pytest

from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.gemm.fully_connected import (
    SmallBatchBackward,
    small_batch,
    small_batch_backward,
)
from headrace._src.compile.kernels.gemm.gemm import nothing
from headrace._src.compile.native.machine_code import aligned, run_kernel
from headrace._src.lowering.pointwise import record

SIZES = [(1, 1, 1), (8, 37, 23), (16, 300, 61), (19, 513, 5), (5, 64, 12)]


def arrays(m, n, k, dtype):
    rng = np.random.default_rng(m + n + k)
    shapes = ((m, k), (k, n), (m, n))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def assert_close(found, expected):
    scale = max(1.0, float(np.abs(expected).max()))
    precision = 1e-14 if found.dtype == np.float64 else 3e-6
    np.testing.assert_allclose(found, expected, rtol=0, atol=precision * scale)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_forward(size, threads):
    x, w, _ = arrays(*size, "float32")
    m, n, k = size
    bias = np.arange(n, dtype=np.float32)
    program = record(lambda e, y, b: y + b, ["float32"] * 2)
    y = np.empty((m, n), np.float32)
    run_kernel(
        small_batch(m, n, k, epilogue=Epilogue(program, ("channel",))), [x, w, bias, y], threads
    )
    assert_close(y, x.astype("d") @ w.astype("d") + bias)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_one_pass_backward(size, dtype, threads):
    m, n, k = size
    x, w, dy = arrays(m, n, k, dtype)
    dx, scale = np.full_like(x, np.nan), np.full(k, 2, dtype)
    step = record(lambda e, g, w: w - g * 0.5, [dtype] * 2)
    masked = record(lambda e, g, s: g * s, [dtype] * 2)
    spec = small_batch_backward(
        m, n, k, dtype, Epilogue(step, ("full",)), Epilogue(masked, ("channel",))
    )
    assert spec.arguments == (
        "x", "dy", "w", "w_full0", "out:w_result0", "x_channel0", "out:x_result0",
    )  # fmt: skip
    old = w.astype("d")
    run_kernel(spec, [x, dy, w, w, w, scale, dx], threads)
    assert_close(dx, 2 * (dy.astype("d") @ old.T))
    assert_close(w, old - 0.5 * (x.astype("d").T @ dy.astype("d")))


def test_each_gradient_alone():
    m, n, k = 16, 96, 31
    x, w, dy = arrays(m, n, k, "float32")
    dx, dw = np.empty_like(x), aligned(w.nbytes, np.float32).reshape(w.shape)
    plain = nothing("float32")
    run_kernel(small_batch_backward(m, n, k, "float32", None, plain), [dy, w, dx])
    run_kernel(small_batch_backward(m, n, k, "float32", plain, None, stream=True), [x, dy, dw])
    assert_close(dx, dy.astype("d") @ w.astype("d").T)
    assert_close(dw, x.astype("d").T @ dy.astype("d"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"k": 0}, "empty"),
        ({"update": None, "data": None}, "neither"),
        ({"span": 100}, "multiple"),
    ],
)
def test_bad_specs(fields, message):
    plain = nothing("float32")
    given = {"m": 2, "n": 2, "k": 2, "dtype": "float32", "update": plain, "data": plain}
    given |= {"rows": 6, "columns": 64, "span": 128}
    with pytest.raises(ValueError, match=message):
        SmallBatchBackward(**(given | fields))
