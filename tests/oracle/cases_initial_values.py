"""Initial values that depend on other variables: TensorFlow copies the operations that depend on
reference variables, and uses the initial values of uninitialised ones.
"""

from tests.oracle.case import case


@case
def of_a_reference(tf):
    v = tf.Variable([1.0, 2.0], name="v")
    u = tf.Variable(v * 2.0 + 1.0, name="u")
    w = tf.Variable(lambda: v - u, name="w")
    return v, u, w


@case
def of_initialized_values(tf):
    v = tf.Variable([1.0, 2.0], name="v")
    u = tf.Variable(v.initialized_value() * 2.0, name="u")
    return u, v.initialized_value(), u.initialized_value()


@case
def of_several_uses(tf):
    v = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="v")
    a, b = tf.split(v, 2)
    x = tf.concat([a, b, a], 0) * v[0]
    return tf.Variable(x + tf.reduce_sum(x), name="u"), tf.get_variable("w", initializer=a + 1.0)


@case
def in_scopes(tf):
    with tf.variable_scope("outer"):
        v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
        with tf.variable_scope("inner"), tf.name_scope("names"):
            return tf.get_variable("u", initializer=v + 1.0), tf.Variable(v * v, name="w")


@case
def of_kinds_together(tf):
    v = tf.Variable([1.0, 2.0], name="v", use_resource=False)
    r = tf.Variable(v * 2.0, name="r", use_resource=True)
    u = tf.Variable(r * 3.0 + v, name="u", use_resource=False)
    return v, r, u


@case
def of_local_and_unlisted_variables(tf):
    v = tf.Variable(1.0, name="v", collections=[tf.GraphKeys.LOCAL_VARIABLES])
    return tf.Variable(v + 1.0, name="u")


@case
def of_averages(tf):
    v = tf.Variable([1.0, 2.0], name="v")
    average = tf.train.ExponentialMovingAverage(0.9)
    update = average.apply([v])
    with tf.control_dependencies([update]):
        return average.average(v).read_value()


@case
def seeds_after_them(tf):
    tf.set_random_seed(7)
    v = tf.Variable(tf.random_uniform([2]), name="v")
    u = tf.Variable(v * 2.0, name="u")
    return v.read_value() - u / 2.0, tf.random_uniform([2])
