"""Skip-gram word vectors: embedding lookups, sparse (IndexedSlices) updates, sampled negatives."""

import numpy as np

TEXT = (
    "the wheel turns when the water comes down the race and the water comes when the gate is up "
    "the miller lifts the gate and the stone turns with the wheel and the grain is ground to flour"
)


def apply(tf, variable, gradient, rate):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.scatter_sub(variable, gradient.indices, rate * gradient.values)
    return tf.assign_sub(variable, rate * gradient)


def run(tf):
    tf.set_random_seed(13)
    words = TEXT.split()
    vocabulary = sorted(set(words))
    ids = [vocabulary.index(word) for word in words]
    pairs = np.array(
        [(ids[i], ids[j]) for i in range(len(ids)) for j in (i - 1, i + 1) if 0 <= j < len(ids)]
    )
    size, width = len(vocabulary), 8

    centers = tf.placeholder(tf.int32, [None])
    contexts = tf.placeholder(tf.int32, [None])
    embeddings = tf.Variable(tf.random_uniform([size, width], -0.5, 0.5))
    output = tf.Variable(tf.truncated_normal([size, width], stddev=width**-0.5))
    bias = tf.Variable(tf.zeros([size]))

    vectors = tf.nn.embedding_lookup(embeddings, centers)
    logits = tf.matmul(vectors, output, transpose_b=True) + bias
    softmax = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=contexts, logits=logits)
    )
    negatives = tf.random_uniform([5], maxval=size, dtype=tf.int32)
    true = tf.reduce_sum(vectors * tf.gather(output, contexts), axis=1)
    false = tf.matmul(vectors, tf.nn.embedding_lookup(output, negatives), transpose_b=True)
    sampled = tf.reduce_mean(tf.nn.softplus(-true)) + tf.reduce_mean(tf.nn.softplus(false))

    steps = []
    for loss in (softmax, sampled):
        gradients = tf.gradients(loss, [embeddings, output, bias])
        gradients = tf.tuple(gradients, control_inputs=[loss])
        steps.append(
            [
                apply(tf, v, g, 0.5)
                for v, g in zip([embeddings, output, bias], gradients)
                if g is not None
            ]
        )
    normal = tf.nn.l2_normalize(embeddings, axis=1)
    similar = tf.nn.top_k(tf.matmul(normal, normal, transpose_b=True), k=2).values[:, 1]

    session = tf.Session()
    session.run(tf.global_variables_initializer())
    for step in range(20):
        batch = pairs[np.arange(step * 16, step * 16 + 16) % len(pairs)]
        loss = (softmax, sampled)[step % 2]
        feeds = {centers: batch[:, 0], contexts: batch[:, 1]}
        yield session.run([loss, steps[step % 2]], feeds)[:1] + list(session.run(similar)[:3])
    session.close()
