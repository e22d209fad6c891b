"""Python inside the graph: py_func, custom gradients, Print, Assert, check_numerics."""

import numpy as np


def rank(values):
    """The places of the elements in ascending order, scaled to 0..1."""
    return (np.argsort(np.argsort(values, axis=1), axis=1) / values.shape[1]).astype(np.float32)


def run(tf):
    tf.set_random_seed(59)
    rng = np.random.RandomState(19)
    graph = tf.get_default_graph()

    @tf.custom_gradient
    def clipped(x):
        """x + 0, whose gradient is clipped."""
        return tf.identity(x), lambda dy: tf.clip_by_value(dy, -0.05, 0.05)

    x = tf.placeholder(tf.float32, [None, 6])
    ranks = tf.py_func(rank, [x], tf.float32, stateful=False)
    ranks.set_shape(x.shape)
    w = tf.get_variable("w", [12, 4], initializer=tf.random_normal_initializer())
    v = tf.get_variable("v", [4], initializer=tf.ones_initializer())
    inputs = tf.check_numerics(tf.concat([x, ranks], 1), "inputs must be finite")
    with graph.gradient_override_map({"Sign": "Identity"}):
        bits = tf.sign(tf.matmul(inputs, w), name="bits")  # straight through
    score = tf.reduce_sum(bits * clipped(v), axis=1)
    loss = tf.reduce_mean(tf.square(score - tf.reduce_max(x, axis=1)))
    within = tf.logical_not(tf.reduce_any(x > 9.0))
    with tf.control_dependencies([tf.Assert(within, [x], summarize=2)]):
        loss = tf.Print(loss, [tf.shape(x)], message="never: ", first_n=0)

    seen = []
    watch = tf.py_func(lambda value: seen.append(float(value)), [loss], [])
    d_w, d_v = tf.gradients(loss, [w, v])
    with tf.control_dependencies(
        [d_w, d_v, watch, tf.assert_rank(x, 2), tf.assert_non_negative(loss)]
    ):
        train = tf.group(w.assign_sub(0.05 * d_w), v.assign_sub(d_v))

    total = tf.reduce_sum(v)
    session = tf.InteractiveSession()
    tf.global_variables_initializer().run()
    for step in range(15):
        data = rng.randn(20, 6)
        value = loss.eval({x: data})
        train.run(feed_dict={x: data})
        assert np.allclose(seen[step], value)
        yield [value, total.eval()]
    for bad in (np.full([1, 6], np.nan), np.full([1, 6], 10.0)):
        try:
            session.run(train, {x: bad})
        except tf.errors.InvalidArgumentError as error:
            yield ["inputs must be finite" in error.message, "assertion failed" in error.message]
    session.close()
