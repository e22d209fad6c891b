"""word2vec_basic.py: embeddings, noise-contrastive estimation, the nearest words by cosine. Only
the graph has a seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(7)
    rng = np.random.RandomState(3)
    vocabulary_size, embedding_size, num_sampled = 30, 8, 5
    graph = tf.get_default_graph()
    with graph.as_default(), tf.device("/cpu:0"):
        train_inputs = tf.placeholder(tf.int32, shape=[16])
        train_labels = tf.placeholder(tf.int32, shape=[16, 1])
        valid_dataset = tf.constant([1, 4, 9], dtype=tf.int32)
        embeddings = tf.Variable(tf.random_uniform([vocabulary_size, embedding_size], -1.0, 1.0))
        embed = tf.nn.embedding_lookup(embeddings, train_inputs)
        nce_weights = tf.Variable(
            tf.truncated_normal([vocabulary_size, embedding_size], stddev=1.0 / np.sqrt(8.0))
        )
        nce_biases = tf.Variable(tf.zeros([vocabulary_size]))
        loss = tf.reduce_mean(
            tf.nn.nce_loss(
                weights=nce_weights,
                biases=nce_biases,
                labels=train_labels,
                inputs=embed,
                num_sampled=num_sampled,
                num_classes=vocabulary_size,
            )
        )
        optimizer = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
        norm = tf.sqrt(tf.reduce_sum(tf.square(embeddings), 1, keep_dims=True))
        normalized = embeddings / norm
        valid = tf.nn.embedding_lookup(normalized, valid_dataset)
        similarity = tf.matmul(valid, normalized, transpose_b=True)
        init = tf.global_variables_initializer()
    with tf.Session(graph=graph) as session:
        init.run()
        for _ in range(6):
            feeds = {
                train_inputs: rng.randint(0, 30, 16),
                train_labels: rng.randint(0, 30, (16, 1)),
            }
            _, value = session.run([optimizer, loss], feed_dict=feeds)
            yield [value, similarity.eval().sum()]
