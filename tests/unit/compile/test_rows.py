"""Rows kernels: layer normalisation, other kinds of stages, positions, strides, long rows."""

from __future__ import annotations

import numpy as np
import pytest

from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.kernels.rows.rows_kernel import Rows, Stage
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.lowering.pointwise import Pointwise, record
from tests.unit.compile.arrays import numbers

SAME = Pointwise(("float32",), (), (0,))


def test_l2_normalise_strided_rows():
    """Rows that are columns of an array, over two outer dimensions."""
    x = numbers("float32", 4, 37, 6)
    stages = (
        Stage(record(lambda e, v: v * v, ["float32"]), ("x0",), ("sum s0",)),
        Stage(record(lambda e, s: e.rsqrt(s), ["float32"]), ("s0",), ("s1",), scalar=True),
        Stage(record(lambda e, v, r: v * r, ["float32"] * 2), ("x0", "s1"), ("y0",)),
    )
    access = Access("float32", (37 * 6, 1, 6))
    y = np.zeros_like(x)
    run_kernel(Rows((4, 6), 37, stages, (access,), (access,)), [x, y])
    np.testing.assert_allclose(y, x / np.linalg.norm(x, axis=1, keepdims=True), rtol=2e-6)


def test_positions_and_arg_reductions():
    """Where each row's greatest element is, and whether it's on the diagonal."""
    x = numbers("float32", 30, 50)
    found = record(lambda e, at: (at, e.eq(at, e.index(0))), ["int64"])
    stages = (
        Stage(SAME, ("x0",), ("argmax s0",)),
        Stage(found, ("s0",), ("y0", "y1"), scalar=True),
    )
    at, diagonal = np.zeros(30, np.int64), np.zeros(30, bool)
    x[4, 4] = 10
    spec = Rows((30,), 50, stages, (Access("float32", (50, 1)),),
                (Access("int64", (1, 0)), Access("bool", (1, 0))))  # fmt: skip
    run_kernel(spec, [x, at, diagonal])
    np.testing.assert_array_equal(at, x.argmax(1))
    np.testing.assert_array_equal(diagonal, x.argmax(1) == np.arange(30))


@pytest.mark.parametrize("outer", [(), (1,), (100,), (0,)])
def test_totals_over_rows(outer):
    rows = int(np.prod(outer))
    x = numbers("float32", rows, 70)
    access = Access("float32", (*([70] * len(outer)), 1))
    total = Access("float32", (*([0] * len(outer)), 1))
    got = np.full(70, np.nan, np.float32)
    spec = Rows(outer, 70, (Stage(SAME, ("x0",), ("total y0",)),), (access,), (total,))
    run_kernel(spec, [x, got])
    np.testing.assert_allclose(got, x.sum(0), rtol=1e-5, atol=1e-5)


def test_long_rows_are_summed_exactly():
    x = numbers("float32", 3, 100_000) + np.float32(100)
    stages = (
        Stage(SAME, ("x0",), ("sum s0",)),
        Stage(SAME, ("s0",), ("y0",), scalar=True),
    )
    y = np.zeros(3, np.float32)
    spec = Rows((3,), 100_000, stages, (Access("float32", (100_000, 1)),),
                (Access("float32", (1, 0)),))  # fmt: skip
    run_kernel(spec, [x, y])
    np.testing.assert_allclose(y, x.astype(np.float64).sum(1), rtol=2.0**-23)


def test_wrong_specs_are_refused():
    access = Access("float32", (4, 1))
    with pytest.raises(ValueError, match="another rank"):
        Rows((), 4, (), (access,), ())
    with pytest.raises(ValueError, match="operands"):
        Rows((2,), 4, (Stage(SAME, (), ("y0",)),), (access,), (access,))
    with pytest.raises(ValueError, match="results"):
        Rows((2,), 4, (Stage(SAME, ("x0",), ()),), (access,), (access,))
    with pytest.raises(ValueError, match="no reduction is called 'mean'"):
        Rows((2,), 4, (Stage(SAME, ("x0",), ("mean s0",)),), (access,), ())
    whole = Pointwise(("int32",), (), (0,))
    with pytest.raises(ValueError, match="only floating numbers"):
        Rows((2,), 4, (Stage(whole, ("x0",), ("total y0",)),), (access,), (access,))


