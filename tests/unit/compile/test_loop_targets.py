"""Loop kernels in narrower vectors, as other processors have them."""

from __future__ import annotations

import numpy as np
import pytest

from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.kernels.rows.gather_rows import GatherRows, ScatterRows
from headrace._src.compile.kernels.rows.map_kernel import Map
from headrace._src.compile.kernels.rows.reduce_kernel import ReduceKernel
from headrace._src.compile.kernels.rows.scan_kernel import ScanKernel
from headrace._src.compile.kernels.singles.random_numbers import RandomNumbers
from headrace._src.compile.kernels.singles.softmax_rows import softmax
from headrace._src.devices.target import Target
from headrace._src.lowering.anchors import Softmax
from headrace._src.lowering.pointwise import Pointwise, record
from headrace._src.ops.random import philox
from tests.unit.compile.arrays import dense, numbers
from tests.unit.compile.targets import TARGETS, run_on

SAME = Pointwise(("float32",), (), (0,))


@pytest.fixture(params=TARGETS.values(), ids=TARGETS)
def target(request) -> Target:
    return request.param


def run(target: Target, spec, *arrays: np.ndarray) -> None:
    run_on(target, spec, arrays)


def test_map(target):
    program = record(lambda e, x, y: e.exp(x) * y, ["float32"] * 2)
    x, y, out = numbers("float32", 5, 71), numbers("float32", 71, seed=1), numbers("float32", 5, 71)
    inputs = (dense("float32", 5, 71), Access("float32", (0, 1)))
    run(target, Map((5, 71), program, inputs, (dense("float32", 5, 71),)), x, y, out)
    np.testing.assert_allclose(out, np.exp(x) * y, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "float16", "bfloat16", "float32", "int64"])
def test_transpose(target, dtype):
    x, y = numbers(dtype, 45, 83), numbers(dtype, 83, 45)
    same = Pointwise((dtype,), (), (0,))
    run(target, Map((83, 45), same, (Access(dtype, (1, 83)),), (dense(dtype, 83, 45),)), x, y)
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("combine", ["sum", "argmax"])
@pytest.mark.parametrize(("rows", "columns"), [(40, 77), (4000, 30), (2, 50_000)])
def test_reductions(target, combine, rows, columns):
    x = numbers("float32", rows, columns)
    result = "int64" if combine == "argmax" else "float32"
    after = Pointwise((result,), (), (0,))
    for axis, kept, strides in ((1, rows, (columns, 1)), (0, columns, (1, columns))):
        spec = ReduceKernel((kept,), (x.shape[axis],), SAME, (combine,), after,
                      (Access("float32", strides),), (), (dense(result, kept),))  # fmt: skip
        got = np.zeros(kept, result)
        run(target, spec, x, got)
        np.testing.assert_allclose(got, getattr(np, combine)(x, axis), rtol=1e-4, atol=1e-3)


def test_rows(target):
    x, y = numbers("float32", 9, 101), numbers("float32", 9, 101)
    (call,) = softmax(Softmax(9, 101, False, "float32")).calls
    run(target, call.kernel, x, y)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=2e-6)


def test_gather_scatter_and_scan(target):
    x, status = numbers("float32", 20, 37), np.zeros(1, np.int64)
    indices = np.random.default_rng(0).integers(0, 20, 33).astype(np.int32)
    rows, sums = np.zeros((33, 37), np.float32), np.ones((20, 37), np.float32)
    run(target, GatherRows(1, 1, 20, 33, 37, "float32", "int32"), x, indices, rows, status)
    np.testing.assert_array_equal(rows, x[indices])
    spec = ScatterRows("Add", 20, 37, 33, False, True, "float32", "int32")
    run(target, spec, rows, indices, sums, status)
    expected = np.zeros_like(sums)
    np.add.at(expected, indices, rows)
    np.testing.assert_array_equal(sums, expected)
    run(target, ScanKernel("sum", 1, 20, 37, False, False, "float32"), x, sums)
    np.testing.assert_array_equal(sums, x.cumsum(0))
    assert status[0] == 0


@pytest.mark.parametrize("distribution", ["uniform", "normal", "truncated"])
def test_random(target, distribution):
    got, stream = np.zeros(1001, np.float32), philox.Stream(7, 9 << 64 | 8)
    run(target, RandomNumbers(distribution, "float32"), stream.words(), np.array([1001]), got)
    expected = philox.draw(distribution, stream, [1001], np.float32)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
