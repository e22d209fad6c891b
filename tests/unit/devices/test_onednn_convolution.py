"""Convolutions by oneDNN against sums over windows."""

import ml_dtypes
import numpy as np
import pytest

from headrace._src.devices import onednn
from tests.unit.devices import window_reference as ref

# name: x, w (channels last), strides, dilations, pads, groups
CASES = {
    "3x3 same": ((2, 7, 9, 5), (3, 3, 5, 6), (1, 1), (1, 1), ((1, 1), (1, 1)), 1),
    "1x1": ((3, 5, 4, 16), (1, 1, 16, 32), (1, 1), (1, 1), ((0, 0), (0, 0)), 1),
    "1x1 stride 2": ((1, 7, 6, 8), (1, 1, 8, 4), (2, 2), (1, 1), ((0, 0), (0, 0)), 1),
    "same, stride 2": ((2, 8, 6, 3), (3, 3, 3, 16), (2, 2), (1, 1), ((0, 1), (0, 1)), 1),
    "same, even window": ((1, 5, 5, 4), (2, 4, 4, 7), (1, 1), (1, 1), ((0, 1), (1, 2)), 1),
    "valid with a rest": ((1, 8, 11, 2), (3, 2, 2, 3), (3, 4), (1, 1), ((0, 0), (0, 0)), 1),
    "dilated": ((2, 11, 10, 4), (3, 3, 4, 5), (1, 1), (2, 3), ((2, 2), (3, 3)), 1),
    "dilated and strided": ((1, 12, 12, 4), (3, 3, 4, 4), (2, 2), (2, 2), ((1, 2), (2, 1)), 1),
    "first layer": ((2, 20, 20, 3), (7, 7, 3, 64), (2, 2), (1, 1), ((2, 3), (2, 3)), 1),
    "one channel": ((2, 9, 9, 1), (5, 5, 1, 32), (1, 1), (1, 1), ((2, 2), (2, 2)), 1),
    "blocked channels": ((2, 6, 6, 64), (3, 3, 64, 48), (1, 1), (1, 1), ((1, 1), (1, 1)), 1),
    "window of all": ((3, 4, 4, 8), (4, 4, 8, 10), (1, 1), (1, 1), ((0, 0), (0, 0)), 1),
    "two groups": ((2, 6, 5, 8), (3, 3, 4, 6), (1, 1), (1, 1), ((1, 1), (1, 1)), 2),
    "one input per group": ((2, 6, 5, 4), (3, 3, 1, 12), (2, 1), (1, 1), ((1, 1), (0, 1)), 4),
    "1-D": ((2, 13, 4), (3, 4, 5), (2,), (1,), ((1, 1),), 1),
    "3-D": ((2, 5, 6, 4, 3), (3, 2, 3, 3, 8), (1, 2, 1), (1, 1, 1), ((1, 1), (0, 1), (1, 1)), 1),
}
FORMATS = {3: ("NWC", "NCW"), 4: ("NHWC", "NCHW"), 5: ("NDHWC", "NCDHW")}


