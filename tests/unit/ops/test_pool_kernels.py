"""Pooling kernels: TensorFlow's numbers, its rules for ties and NaN, both layouts, gradients."""

import ml_dtypes
import numpy as np
import pytest

from headrace._src.ops.nn import fractional_pool_kernels, pool_kernels
from headrace._src.ops.random.philox import PhiloxState
from tests.unit.ops import nn_cases

CASES = nn_cases.recorded("pool")
WHOLE = [
    param
    for param in CASES
    if "argmax" not in param.values[0].kernel and "fractional" not in param.values[0].kernel
]
ROW = {"ksize": [1, 1, 3, 1], "strides": [1, 1, 1, 1], "padding": "VALID"}
ROW3D = {"ksize": [1, 1, 1, 3, 1], "strides": [1] * 5, "padding": "VALID"}


def kernel_of(case):
    module = fractional_pool_kernels if case.kernel.startswith("fractional") else pool_kernels
    return getattr(module, case.kernel)


def row(*values, rank=4):
    return np.array(values, np.float32).reshape(*[1] * (rank - 2), -1, 1)


@pytest.mark.parametrize("case", CASES)
def test_matches_tensorflow(case):
    nn_cases.check(case, kernel_of(case))


@pytest.mark.parametrize("case", WHOLE)
def test_channels_first_is_channels_last_transposed(case):
    attrs = dict(case.attrs, data_format="NCHW" if len(case.attrs["ksize"]) == 4 else "NCDHW")
    for name in ("ksize", "strides"):
        attrs[name] = [attrs[name][0], attrs[name][-1], *attrs[name][1:-1]]

    def moved(array):
        return np.roll(array[1:], 1) if array.ndim == 1 else np.moveaxis(array, -1, 1)

    inputs = [moved(array) for array in case.inputs]
    if inputs[0].ndim == 1:
        inputs[0] = np.concatenate([case.inputs[0][:1], inputs[0]])
    actual = kernel_of(case)(*inputs, **attrs)
    np.testing.assert_allclose(actual, moved(case.outputs[0]), rtol=1e-5, atol=1e-5)


def test_max_pool_never_takes_nan():
    for pool, attrs, rank in (
        (pool_kernels.max_pool, ROW, 4),
        (pool_kernels.max_pool3d, ROW3D, 5),
    ):
        for values in ([np.nan, 1, 2], [1, np.nan, 2], [2, 1, np.nan]):
            assert pool(row(*values, rank=rank), **attrs).item() == 2
    lowest = np.finfo(np.float32).min
    # TensorFlow's 3-D kernel gives either this or -inf, depending on where a vector ends.
    assert pool_kernels.max_pool(row(*[-np.inf] * 3), **ROW).item() == lowest
    assert pool_kernels.max_pool3d(row(*[-np.inf] * 3, rank=5), **ROW3D).item() == lowest


def test_argmax_takes_the_first_of_equals_and_keeps_a_leading_nan():
    for values, winner in (
        ([2, 2, 2], 0),
        ([1, 2, 2], 1),
        ([np.nan, 1, 2], 0),
        ([1, np.nan, 2], 2),
    ):
        x = row(*values)
        value, argmax = pool_kernels.max_pool_with_argmax(x, **ROW, Targmax=np.int32)
        assert argmax.dtype == np.int32
        assert argmax.item() == winner
        np.testing.assert_array_equal(value.item(), values[winner])
        grad = pool_kernels.max_pool_grad(x, value, row(7), **ROW)
        assert grad.ravel().tolist() == [7.0 if i == winner else 0.0 for i in range(3)]


def test_3d_gradient_goes_to_all_equals():
    x, y = row(2, 1, 2, rank=5), row(2, rank=5)
    grad = pool_kernels.max_pool3d_grad(x, y, row(7, rank=5), **ROW3D)
    assert grad.ravel().tolist() == [7, 0, 7]
    grad_grad = pool_kernels.max_pool3d_grad_grad(x, y, row(10, 11, 12, rank=5), **ROW3D)
    assert grad_grad.item() == 10


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("name", ["max_pool", "avg_pool", "max_pool3d", "avg_pool3d"])
def test_gradients_match_finite_differences(name, padding):
    rng = np.random.default_rng(4)
    shape, attrs = (2, 5, 4, 2), {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1]}
    if name.endswith("3d"):
        shape, attrs = (1, 3, *shape[1:]), {"ksize": [1, 2, 3, 2, 1], "strides": [1, 2, 2, 1, 1]}
    attrs["padding"] = padding
    forward, backward = getattr(pool_kernels, name), getattr(pool_kernels, f"{name}_grad")
    x = rng.normal(size=shape)
    y = forward(x, **attrs)
    dy = rng.normal(size=y.shape)
    dx = backward(np.array(shape), dy, **attrs) if "avg" in name else backward(x, y, dy, **attrs)
    nn_cases.assert_gradient(dx, lambda x: forward(x, **attrs), x, dy)


