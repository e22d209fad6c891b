"""Whole small training programs: they learn, repeat themselves with one seed, share state."""

import numpy as np

import headrace as tf


def train(seed, steps=150):
    """A two-layer perceptron that learns exclusive or; returns losses and the final predictions."""
    points = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    targets = np.array([[0], [1], [1], [0]], np.float32)
    with tf.Graph().as_default():
        tf.set_random_seed(seed)
        x, y = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.float32, [None, 1])
        hidden = x
        for i, (n, m) in enumerate([(2, 16), (16, 1)]):
            with tf.variable_scope(f"layer{i}"):
                w = tf.get_variable("w", [n, m], initializer=tf.random_normal_initializer())
                b = tf.get_variable("b", [m], initializer=tf.zeros_initializer())
            hidden = tf.matmul(hidden if i == 0 else tf.tanh(hidden), w) + b
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=hidden))
        variables = tf.trainable_variables()
        gradients = tf.gradients(loss, variables)
        step = tf.group(
            *[tf.assign_sub(v, 0.5 * g) for v, g in zip(variables, gradients, strict=True)]
        )
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            feeds = {x: points, y: targets}
            losses = [session.run([loss, step], feeds)[0] for _ in range(steps)]
            return losses, session.run(tf.sigmoid(hidden), feeds).ravel()


def test_exclusive_or_is_learned():
    losses, predictions = train(seed=3)
    assert losses[-1] < 0.1 < losses[0]
    assert (predictions.round() == [0, 1, 1, 0]).all()


def test_one_seed_gives_one_run():
    first, second, other = train(seed=3, steps=5), train(seed=3, steps=5), train(seed=4, steps=5)
    assert first[0] == second[0]
    assert first[0] != other[0]


def test_embeddings_touch_only_their_rows():
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.Variable(tf.ones([6, 3]))
        ids = tf.placeholder(tf.int32, [None])
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids)))
        (rows,) = tf.gradients(loss, table)
        assert isinstance(rows, tf.IndexedSlices)
        step = tf.scatter_sub(table, rows.indices, 0.25 * rows.values)
        session.run(table.initializer)
        session.run(step, {ids: [1, 4, 1]})
        np.testing.assert_allclose(session.run(table)[:, 0], [1, 0, 1, 1, 0.5, 1])
