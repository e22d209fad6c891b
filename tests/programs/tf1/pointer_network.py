"""A pointer network that learns to sort points: nests of trainable states, a decoder whose weights
are reused step by step, tf.contrib.layers.optimize_loss in a MonitoredTrainingSession.
"""

import numpy as np

BATCH, STEPS, UNITS = 4, 5, 12


def initial_state(tf, sizes):
    """A state that is learnt, and the same for each sequence."""
    tiled = []
    for i, size in enumerate(tf.contrib.framework.nest.flatten(sizes)):
        start = tf.get_variable(f"start_{i}", [1, size], initializer=tf.zeros_initializer())
        tiled.append(tf.tile(start, [BATCH, 1], name=f"start_{i}_tiled"))
    return tf.contrib.framework.nest.pack_sequence_as(sizes, tiled)


def run(tf):
    tf.set_random_seed(5)
    points = tf.placeholder(tf.float32, [BATCH, STEPS, 2])
    order = tf.placeholder(tf.int32, [BATCH, STEPS])
    small = tf.random_uniform_initializer(-0.08, 0.08)
    with tf.variable_scope("encoder"):
        cell = tf.contrib.rnn.LSTMCell(UNITS, initializer=small)
        start = tf.contrib.rnn.LSTMStateTuple(*initial_state(tf, cell.state_size))
        encoded, state = tf.nn.dynamic_rnn(cell, points, initial_state=start)

    logits, given = [], tf.zeros([BATCH, 2])
    with tf.variable_scope("decoder") as scope:
        cell = tf.contrib.rnn.LSTMCell(UNITS, initializer=small)
        weights = tf.get_variable("weights", [1, UNITS, UNITS])
        v = tf.get_variable("v", [UNITS], initializer=tf.constant_initializer(0.1))
        for step in range(STEPS):
            if step > 0:
                scope.reuse_variables()
            output, state = cell(given, state)
            query = tf.layers.dense(output, UNITS, use_bias=False, name="query")
            keys = tf.nn.conv1d(encoded, weights, 1, "VALID")
            logits.append(tf.reduce_sum(v * tf.tanh(keys + tf.expand_dims(query, 1)), [2]))
            given = tf.gather_nd(points, tf.stack([tf.range(BATCH), order[:, step]], 1))

    loss = tf.losses.sparse_softmax_cross_entropy(order, tf.stack(logits, 1))
    global_step = tf.contrib.framework.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.01, global_step, 10, 0.96, staircase=True)
    train = tf.contrib.layers.optimize_loss(
        loss, global_step, rate, "Adam", clip_gradients=2.0, summaries=["gradients", "loss"]
    )
    random = np.random.RandomState(0)
    with tf.train.MonitoredTrainingSession() as session:
        for _ in range(12):
            given = random.rand(BATCH, STEPS, 2)
            feeds = {points: given, order: given[:, :, 0].argsort(1)}
            yield session.run([train, rate], feeds)
