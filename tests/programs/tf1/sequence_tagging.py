"""Tagging: a bidirectional LSTM under a conditional random field, decoded by Viterbi. Only the
graph has a seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(20)
    rng = np.random.RandomState(20)
    words = tf.placeholder(tf.int32, [None, 7])
    tags = tf.placeholder(tf.int32, [None, 7])
    lengths = tf.placeholder(tf.int32, [None])
    table = tf.get_variable("table", [25, 6], initializer=tf.random_normal_initializer(stddev=0.3))
    x = tf.nn.embedding_lookup(table, words)
    forward = tf.nn.rnn_cell.LSTMCell(5, name="forward")
    backward = tf.nn.rnn_cell.LSTMCell(5, name="backward")
    outputs, _ = tf.nn.bidirectional_dynamic_rnn(forward, backward, x, lengths, dtype=tf.float32)
    scores = tf.layers.dense(tf.concat(outputs, -1), 4)
    likelihood, transitions = tf.contrib.crf.crf_log_likelihood(scores, tags, lengths)
    loss = tf.reduce_mean(-likelihood)
    train = tf.train.AdamOptimizer(0.05).minimize(loss)
    decoded, best = tf.contrib.crf.crf_decode(scores, transitions, lengths)
    mask = tf.sequence_mask(lengths, 7)
    right = tf.boolean_mask(tf.cast(tf.equal(decoded, tags), tf.float32), mask)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        given = rng.randint(0, 25, (6, 7))
        feeds = {words: given, tags: given % 4, lengths: [7, 5, 3, 6, 1, 4]}
        for _ in range(5):
            value, _ = session.run([loss, train], feeds)
            yield [value] + list(session.run([tf.reduce_mean(right), tf.reduce_sum(best)], feeds))
