"""Slices mean what NumPy's mean; the static shape is the value's, however much is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf
from headrace._src.ops.array.slicing import resolve_strided_slice

X = np.arange(3 * 4 * 5).reshape(3, 4, 5)

bounds = st.none() | st.integers(-7, 7)
steps = st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3])
slices = st.builds(slice, bounds, bounds, steps)
items = slices | st.integers(-3, 2) | st.just(None)
keys = st.builds(
    lambda front, middle, back: (*front, *middle, *back),
    st.lists(items, max_size=2),
    st.sampled_from([(), (Ellipsis,)]),
    st.lists(slices, max_size=1),
)


@settings(max_examples=150, deadline=None)
@given(keys, st.sampled_from([(3, 4, 5), (None, 4, None), None]))
def test_getitem_is_numpys(key, known):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.int64, known)
        result = x[key]
        value = session.run(result, {x: X})
    np.testing.assert_array_equal(value, X[key])
    assert result.shape.is_compatible_with(value.shape)
    if known == X.shape:
        assert result.shape.as_list() == list(value.shape)


def test_resolve_gives_index_and_shape():
    index, shape = resolve_strided_slice(
        (3, 4, 5), [1, 0, 2], [3, 0, 3], [1, 1, 1], (0, 0, 2, 0, 4)
    )
    assert shape == (2, 4)
    np.testing.assert_array_equal(X[index], X[1:3, :, 2])


def test_resolve_keeps_what_is_known():
    masks = (1, 1, 0, 2, 4)
    shape = resolve_strided_slice((3, 4, None), [0, 0, None], [0, 0, None], [1, 1, 1], masks)[1]
    assert shape == (3, 1, None)


@pytest.mark.parametrize("key", [0, (slice(None), 1), (Ellipsis, 2, None)])
def test_gradient_lands_where_the_slice_was(key):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant(X.astype(np.float32))
        (gradient,) = tf.gradients(x[key], x)
        expected = np.zeros_like(X)
        expected[key] = 1
        np.testing.assert_array_equal(session.run(gradient), expected)
