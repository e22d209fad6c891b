"""Random numbers: the same seeds give TensorFlow's numbers, node for node, step after step."""

import numpy as np

from tests.oracle.case import case


@case
def uniform_with_op_seed(tf):
    return tf.random_uniform([3, 5], -1.0, 2.0, seed=7)


@case
def graph_seed_makes_each_op_differ(tf):
    tf.set_random_seed(42)
    a = tf.constant(1.0) + 2.0
    first = tf.random_uniform([4])
    b = tf.multiply(a, 3.0)
    second = tf.random_uniform([4])
    return first, second, b, tf.random_normal([4]), tf.random_uniform([4], seed=9)


@case
def graph_and_op_seeds_of_zero(tf):
    tf.set_random_seed(0)
    return tf.random_uniform([4], seed=0)


@case
def seeds_wrap(tf):
    tf.set_random_seed(2**31 + 4)
    return tf.random_uniform([4], seed=-3), tf.random_uniform([3], seed=2**40)


@case
def integers(tf):
    return (
        tf.random_uniform([3, 4], 0, 10, dtype=tf.int32, seed=1),
        tf.random_uniform([7], -5, 2**40, dtype=tf.int64, seed=2),
    )


@case
def scalar_and_tensor_shapes(tf):
    return (
        tf.random_uniform([], seed=1),
        tf.random_normal((2, 1), seed=2),
        tf.random_uniform(tf.TensorShape([2, 2]), seed=3),
        tf.random_uniform(tf.constant([2, 3], tf.int64), seed=4),
        tf.random_uniform(tf.shape(tf.constant([[1.0, 2.0]])), seed=5),
    )


@case
def normal_in_every_type(tf):
    return [
        tf.random_normal([6], 1.0, 2.0, t, seed=3) for t in (tf.float16, tf.float32, tf.float64)
    ]


@case
def normal_with_tensor_parameters(tf):
    return tf.random_normal(
        [3, 2], mean=tf.constant([1.0, 5.0]), stddev=[0.5, 2.0], seed=4, name="n"
    )


@case
def truncated(tf):
    return (
        tf.truncated_normal([20], seed=3),
        tf.random.truncated_normal([4, 30], 3.0, 0.5, tf.float64, seed=5, name="t"),
    )


@case
def many_uniform(tf):
    return tf.reduce_mean(tf.random_uniform([1000, 37], seed=6), axis=0)


@case
def shuffle(tf):
    return (
        tf.random_shuffle([[1, 2], [3, 4], [5, 6], [7, 8]], seed=8),
        tf.random.shuffle(tf.range(20), seed=1),
    )


@case
def crop(tf):
    return tf.random_crop(np.arange(60, dtype=np.float32).reshape(4, 5, 3), [2, 2, 3], seed=4)


@case
def crop_of_unknown_shape(tf):
    x = tf.placeholder_with_default(np.arange(20, dtype=np.int32).reshape(4, 5), [None, None])
    return tf.random_crop(x, [3, 2], seed=11)


@case
def classes(tf):
    logits = tf.constant([[1.0, 2.0, 0.5], [0.0, -3.0, 4.0]])
    return (
        tf.multinomial(logits, 6, seed=2),
        tf.random.categorical(logits, 5, dtype=tf.int32, seed=3),
        tf.random.categorical(tf.cast(logits, tf.float64), 4, seed=4, name="c"),
    )


@case
def gamma(tf):
    return (
        tf.random_gamma([3], [0.5, 1.0, 4.0], seed=5),
        tf.random_gamma([2, 2], tf.constant([[1.5], [2.5]]), beta=[3.0, 4.0], seed=6),
        tf.random.gamma([], 2.0, dtype=tf.float64, seed=7, name="g"),
    )


@case(graph=False)
def gamma_gradient(tf):
    alpha = tf.constant([0.7, 1.5, 4.0])
    draws = tf.random_gamma([5], alpha, beta=2.0, seed=5)
    return tf.gradients(draws, alpha)


@case
def poisson(tf):
    return (
        tf.random_poisson([0.5, 4.0, 30.0], [4], seed=5),
        tf.random.poisson(3.0, [6], dtype=tf.int32, seed=6, name="p"),
    )


@case
def stateless(tf):
    return (
        tf.random.stateless_uniform([3], [1, 2]),
        tf.random.stateless_uniform([3], seed=[1, 2], minval=5, maxval=90, dtype=tf.int32),
        tf.random.stateless_uniform([3], [1, 2], minval=-1, maxval=1, dtype=tf.float64),
        tf.random.stateless_normal([2, 3], [4, 2], mean=1.0, stddev=2.0),
        tf.random.stateless_truncated_normal([20], tf.constant([3, 2], tf.int32), name="s"),
    )


@case
def stateless_classes(tf):
    logits = tf.constant([[1.0, 2.0, 0.5], [0.0, -3.0, 4.0]])
    return (
        tf.random.stateless_categorical(logits, 7, [5, 6]),
        tf.random.stateless_multinomial(logits, 3, [5, 6], output_dtype=tf.int32),
    )


def _loop_of_draws(tf, draw, steps):
    """Draw once per iteration of a chain of control dependencies: one op runs once a step, so each
    op of the chain has a seed of its own.
    """
    values = []
    for _ in range(steps):
        with tf.control_dependencies(values[-1:]):
            values.append(draw())
    return values


@case
def ops_in_a_chain(tf):
    tf.set_random_seed(5)
    return _loop_of_draws(tf, lambda: tf.random_normal([2]), 4)


@case
def in_scopes(tf):
    tf.set_random_seed(5)
    with tf.name_scope("outer"):
        a = tf.random_uniform([2])
        with tf.name_scope("inner"):
            b = tf.truncated_normal([2], name="mine")
    return a, b
