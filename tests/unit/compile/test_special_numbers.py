"""Compiled functions where their arguments are special: zeros with a sign, and out of bounds."""

import numpy as np
import pytest

import headrace as tf
from tests.unit.compile.steps import clusters, session

KEEP_ZEROS = (
    *(tf.sinh, tf.asinh, tf.atanh, tf.tanh, tf.sin, tf.tan, tf.asin, tf.atan, tf.math.expm1),
    *(tf.log1p, tf.erf, tf.nn.softsign, tf.nn.elu, tf.sqrt, tf.floor, tf.ceil, tf.math.rint),
)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def compiled(functions, numbers, dtype):
    """What functions give for numbers, in one cluster."""
    x = tf.placeholder(dtype, [len(numbers)])
    values = [function(x) for function in functions]
    feeds = {x: np.array(numbers, dtype.as_numpy_dtype)}
    assert len(clusters(values, feeds)) == 1
    with session(jit=True) as run:
        return run.run(values, feeds)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_odd_functions_keep_the_sign_of_zeros(dtype):
    for function, found in zip(KEEP_ZEROS, compiled(KEEP_ZEROS, [0.0, -0.0], dtype), strict=True):
        assert found.tolist() == [0, 0], function
        assert np.signbit(found).tolist() == [False, True], function


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_no_number_below_1_is_a_hyperbolic_cosine(dtype):
    large = np.finfo(dtype.as_numpy_dtype).max
    numbers = [0.5, 0.0, -1.0, -2.0, -4e9, -large, -np.inf, np.nan]
    below, *_ = compiled([tf.acosh, tf.tanh, tf.sin], numbers, dtype)
    assert np.isnan(below).all()
    above, *_ = compiled([tf.acosh, tf.tanh, tf.sin], [1.0, 1.25, 3e9, large, np.inf], dtype)
    wanted = np.arccosh(np.array([1.0, 1.25, 3e9, large, np.inf], dtype.as_numpy_dtype))
    np.testing.assert_allclose(above, wanted, 4 * np.finfo(dtype.as_numpy_dtype).eps)
