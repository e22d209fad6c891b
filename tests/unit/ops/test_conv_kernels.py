"""Convolution and dilation kernels: TensorFlow's numbers, both layouts, finite differences."""

import ml_dtypes
import numpy as np
import pytest

from headrace._src.devices.onednn import Unsupported
from headrace._src.ops.nn import conv_kernels, morphology_kernels
from tests.unit.ops import nn_cases

CASES = nn_cases.recorded("conv")
CONVOLUTIONS = [param for param in CASES if "dilation" not in param.values[0].kernel]


def kernel_of(case):
    module = morphology_kernels if case.kernel.startswith("dilation") else conv_kernels
    return getattr(module, case.kernel)


@pytest.mark.parametrize("case", CASES)
def test_matches_tensorflow(case):
    nn_cases.check(case, kernel_of(case))


def channels_first(items):
    """A list with one item (or pair of items) per axis, from channels-last order."""
    return [items[0], items[-1], *items[1:-1]]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_channels_first_is_channels_last_transposed(case):
    attrs = dict(case.attrs, data_format="NCHW" if len(case.attrs["strides"]) == 4 else "NCDHW")
    for name in ("strides", "dilations"):
        if name in attrs:
            attrs[name] = channels_first(attrs[name])
    if "explicit_paddings" in attrs:
        pairs = np.reshape(attrs["explicit_paddings"], (-1, 2))
        attrs["explicit_paddings"] = np.ravel(channels_first(pairs)).tolist()

    def moved(array):
        return np.array(channels_first(array)) if array.ndim == 1 else np.moveaxis(array, -1, 1)

    # The filter, or its shape, comes second and is the same in both layouts.
    inputs = [array if j == 1 else moved(array) for j, array in enumerate(case.inputs)]
    expected = case.outputs[0] if "backprop_filter" in case.kernel else moved(case.outputs[0])
    actual = kernel_of(case)(*inputs, **attrs)
    tolerance = nn_cases.TOLERANCE[expected.dtype.name]
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


GRADIENTS = [
    (
        "conv2d",
        "",
        (2, 5, 4, 2),
        (2, 3, 2, 3),
        {"strides": [1, 2, 1, 1], "dilations": [1, 3, 1, 1]},
    ),
    ("conv2d", "", (1, 2, 5, 4), (3, 2, 2, 2), {"strides": [1, 1, 2, 3], "data_format": "NCHW"}),
    (
        "conv3d",
        "_v2",
        (1, 4, 3, 4, 2),
        (2, 1, 2, 2, 2),
        {"strides": [1, 2, 1, 2, 1], "dilations": [1, 2, 1, 1, 1]},
    ),
    (
        "depthwise_conv2d_native",
        "",
        (2, 5, 4, 2),
        (2, 3, 2, 3),
        {"strides": [1, 2, 1, 1], "dilations": [1, 2, 1, 1]},
    ),
]


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("name", "version", "shape", "filter_shape", "attrs"), GRADIENTS)
def test_gradients_match_finite_differences(name, version, shape, filter_shape, attrs, padding):
    attrs = attrs | {"padding": padding}
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=shape), rng.normal(size=filter_shape)
    forward = getattr(conv_kernels, name)
    dy = rng.normal(size=forward(x, w, **attrs).shape)
    d_input = getattr(conv_kernels, f"{name}_backprop_input{version}")
    d_filter = getattr(conv_kernels, f"{name}_backprop_filter{version}")
    dx = d_input(np.array(shape), w, dy, **attrs)
    nn_cases.assert_gradient(dx, lambda x: forward(x, w, **attrs), x, dy)
    dw = d_filter(x, np.array(filter_shape), dy, **attrs)
    nn_cases.assert_gradient(dw, lambda w: forward(x, w, **attrs), w, dy)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_dilation_gradients_match_finite_differences(padding):
    attrs = {"strides": [1, 1, 2, 1], "rates": [1, 2, 1, 1], "padding": padding}
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(2, 5, 4, 2)), rng.normal(size=(2, 3, 2))
    dilation2d = morphology_kernels.dilation2d
    dy = rng.normal(size=dilation2d(x, w, **attrs).shape)
    dx = morphology_kernels.dilation2d_backprop_input(x, w, dy, **attrs)
    nn_cases.assert_gradient(dx, lambda x: dilation2d(x, w, **attrs), x, dy)
    dw = morphology_kernels.dilation2d_backprop_filter(x, w, dy, **attrs)
    nn_cases.assert_gradient(dw, lambda w: dilation2d(x, w, **attrs), w, dy)


