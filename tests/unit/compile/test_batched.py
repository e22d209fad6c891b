"""Batches of matrix products against NumPy in float64: broadcasting, heads in place, masks."""

import ml_dtypes
import numpy as np
import pytest

from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.gemm.batched_gemm import BatchStrides, batched_gemm, dense
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.lowering.pointwise import record
from tests.unit.compile.targets import TARGETS, run_on


def assert_close(found, expected, precision=3e-6):
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=precision * scale)


def stored(rng, batch, rows, columns, transposed, dtype="float32"):
    shape = (*batch, columns, rows) if transposed else (*batch, rows, columns)
    return rng.standard_normal(shape).astype(dtype)


def turned(x, transposed):
    x = x.astype("d")
    return np.swapaxes(x, -1, -2) if transposed else x


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("size", [(1, 1, 1), (37, 19, 53)], ids=str)
def test_products(size, transposes, dtype, threads):
    m, n, k = size
    rng = np.random.default_rng(0)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    a = stored(rng, (2, 3), m, k, transposes[0], kind)
    b = stored(rng, (2, 3), k, n, transposes[1], kind)
    c = np.empty((2, 3, m, n), kind)
    run_kernel(batched_gemm((2, 3), m, n, k, *transposes, dtype, depth=32), [a, b, c], threads)
    expected = turned(a, transposes[0]) @ turned(b, transposes[1])
    assert_close(c.astype("d"), expected, 8e-3 if dtype == "bfloat16" else 3e-6)


@pytest.mark.parametrize("transposes", [(False, False), (True, False)])
def test_packed_where_asked(transposes):
    m, n, k = 23, 18, 40
    rng = np.random.default_rng(4)
    a, b = stored(rng, (3,), m, k, transposes[0]), stored(rng, (3,), k, n, transposes[1])
    c = np.empty((3, m, n), np.float32)
    run_kernel(batched_gemm((3,), m, n, k, *transposes, pack_a=True, pack_b=True), [a, b, c])
    assert_close(c, turned(a, transposes[0]) @ turned(b, transposes[1]))


def test_broadcast_batches():
    m, n, k = 5, 33, 7
    rng = np.random.default_rng(1)
    a, b = stored(rng, (4, 1), m, k, False), stored(rng, (3,), k, n, False)
    c = np.empty((4, 3, m, n), np.float32)
    batch = (4, 3)
    spec = batched_gemm(
        batch, m, n, k, at_a=dense((4, 1), batch, m, k), at_b=dense((3,), batch, k, n)
    )
    run_kernel(spec, [a, b, c])
    assert_close(c, a.astype("d") @ b.astype("d"))


def test_attention_without_transposes():
    """Scores of heads that lie interleaved, scaled and masked, and the heads' outputs from them."""
    batch, s, heads, d = 2, 21, 3, 16
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((batch, s, heads, d)).astype("f") for _ in range(3))
    mask = rng.standard_normal((batch, s)).astype("f")
    scores, out = np.empty((batch, heads, s, s), "f"), np.empty((batch, s, heads, d), "f")
    interleaved = BatchStrides(heads * d, (s * heads * d, d))
    program = record(lambda e, x, m: x * 0.25 + m, ["float32"] * 2)
    first = batched_gemm(
        (batch, heads), s, s, d, False, True, epilogue=Epilogue(program, ("channel",)),
        at_a=interleaved, at_b=interleaved, operands=[BatchStrides(0, (s, 0))],
    )  # fmt: skip
    assert first.arguments == ("a", "b", "channel0", "out:result0")
    run_kernel(first, [q, k, mask, scores])
    expected = np.einsum("bihd,bjhd->bhij", q.astype("d"), k) * 0.25 + mask[:, None, None, :]
    assert_close(scores, expected)
    second = batched_gemm((batch, heads), s, d, s, at_b=interleaved, at_c=interleaved)
    run_kernel(second, [scores, v, out])
    assert_close(out, np.einsum("bhij,bjhd->bihd", scores.astype("d"), v))


def test_one_large_matrix_is_shared_by_the_threads():
    m, n, k = 300, 70, 40
    rng = np.random.default_rng(3)
    a, b = stored(rng, (1,), m, k, False), stored(rng, (1,), k, n, True)
    c = np.empty((1, m, n), np.float32)
    spec = batched_gemm((1,), m, n, k, False, True)
    assert spec._size.down > 1
    run_kernel(spec, [a, b, c])
    assert_close(c, turned(a, False) @ turned(b, True))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch": (0,)}, "empty"),
        ({"at_a": BatchStrides(3, (1, 1))}, "rank"),
        ({"transpose_b": True, "pack_b": False}, "transposed"),
        ({"dtype": "bfloat16", "pack_a": False}, "widened"),
    ],
)
def test_bad_specs(given, message):
    fields = {"batch": (2,), "m": 3, "n": 3, "k": 3} | given
    with pytest.raises(ValueError, match=message):
        batched_gemm(**fields)


def test_shapes_that_do_not_broadcast():
    with pytest.raises(ValueError, match="broadcast"):
        dense((3,), (4, 2), 5, 5)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_one_row_that_all_matrices_share(target):
    """Its rows are 0 apart, which must not be taken for a packed matrix."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((1, 5)).astype("f"), rng.standard_normal((2, 40, 5)).astype("f")
    c = np.full((2, 1, 40), np.nan, "f")
    same = BatchStrides(0, (0,))
    spec = batched_gemm((2,), 1, 40, 5, False, True, at_a=same, target=target)
    run_on(target, spec, [a, b, c])
    np.testing.assert_allclose(c, a @ b.swapaxes(1, 2), rtol=0, atol=1e-5)
    row, wide = rng.standard_normal((3, 1)).astype("f"), np.full((2, 3, 40), np.nan, "f")
    given = rng.standard_normal((1, 40)).astype("f")
    spec = batched_gemm((2,), 3, 40, 1, at_a=BatchStrides(1, (0,)), at_b=same, target=target)
    run_on(target, spec, [row, given, wide])
    np.testing.assert_allclose(wide, np.stack([row @ given] * 2), rtol=0, atol=1e-5)
