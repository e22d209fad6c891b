"""oneDNN from inside a plan: the same numbers as NumPy and as devices.onednn give."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from headrace._src.compile.kernels.gemm.gemm_onednn import OneDnnGemm, Product
from headrace._src.compile.kernels.onednn_calls import can, multiplies
from headrace._src.compile.plan.plan import Buffer, Call, Plan
from headrace._src.compile.run.driver import NativeCluster
from headrace._src.devices import onednn
from headrace._src.devices.target import host


def run(spec, inputs, output):
    """Run one foreign call as a cluster, twice, and return its output."""
    spec.check()
    written = [name.startswith(("out:", "inout:")) for name in spec.arguments]
    assert written == [False, False, True]
    buffers = tuple(Buffer("input", "float32", a.nbytes, i) for i, a in enumerate(inputs))
    buffers += (Buffer("output", "float32", output.nbytes, 0),)
    cluster = NativeCluster(Plan(buffers, (Call(spec, (0, 1, 2)),), 0))
    start = output.copy()
    for _ in range(2):
        output[...] = start
        cluster.run(inputs, [output], [])
    return output


def normal(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_gemm(transpose_a, transpose_b, accumulate):
    m, n, k = 33, 20, 47
    a = normal(*((k, m) if transpose_a else (m, k)))
    b = normal(*((n, k) if transpose_b else (k, n)))
    c = np.ones((m, n), np.float32)
    wanted = (a.T if transpose_a else a) @ (b.T if transpose_b else b) + accumulate
    found = run(OneDnnGemm(m, n, k, transpose_a, transpose_b, accumulate), [a, b], c)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_product_with_batches():
    a, b = normal(5, 1, 20, 30), normal(3, 40, 30)
    spec = Product("float32", a.shape, b.shape, transpose_b=True)
    found = run(spec, [a, b], np.zeros((5, 3, 20, 40), np.float32))
    np.testing.assert_allclose(found, a @ b.swapaxes(1, 2), rtol=1e-4, atol=1e-4)


def test_a_large_product():
    a, b = normal(600, 1100), normal(1100, 1000)
    spec = Product("float32", a.shape, b.shape)
    found = run(spec, [a, b], np.zeros((600, 1000), np.float32))
    np.testing.assert_allclose(found, a @ b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("transpose", [False, True])
def test_operands_are_rounded_to_bfloat16_and_added_up_in_float32(transpose):
    a, b = normal(300, 200) if transpose else normal(200, 300), normal(300, 100)
    spec = Product("float32", a.shape, b.shape, transpose_a=transpose, precision="bfloat16")
    if not can(spec):  # the processor lacks instructions: then it is never used
        assert not multiplies(host(), "bfloat16")
        return
    found = run(spec, [a, b], np.zeros((200, 100), np.float32))
    x, y = (v.astype(ml_dtypes.bfloat16).astype(np.float64) for v in (a, b))
    np.testing.assert_allclose(found, (x.T if transpose else x) @ y, rtol=0, atol=1e-4)


def test_only_what_a_processor_multiplies_fast_is_converted():
    plain, fast = (replace(host(), features=f"+avx512f,{s}avx512bf16") for s in "-+")
    assert multiplies(fast, "bfloat16") and not multiplies(plain, "bfloat16")
    assert not multiplies(fast, "") and not multiplies(fast, "float16")


def test_what_onednn_can_not_do_is_refused_early():
    with pytest.raises(onednn.Unsupported, match="do not fit"):
        Product("float32", (3, 4, 5), (2, 5, 6)).check()
