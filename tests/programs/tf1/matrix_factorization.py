"""Recommendation by matrix factorisation of a SparseTensor of ratings."""

import numpy as np


def run(tf):
    tf.set_random_seed(17)
    rng = np.random.RandomState(6)
    users, items, rank = 12, 9, 3
    truth = rng.randn(users, rank).dot(rng.randn(rank, items))
    seen = np.argwhere(rng.rand(users, items) < 0.6)
    ratings = tf.SparseTensor(
        indices=seen.astype("int64"),
        values=truth[seen[:, 0], seen[:, 1]].astype("float32"),
        dense_shape=[users, items],
    )

    count = tf.sparse_reduce_sum(
        tf.SparseTensor(ratings.indices, tf.ones_like(ratings.values), ratings.dense_shape), axis=1
    )
    mean = tf.sparse_reduce_sum(ratings, axis=1) / tf.maximum(count, 1.0)
    left = tf.get_variable("left", [users, rank], initializer=tf.orthogonal_initializer(0.5))
    right = tf.get_variable(
        "right", [items, rank], initializer=tf.random_normal_initializer(0, 0.3)
    )
    bias = tf.get_variable("bias", [items], initializer=tf.zeros_initializer())

    rows, columns = tf.unstack(ratings.indices, axis=1)
    predicted = tf.reduce_sum(tf.gather(left, rows) * tf.gather(right, columns), axis=1)
    predicted += tf.gather(mean, rows) + tf.gather(bias, columns)
    errors = tf.SparseTensor(ratings.indices, predicted - ratings.values, ratings.dense_shape)
    loss = 0.5 * tf.reduce_sum(tf.square(errors.values)) + 0.05 * (
        tf.nn.l2_loss(left) + tf.nn.l2_loss(right)
    )
    # The factors' gradients by hand, through products of sparse and dense matrices.
    d_left = tf.sparse_tensor_dense_matmul(errors, right) + 0.05 * left
    d_right = tf.sparse_tensor_dense_matmul(errors, left, adjoint_a=True) + 0.05 * right
    automatic = tf.convert_to_tensor(tf.gradients(loss, left)[0])
    difference = tf.reduce_max(tf.abs(automatic - d_left)) < 1e-4
    (d_bias,) = tf.gradients(loss, bias)
    dense = tf.sparse_tensor_to_dense(tf.sparse_reorder(errors))
    size = tf.norm(dense)
    top = tf.reduce_max(tf.sparse.maximum(errors, errors).values)

    with tf.control_dependencies([d_left, d_right, d_bias, loss, difference, size, top]):
        train = tf.group(
            left.assign_sub(0.05 * d_left),
            right.assign_sub(0.05 * d_right),
            tf.scatter_sub(bias, d_bias.indices, 0.05 * d_bias.values),
        )

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(20):
            yield session.run([loss, difference, size, top, train])[:4]
