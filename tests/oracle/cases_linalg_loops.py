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


@case(rtol=1e-3, atol=1e-4)
def least_squares_of_unknown_sizes(tf):
    found = []
    for shape in ((4, 3), (3, 4)):
        x = tf.placeholder_with_default(numbers(*shape), [None, None])
        found += [tf.matrix_solve_ls(x, numbers(shape[0], 2, seed=1), 0.5)]
    return found
