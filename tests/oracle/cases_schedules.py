"""Learning-rate schedules and moving averages: graphs and values."""

import numpy as np

from tests.oracle.case import case


def schedule(name, make, steps=(0, 3, 10, 11, 25), **options):
    """Register a case that evaluates a schedule at some steps."""

    def build(tf):
        return [make(tf, tf.constant(step, "int64")) for step in steps]

    build.__name__ = name
    build.__module__ = __name__
    case(build, **options)


schedule("exponential", lambda tf, s: tf.train.exponential_decay(0.5, s, 10, 0.9))
schedule("exponential_stairs", lambda tf, s: tf.train.exponential_decay(0.5, s, 10, 0.9, True, "d"))
schedule("natural", lambda tf, s: tf.train.natural_exp_decay(0.5, s, 10, 0.9))
schedule("natural_stairs", lambda tf, s: tf.train.natural_exp_decay(0.5, s, 10, 0.9, True))
schedule("inverse", lambda tf, s: tf.train.inverse_time_decay(0.5, s, 10, 0.9))
schedule("inverse_stairs", lambda tf, s: tf.train.inverse_time_decay(0.5, s, 10, 0.9, True))
schedule("polynomial", lambda tf, s: tf.train.polynomial_decay(0.5, s, 10))
schedule(
    "polynomial_cycle", lambda tf, s: tf.train.polynomial_decay(0.5, s, 10, 0.1, 2.0, cycle=True)
)
schedule("cosine", lambda tf, s: tf.train.cosine_decay(0.5, s, 10, alpha=0.1))
schedule("linear_cosine", lambda tf, s: tf.train.linear_cosine_decay(0.5, s, 10))
schedule(
    "cosine_restarts",
    lambda tf, s: tf.train.cosine_decay_restarts(0.5, s, 4, m_mul=0.5),
)
schedule(
    "cosine_restarts_equal",
    lambda tf, s: tf.train.cosine_decay_restarts(0.5, s, 4, t_mul=1.0, alpha=0.1),
)
schedule(
    "pieces",
    lambda tf, s: tf.train.piecewise_constant(s, [3, 10], [1.0, 0.5, 0.25]),
)
schedule(
    "pieces_decay",
    lambda tf, s: tf.train.piecewise_constant_decay(s, [3, 10], [1.0, 0.5, 0.25]),
)


@case
def noisy_without_noise(tf):
    return [
        tf.train.noisy_linear_cosine_decay(0.5, tf.constant(s), 10, initial_variance=0.0)
        for s in (0, 7, 12)
    ]


VALUE = np.array([1.0, -2.0, 4.0], "float32")


def averages(case_name, use_resource=False, **settings):
    def build(tf):
        w = tf.get_variable("w", initializer=VALUE, use_resource=use_resource)
        if "num_updates" in settings:
            settings["num_updates"] = tf.constant(3)
        average = tf.train.ExponentialMovingAverage(0.9, **settings)
        changed = tf.assign(w, VALUE * 3)
        with tf.control_dependencies([changed.op]):
            t = tf.identity(VALUE * 2, name="t")
            apply = average.apply([w, t])
        with tf.control_dependencies([apply]):
            read = [average.average(w).read_value(), average.average(t).read_value()]
            return read + [tf.constant([average.average_name(w), average.average_name(t)])]

    build.__name__ = case_name
    build.__module__ = __name__
    # TensorFlow averages the step's first read of a reference, which is the same memory there, and
    # initialises by a second copy of the condition: values only.
    case(build, graph=use_resource, imports=use_resource)


averages("average_ref")
averages("average_resource", use_resource=True)
averages("average_counted", num_updates=3, name="Mean")
averages("average_unbiased", zero_debias=True)
