"""A factorization machine over sparse features: sparse placeholders, embedding_lookup_sparse, Ftrl
for the wide part and Adagrad for the factors. Only the graph has a seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(140)
    rng = np.random.RandomState(140)
    ids = tf.sparse_placeholder(tf.int64)
    weights = tf.sparse_placeholder(tf.float32)
    y = tf.placeholder(tf.float32, [None])
    linear = tf.get_variable("linear", [50, 1], initializer=tf.zeros_initializer())
    factors = tf.get_variable("factors", [50, 4], initializer=tf.random_normal_initializer(0, 0.1))
    bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
    first = tf.nn.embedding_lookup_sparse(linear, ids, weights, combiner="sum")
    total = tf.nn.embedding_lookup_sparse(factors, ids, weights, combiner="sum")
    squares = tf.nn.embedding_lookup_sparse(
        tf.square(factors), ids, tf.square(weights), combiner="sum"
    )
    second = 0.5 * tf.reduce_sum(tf.square(total) - squares, 1)
    logits = bias + tf.squeeze(first, 1) + second
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits))
    wide = tf.train.FtrlOptimizer(0.2, l1_regularization_strength=0.01)
    deep = tf.train.AdagradOptimizer(0.2)
    train = tf.group(
        wide.minimize(loss, var_list=[linear, bias]), deep.minimize(loss, var_list=[factors])
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(5):
            rows = np.array([[i, j] for i in range(6) for j in range(3)], "int64")
            shape = np.array([6, 3], "int64")
            features = {
                ids: (rows, rng.randint(0, 50, 18), shape),
                weights: (rows, rng.rand(18), shape),
                y: rng.randint(0, 2, 6),
            }
            value, _ = session.run([loss, train], features)
            yield [value, session.run(tf.reduce_sum(tf.abs(linear)))]
