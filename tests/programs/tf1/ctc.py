"""Sequence labelling with connectionist temporal classification, decoded and measured."""

import numpy as np


def run(tf):
    tf.set_random_seed(29)
    rng = np.random.RandomState(9)
    batch, time, features, classes = 6, 12, 7, 5
    audio = rng.randn(batch, time, features).astype("float32")
    texts = [list(rng.randint(classes - 1, size=n)) for n in (2, 3, 4, 3, 2, 5)]
    lengths = np.array([12, 11, 12, 10, 9, 12], "int32")

    x = tf.placeholder(tf.float32, [batch, None, features])
    labels = tf.sparse_placeholder(tf.int32)
    size = tf.placeholder(tf.int32, [batch])
    filters = tf.get_variable("filters", [3, features, 16])
    h = tf.nn.relu6(tf.nn.conv1d(x, filters, stride=1, padding="SAME"))
    w = tf.get_variable("w", [16, classes])
    logits = tf.reshape(tf.matmul(tf.reshape(h, [-1, 16]), w), [batch, -1, classes])
    logits = tf.transpose(logits, [1, 0, 2])
    losses = tf.nn.ctc_loss(labels=labels, inputs=logits, sequence_length=size)
    loss = tf.reduce_mean(losses)
    (decoded,), score = tf.nn.ctc_greedy_decoder(logits, size)
    (beam,), beam_score = tf.nn.ctc_beam_search_decoder(logits, size, beam_width=8)
    distance = tf.reduce_mean(tf.edit_distance(tf.cast(decoded, tf.int32), labels))
    read = tf.reduce_sum(tf.sparse_tensor_to_dense(beam, default_value=-1))
    train = [
        v.assign_sub(0.2 * g)
        for v, g in zip([filters, w], tf.tuple(tf.gradients(loss, [filters, w])))
    ]

    indices = [[i, j] for i, text in enumerate(texts) for j in range(len(text))]
    values = [symbol for text in texts for symbol in text]
    feeds = {x: audio, labels: (indices, values, [batch, 5]), size: lengths}
    fetches = [loss, distance, tf.reduce_sum(score), tf.reduce_sum(beam_score), read]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(15):
            yield session.run(fetches, feeds)
            session.run(train, feeds)
