"""Rows by index and running sums, against NumPy; indices out of range are refused."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.kernels.rows.gather_rows import GatherRows, ScatterRows
from headrace._src.compile.kernels.rows.scan_kernel import ScanKernel
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.compile.reference.reference_anchors import run_anchor
from headrace._src.lowering import anchors, row_anchors
from tests.unit.compile.arrays import TYPES, numbers
from tests.unit.compile.steps import clusters

INDEX_TYPES = ("int32", "int64")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("inner", [1, 3, 16, 33, 700])
def test_gather(inner, dtype):
    params = numbers(dtype, 2, 3, 11, inner)
    indices = np.random.default_rng(0).integers(0, 11, (2, 7)).astype(np.int32)
    geometry = row_anchors.Gather(2, 3, 11, 7, inner, dtype, "int32", False)
    result, status = np.zeros((2, 3, 7, inner), params.dtype), np.zeros(1, np.int64)
    spec = GatherRows(2, 3, 11, 7, inner, dtype, "int32")
    run_kernel(spec, [params, indices, result, status])
    np.testing.assert_array_equal(result, run_anchor(geometry, [params, indices])[0])
    assert status[0] == 0


@pytest.mark.parametrize("bad", [-1, 11, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("place", [0, 20, 39])
def test_bad_index_is_reported_and_nothing_written(bad, place):
    params, result = numbers("float32", 11, 5), np.full((40, 5), 7, np.float32)
    indices, status = np.zeros(40, np.int32), np.zeros(1, np.int64)
    indices[place] = bad
    run_kernel(GatherRows(1, 1, 11, 40, 5, "float32", "int32"), [params, indices, result, status])
    assert status[0] == 1
    assert (result == 7).all()


@pytest.mark.parametrize("dtype", INDEX_TYPES)
def test_check_keeps_an_earlier_status(dtype):
    params, result = numbers("float32", 5, 3), np.zeros((20, 3), np.float32)
    spec, indices = GatherRows(1, 1, 5, 20, 3, "float32", dtype), np.arange(20).astype(dtype) % 5
    for before in (1, 0):
        status = np.full(1, before, np.int64)
        run_kernel(spec, [params, indices, result, status])
        assert status[0] == before


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("inner", [1, 16, 37, 1500])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int32", "uint8"])
def test_segment_sum(dtype, inner, threads):
    data = numbers(dtype, 300, inner)
    ids = np.random.default_rng(0).integers(-1, 9, 300).astype(np.int64)
    result, status = numbers(dtype, 9, inner, seed=1), np.zeros(1, np.int64)
    spec = ScatterRows("Add", 9, inner, 300, False, True, dtype, "int64")
    run_kernel(spec, [data, ids, result, status], threads)
    (expected,) = run_anchor(row_anchors.SegmentSum(300, inner, 9, dtype, "int64"), [data, ids])
    np.testing.assert_array_equal(result, expected.reshape(result.shape))
    ids[100] = 9
    run_kernel(spec, [data, ids, result, status], threads)
    assert status[0] == 1


@pytest.mark.parametrize("how", ["Update", "Add", "Sub", "Mul", "Min", "Max"])
@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_scatter(how, scalar, dtype):
    target = numbers(dtype, 12, 19)
    updates = numbers(dtype, 1) if scalar else numbers(dtype, 30, 19, seed=1)
    indices = np.random.default_rng(0).integers(0, 12, 30).astype(np.int32)
    geometry = row_anchors.Scatter(how, 12, 19, 30, scalar, dtype, "int32")
    given = updates.reshape(()) if scalar else updates
    (expected,) = run_anchor(geometry, [target, indices, given])
    spec = ScatterRows(how, 12, 19, 30, scalar, False, dtype, "int32")
    run_kernel(spec, [updates, indices, target, np.zeros(1, np.int64)])
    np.testing.assert_array_equal(target, expected.reshape(12, 19))


def test_scatter_refuses_before_it_writes():
    target, status = numbers("float32", 12, 19), np.zeros(1, np.int64)
    before = target.copy()
    indices = np.array([0, 1, -1], np.int64)
    spec = ScatterRows("Add", 12, 19, 3, False, False, "float32", "int64")
    run_kernel(spec, [numbers("float32", 3, 19), indices, target, status])
    assert status[0] == 1
    np.testing.assert_array_equal(target, before)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 40, 1), (2, 9, 5), (2, 30, 16), (3, 7, 70)])
@pytest.mark.parametrize(("combine", "dtype"), [
    ("sum", "float32"), ("prod", "float64"), ("sum", "int32"), ("sum", "bfloat16")])  # fmt: skip
def test_scan(combine, dtype, sizes, reverse, exclusive):
    x = numbers(dtype, *sizes)
    geometry = anchors.Scan(combine, *sizes, exclusive, reverse, dtype)
    (expected,) = run_anchor(geometry, [x])
    y = np.zeros_like(x)
    spec = ScanKernel(combine, *sizes, exclusive, reverse, dtype)
    run_kernel(spec, [x, y])
    np.testing.assert_array_equal(y, expected)
    run_kernel(spec, [x, x])  # in place
    np.testing.assert_array_equal(x, expected)


def test_a_variable_is_not_copied_for_others_to_read():
    """The rows are looked up outside, since their numbers can't be checked before the step."""
    with tf.Graph().as_default():
        x, which = tf.placeholder(tf.float32, [4, 8]), tf.placeholder(tf.int32, [6])
        table, matrix = (tf.Variable(np.ones((n, 8), np.float32)) for n in (100, 8))
        hidden = tf.tanh(tf.matmul(x, matrix))
        rows = tf.gather(table, tf.concat([which, which + 1], 0))
        loss = tf.reduce_sum(tf.tanh(tf.matmul(hidden, rows, transpose_b=True)))
        feeds = {x: np.ones((4, 8), np.float32), which: np.zeros(6, np.int32)}
        found = clusters([loss], feeds)
        written = [b.size for c in found for b in c.plan.buffers if b.kind == "output"]
        assert written and max(written) < 100 * 8 * 4