def test_dilation_skips_nan():
    attrs = {"strides": [1] * 4, "rates": [1] * 4, "padding": "VALID"}
    filters, dy = np.zeros((1, 3, 1), np.float32), np.ones((1, 1, 1, 1), np.float32)
    for row, value, winner in (([np.nan, 1, 2], 2, 2), ([1, 2, np.nan], 2, 1), ([2, 2, 2], 2, 0)):
        x = np.array(row, np.float32).reshape(1, 1, 3, 1)
        assert morphology_kernels.dilation2d(x, filters, **attrs).item() == value
        dx = morphology_kernels.dilation2d_backprop_input(x, filters, dy, **attrs)
        assert dx.ravel().tolist() == np.eye(3)[winner].tolist()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_accumulate_in_float32(dtype):
    ones = np.ones((1, 1, 1, 4096), dtype)
    attrs = {"strides": [1] * 4, "padding": "VALID"}
    result = conv_kernels.conv2d(ones, ones.reshape(1, 1, 4096, 1), **attrs)
    # Added up in the narrow type, the sum would stop growing at 2048, or 256.
    assert (result.dtype, result.item()) == (dtype, 4096)


def test_chunks_do_not_change_the_result(monkeypatch):
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(5, 4, 4, 2)), rng.normal(size=(3, 3, 2, 3))
    attrs = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    dy = rng.normal(size=(5, 4, 4, 3))

    def run():
        return (
            conv_kernels.conv2d(x, w, **attrs),
            conv_kernels.conv2d_backprop_input(np.array(x.shape), w, dy, **attrs),
            conv_kernels.conv2d_backprop_filter(x, np.array(w.shape), dy, **attrs),
        )

    whole = run()
    monkeypatch.setattr(conv_kernels, "_COLUMN_BYTES", 2 * 16 * 18 * 8)
    for chunked, expected in zip(run(), whole, strict=True):
        np.testing.assert_allclose(chunked, expected, rtol=1e-12)


def test_an_empty_batch_is_convolved():
    x, w = np.zeros((0, 4, 4, 2), np.float32), np.ones((3, 3, 2, 5), np.float32)
    attrs = {"strides": [1] * 4, "padding": "SAME"}
    y = conv_kernels.conv2d(x, w, **attrs)
    assert y.shape == (0, 4, 4, 5)
    dw = conv_kernels.conv2d_backprop_filter(x, np.array(w.shape), y, **attrs)
    np.testing.assert_array_equal(dw, np.zeros_like(w))


def test_bad_inputs_are_refused():
    x, w = np.zeros((1, 4, 4, 2), np.float32), np.zeros((2, 2, 2, 3), np.float32)
    attrs = {"strides": [1] * 4, "padding": "SAME"}
    with pytest.raises(TypeError, match="float32, float64"):
        conv_kernels.conv2d(x, w.astype(np.float64), **attrs)
    with pytest.raises(TypeError, match="floating-point dtype, got int32"):
        conv_kernels.conv2d(x.astype(np.int32), w.astype(np.int32), **attrs)
    with pytest.raises(ValueError, match=r"\(1, 3, 3, 3\).*output is \(1, 4, 4, 3\)"):
        conv_kernels.conv2d_backprop_filter(
            x, np.array(w.shape), np.zeros((1, 3, 3, 3), np.float32), **attrs
        )
    with pytest.raises(ValueError, match="vector of integers of at least 0"):
        conv_kernels.conv2d_backprop_input(np.array([1, -4, 4, 2]), w, x, **attrs)
    with pytest.raises(ValueError, match="SAME or VALID"):
        conv_kernels.depthwise_conv2d_native(x, w, strides=[1] * 4, padding="EXPLICIT")
    with pytest.raises(ValueError, match="filter must be"):
        morphology_kernels.dilation2d(x, w, strides=[1] * 4, rates=[1] * 4, padding="SAME")


def test_taps_that_see_nothing_but_padding_are_not_left_to_onednn():
    """For these, oneDNN's depthwise gradients in bfloat16 are uninitialised memory."""
    x, dy = np.ones((2, 5, 2, 8), np.float32), np.ones((2, 2, 1, 8), np.float32)
    attrs = {"strides": (1, 3, 3, 1), "padding": "SAME", "data_format": "NHWC"}
    with pytest.raises(Unsupported, match="padding"):
        conv_kernels.onednn_depthwise_conv2d_native_backprop_filter(
            x, np.array([4, 4, 8, 1]), dy, dilations=(1, 1, 1, 1), **attrs
        )
    found = conv_kernels.depthwise_conv2d_native_backprop_filter(x, [4, 4, 8, 1], dy, **attrs)
    assert not found[:, 0].any() and found[:, 1:3].all()
