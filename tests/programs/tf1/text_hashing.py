"""Text to embeddings in the graph: clean, split, hash, average; Adagrad by hand."""

import numpy as np

GOOD = ["Good water!", "the MILL is good", "what a fine, fine wheel", "we like the fine race"]
BAD = ["bad water", "the mill is broken", "what a dry gate...", "we leave the DRY race", "bad"]


def run(tf):
    tf.set_random_seed(41)
    texts = tf.placeholder(tf.string, [None])
    labels = tf.placeholder(tf.float32, [None])
    clean = tf.regex_replace(tf.strings.lower(texts), "[^a-z ]", "")
    words = tf.string_split(clean, delimiter=" ")
    buckets = tf.SparseTensor(
        words.indices, tf.string_to_hash_bucket_fast(words.values, 32), words.dense_shape
    )
    table = tf.get_variable("table", [32, 6], initializer=tf.random_normal_initializer(stddev=0.5))
    pooled = tf.nn.embedding_lookup_sparse(table, buckets, None, combiner="mean")

    letters = tf.string_to_hash_bucket_strong(tf.substr(clean, 0, 3), 16, key=[5, 6])
    first = tf.nn.embedding_lookup(tf.get_variable("letters", [16, 6]), letters)
    lengths = tf.to_float(tf.strings.length(clean))[:, tf.newaxis]
    dense = tf.concat([pooled, first, tf.log1p(lengths)], axis=1)
    w = tf.get_variable("w", [13, 1])
    logits = tf.squeeze(tf.matmul(dense, w), 1)
    loss = tf.reduce_mean(tf.nn.weighted_cross_entropy_with_logits(labels, logits, 1.5))

    variables = tf.trainable_variables()
    train = []
    for v, g in zip(variables, tf.tuple(tf.gradients(loss, variables))):
        total = tf.Variable(tf.fill(v.shape, 0.1), trainable=False)
        if isinstance(g, tf.IndexedSlices):
            rows, places = tf.unique(g.indices)
            sums = tf.unsorted_segment_sum(g.values, places, tf.size(rows))
            seen = tf.scatter_add(total, rows, sums * sums)
            change = 0.3 * sums * tf.rsqrt(tf.gather(seen, rows))
            train.append(tf.scatter_sub(v, rows, change))
        else:
            train.append(v.assign_sub(0.3 * g * tf.rsqrt(total.assign_add(g * g))))
    joined = tf.string_join([tf.as_string(labels, precision=1), clean], separator=":")
    checksum = tf.reduce_sum(tf.string_to_hash_bucket(joined, 1000))
    unique = tf.size(tf.unique(words.values)[0])

    data = np.array(GOOD + BAD, dtype=object)
    targets = np.array([1] * len(GOOD) + [0] * len(BAD), "float32")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(15):
            rows = np.arange(step, step + 6) % len(data)
            feeds = {texts: data[rows], labels: targets[rows]}
            yield session.run([loss, checksum, unique, train], feeds)[:3]
