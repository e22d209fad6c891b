"""Products with few columns against NumPy in float64."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.gemm import gemm_choice
from headrace._src.compile.kernels.gemm.gemm_narrow import NarrowProduct, narrow_product
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.devices.target import for_level, host
from headrace._src.lowering.pointwise import record
from tests.unit.compile.targets import TARGETS, run_on
from tests.unit.compile.test_gemm import assert_close, long_program, operand, product


def made(m, n, k, transposed, dtype="float32", epilogue=None, target=None):
    """A narrow product; the sizes are in vectors."""
    lanes = (target or host()).lanes(dtype)
    spec = narrow_product(m * lanes, n, k * lanes, transposed, dtype, epilogue, target=target)
    assert isinstance(spec, NarrowProduct)
    return spec


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("size", [(1, 1, 1), (5, 2, 3), (8, 2, 16)], ids=str)
def test_product(size, transposed, dtype, threads):
    spec = made(*size, transposed, dtype)
    rng = np.random.default_rng(0)
    a = operand(rng, spec.m, spec.k, transposed, dtype)
    b = operand(rng, spec.k, spec.n, False, dtype)
    c = np.full((spec.m + 1, spec.n), np.nan, dtype)
    run_kernel(spec, [a, b, c], threads)
    assert_close(c[:-1], product(a, b, transposed, False), dtype)
    assert np.isnan(c[-1]).all()  # nothing is written behind the last row


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("function", [lambda e, g, w, v, rate: (w - rate * g, v + g), long_program])
@pytest.mark.parametrize("transposed", [False, True])
def test_update_in_place(transposed, function, threads):
    program = record(function, ["float32"] * 4)
    spec = made(4, 3, 4, transposed, epilogue=Epilogue(program, ("full", "channel", "scalar")))
    rng = np.random.default_rng(1)
    a, b = operand(rng, spec.m, spec.k, transposed), operand(rng, spec.k, 3, False)
    w, v, rate = operand(rng, spec.m, 3, False), operand(rng, 1, 3, False), np.array([0.1], "f")
    expected = program.evaluate(product(a, b, transposed, False), w.astype("d"), v, rate)
    other = np.empty_like(w)
    run_kernel(spec, [a, b, w, v, rate, w, other], threads)
    assert_close(w, expected[0])
    assert_close(other, expected[1])


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("transposed", [False, True])
def test_targets(target, transposed):
    spec = made(6, 3, 5, transposed, target=target)
    rng = np.random.default_rng(2)
    a, b = operand(rng, spec.m, spec.k, transposed), operand(rng, spec.k, spec.n, False)
    c = np.empty((spec.m, spec.n), "f")
    run_on(target, spec, [a, b, c])
    assert_close(c, product(a, b, transposed, False))


def test_where_they_are_chosen():
    target = for_level("x86-64-v4")
    columns = 8 * target.lanes()  # so many can be divided between two threads
    candidates = partial(gemm_choice.candidates, target=target)
    last, update = (128, 3, columns, False), (columns, 3, 128, True)
    for case in (last, update):
        assert [type(s) for s in candidates(*case, False, threads=2)] == [NarrowProduct]
        assert not isinstance(candidates(*case, False, threads=1)[0], NarrowProduct)
        assert not isinstance(candidates(*case, True, threads=2)[0], NarrowProduct)
    rounded = candidates(*last, False, threads=2, rounds_b="bfloat16")
    assert not isinstance(rounded[0], NarrowProduct)


def test_what_is_none():
    lanes = host().lanes()
    assert narrow_product(lanes, lanes + 1, lanes) is None
    assert narrow_product(lanes + 1, 1, lanes) is None
    assert narrow_product(lanes, 1, lanes + 1) is None
    spec = made(1, 1, 1, False)
    with pytest.raises(ValueError, match="whole vectors"):
        replace(spec, k=lanes + 1)
    with pytest.raises(ValueError, match="one at a time"):
        replace(spec, m=2 * lanes, vectors=2)
    with pytest.raises(ValueError, match="bfloat16"):
        replace(spec, dtype="bfloat16")
    with pytest.raises(ValueError, match="no narrow product"):
        replace(spec, n=0)
