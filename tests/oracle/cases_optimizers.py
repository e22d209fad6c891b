"""One step of every optimizer on references and on handles: the graph that apply_gradients makes,
slots included, and the values after it.
"""

import numpy as np

from tests.oracle.case import case

VALUE = np.array([[1.0, -2.0], [0.25, 3.5], [-0.75, 0.0]], "float32")
GRADIENT = np.array([[0.5, -1.5], [0.0, 2.25], [-0.001, 1.0]], "float32")
ROWS = np.array([[1.0, 0.5], [-0.25, 2.0], [0.125, -3.0]], "float32")
INDICES = np.array([2, 0, 2])


def build_with(make, use_resource):
    def build(tf):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", initializer=VALUE, use_resource=use_resource)
        with tf.variable_scope("deep"):
            rows = tf.get_variable("rows", initializer=VALUE, use_resource=use_resource)
        slices = tf.IndexedSlices(tf.constant(ROWS), tf.constant(INDICES), tf.constant([3, 2]))
        optimizer = make(tf, step)
        train = optimizer.apply_gradients([(tf.constant(GRADIENT), w), (slices, rows)], step)
        with tf.control_dependencies([train]):
            return [v.read_value() for v in [w, rows, step] + optimizer.variables()]

    return build


def optimizer(name, make):
    for use_resource in (False, True):
        build = build_with(make, use_resource)
        build.__name__ = name + ("_resource" if use_resource else "_ref")
        build.__module__ = __name__
        case(build)


optimizer("descent", lambda tf, step: tf.train.GradientDescentOptimizer(0.1))
optimizer("descent_locking", lambda tf, step: tf.train.GradientDescentOptimizer(0.1, True, "sgd"))
optimizer("momentum", lambda tf, step: tf.train.MomentumOptimizer(0.1, 0.9))
optimizer("nesterov", lambda tf, step: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True))
optimizer("adagrad", lambda tf, step: tf.train.AdagradOptimizer(0.1))
optimizer("adagrad_da", lambda tf, step: tf.train.AdagradDAOptimizer(0.1, step))
optimizer(
    "adagrad_da_penalties",
    lambda tf, step: tf.train.AdagradDAOptimizer(
        0.1, step, l1_regularization_strength=0.125, l2_regularization_strength=0.25
    ),
)
optimizer("adadelta", lambda tf, step: tf.train.AdadeltaOptimizer(0.5))
optimizer("rms_prop", lambda tf, step: tf.train.RMSPropOptimizer(0.1, momentum=0.5))
optimizer("centered", lambda tf, step: tf.train.RMSPropOptimizer(0.1, centered=True))
optimizer("adam", lambda tf, step: tf.train.AdamOptimizer())
optimizer("adam_locking", lambda tf, step: tf.train.AdamOptimizer(0.01, use_locking=True))
optimizer("ftrl", lambda tf, step: tf.train.FtrlOptimizer(0.1))
optimizer(
    "ftrl_penalties",
    lambda tf, step: tf.train.FtrlOptimizer(
        0.1, -0.75, 0.5, 0.01, 0.02, accum_name="sums", linear_name="lines"
    ),
)
optimizer(
    "ftrl_shrinkage",
    lambda tf, step: tf.train.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.125),
)
optimizer(
    "proximal_adagrad",
    lambda tf, step: tf.train.ProximalAdagradOptimizer(
        0.1, l1_regularization_strength=0.125, l2_regularization_strength=0.25
    ),
)
optimizer(
    "proximal_descent",
    lambda tf, step: tf.train.ProximalGradientDescentOptimizer(
        0.1, l1_regularization_strength=0.125, l2_regularization_strength=0.25
    ),
)


@case
def descent_called(tf):
    w = tf.get_variable("w", initializer=VALUE)
    optimizer = tf.train.GradientDescentOptimizer(lambda: 0.1)
    train = optimizer.apply_gradients([(tf.constant(GRADIENT), w)])
    with tf.control_dependencies([train]):
        return w.read_value()


def constrained(tf, use_resource):
    w = tf.get_variable(
        "w",
        initializer=VALUE,
        use_resource=use_resource,
        constraint=lambda t: tf.maximum(t, 0.0),
    )
    train = tf.train.AdamOptimizer(0.5).apply_gradients([(tf.constant(GRADIENT), w)])
    with tf.control_dependencies([train]):
        return w.read_value()


@case
def constraint_resource(tf):
    return constrained(tf, True)


# TensorFlow constrains the step's first read of a reference, which is the same memory there.
@case(graph=False, imports=False)
def constraint_ref(tf):
    return constrained(tf, False)


@case
def two_optimizers(tf):
    w = tf.get_variable("w", initializer=VALUE)
    first = tf.train.MomentumOptimizer(0.1, 0.9).apply_gradients([(tf.constant(GRADIENT), w)])
    with tf.control_dependencies([first]):
        other = tf.train.MomentumOptimizer(tf.constant(0.2), 0.5)
        second = other.apply_gradients([(tf.constant(GRADIENT), w)], name="again")
    with tf.control_dependencies([second]):
        return w.read_value()


@case
def half_precision_and_partitions(tf):
    step = tf.Variable(0, name="counter", trainable=False, use_resource=True)
    partitioner = tf.fixed_size_partitioner(2)
    ones = tf.ones_initializer()
    parts = list(tf.get_variable("p", [3, 2], initializer=ones, partitioner=partitioner))
    half = tf.Variable(VALUE.astype("float16"), name="half")
    optimizer = tf.train.AdamOptimizer(0.125)
    pairs = [(tf.constant(GRADIENT[:2]), parts[0]), (tf.constant(GRADIENT[2:]), parts[1])]
    pairs.append((tf.constant(GRADIENT, "float16"), half))
    train = optimizer.apply_gradients(pairs, global_step=step)
    with tf.control_dependencies([train]):
        return [v.read_value() for v in parts + [half, step]]
