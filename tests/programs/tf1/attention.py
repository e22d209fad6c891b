"""A decoder with attention, written out with a while loop and TensorArrays. Only the graph has a
seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(30)
    rng = np.random.RandomState(30)
    source = tf.placeholder(tf.float32, [None, 6, 4])
    target = tf.placeholder(tf.float32, [None, 5, 2])
    batch = tf.shape(source)[0]
    memory, state = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(8), source, dtype=tf.float32)
    cell = tf.nn.rnn_cell.GRUCell(8, name="decoder")
    with tf.variable_scope("attention", initializer=tf.glorot_normal_initializer()):
        keys = tf.layers.dense(memory, 8, use_bias=False, name="keys")
        query_weights = tf.get_variable("query", [8, 8])
        v = tf.get_variable("v", [8])
        out_weights = tf.get_variable("out", [16, 2])
    cell.build(tf.TensorShape([None, 10]))

    def body(t, state, previous, array):
        query = tf.expand_dims(tf.matmul(state, query_weights), 1)
        weights = tf.nn.softmax(tf.reduce_sum(v * tf.tanh(keys + query), axis=2))
        context = tf.reduce_sum(tf.expand_dims(weights, -1) * memory, axis=1)
        state, _ = cell.call(tf.concat([previous, context], axis=1), state)
        output = tf.matmul(tf.concat([state, context], axis=1), out_weights)
        return t + 1, state, output, array.write(t, output)

    start = tf.constant(0), state, tf.zeros([batch, 2]), tf.TensorArray(tf.float32, 5)
    shapes = (
        tf.TensorShape([]),
        tf.TensorShape([None, 8]),
        tf.TensorShape([None, 2]),
        tf.TensorShape(None),
    )
    _, _, _, array = tf.while_loop(lambda t, *_: t < 5, body, start, shape_invariants=shapes)
    predicted = tf.transpose(array.stack(), [1, 0, 2])
    loss = tf.losses.mean_squared_error(target, predicted)
    optimizer = tf.train.AdamOptimizer(0.02)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    clipped, norm = tf.clip_by_global_norm(gradients, 1.0)
    train = optimizer.apply_gradients(zip(clipped, variables))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(5):
            feeds = {source: rng.randn(3, 6, 4), target: rng.randn(3, 5, 2)}
            yield session.run([loss, norm, train], feeds)[:2]
