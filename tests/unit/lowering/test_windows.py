"""Window geometry: sizes against counting, unknown sizes, and errors that give the numbers."""

import itertools

import numpy as np
import pytest

from headrace._src.core.errors import UnimplementedError
from headrace._src.core.windows import Window, out_size, pad_amounts
from headrace._src.lowering.padded_windows import conv_geometry, pool_geometry

AXES = list(itertools.product(range(1, 9), (1, 2, 3), (1, 2, 3), (1, 2)))


@pytest.mark.parametrize("padding", ["SAME", "VALID", "EXPLICIT"])
def test_out_size_counts_the_windows(padding):
    for n, k, stride, dilation in AXES:
        rule = (n, k, stride, dilation, padding, (2, 1))
        before, after = pad_amounts(*rule)
        starts = range(0, n + before + after - (k - 1) * dilation, stride)
        if len(starts):
            assert out_size(*rule) == len(starts), rule


def test_same_padding_puts_the_odd_element_after():
    assert pad_amounts(5, 2, 1, 1, "SAME") == (0, 1)
    assert pad_amounts(5, 4, 1, 1, "SAME") == (1, 2)
    assert pad_amounts(5, 1, 3, 1, "SAME") == (0, 0)


@pytest.mark.parametrize("padding", ["SAME", "VALID", "EXPLICIT"])
def test_reach_pairs_each_output_with_its_input(padding):
    for n, k, stride, dilation in AXES:
        room = n + sum(pad_amounts(n, k, stride, dilation, padding, (2, 1)))
        if (k - 1) * dilation >= room:
            continue
        axis = Window.of(n, k, stride, dilation, padding, (2, 1))
        covered = np.zeros(axis.out, int)
        for tap in range(k):
            outs, ins = (range(1000)[part] for part in axis.reach(tap))
            expected = [
                (o, o * stride + tap * dilation - axis.before)
                for o in range(axis.out)
                if 0 <= o * stride + tap * dilation - axis.before < n
            ]
            assert list(zip(outs, ins, strict=True)) == expected
            covered[list(outs)] += 1
        np.testing.assert_array_equal(axis.coverage(), covered)


def test_unknown_sizes_stay_unknown():
    geometry = conv_geometry(
        (None, None, 8, 3), (3, 3, 3, 5), strides=[1, 2, 2, 1], padding="SAME", data_format="NHWC"
    )
    assert geometry.output_shape == (None, None, 4, 5)
    assert geometry.pads == ((None, None), (0, 1))
    assert out_size(None, 3, 1) is None
    assert out_size(8, None, 2, 1, "SAME") == 4
    pool = pool_geometry(
        (None, 6, None, 2), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"
    )
    assert pool.output_shape == (None, 3, None, 2)


def test_channels_first_geometry():
    geometry = conv_geometry(
        (2, 3, 7, 8),
        (3, 2, 3, 5),
        strides=[1, 1, 2, 1],
        padding="EXPLICIT",
        explicit_paddings=[0, 0, 0, 0, 1, 2, 0, 1],
        data_format="NCHW",
        dilations=[1, 1, 2, 3],
    )
    assert geometry.input_shape == (2, 3, 7, 8)
    assert geometry.output_shape == (2, 5, 3, 6)
    assert geometry.channel_axis == 1
    assert geometry.kernel == (3, 2)
    assert (geometry.strides, geometry.dilations) == ((2, 1), (2, 3))
    assert geometry.pads == ((1, 2), (0, 1))


CONV = {"strides": [1, 1, 1, 1], "padding": "VALID"}


@pytest.mark.parametrize(
    ("shape", "filters", "attrs", "message"),
    [
        ((1, 2, 5, 3), (3, 3, 3, 4), CONV, "spans 3 elements, but the axis has only 2"),
        ((1, 5, 5, 3), (3, 3, 2, 4), CONV, "input has 3 channels, but the filter takes 2"),
        ((5, 5, 3), (3, 3, 3, 4), CONV, "must have 4 dimensions, got 3"),
        ((1, 5, 5, 3), (3, 3, 3), CONV, "filter must have 4 dimensions, got 3"),
        ((1, 5, 5, 3), (3, 0, 3, 4), CONV, "at least one tap per axis, got 0"),
        ((1, 5, 5, 3), (3, 3, 3, 4), CONV | {"strides": [2, 1, 1, 1]}, "batch and depth"),
        ((1, 5, 5, 3), (3, 3, 3, 4), CONV | {"strides": [1, 0, 1, 1]}, "got stride 0"),
        ((1, 5, 5, 3), (3, 3, 3, 4), CONV | {"dilations": [1, 1, 1, 2]}, "batch and depth"),
        ((1, 5, 5, 3), (3, 3, 3, 4), CONV | {"padding": "FULL"}, "got 'FULL'"),
        ((1, 5, 5, 3), (3, 3, 3, 4), CONV | {"data_format": "CHWN"}, "got 'CHWN'"),
        ((1, 5, 5, 3), (3, 3, 3, 4), CONV | {"explicit_paddings": [1]}, "must be empty"),
        (
            (1, 5, 5, 3),
            (3, 3, 3, 4),
            CONV | {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 1]},
            "must have 8 values, got 4",
        ),
        (
            (1, 5, 5, 3),
            (3, 3, 3, 4),
            CONV | {"padding": "EXPLICIT", "explicit_paddings": [1, 0, 0, 0, 0, 0, 0, 0]},
            "take no padding",
        ),
        (
            (1, 5, 5, 3),
            (3, 3, 3, 4),
            CONV | {"padding": "EXPLICIT", "explicit_paddings": [0, 0, -1, 0, 0, 0, 0, 0]},
            "must not be negative",
        ),
    ],
)
def test_bad_convolutions_are_refused(shape, filters, attrs, message):
    with pytest.raises(ValueError, match=message):
        conv_geometry(shape, filters, **attrs)


@pytest.mark.parametrize(
    ("ksize", "strides", "message"),
    [
        ([2, 1, 1, 1], [1, 1, 1, 1], r"ksize\[0\]=2"),
        ([1, 2, 1, 2], [1, 1, 1, 2], "exactly one of pooling across depth"),
        ([1, 1, 1, 2], [1, 1, 1, 1], "window 2, stride 1, depth 6"),
        ([1, 1, 1, 4], [1, 1, 1, 4], "window 4, stride 4, depth 6"),
    ],
)
def test_kernels_refuse_poolings_that_nobody_implements(ksize, strides, message):
    window = {"ksize": ksize, "strides": strides, "padding": "VALID"}
    with pytest.raises(UnimplementedError, match=message):
        pool_geometry((1, 4, 4, 6), **window)
    assert pool_geometry((1, 4, 4, 6), **window, checked=False).output_shape


@pytest.mark.parametrize(
    ("ksize", "strides", "message"),
    [
        ([1, 2, 1], [1, 1, 1, 1], "ksize must have 4 dimensions"),
        ([1, 9, 1, 1], [1, 1, 1, 1], "the axis has only 4"),
    ],
)
def test_bad_poolings_are_refused(ksize, strides, message):
    with pytest.raises(ValueError, match=message):
        pool_geometry((1, 4, 4, 6), ksize=ksize, strides=strides, padding="VALID")
    with pytest.raises(ValueError, match="SAME or VALID"):
        pool_geometry((1, 4, 4, 6), ksize=[1] * 4, strides=[1] * 4, padding="EXPLICIT")
