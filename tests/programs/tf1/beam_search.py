"""Beam search as a while loop with top_k over the probabilities of a small network. Only the graph
has a seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(180)
    beams, symbols, steps = 3, 6, 5
    start = tf.placeholder(tf.float32, [1, 4])
    w_in = tf.get_variable("w_in", [symbols, 4], initializer=tf.random_normal_initializer())
    w_state = tf.get_variable("w_state", [4, 4], initializer=tf.orthogonal_initializer())
    w_out = tf.get_variable("w_out", [4, symbols], initializer=tf.random_uniform_initializer(-1, 1))

    def body(t, state, scores, history):
        last = tf.reshape(tf.slice(history, [0, t], [-1, 1]), [-1])
        state = tf.tanh(tf.matmul(state, w_state) + tf.gather(w_in, last))
        log_p = tf.nn.log_softmax(tf.matmul(state, w_out))
        total = tf.reshape(tf.expand_dims(scores, 1) + log_p, [-1])
        scores, flat = tf.nn.top_k(total, k=beams)
        parent, symbol = tf.floordiv(flat, symbols), tf.mod(flat, symbols)
        history = tf.concat([tf.gather(history, parent), tf.expand_dims(symbol, 1)], axis=1)
        return t + 1, tf.gather(state, parent), scores, history

    _, _, scores, history = tf.while_loop(
        lambda t, *_: t < steps,
        body,
        [
            tf.constant(0),
            tf.tile(start, [beams, 1]),
            tf.constant([0.0, -9.0, -9.0]),
            tf.zeros([beams, 1], tf.int32),
        ],
        shape_invariants=[
            tf.TensorShape([]),
            tf.TensorShape([beams, 4]),
            tf.TensorShape([beams]),
            tf.TensorShape([beams, None]),
        ],
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        rng = np.random.RandomState(180)
        for _ in range(4):
            found = session.run([scores, history], {start: rng.randn(1, 4)})
            yield list(found[0]) + list(found[1].ravel())
