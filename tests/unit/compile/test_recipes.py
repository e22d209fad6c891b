"""Softmax, losses and normalisations as fragments of plans, against what their geometries mean."""

from __future__ import annotations

import numpy as np
import pytest

from headrace._src.compile.kernels.rows.batch_norm_channels import batch_norm
from headrace._src.compile.kernels.rows.cross_entropy_rows import (
    cross_entropy,
    sparse_cross_entropy,
)
from headrace._src.compile.kernels.singles.softmax_rows import softmax
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.plan.verify_plan import verify_plan
from headrace._src.compile.reference.reference_anchors import run_anchor
from headrace._src.compile.run.driver import NativeCluster
from headrace._src.lowering.anchors import BatchNorm, CrossEntropy, Softmax, SparseCrossEntropy
from tests.unit.compile.arrays import numbers, numpy_type

FLOATS = ("float32", "float64", "float16", "bfloat16")


def run(
    fragment: Plan, inputs: list[np.ndarray], outputs: list[np.ndarray], threads: int = 2
) -> None:
    """Run a fragment as the plan that it is, once it has been verified."""
    verify_plan(fragment)
    given = {b.index for b in fragment.buffers if b.kind == "input"}
    inputs = [np.ascontiguousarray(x) for i, x in enumerate(inputs) if i in given]
    NativeCluster(fragment, threads).run(inputs, outputs, ())


def tolerance(dtype: str) -> float:
    return {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 3e-6, "float64": 1e-13}[dtype]


def assert_near(got: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 5), (7, 16), (40, 33), (300, 10), (5, 1000), (2, 9001)]
)
def test_softmax(shape, dtype, log):
    x = numbers(dtype, *shape)
    geometry = Softmax(*shape, log, dtype)
    got = np.zeros_like(x)
    run(softmax(geometry), [x], [got])
    assert_near(got, run_anchor(geometry, [x])[0], tolerance(dtype))


def test_softmax_of_extremes():
    x = np.zeros((4, 20), np.float32)
    x[0, 3], x[1], x[2, 5] = 1e38, -1e38, -np.inf
    x[3, 7] = np.nan
    got = np.zeros_like(x)
    run(softmax(Softmax(4, 20, False, "float32")), [x], [got])
    assert got[0].tolist() == [float(i == 3) for i in range(20)]
    np.testing.assert_allclose(got[1], 0.05, rtol=1e-6)
    assert got[2, 5] == 0 and np.isclose(got[2].sum(), 1)
    assert np.isnan(got[3]).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1), (9, 10), (128, 17), (20, 1000)])
def test_cross_entropy(shape, dtype):
    x, labels = numbers(dtype, *shape), np.abs(numbers(dtype, *shape, seed=1))
    geometry = CrossEntropy(*shape, dtype)
    loss, backprop = np.zeros(shape[0], x.dtype), np.zeros_like(x)
    run(cross_entropy(geometry), [x, labels], [loss, backprop])
    expected = run_anchor(geometry, [x, labels])
    assert_near(loss, expected[0], tolerance(dtype))
    assert_near(backprop, expected[1], tolerance(dtype))


@pytest.mark.parametrize("label_dtype", ["int32", "int64"])
@pytest.mark.parametrize("shape", [(1, 1), (9, 10), (128, 17), (20, 1000)])
def test_sparse_cross_entropy(shape, label_dtype):
    x = numbers("float32", *shape)
    labels = np.random.default_rng(0).integers(0, shape[1], shape[0]).astype(label_dtype)
    geometry = SparseCrossEntropy(*shape, "float32", label_dtype)
    loss, backprop = np.zeros(shape[0], x.dtype), np.zeros_like(x)
    run(sparse_cross_entropy(geometry), [x, labels], [loss, backprop])
    expected = run_anchor(geometry, [x, labels])
    assert_near(loss, expected[0], 3e-6)
    assert_near(backprop, expected[1], 3e-6)


def blocked(image: np.ndarray) -> np.ndarray:
    """[n, pixels, c] as [n, c / 16, pixels, 16]."""
    n, pixels, c = image.shape
    return np.ascontiguousarray(image.reshape(n, pixels, c // 16, 16).transpose(0, 2, 1, 3))


def plain(image: np.ndarray) -> np.ndarray:
    n, blocks, pixels, size = image.shape
    return image.transpose(0, 2, 1, 3).reshape(n, pixels, blocks * size)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "nChw16c"])
@pytest.mark.parametrize("sizes", [(1, 1, 16), (2, 49, 32), (4, 900, 48)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_batch_norm_and_gradient(sizes, layout, training, dtype):
    n, pixels, c = sizes
    first = layout == "NCHW"
    shape = (n, c, pixels) if first else sizes
    x = (numbers("float32", *shape) + 7).astype(numpy_type(dtype))
    dy = numbers(dtype, *shape, seed=1)
    scale, offset, mean = (numbers("float32", c, seed=s) for s in (2, 3, 4))
    variance = np.abs(numbers("float32", c, seed=5)) + 0.5
    data_format = "NCHW" if first else "NHWC"
    sizes_and = (n, pixels, c, 1e-3, data_format, dtype)
    turn, back = (blocked, plain) if layout == "nChw16c" else (lambda v: v, lambda v: v)

    forward = BatchNorm("forward", training, *sizes_and, 6)
    operands = [x, scale, offset] + ([] if training else [mean, variance])
    outputs = [np.zeros_like(turn(x)), *(np.zeros(c, np.float32) for _ in range(4)),
               np.ones(1, np.float32)]  # fmt: skip
    run(batch_norm(forward, layout), [turn(x), *operands[1:]], outputs)
    step = 3e-2 if dtype == "bfloat16" else 1e-4
    every = [x, scale, offset, mean, variance]
    expected = run_anchor(forward, every)
    assert_near(back(outputs[0]), expected[0], step)
    for got, want in zip(outputs[1:], expected[1:], strict=True):
        assert_near(got.reshape(np.shape(want)), want, 1e-4)

    backward = BatchNorm("gradient", training, *sizes_and, 5)
    moments = expected[3:5] if training else [mean, variance]
    outputs = [np.zeros_like(turn(x)), np.zeros_like(scale), np.zeros_like(scale),
               np.ones(1, np.float32), np.ones(1, np.float32)]  # fmt: skip
    run(
        batch_norm(backward, layout),
        [turn(dy), turn(x), scale, *moments],
        outputs,
    )
    expected = run_anchor(backward, [dy, x, scale, *moments])
    assert_near(back(outputs[0]), expected[0], step)
    for got, want in zip(outputs[1:], expected[1:], strict=True):
        assert_near(got.reshape(np.shape(want)), want, 5e-3 if dtype == "bfloat16" else 1e-3)


def test_odd_channels_have_no_blocks():
    geometry = BatchNorm("forward", True, 1, 4, 17, 1e-3, "NHWC", "float32", 5)
    with pytest.raises(ValueError, match="don't fill blocks"):
        batch_norm(geometry, "nChw16c")
