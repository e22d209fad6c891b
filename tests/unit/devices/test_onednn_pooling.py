"""Pools by oneDNN against a stack of all windows."""

import numpy as np
import pytest

from headrace._src.devices import onednn
from tests.unit.devices import window_reference as ref

# name: x (channels last), ksize, strides, pads
CASES = {
    "2x2": ((2, 6, 8, 5), (2, 2), (2, 2), ((0, 0), (0, 0))),
    "3x3 stride 2 same": ((2, 8, 7, 16), (3, 3), (2, 2), ((0, 1), (1, 1))),
    "overlapping": ((1, 9, 9, 3), (3, 2), (1, 1), ((1, 1), (0, 1))),
    "gaps between windows": ((1, 10, 9, 4), (2, 2), (3, 4), ((0, 0), (0, 0))),
    "whole plane": ((3, 7, 7, 33), (7, 7), (1, 1), ((0, 0), (0, 0))),
    "1x1 stride 2": ((1, 5, 5, 2), (1, 1), (2, 2), ((0, 0), (0, 0))),
    "1-D": ((2, 11, 4), (3,), (2,), ((1, 1),)),
    "3-D": ((1, 4, 5, 6, 3), (2, 3, 2), (2, 1, 2), ((0, 0), (1, 1), (0, 0))),
}
FORMATS = {3: ("NWC", "NCW"), 4: ("NHWC", "NCHW"), 5: ("NDHWC", "NCDHW")}
layouts = pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def sample(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def layout(rank, last):
    """Return a function that brings channels-last arrays into a layout, and its name."""
    return (np.asarray if last else ref.channels_first), FORMATS[rank][0 if last else 1]


@layouts
@cases
def test_max_pool(case, last):
    x_shape, *geometry = case
    x = sample(*x_shape)
    to, name = layout(x.ndim, last)
    want = ref.max_pool(x, *geometry)
    y = onednn.max_pool(to(x), *geometry, name)
    np.testing.assert_array_equal(y, to(want))
    dy = sample(*want.shape, seed=1)
    dx = onednn.max_pool_backward(to(x), y, to(dy), *geometry, name)
    want = ref.max_pool_backward(x, dy, *geometry)
    np.testing.assert_allclose(dx, to(want), rtol=1e-6, atol=1e-6)


@layouts
@cases
def test_equal_maxima_give_the_gradient_to_the_first(case, last):
    x_shape, *geometry = case
    # Three values only, so that nearly every window holds its maximum more than once.
    x = np.random.default_rng(3).integers(-1, 2, x_shape).astype(np.float32)
    to, name = layout(x.ndim, last)
    y = onednn.max_pool(to(x), *geometry, name)
    dy = sample(*ref.max_pool(x, *geometry).shape)
    dx = onednn.max_pool_backward(to(x), y, to(dy), *geometry, name)
    want = ref.max_pool_backward(x, dy, *geometry)
    np.testing.assert_allclose(dx, to(want), rtol=1e-6, atol=1e-6)


@layouts
@cases
def test_avg_pool_leaves_padding_out(case, last):
    x_shape, *geometry = case
    x = sample(*x_shape)
    to, name = layout(x.ndim, last)
    want = ref.avg_pool(x, *geometry)
    y = onednn.avg_pool(to(x), *geometry, name)
    np.testing.assert_allclose(y, to(want), rtol=1e-5, atol=1e-6)
    dy = sample(*want.shape, seed=1)
    dx = onednn.avg_pool_backward(to(x).shape, to(dy), *geometry, name)
    want = ref.avg_pool_backward(x_shape, dy, *geometry)
    np.testing.assert_allclose(dx, to(want), rtol=1e-5, atol=1e-6)


def test_max_pool_passes_over_nan_as_tensorflow_does():
    """Values recorded from TensorFlow 1.15.5 on the CPU."""
    nan, lowest = np.nan, np.finfo(np.float32).min
    rows = [[nan, 1, 2, 3], [1, 2, 3, nan], [nan] * 4, [-np.inf] * 4]
    x = np.array(rows, np.float32).reshape(4, 2, 2, 1)
    y = onednn.max_pool(x, (2, 2), (2, 2), ((0, 0), (0, 0)))
    np.testing.assert_array_equal(y.ravel(), np.array([3, 3, lowest, lowest], np.float32))


def test_what_does_not_fit_is_unsupported():
    x, none = sample(1, 4, 4, 2), ((0, 0), (0, 0))
    with pytest.raises(onednn.Unsupported, match="nothing but padding"):
        onednn.max_pool(x, (2, 2), (2, 2), ((2, 0), (0, 0)))
    with pytest.raises(onednn.Unsupported, match="does not fit into"):
        onednn.avg_pool(x, (5, 5), (1, 1), none)
    with pytest.raises(onednn.Unsupported, match="empty"):
        onednn.max_pool(x[:0], (2, 2), (2, 2), none)
    with pytest.raises(onednn.Unsupported, match="float32"):
        onednn.max_pool(x.astype(np.float64), (2, 2), (2, 2), none)
    y = onednn.max_pool(x, (2, 2), (2, 2), none)
    with pytest.raises(onednn.Unsupported, match="y has shape"):
        onednn.max_pool_backward(x, y, x, (2, 2), (2, 2), none)
    with pytest.raises(onednn.Unsupported, match="dy has shape"):
        onednn.max_pool_backward(x, x, x, (2, 2), (2, 2), none)
    with pytest.raises(onednn.Unsupported, match="dy has shape"):
        onednn.avg_pool_backward(x.shape, x, (2, 2), (2, 2), none)
