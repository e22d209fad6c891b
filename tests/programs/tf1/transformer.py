"""A causal transformer block: einsum and tensordot attention, layer norm by moments, GELU."""

import numpy as np


def layer_norm(tf, x, name):
    with tf.variable_scope(name):
        scale = tf.get_variable("scale", [x.shape[-1]], initializer=tf.ones_initializer())
        shift = tf.get_variable("shift", [x.shape[-1]], initializer=tf.zeros_initializer())
        mean, variance = tf.nn.moments(x, axes=[-1], keep_dims=True)
        return tf.nn.batch_normalization(x, mean, variance, shift, scale, 1e-5)


def attention(tf, x, heads):
    depth = x.shape[-1].value
    with tf.variable_scope("attention"):
        w = tf.get_variable("qkv", [3, depth, heads, depth // heads])
        q, k, v = (tf.einsum("btd,dhe->bhte", x, w[i]) for i in range(3))
        scores = tf.einsum("bhqe,bhke->bhqk", q, k) / np.sqrt(depth // heads).astype("float32")
        length = tf.shape(x)[1]
        causal = tf.matrix_band_part(tf.ones([length, length]), -1, 0)
        weights = tf.nn.softmax(scores * causal - 1e9 * (1 - causal))
        mixed = tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3])
        out = tf.get_variable("out", [heads, depth // heads, depth])
        return tf.tensordot(mixed, out, axes=[[2, 3], [0, 1]])


def feed_forward(tf, x):
    with tf.variable_scope("feed_forward"):
        depth = x.shape[-1].value
        h = tf.tensordot(x, tf.get_variable("w1", [depth, 4 * depth]), axes=1)
        h = 0.5 * h * (1.0 + tf.erf(h / np.sqrt(2.0).astype(np.float32)))
        return tf.tensordot(h, tf.get_variable("w2", [4 * depth, depth]), axes=[[2], [0]])


def run(tf):
    tf.set_random_seed(23)
    rng = np.random.RandomState(8)
    symbols, depth, length = 10, 16, 12
    tokens = tf.placeholder(tf.int64, [None, length + 1])
    with tf.variable_scope("gpt", initializer=tf.random_normal_initializer(stddev=0.2)):
        table = tf.get_variable("table", [symbols, depth])
        positions = tf.get_variable("positions", [length, depth])
        x = tf.gather(table, tokens[:, :-1]) * tf.sqrt(float(depth)) + positions[tf.newaxis]
        for i in range(2):
            with tf.variable_scope(f"block_{i}"):
                x += attention(tf, layer_norm(tf, x, "norm1"), heads=4)
                x += feed_forward(tf, layer_norm(tf, x, "norm2"))
        logits = tf.einsum("btd,sd->bts", layer_norm(tf, x, "norm"), table)
    targets = tf.one_hot(tokens[:, 1:], symbols, on_value=0.91, off_value=0.01)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=targets, logits=logits))
    hits = tf.equal(tf.argmax(logits, axis=-1), tokens[:, 1:])
    accuracy = tf.count_nonzero(hits[:, length // 2 :], dtype=tf.int32)

    variables = tf.global_variables()
    gradients = tf.tuple(tf.gradients(loss, variables, colocate_gradients_with_ops=True))
    train = tf.group(
        [v.assign_sub(0.05 * tf.convert_to_tensor(g)) for v, g in zip(variables, gradients)]
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(12):
            half = rng.randint(symbols, size=(8, length // 2 + 1))
            data = np.concatenate([half, half], axis=1)[:, : length + 1]
            yield session.run([loss, accuracy, train], {tokens: data})[:2]
