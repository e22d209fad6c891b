"""Linear algebra that TensorFlow builds with loops."""

from tests.oracle.case import case
from tests.oracle.cases_linalg import numbers


@case(graph=False, rtol=1e-4, atol=1e-5)
def exponential(tf):
    x = tf.constant(numbers(2, 3, 3))
    y = tf.linalg.expm(x)
    return y, tf.gradients(y, x, numbers(2, 3, 3, seed=2)), tf.linalg.expm(5 * x)


@case(graph=False)
def spectral_norms(tf):
    x = numbers(2, 3, 4)
    return tf.norm(x, 2, [-2, -1]), tf.norm(x, 2, [0, 2]), tf.norm(x, 2, [1, 0], keepdims=True)