def stage(function, operands, *results, scalar=False):
    program = record(function, ["float32"] * len(operands))
    return Stage(program, tuple(operands), results, scalar)


def assert_close(got, expected, tolerance):
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


VECTOR, SCALAR = Access("float32", (0, 1)), Access("float32", (1, 0))


def layer_norm(rows, size, epsilon):
    """x, scale, offset -> normalised rows, their means and inverse deviations."""

    def deviation(e, total):
        inverse = e.rsqrt(total * (1 / size) + epsilon)
        return inverse, inverse

    def scaled(e, x, mean, inverse, scale, offset):
        return (x - mean) * inverse * scale + offset

    stages = (
        stage(lambda e, x: x, ["x0"], "sum s0"),
        stage(lambda e, t: (t * (1 / size),) * 2, ["s0"], "s1", "y1", scalar=True),
        stage(lambda e, x, mean: (x - mean) * (x - mean), ["x0", "s1"], "sum s2"),
        stage(deviation, ["s2"], "s3", "y2", scalar=True),
        stage(scaled, ["x0", "s1", "s3", "x1", "x2"], "y0"),
    )
    whole = Access("float32", (size, 1))
    return Rows((rows,), size, stages, (whole, VECTOR, VECTOR), (whole, SCALAR, SCALAR))


def layer_norm_gradient(rows, size):
    """dy, x, scale, means, inverse deviations -> dx, and the totals dscale, doffset."""

    def products(e, dy, x, scale, mean, inverse):
        normal, g = (x - mean) * inverse, dy * scale
        return g, g * normal, dy * normal, dy

    def result(e, dy, x, scale, mean, inverse, total, product):
        normal = (x - mean) * inverse
        return (dy * scale - (total + normal * product) * (1 / size)) * inverse

    operands = ["x0", "x1", "x2", "x3", "x4"]
    stages = (
        stage(products, operands, "sum s0", "sum s1", "total y1", "total y2"),
        stage(result, [*operands, "s0", "s1"], "y0"),
    )
    whole = Access("float32", (size, 1))
    given = (whole, whole, VECTOR, SCALAR, SCALAR)
    return Rows((rows,), size, stages, given, (whole, VECTOR, VECTOR))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (50, 100), (200, 512), (9, 5000)])
def test_layer_norm_and_gradient(shape, threads):
    rows, size = shape
    x, dy = numbers("float32", *shape) + 5, numbers("float32", *shape, seed=1)
    scale, offset = numbers("float32", size, seed=2), numbers("float32", size, seed=3)
    y, mean, inverse = np.zeros_like(x), np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    run_kernel(layer_norm(rows, size, 1e-3), [x, scale, offset, y, mean, inverse], threads)
    wide = x.astype(np.float64)
    deviation = np.sqrt(wide.var(1, keepdims=True) + 1e-3)
    normal = (wide - wide.mean(1, keepdims=True)) / deviation
    assert_close(y, normal * scale + offset, 2e-5)
    dx, dscale, doffset = np.zeros_like(x), np.zeros_like(scale), np.zeros_like(scale)
    gradient = layer_norm_gradient(rows, size)
    run_kernel(gradient, [dy, x, scale, mean, inverse, dx, dscale, doffset], threads)
    g = dy.astype(np.float64) * scale
    inner = g - g.mean(1, keepdims=True) - normal * (g * normal).mean(1, keepdims=True)
    assert_close(dx, inner / deviation, 1e-4)
    assert_close(dscale, (dy * normal).sum(0), 1e-4)
    assert_close(doffset, dy.astype(np.float64).sum(0), 1e-5)
