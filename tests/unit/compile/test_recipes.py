"""Softmax, losses and normalisations as kernels, against what their geometries mean."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.compile.kernels import recipes
from headrace.compile.kernels.recipes import Recipe
from headrace.compile.native import run_kernel
from headrace.compile.reference_anchors import run_anchor
from headrace.lowering.anchors import BatchNorm, CrossEntropy, Softmax, SparseCrossEntropy
from tests.unit.compile.arrays import numbers, numpy_type

FLOATS = ("float32", "float64", "float16", "bfloat16")


def run(
    recipe: Recipe, inputs: list[np.ndarray], outputs: list[np.ndarray], threads: int = 2
) -> int:
    """Run a recipe; returns the status."""
    status = np.zeros(1, np.int64)
    buffers = {"status": status}
    buffers |= {f"in{i}": np.ascontiguousarray(x) for i, x in enumerate(inputs)}
    buffers |= {f"out{i}": y for i, y in enumerate(outputs)}
    for name, (dtype, size) in recipe.temporaries.items():
        buffers[name] = np.full(size, np.nan, numpy_type(dtype))
    for kernel, names in recipe.steps:
        run_kernel(kernel, [buffers[n] for n in names], threads)
    return int(status[0])


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
    run(recipes.softmax(geometry), [x], [got])
    assert_near(got, run_anchor(geometry, [x])[0], tolerance(dtype))


def test_softmax_of_extremes():
    x = np.zeros((4, 20), np.float32)
    x[0, 3], x[1], x[2, 5] = 1e38, -1e38, -np.inf
    x[3, 7] = np.nan
    got = np.zeros_like(x)
    run(recipes.softmax(Softmax(4, 20, False, "float32")), [x], [got])
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
    run(recipes.cross_entropy(geometry), [x, labels], [loss, backprop])
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
    assert run(recipes.sparse_cross_entropy(geometry), [x, labels], [loss, backprop]) == 0
    expected = run_anchor(geometry, [x, labels])
    assert_near(loss, expected[0], 3e-6)
    assert_near(backprop, expected[1], 3e-6)
    labels[-1] = shape[1]
    assert run(recipes.sparse_cross_entropy(geometry), [x, labels], [loss, backprop]) == 1


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (50, 100), (200, 512), (9, 5000)])
def test_layer_norm_and_gradient(shape, threads):
    rows, size = shape
    x, dy = numbers("float32", *shape) + 5, numbers("float32", *shape, seed=1)
    scale, offset = numbers("float32", size, seed=2), numbers("float32", size, seed=3)
    y, mean, inverse = np.zeros_like(x), np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    run(recipes.layer_norm(rows, size, 1e-3), [x, scale, offset], [y, mean, inverse], threads)
    wide = x.astype(np.float64)
    deviation = np.sqrt(wide.var(1, keepdims=True) + 1e-3)
    normal = (wide - wide.mean(1, keepdims=True)) / deviation
    assert_near(y, normal * scale + offset, 2e-5)
    dx, dscale, doffset = np.zeros_like(x), np.zeros_like(scale), np.zeros_like(scale)
    gradient = recipes.layer_norm_gradient(rows, size)
    run(gradient, [dy, x, scale, mean, inverse], [dx, dscale, doffset], threads)
    g = dy.astype(np.float64) * scale
    inner = g - g.mean(1, keepdims=True) - normal * (g * normal).mean(1, keepdims=True)
    assert_near(dx, inner / deviation, 1e-4)
    assert_near(dscale, (dy * normal).sum(0), 1e-4)
    assert_near(doffset, dy.astype(np.float64).sum(0), 1e-5)


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
    run(recipes.batch_norm(forward, layout), [turn(x), *operands[1:]], outputs)
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
    run(recipes.batch_norm(backward, layout), [turn(dy), turn(x), scale, *moments], outputs)
    expected = run_anchor(backward, [dy, x, scale, *moments])
    assert_near(back(outputs[0]), expected[0], step)
    for got, want in zip(outputs[1:], expected[1:], strict=True):
        assert_near(got.reshape(np.shape(want)), want, 5e-3 if dtype == "bfloat16" else 1e-3)


def test_odd_channels_have_no_blocks():
    geometry = BatchNorm("forward", True, 1, 4, 17, 1e-3, "NHWC", "float32", 5)
    with pytest.raises(ValueError, match="don't fill blocks"):
        recipes.batch_norm(geometry, "nChw16c")
