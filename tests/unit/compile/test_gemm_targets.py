"""The same products in narrower vectors and fewer registers, as other processors have them."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from headrace._src.compile.kernels.gemm.batched_gemm import batched_gemm
from headrace._src.compile.kernels.gemm.fully_connected import small_batch, small_batch_backward
from headrace._src.compile.kernels.gemm.gemm import gemm, nothing
from headrace._src.compile.kernels.gemm.gemm_tile import best_tile
from headrace._src.devices.target import LEVELS, Target, for_level
from tests.unit.compile.targets import NEON, TARGETS, run_on


@pytest.fixture(params=TARGETS.values(), ids=TARGETS)
def target(request) -> Target:
    return request.param


@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
def test_products(target, transposes):
    m, n, k = 31, 29, 45
    rng = np.random.default_rng(0)
    a = rng.standard_normal((k, m) if transposes[0] else (m, k)).astype("f")
    b = rng.standard_normal((n, k) if transposes[1] else (k, n)).astype("f")
    c = np.empty((m, n), "f")
    spec = gemm(m, n, k, *transposes, depth=16, target=target)
    expected = (a.T if transposes[0] else a).astype("d") @ (b.T if transposes[1] else b)
    for share in ("claim", "groups"):
        c[:] = np.nan
        run_on(target, replace(spec, share=share), [a, b, c])
        np.testing.assert_allclose(c, expected, rtol=0, atol=1e-4)
    batch = batched_gemm((1,), m, n, k, *transposes, target=target)
    run_on(target, batch, [a[None], b[None], c[None]])
    np.testing.assert_allclose(c, expected, rtol=0, atol=1e-4)


def test_small_batches(target):
    m, n, k = 9, 70, 33
    rng = np.random.default_rng(0)
    x, w, dy = (rng.standard_normal(s).astype("f") for s in ((m, k), (k, n), (m, n)))
    y, dx, dw = np.empty_like(dy), np.empty_like(x), np.empty_like(w)
    run_on(target, small_batch(m, n, k, target=target), [x, w, y])
    np.testing.assert_allclose(y, x.astype("d") @ w, rtol=0, atol=1e-4)
    plain = nothing("float32")
    spec = small_batch_backward(m, n, k, "float32", plain, plain, target=target)
    run_on(target, spec, [x, dy, w, dw, dx])
    np.testing.assert_allclose(dx, dy.astype("d") @ w.T, rtol=0, atol=1e-4)
    np.testing.assert_allclose(dw, x.T.astype("d") @ dy, rtol=0, atol=1e-4)


def test_weights_of_small_batches_are_rounded_as_they_are_read(target):
    """With columns that don't fill a panel, and a k that doesn't fill a stretch."""
    m, n, k = 16, 150, 70
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    spec = small_batch(m, n, k, rounds="bfloat16", target=target)
    assert spec.b == ("stripes" if target.registers < 32 else "direct")
    run_on(target, spec, [a, b, c])
    rounded = b.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_allclose(c, a @ rounded, rtol=0, atol=1e-4)


@pytest.mark.parametrize("target", [*map(for_level, LEVELS), NEON], ids=lambda t: t.cpu)
@pytest.mark.parametrize("m", [1, 4, 20, 1000])
def test_tiles_fit_the_registers(target, m):
    rows, columns = best_tile(m, 1000, "float32", target)
    vectors = columns // target.lanes()
    assert columns % target.lanes() == 0 and rows * vectors + vectors + 1 < target.registers
    assert rows < m + target.lanes()
