"""Every way to compute a product computes that product."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.gemm.fully_connected import SmallBatchBackward
from headrace._src.compile.kernels.gemm.gemm import Gemm, nothing
from headrace._src.compile.kernels.gemm.gemm_choice import candidates, packed_gemm
from headrace._src.compile.kernels.onednn_calls import is_foreign
from headrace._src.compile.native.machine_code import aligned, run_kernel
from headrace._src.devices.target import for_level, host
from headrace._src.lowering.pointwise import record

TRANSPOSES = [(False, False), (True, False), (False, True), (True, True)]


def filled(rng, shape):
    x = aligned(4 * shape[0] * shape[1], np.float32).reshape(shape)
    x[:] = rng.standard_normal(shape)
    return x


@pytest.mark.parametrize("transposes", TRANSPOSES)
@pytest.mark.parametrize("size", [(16, 600, 500), (500, 600, 16), (70, 50, 30)], ids=str)
def test_all_agree(size, transposes):
    m, n, k = size
    rng = np.random.default_rng(0)
    a = filled(rng, (k, m) if transposes[0] else (m, k))
    b = filled(rng, (n, k) if transposes[1] else (k, n))
    bias, c = filled(rng, (1, n)), filled(rng, (m, n))
    expected = (a.T if transposes[0] else a) @ (b.T if transposes[1] else b).astype("d") + bias
    epilogue = Epilogue(record(lambda e, x, y: x + y, ["float32"] * 2), ("channel",))
    specs = candidates(m, n, k, *transposes, epilogue=epilogue)
    assert len(specs) >= 2
    for spec in specs:
        c[:] = np.nan
        run_kernel(spec, [a, b, bias, c])
        np.testing.assert_allclose(c, expected, rtol=0, atol=2e-4)


# The last fits into the cores' own caches: each thread has a part of its columns. Its sums come in
# two stretches, the second of which has a rest.
@pytest.mark.parametrize("operands", ["a", "b", "ab"])
@pytest.mark.parametrize("transposes", TRANSPOSES)
@pytest.mark.parametrize("size", [(16, 600, 500), (70, 50, 30), (70, 256, 781)], ids=str)
def test_all_round_operands(size, transposes, operands):
    m, n, k = size
    rng = np.random.default_rng(0)
    a = filled(rng, (k, m) if transposes[0] else (m, k))
    b = filled(rng, (n, k) if transposes[1] else (k, n))
    c = filled(rng, (m, n))
    x = a.astype(ml_dtypes.bfloat16 if "a" in operands else "d").astype("d")
    y = b.astype(ml_dtypes.bfloat16 if "b" in operands else "d").astype("d")
    expected = (x.T if transposes[0] else x) @ (y.T if transposes[1] else y)
    rounds = {f"rounds_{name}": "bfloat16" for name in operands}
    for spec in candidates(m, n, k, *transposes, **rounds):
        assert not is_foreign(spec)
        c[:] = np.nan
        run_kernel(spec, [a, b, c])
        np.testing.assert_allclose(c, expected, rtol=0, atol=2e-4)


def test_only_float32_is_rounded():
    with pytest.raises(ValueError, match="float64"):
        candidates(16, 16, 16, dtype="float64", rounds_b="bfloat16")


def test_small_batches_come_first():
    kinds = [type(candidates(16, 1024, 4096, *t)[0]) for t in TRANSPOSES[:3]]
    assert kinds[0] is Gemm and kinds[2] is SmallBatchBackward
    assert isinstance(candidates(1024, 4096, 16, True, False)[0], SmallBatchBackward)


def test_what_few_blocks_read_is_copied_by_them():
    m, n, k = 300, 130, 1000
    rng = np.random.default_rng(3)
    a, b, c = filled(rng, (k, m)), filled(rng, (k, n)), filled(rng, (m, n))
    target = replace(host(), caches=(32 << 10, 1 << 20, 32 << 20))  # whatever this machine has
    ways = candidates(m, n, k, True, threads=2, target=target)
    assert [getattr(s, "a", "") for s in ways[:2]] == ["stripes", "pack"]
    for spec in ways[:2]:
        c[:] = np.nan
        run_kernel(spec, [a, b, c])
        np.testing.assert_allclose(c, a.T.astype("d") @ b, rtol=0, atol=4e-4)
    assert [getattr(s, "a", "") for s in candidates(1000, 1000, 700, True, target=target)[:2]] == [
        "pack",
        "stripes",
    ]


def test_large_gradients_bypass_the_caches():
    (first, *_) = candidates(4096, 2048, 16, True, False)
    assert isinstance(first, SmallBatchBackward) and first.stream
    update = Epilogue(record(lambda e, g, w: w - g, ["float32"] * 2), ("full",))
    (first, *_) = candidates(4096, 2048, 16, True, False, epilogue=update)
    assert isinstance(first, SmallBatchBackward) and not first.stream


def test_a_library_is_offered_for_plain_float32_only():
    relu = Epilogue(record(lambda e, x: e.max(x, 0.0), ["float32"]))
    assert not any(map(is_foreign, candidates(64, 64, 64, epilogue=relu)))
    assert not any(map(is_foreign, candidates(64, 64, 64, dtype="float64")))
    assert all(s.epilogue == nothing("float64") for s in candidates(8, 8, 8, dtype="float64"))


@pytest.mark.parametrize("transpose_b", [False, True])
def test_packed_once(transpose_b):
    m, n, k = 20, 260, 130
    rng = np.random.default_rng(1)
    a, b = filled(rng, (m, k)), filled(rng, (n, k) if transpose_b else (k, n))
    pack, multiply = packed_gemm(m, n, k, transpose_b=transpose_b)
    packed, c = aligned(pack.packed_bytes, np.float32), filled(rng, (m, n))
    run_kernel(pack, [b, packed])
    run_kernel(multiply, [a, packed, c])
    np.testing.assert_allclose(c, a @ (b.T if transpose_b else b).astype("d"), rtol=0, atol=1e-4)


@pytest.mark.parametrize("transposes", TRANSPOSES)
def test_small_products_divide_columns_alike(transposes):
    m, n, k = 130, 256, 90
    rng = np.random.default_rng(0)
    a = filled(rng, (k, m) if transposes[0] else (m, k))
    b = filled(rng, (n, k) if transposes[1] else (k, n))
    expected = (a.T if transposes[0] else a) @ (b.T if transposes[1] else b).astype("d")
    for spec in candidates(m, n, k, *transposes, threads=2):
        c = filled(rng, (m, n))
        assert spec.share == "columns" and spec._size.across == 2
        run_kernel(spec, [a, b, c], 2)
        np.testing.assert_allclose(c, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize(("level", "ways"), [("x86-64-v3", 2), ("x86-64-v4", 1)])
def test_a_small_product_with_narrow_panels_may_read_rows_in_place(level, ways):
    target = replace(for_level(level), caches=(1 << 15, 1 << 20, 1 << 25))
    found = candidates(128, 256, 784, threads=2, target=target)
    assert [spec.b for spec in found] == ["direct", "pack"][:ways]
    assert len({(spec.depth, spec.rows, spec.columns) for spec in found}) == 1  # the same bits


@pytest.mark.parametrize("size", [(64, 256, 90), (130, 200, 90), (1000, 1024, 1000)], ids=str)
def test_other_products_are_timed(size):
    assert len(candidates(*size, threads=2)) > 1
    assert len(candidates(130, 256, 90, threads=1)) > 1
