"""Steps in parts: partial_run, fed intermediates, callables, nested fetches."""

import collections

import numpy as np

Result = collections.namedtuple("Result", "loss extra")


def run(tf):
    tf.set_random_seed(61)
    rng = np.random.RandomState(20)
    x = tf.placeholder(tf.float32, [None, 3])
    baseline = tf.placeholder(tf.float32, [None])
    w = tf.Variable(tf.random_normal([3, 1], seed=1))
    history = tf.Variable([0.0], validate_shape=False, trainable=False)
    noise = tf.random_normal(tf.shape(x)[:1], stddev=0.1)
    prediction = tf.matmul(x, w)[:, 0] + noise
    loss = tf.reduce_mean(tf.square(prediction - baseline))
    (gradient,) = tf.gradients(loss, w)
    train = tf.assign_sub(w, 0.1 * gradient)
    total = tf.reduce_sum(w)
    grow = tf.assign(history, tf.concat([history, [loss]], 0), validate_shape=False)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        steps = session.make_callable([loss, train], feed_list=[x, baseline])
        for _ in range(12):
            data = rng.randn(8, 3).astype("float32")
            handle = session.partial_run_setup([prediction, loss, train], [x, baseline])
            first = session.partial_run(handle, prediction, {x: data})
            target = data.sum(1) + 0.01 * first  # computed here, between two halves of one step
            value, moved = session.partial_run(handle, [loss, train], {baseline: target})
            again = steps(data, target)[0]
            fed = session.run(loss, {prediction: first, baseline: first + 0.5})
            result = session.run(
                Result(loss, {"sum": total, "pair": (gradient, [grow])}),
                {x: data, baseline: target},
            )
            size = result.extra["pair"][1][0].shape[0]
            yield [value, moved[0, 0], again, fed, result.loss, result.extra["sum"], size]