def sample(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_forward_and_gradients(case, last):
    x_shape, w_shape, strides, dilations, pads, groups = case
    x, w = sample(*x_shape), sample(*w_shape, seed=1)
    dense = ref.expand_groups(w, groups)
    geometry = (strides, dilations, pads)
    y = ref.conv(x, dense, *geometry)
    dy = sample(*y.shape, seed=2)
    dx = ref.conv_backward_input(x_shape, dense, dy, *geometry)
    dense_dw = ref.conv_backward_filter(x, dense.shape, dy, *geometry)
    dw = np.zeros(w_shape)
    per_in, per_out = w_shape[-2], w_shape[-1] // groups
    for g in range(groups):
        o = slice(g * per_out, (g + 1) * per_out)
        dw[..., o] = dense_dw[..., g * per_in : (g + 1) * per_in, o]

    to, back = (np.asarray, np.asarray) if last else (ref.channels_first, ref.channels_last)
    options = (*geometry, FORMATS[x.ndim][0 if last else 1], groups)
    got = onednn.conv(to(x), w, *options)
    np.testing.assert_allclose(back(got), y, rtol=1e-4, atol=1e-4)
    got = onednn.conv_backward_input(to(x).shape, w, to(dy), *options)
    np.testing.assert_allclose(back(got), dx, rtol=1e-4, atol=1e-4)
    got = onednn.conv_backward_filter(to(x), w_shape, to(dy), *options)
    np.testing.assert_allclose(got, dw, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize("last", [True, False])
def test_depthwise_filter_of_tensorflow(multiplier, last):
    """[*window, in, multiplier] is the grouped filter [*window, 1, in * multiplier] in memory."""
    x, w = sample(2, 7, 6, 5), sample(3, 3, 5, multiplier)
    grouped = w.reshape(3, 3, 1, 5 * multiplier)
    options = ((1, 1), (1, 1), ((1, 1), (1, 1)), "NHWC" if last else "NCHW", 5)
    to = np.asarray if last else ref.channels_first
    y = onednn.conv(to(x), w, *options)
    want = ref.conv(x, ref.expand_groups(grouped, 5), *options[:3])
    np.testing.assert_allclose(y, to(want), rtol=1e-4, atol=1e-4)
    dw = onednn.conv_backward_filter(to(x), w.shape, y, *options)
    want = onednn.conv_backward_filter(to(x), grouped.shape, y, *options)
    assert dw.shape == w.shape
    np.testing.assert_array_equal(dw.reshape(grouped.shape), want)
    dx = onednn.conv_backward_input(to(x).shape, w, y, *options)
    want = onednn.conv_backward_input(to(x).shape, grouped, y, *options)
    np.testing.assert_array_equal(dx, want)


PLAIN = ((1, 1), (1, 1), ((0, 0), (0, 0)))


def test_strided_and_misaligned_operands_are_copied():
    x, w = sample(2, 6, 6, 8), sample(3, 3, 4, 5)
    odd = np.zeros(w.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(w.shape)
    odd[...] = w
    assert not odd.flags.aligned
    got = onednn.conv(x[..., ::2], odd, *PLAIN)
    np.testing.assert_array_equal(got, onednn.conv(x[..., ::2].copy(), w, *PLAIN))


def test_result_is_fresh_and_aligned():
    x, w = sample(1, 4, 4, 2), sample(3, 3, 2, 2)
    first, second = onednn.conv(x, w, *PLAIN), onednn.conv(x, w, *PLAIN)
    assert first.ctypes.data % 64 == 0 and not np.shares_memory(first, second)
    first[...] = 0
    assert second.any()


def test_bfloat16_accumulates_in_float32():
    x, w = sample(2, 6, 6, 64).astype(ml_dtypes.bfloat16), sample(3, 3, 64, 8, seed=1)
    w = w.astype(ml_dtypes.bfloat16)
    try:
        y = onednn.conv(x, w, *PLAIN)
    except onednn.Unsupported as refusal:  # a CPU without AVX-512
        assert "unimplemented" in str(refusal)
        return
    assert y.dtype == ml_dtypes.bfloat16
    want = ref.conv(x.astype(np.float32), w.astype(np.float32), *PLAIN)
    # One rounding to 8 bits of mantissa; sums of 576 bfloat16 terms would be far outside.
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize(
    ("x", "w", "strides", "dilations", "pads", "data_format", "groups", "reason"),
    [
        ((1, 4, 4, 2), (3, 3, 3, 2), (1, 1), (1, 1), ((0, 0),) * 2, "NHWC", 1, "does not fit 2"),
        ((1, 4, 4, 2), (5, 5, 2, 2), (1, 1), (1, 1), ((0, 0),) * 2, "NHWC", 1, "does not fit into"),
        ((0, 4, 4, 2), (3, 3, 2, 2), (1, 1), (1, 1), ((0, 0),) * 2, "NHWC", 1, "empty"),
        ((1, 4, 4, 2), (3, 3, 2, 2), (0, 1), (1, 1), ((0, 0),) * 2, "NHWC", 1, "> 0"),
        ((1, 4, 4, 2), (3, 3, 2, 2), (1, 1), (1, 1), ((-1, 0),) * 2, "NHWC", 1, "negative"),
        ((1, 4, 4, 2), (3, 3, 2, 2), (1,), (1, 1), ((0, 0),) * 2, "NHWC", 1, "do not all fit"),
        ((1, 4, 4, 2), (3, 3, 2, 2), (1, 1), (1, 1), ((0, 0),) * 2, "CHWN", 1, "CHWN"),
        ((1, 4, 4, 2), (3, 3, 2, 2), (1, 1), (1, 1), ((0, 0),) * 2, "NHWC", 0, "0 groups"),
        ((1, 4, 4, 2), (2,), (1, 1), (1, 1), ((0, 0),) * 2, "NHWC", 1, "0 spatial"),
    ],
)
def test_what_does_not_fit_is_unsupported(
    x, w, strides, dilations, pads, data_format, groups, reason
):
    for _ in range(2):  # the second time the refusal comes from the cache
        with pytest.raises(onednn.Unsupported, match=reason):
            onednn.conv(sample(*x), sample(*w), strides, dilations, pads, data_format, groups)


def test_gradient_of_another_shape_is_unsupported():
    x, w, dy = sample(1, 4, 4, 2), sample(3, 3, 2, 2), sample(1, 3, 2, 2)
    with pytest.raises(onednn.Unsupported, match="dy has shape"):
        onednn.conv_backward_input(x.shape, w, dy, *PLAIN)
    with pytest.raises(onednn.Unsupported, match="dy has shape"):
        onednn.conv_backward_filter(x, w.shape, dy, *PLAIN)


def test_other_and_mixed_dtypes_are_unsupported():
    x, w = sample(1, 4, 4, 2), sample(3, 3, 2, 2)
    for a, b in [(x.astype("f8"), w.astype("f8")), (x, w.astype("f8")), (x.astype(">f4"), w)]:
        with pytest.raises(onednn.Unsupported, match="float32"):
            onednn.conv(a, b, *PLAIN)