@pytest.mark.parametrize("include_batch", [False, True])
def test_second_gradients_are_the_transposes_of_the_first(include_batch):
    attrs = {"ksize": [1, 2, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2, 5, 4, 3))
    y = pool_kernels.max_pool(x, **attrs)
    dy, ddx = rng.normal(size=y.shape), rng.normal(size=x.shape)
    first = np.vdot(pool_kernels.max_pool_grad(x, y, dy, **attrs), ddx)
    second = np.vdot(dy, pool_kernels.max_pool_grad_grad(x, y, ddx, **attrs))
    assert first == pytest.approx(second)
    attrs["include_batch_in_index"] = include_batch
    _, argmax = pool_kernels.max_pool_with_argmax(x, **attrs)
    by_index = pool_kernels.max_pool_grad_grad_with_argmax(x, ddx, argmax, **attrs)
    assert np.vdot(dy, by_index) == pytest.approx(first)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats(dtype):
    ones = np.ones((1, 64, 64, 1), dtype)
    attrs = {"ksize": [1, 64, 64, 1], "strides": [1] * 4, "padding": "VALID"}
    for pool in (pool_kernels.avg_pool, pool_kernels.max_pool):
        result = pool(ones, **attrs)
        assert (result.dtype, result.item()) == (dtype, 1)
    # 300 gradients of 1 meet in one element; in bfloat16 itself 256 + 1 would be 256.
    x = np.zeros((1, 1, 599, 1), dtype)
    x[0, 0, 299] = 1
    attrs = {"ksize": [1, 1, 300, 1], "strides": [1] * 4, "padding": "VALID"}
    y = pool_kernels.max_pool(x, **attrs)
    assert pool_kernels.max_pool_grad(x, y, np.ones_like(y), **attrs)[0, 0, 299, 0] == 300


def test_bad_inputs_are_refused():
    x = np.zeros((1, 4, 4, 1), np.float32)
    attrs = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    y = pool_kernels.max_pool(x, **attrs)
    with pytest.raises(ValueError, match=r"grad has shape \(1, 4, 4, 1\).*needs \(1, 2, 2, 1\)"):
        pool_kernels.max_pool_grad(x, y, x, **attrs)
    with pytest.raises(ValueError, match=r"argmax must lie in \[0, 16\)"):
        pool_kernels.max_pool_grad_with_argmax(x, y, np.full(y.shape, 16), **attrs)
    with pytest.raises(TypeError, match="got int32"):
        pool_kernels.avg_pool(x.astype(np.int32), **attrs)
    with pytest.raises(ValueError, match="no data_format 'NDHWC'"):
        pool_kernels.max_pool(x, **attrs, data_format="NDHWC")


@pytest.mark.parametrize("pseudo_random", [False, True])
def test_pooling_sequences_cut_evenly(pseudo_random):
    state = PhiloxState(6, 7)
    drawn = set()
    for size, ratio in ((10, 1.0), (11, 1.5), (7, 1.3), (100, 2.7), (9, 9.0)):
        count = fractional_pool_kernels.fractional_size(size, ratio)
        assert count == int(size / ratio)
        for _ in range(50):
            cuts = fractional_pool_kernels.pooling_sequence(
                size, count, state, pseudo_random=pseudo_random
            )
            assert (cuts[0], cuts[-1], len(cuts)) == (0, size, count + 1)
            assert set(np.diff(cuts)) <= {size // count, size // count + 1}
            drawn.add(tuple(cuts))
    assert len(drawn) > 20


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("name", ["fractional_max_pool", "fractional_avg_pool"])
def test_fractional_gradients_match_finite_differences(name, overlapping):
    rng = np.random.default_rng(7)
    x, cuts = rng.normal(size=(2, 5, 6, 2)), ([0, 2, 3, 5], [0, 1, 3, 4, 6])
    forward = getattr(fractional_pool_kernels, name)
    backward = getattr(fractional_pool_kernels, f"{name}_grad")
    y = forward(x, *cuts, overlapping=overlapping)
    dy = rng.normal(size=y.shape)
    head = [x, y] if "max" in name else [np.array(x.shape)]
    dx = backward(*head, dy, *cuts, overlapping=overlapping)
    nn_cases.assert_gradient(dx, lambda x: forward(x, *cuts, overlapping=overlapping), x, dy)


def test_bad_fractional_inputs_are_refused():
    x = np.zeros((1, 4, 4, 1), np.float32)
    with pytest.raises(ValueError, match=r"row_pooling_sequence must rise within 0 to 4.*\[0, 5\]"):
        fractional_pool_kernels.fractional_max_pool(x, np.array([0, 5]), np.array([0, 4]))
    with pytest.raises(ValueError, match=r"at least 1, got 0\.5"):
        fractional_pool_kernels.fractional_size(4, 0.5)
    with pytest.raises(ValueError, match="too short"):
        fractional_pool_kernels.fractional_size(4, 4.5)
    with pytest.raises(ValueError, match="cannot cut 4 elements into 5"):
        fractional_pool_kernels.pooling_sequence(4, 5, PhiloxState(1, 2))


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_gradients_at_positions_are_those_of_the_pool(padding, data_format):
    window = {"ksize": [1, 2, 3, 1], "strides": [1, 1, 2, 1], "padding": padding}
    x = np.random.default_rng(0).integers(0, 4, [2, 5, 6, 3]).astype(np.float32)
    x[0, 1:3] = np.nan
    if data_format == "NCHW":
        x = np.moveaxis(x, 3, 1)
        window = {k: [v[0], v[3], v[1], v[2]] if k != "padding" else v for k, v in window.items()}
    window["data_format"] = data_format
    y, positions = pool_kernels.max_pool_with_positions(x, **window)
    np.testing.assert_array_equal(y, pool_kernels.max_pool(x, **window))
    dy = np.random.default_rng(1).random(y.shape, np.float32)
    found = pool_kernels.max_pool_grad_at_positions(positions, dy, shape=x.shape, **window)
    np.testing.assert_array_equal(found, pool_kernels.max_pool_grad(x, y, dy, **window))
