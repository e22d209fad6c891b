"""An LSTM unrolled by hand over eight steps: one scope, reused; peepholes; masks by length."""

import numpy as np


def cell(tf, x, state, size):
    c, h = state
    with tf.variable_scope("cell", reuse=tf.AUTO_REUSE):
        kernel = tf.get_variable("kernel", [int(x.shape[1]) + size, 4 * size])
        bias = tf.get_variable("bias", [4 * size], initializer=tf.zeros_initializer())
        peephole = tf.get_variable("peephole", [size], initializer=tf.constant_initializer(0.05))
    i, j, f, o = tf.split(
        value=tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), kernel), bias),
        num_or_size_splits=4,
        axis=1,
    )
    c = c * tf.sigmoid(f + 1.0 + peephole * c) + tf.sigmoid(i) * tf.tanh(j)
    return c, tf.tanh(c) * tf.sigmoid(o)


def run(tf):
    tf.set_random_seed(19)
    rng = np.random.RandomState(7)
    batch, steps, size, symbols = 16, 8, 12, 6
    initializer = tf.random_uniform_initializer(-0.3, 0.3, seed=4)
    tokens = tf.placeholder(tf.int32, [batch, steps + 1])
    lengths = tf.placeholder(tf.int32, [batch])

    with tf.variable_scope("model", initializer=initializer):
        embedding = tf.get_variable("embedding", [symbols, 5])
        inputs = tf.unstack(tf.nn.embedding_lookup(embedding, tokens[:, :-1]), axis=1)
        state = (tf.zeros([batch, size]), tf.zeros([batch, size]))
        outputs = []
        for t, x in enumerate(inputs):
            new = cell(tf, x, state, size)
            alive = tf.less(t, lengths)
            state = tuple(tf.where(alive, a, b) for a, b in zip(new, state))
            outputs.append(new[1])
        hidden = tf.reshape(tf.stack(outputs, axis=1), [-1, size])
        logits = tf.matmul(hidden, tf.get_variable("softmax", [size, symbols]))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(tokens[:, 1:], [-1]), logits=logits
    )
    mask = tf.sequence_mask(lengths, steps, dtype=tf.float32)
    loss = tf.reduce_sum(tf.reshape(losses, [batch, steps]) * mask) / tf.reduce_sum(mask)

    variables = tf.trainable_variables()
    assert [v.op.name for v in variables[1:4]] == [
        "model/cell/kernel",
        "model/cell/bias",
        "model/cell/peephole",
    ]
    gradients, norm = tf.clip_by_global_norm(tf.gradients(loss, variables), 0.5)
    train = [v.assign_sub(1.0 * tf.convert_to_tensor(g)) for v, g in zip(variables, gradients)]

    total = tf.reduce_sum(state[0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(12):
            starts = rng.randint(symbols, size=(batch, 1))
            data = (starts + np.arange(steps + 1) * 2) % symbols
            feeds = {tokens: data, lengths: rng.randint(3, steps + 1, size=batch)}
            values = session.run([loss, norm, total, train], feeds)
            yield values[:3]
