"""Bias, batch norm and LRN kernels: TensorFlow's numbers, both layouts, finite differences."""

import ml_dtypes
import numpy as np
import pytest

from headrace._src.ops.nn import norm_kernels
from tests.unit.ops import nn_cases

CASES = nn_cases.recorded("norm")
NORMS = [param for param in CASES if "fused" in param.values[0].kernel]
NONE = np.zeros(0)


@pytest.mark.parametrize("case", CASES)
def test_matches_tensorflow(case):
    nn_cases.check(case, getattr(norm_kernels, case.kernel))


@pytest.mark.parametrize("case", NORMS)
def test_channels_first_is_channels_last_transposed(case):
    def moved(array):
        return np.moveaxis(array, -1, 1) if array.ndim == 4 else array

    transposed = nn_cases.Case(
        case.kernel,
        dict(case.attrs, data_format="NCHW"),
        [moved(array) for array in case.inputs],
        {j: moved(array) for j, array in case.outputs.items()},
    )
    nn_cases.check(transposed, getattr(norm_kernels, case.kernel))


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize(("shape", "data_format"), [((2, 2, 3, 2), "NHWC"), ((2, 2, 3, 2), "NCHW")])
def test_batch_norm_gradients_match_finite_differences(shape, data_format, is_training):
    rng = np.random.default_rng(8)
    x, dy = rng.normal(size=shape), rng.normal(size=shape)
    scale, offset = rng.normal(size=2), rng.normal(size=2)
    given = (NONE, NONE) if is_training else (rng.normal(size=2), rng.uniform(0.5, 2, size=2))
    attrs = {"epsilon": 0.01, "data_format": data_format, "is_training": is_training}

    def forward(x, scale, offset):
        return norm_kernels.fused_batch_norm(x, scale, offset, *given, **attrs)

    reserved = forward(x, scale, offset)[3:]
    dx, d_scale, d_offset, *unused = norm_kernels.fused_batch_norm_grad(
        dy, x, scale, *reserved, **attrs
    )
    nn_cases.assert_gradient(dx, lambda x: forward(x, scale, offset)[0], x, dy)
    nn_cases.assert_gradient(d_scale, lambda scale: forward(x, scale, offset)[0], scale, dy)
    nn_cases.assert_gradient(d_offset, lambda offset: forward(x, scale, offset)[0], offset, dy)
    assert [part.shape for part in unused] == [(), ()]


def test_inference_returns_the_given_statistics():
    x, ones = np.ones((1, 2, 2, 3), np.float32), np.ones(3, np.float32)
    mean, variance = ones * 4, ones * 9
    outputs = norm_kernels.fused_batch_norm(x, ones, ones, mean, variance, is_training=False)
    for output, expected in zip(outputs[1:], (mean, variance, mean, variance), strict=True):
        np.testing.assert_array_equal(output, expected)


def test_an_empty_batch_has_no_statistics():
    x, ones, none = (
        np.ones((0, 2, 2, 3), np.float32),
        np.ones(3, np.float32),
        NONE.astype(np.float32),
    )
    y, *statistics = norm_kernels.fused_batch_norm(x, ones, ones, none, none)
    assert y.shape == x.shape
    assert np.isnan(statistics).all()
    dx, d_scale, d_offset, *_ = norm_kernels.fused_batch_norm_grad(y, x, ones, ones, ones)
    assert dx.shape == x.shape
    np.testing.assert_array_equal([d_scale, d_offset], np.zeros((2, 3)))


def test_lrn_gradient_matches_finite_differences():
    rng = np.random.default_rng(9)
    x, dy = rng.normal(size=(1, 2, 2, 5)), rng.normal(size=(1, 2, 2, 5))
    attrs = {"depth_radius": 1, "bias": 1.5, "alpha": 0.4, "beta": 0.7}
    dx = norm_kernels.lrn_grad(dy, x, norm_kernels.lrn(x, **attrs), **attrs)
    nn_cases.assert_gradient(dx, lambda x: norm_kernels.lrn(x, **attrs), x, dy)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats(dtype):
    total = norm_kernels.bias_add_grad(np.ones((4096, 1), dtype))
    assert (total.dtype, total.item()) == (dtype, 4096)
    x, ones = np.ones((64, 8, 8, 1), dtype), np.ones(1, np.float32)
    outputs = norm_kernels.fused_batch_norm_v3(x, ones, ones, ones[:0], ones[:0])
    assert [output.dtype for output in outputs] == [dtype, *[np.float32] * 5]
    assert outputs[1].item() == 1
    assert norm_kernels.lrn(x).dtype == dtype


def test_integers_take_a_bias():
    value, bias = np.zeros((2, 3), np.int32), np.array([1, 2, 3], np.int32)
    np.testing.assert_array_equal(norm_kernels.bias_add(value, bias), [bias, bias])
    total = norm_kernels.bias_add_grad(np.ones((2, 3), np.int32))
    assert (total.dtype, total.tolist()) == (np.int32, [2, 2, 2])


def test_bad_inputs_are_refused():
    x, ones = np.ones((1, 2, 2, 3), np.float32), np.ones(3, np.float32)
    with pytest.raises(
        ValueError, match=r"as many biases as the last dimension of the input tensor: \[2\] vs"
    ):
        norm_kernels.bias_add(x, ones[:2])
    with pytest.raises(ValueError, match="at least 3 dimensions, got 2"):
        norm_kernels.bias_add_grad(np.ones((2, 3)), data_format="NCHW")
    with pytest.raises(ValueError, match="NHWC or NCHW, got 'NCDHW'"):
        norm_kernels.bias_add(x, ones, data_format="NCDHW")
    with pytest.raises(TypeError, match="value is float32, bias is float64"):
        norm_kernels.bias_add(x, np.ones(3))
    with pytest.raises(ValueError, match="must be empty in training"):
        norm_kernels.fused_batch_norm(x, ones, ones, ones, ones)
    with pytest.raises(ValueError, match="4-D data"):
        norm_kernels.fused_batch_norm(x[0], ones, ones, ones[:0], ones[:0])
    with pytest.raises(ValueError, match=r"mean must have shape \(3,\), got \(0,\)"):
        norm_kernels.fused_batch_norm(x, ones, ones, ones[:0], ones[:0], is_training=False)
    with pytest.raises(TypeError, match="scale must be float32, got float64"):
        norm_kernels.fused_batch_norm(x, np.ones(3), ones, ones[:0], ones[:0])
    with pytest.raises(ValueError, match="not be negative, got -1"):
        norm_kernels.lrn(x, depth_radius=-1)
