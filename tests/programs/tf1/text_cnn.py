"""Convolutions over sentences: word embeddings, filters of several widths, max over time, dropout,
l2 losses, summaries merged. Only the graph has a seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(10)
    rng = np.random.RandomState(10)
    length, vocabulary, size, filters = 12, 40, 6, 4
    input_x = tf.placeholder(tf.int32, [None, length], name="input_x")
    input_y = tf.placeholder(tf.float32, [None, 2], name="input_y")
    keep = tf.placeholder(tf.float32, name="dropout_keep_prob")
    l2_loss = tf.constant(0.0)
    with tf.device("/cpu:0"), tf.name_scope("embedding"):
        W = tf.Variable(tf.random_uniform([vocabulary, size], -1.0, 1.0), name="W")
        embedded = tf.expand_dims(tf.nn.embedding_lookup(W, input_x), -1)
    pooled = []
    for width in (2, 3, 4):
        with tf.name_scope(f"conv-maxpool-{width}"):
            W = tf.Variable(tf.truncated_normal([width, size, 1, filters], stddev=0.1), name="W")
            b = tf.Variable(tf.constant(0.1, shape=[filters]), name="b")
            conv = tf.nn.conv2d(embedded, W, strides=[1, 1, 1, 1], padding="VALID", name="conv")
            h = tf.nn.relu(tf.nn.bias_add(conv, b), name="relu")
            window = [1, length - width + 1, 1, 1]
            pooled.append(
                tf.nn.max_pool(h, ksize=window, strides=[1, 1, 1, 1], padding="VALID", name="pool")
            )
    flat = tf.reshape(tf.concat(pooled, 3), [-1, 3 * filters])
    with tf.name_scope("dropout"):
        dropped = tf.nn.dropout(flat, keep)
    with tf.name_scope("output"):
        W = tf.get_variable(
            "W", shape=[3 * filters, 2], initializer=tf.contrib.layers.xavier_initializer()
        )
        b = tf.Variable(tf.constant(0.1, shape=[2]), name="b")
        l2_loss += tf.nn.l2_loss(W)
        l2_loss += tf.nn.l2_loss(b)
        scores = tf.nn.xw_plus_b(dropped, W, b, name="scores")
    losses = tf.nn.softmax_cross_entropy_with_logits(logits=scores, labels=input_y)
    loss = tf.reduce_mean(losses) + 0.1 * l2_loss
    global_step = tf.Variable(0, name="global_step", trainable=False)
    optimizer = tf.train.AdamOptimizer(1e-2)
    grads_and_vars = optimizer.compute_gradients(loss)
    train_op = optimizer.apply_gradients(grads_and_vars, global_step=global_step)
    for g, v in grads_and_vars:
        if g is not None:
            tf.summary.scalar(v.op.name + "/sparsity", tf.nn.zero_fraction(g))
    tf.summary.scalar("loss", loss)
    merged = tf.summary.merge_all()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(5):
            feeds = {
                input_x: rng.randint(0, vocabulary, (8, length)),
                input_y: np.eye(2)[rng.randint(0, 2, 8)],
                keep: 0.5,
            }
            _, step, value, text = session.run([train_op, global_step, loss, merged], feeds)
            parsed = tf.Summary.FromString(text)
            yield [step, value] + [v.simple_value for v in parsed.value]
