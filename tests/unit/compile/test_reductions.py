"""Reductions against NumPy: forms of loops, types, programs before and after, exactness."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.codegen.loop_programs import show
from headrace._src.compile.kernels.rows.reduce_kernel import ReduceKernel
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.devices.target import host
from headrace._src.lowering.pointwise import Pointwise, record
from tests.unit.compile.arrays import TYPES, dense, numbers, numpy_type

NUMPY = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "all": np.all, "any": np.any,
    "argmax": np.argmax, "argmin": np.argmin,
}  # fmt: skip


def same(dtype: str) -> Pointwise:
    return Pointwise((dtype,), (), (0,))


def reduction(
    combine: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...]
) -> ReduceKernel:
    """The reduction of a dense array along axes."""
    whole = dense(dtype, *shape)
    kept = [d for d in range(len(shape)) if d not in axes]
    strides = tuple(whole.strides[d] for d in (*kept, *axes))
    result = "int64" if combine.startswith("arg") else dtype
    sizes = tuple(shape[d] for d in kept)
    return ReduceKernel(
        sizes,
        tuple(shape[d] for d in axes),
        same(dtype),
        (combine,),
        same(result),
        (Access(dtype, strides),),
        (),
        (dense(result, *sizes),),
    )


def run(spec: ReduceKernel, *arrays: np.ndarray, threads: int = 2) -> list[np.ndarray]:
    outputs = [np.zeros(spec.kept, numpy_type(a.dtype)) for a in spec.outputs]
    run_kernel(spec, [*arrays, *outputs], threads)
    return outputs


SHAPES = [
    ((), ()),
    ((1,), (0,)),
    ((17,), (0,)),
    ((100_003,), (0,)),  # all to one
    ((3, 1000), (1,)),  # rows
    ((40, 301), (1,)),
    ((2, 70_000), (1,)),  # few long rows
    ((1000, 3), (0,)),  # columns
    ((31, 1003), (0,)),
    ((5000, 33), (0,)),  # few long columns
    ((9, 4, 700, 16), (0, 2)),  # blocked channels
    ((20, 5, 30), (1,)),
    ((6, 70, 5, 64), (0, 3)),
    ((0, 5), (1,)),
    ((5, 0), (1,)),
    ((0, 5), (0,)),
]


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_sums_of_any_shape(shape, axes):
    x = numbers("float32", *shape)
    (got,) = run(reduction("sum", "float32", shape, axes), x)
    np.testing.assert_allclose(got, x.astype(np.float64).sum(axes), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("shape", "axes"), [s for s in SHAPES if 0 not in s[0]])
def test_positions_of_maxima(shape, axes, threads):
    """Small integers have many ties: the first one counts."""
    x = numbers("int32", *shape)
    (got,) = run(reduction("argmax", "int32", shape, axes), x, threads=threads)
    kept = [shape[d] for d in range(len(shape)) if d not in axes]
    moved = np.moveaxis(x, axes, range(-len(axes), 0)) if axes else x
    np.testing.assert_array_equal(got, moved.reshape(*kept, -1).argmax(-1))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("combine", NUMPY)
def test_types(combine, dtype, axis):
    if (combine in ("all", "any")) != (dtype == "bool"):
        return
    x = numbers(dtype, 37, 45)
    if combine == "prod":
        x = np.where(np.abs(x.astype(np.float64)) > 1, np.ones_like(x), x)
    (got,) = run(reduction(combine, dtype, (37, 45), (axis,)), x)
    if dtype in ("float16", "bfloat16") and combine in ("sum", "prod"):
        # Accumulated in float32 and rounded once, which NumPy doesn't do.
        expected = NUMPY[combine](x.astype(np.float32), axis=axis)
        step = 1e-3 if dtype == "float16" else 8e-3
        np.testing.assert_allclose(got.astype(np.float32), expected, rtol=step, atol=1e-6)
    elif combine in ("sum", "prod"):
        expected = NUMPY[combine](x, axis=axis, dtype=x.dtype)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(got, NUMPY[combine](x, axis=axis))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("combine", ["max", "min", "sum", "argmax", "argmin"])
def test_nan_and_infinity(combine, axis):
    x = numbers("float32", 200, 200)
    x[3, 5] = x[3, 90] = x[150, 5] = np.nan
    x[7, :] = -np.inf
    x[:, 8] = np.inf
    (got,) = run(reduction(combine, "float32", (200, 200), (axis,)), x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(got, NUMPY[combine](x, axis=axis), rtol=1e-4)


@pytest.mark.parametrize("axis", [0, 1])
def test_infinite_long_sums(axis):
    x = np.ones((3000, 3000), np.float32)
    x[5], x[:, 7] = np.inf, -np.inf
    x[5, 7] = 0
    (got,) = run(reduction("sum", "float32", x.shape, (axis,)), x)
    np.testing.assert_array_equal(got, x.sum(axis))


@pytest.mark.parametrize(
    ("shape", "axis"), [((2_000_000,), 0), ((100_000, 20), 0), ((50, 40_000), 1)]
)
def test_long_sums_are_nearly_exact(shape, axis):
    x = numbers("float32", *shape) + np.float32(100)
    exact = x.astype(np.float64).sum(axis)
    (got,) = run(reduction("sum", "float32", shape, (axis,)), x)
    assert np.max(np.abs(got - exact) / exact) <= 2.0**-23


def test_same_threads_same_bits():
    x = numbers("float32", 300_000)
    spec = reduction("sum", "float32", x.shape, (0,))
    results = {run(spec, x, threads=3)[0].tobytes() for _ in range(10)}
    assert len(results) == 1


@pytest.mark.parametrize("rows", [7, 9000])
def test_moments_of_columns(rows):
    """Mean and variance in one pass, about the first row; several reductions and an operand."""
    x = numbers("float32", rows, 50) * 3 + 1000

    def before(e, v, shift):
        d = v - shift
        return d, d * d

    def after(e, s, ss, shift):
        mean = s * (1 / rows)
        return mean + shift, ss * (1 / rows) - mean * mean

    spec = ReduceKernel(
        (50,),
        (rows,),
        record(before, ["float32"] * 2),
        ("sum", "sum"),
        record(after, ["float32"] * 3),
        (Access("float32", (1, 50)), Access("float32", (1, 0))),
        (Access("float32", (1,)),),
        (dense("float32", 50),) * 2,
    )
    mean, variance = run(spec, x, x, x)
    np.testing.assert_allclose(mean, x.astype(np.float64).mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, x.astype(np.float64).var(0), rtol=1e-4)


def test_bias_update_in_place():
    gradients, bias = numbers("float32", 4096, 24), numbers("float32", 24, seed=1)
    expected = bias - gradients.astype(np.float64).sum(0) * 0.5
    update = record(lambda e, total, b: b - total * 0.5, ["float32"] * 2)
    spec = ReduceKernel(
        (24,), (4096,), same("float32"), ("sum",), update, (Access("float32", (1, 24)),),
        (dense("float32", 24),), (dense("float32", 24),),
    )  # fmt: skip
    run_kernel(spec, [gradients, bias, bias])
    np.testing.assert_allclose(bias, expected, rtol=1e-5)


def test_positions_in_programs():
    """Count the elements on one side of a diagonal, and say which row it was."""
    before = record(lambda e, x: e.cast(e.index(1) < e.index(0), "int64") * x, ["int64"])
    after = record(lambda e, total: (total, e.index(0)), ["int64"])
    spec = ReduceKernel(
        (8,), (50,), before, ("sum",), after, (dense("int64", 8, 50),), (),
        (dense("int64", 8), dense("int64", 8)),
    )  # fmt: skip
    counts, rows = run(spec, np.ones((8, 50), np.int64))
    assert counts.tolist() == rows.tolist() == list(range(8))


def test_strided_input():
    x = numbers("float32", 30, 200)
    spec = ReduceKernel(
        (30,), (100,), same("float32"), ("max",), same("float32"),
        (Access("float32", (200, -2), 199),), (), (dense("float32", 30),),
    )  # fmt: skip
    np.testing.assert_array_equal(run(spec, x)[0], x[:, 1::2].max(1))


def test_loops_can_be_read():
    text = show(reduction("max", "float32", (40, 301), (1,)).loops(host()))
    assert "total whole0: max of float32" in text
    assert prod(text.count(w) for w in ("parallel for", "vector for", "float32 y0[k0]")) == 1


def test_wrong_ranks_are_refused():
    good = reduction("sum", "float32", (3, 4), (1,))
    with pytest.raises(ValueError, match="another rank"):
        ReduceKernel(
            good.kept, (), good.before, ("sum",), good.after, good.inputs, (), good.outputs
        )
    with pytest.raises(ValueError, match="1 values for"):
        ReduceKernel((3,), (4,), good.before, (), good.after, good.inputs, (), good.outputs)
