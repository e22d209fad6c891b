"""Minimizations by SciPy, under TensorFlow 1.15.5 and under Headrace alike. Valid Python 3.7.

To record RIGHT again, with TensorFlow's Python and SciPy beside it:

    python3.7 -m tests.unit.train.external_runs
"""

import numpy as np


def _rosenbrock(tf):
    v = tf.get_variable("v", initializer=np.array([-1.2, 1.0]))
    return v, 100.0 * tf.square(v[1] - tf.square(v[0])) + tf.square(1.0 - v[0])


def _regression(tf):
    x = tf.placeholder("float64", [None, 2], name="x")
    y = tf.placeholder("float64", [None], name="y")
    w = tf.get_variable("w", [2], "float64", tf.zeros_initializer())
    c = tf.get_variable("c", [], "float64", tf.zeros_initializer())
    rows = np.sin(np.arange(20.0)).reshape(10, 2)
    feeds = {x: rows, y: (rows.dot([0.5, -2.0]) + 0.25 > 0).astype("float64")}
    logits = tf.reduce_sum(x * w, 1) + c
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits)
    return tf.reduce_mean(entropy) + 0.01 * tf.nn.l2_loss(w), feeds


def rosenbrock(tf, make):
    return make(_rosenbrock(tf)[1], options={"maxiter": 50}), {}


def conjugate_gradients(tf, make):
    return make(_rosenbrock(tf)[1], method="CG", options={"maxiter": 5}), {}


def bounds(tf, make):
    v, loss = _rosenbrock(tf)
    return make(loss, var_to_bounds={v: (-2.0, [0.5, np.inf])}), {}


def constraints(tf, make):
    v = tf.get_variable("v", initializer=np.array([7.0, 7.0]))
    loss = tf.reduce_sum(tf.square(v))
    settings = {"equalities": [v[1] - 1.0], "inequalities": [v[0] * v[0] - 2.0]}
    return make(loss, method="SLSQP", **settings), {}


def regression(tf, make):
    loss, feeds = _regression(tf)
    return make(loss), feeds


RUNS = [rosenbrock, conjugate_gradients, bounds, constraints, regression]

# With SciPy 1.7.3.
RIGHT = {
    "rosenbrock": [0.999998945, 0.999998021],
    "conjugate_gradients": [-0.286214774, 0.0581961726],
    "bounds": [0.5, 0.25],
    "constraints": [1.41421356, 1.0],
    "regression": [1.06817089, -3.89921639, -0.420206354],
}


def minimized(tf, build):
    """All variables in the end."""
    with tf.Graph().as_default():
        optimizer, feeds = build(tf, tf.contrib.opt.ScipyOptimizerInterface)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            optimizer.minimize(session, feed_dict=feeds)
            values = [np.ravel(session.run(v)) for v in tf.trainable_variables()]
            return np.concatenate(values).tolist()


if __name__ == "__main__":
    import tensorflow

    for run in RUNS:
        print(run.__name__, np.array(minimized(tensorflow, run), "float32").tolist())
