"""A character model: stacked LSTM cells with dropout, a state that is fed back, sequence losses,
clipped gradients and a learning rate that is assigned. Only the graph has a seed.
"""

import numpy as np

TEXT = "the quick brown fox jumps over the lazy dog and runs away " * 4


def run(tf):
    tf.set_random_seed(11)
    letters = sorted(set(TEXT))
    codes = np.array([letters.index(c) for c in TEXT], "int32")
    batch, steps, size = 4, 8, 12
    x = tf.placeholder(tf.int32, [batch, steps])
    y = tf.placeholder(tf.int32, [batch, steps])

    def cell():
        return tf.contrib.rnn.DropoutWrapper(
            tf.contrib.rnn.BasicLSTMCell(size, forget_bias=0.0, state_is_tuple=True),
            output_keep_prob=0.8,
        )

    cells = tf.contrib.rnn.MultiRNNCell([cell() for _ in range(2)], state_is_tuple=True)
    initial_state = cells.zero_state(batch, tf.float32)
    with tf.variable_scope("rnnlm"):
        softmax_w = tf.get_variable("softmax_w", [size, len(letters)])
        softmax_b = tf.get_variable("softmax_b", [len(letters)])
        embedding = tf.get_variable("embedding", [len(letters), size])
    inputs = tf.split(tf.nn.embedding_lookup(embedding, x), steps, 1)
    inputs = [tf.squeeze(i, [1]) for i in inputs]
    outputs, last_state = tf.contrib.rnn.static_rnn(cells, inputs, initial_state)
    output = tf.reshape(tf.concat(outputs, 1), [-1, size])
    logits = tf.matmul(output, softmax_w) + softmax_b
    loss = tf.contrib.legacy_seq2seq.sequence_loss_by_example(
        [logits], [tf.reshape(y, [-1])], [tf.ones([batch * steps])], len(letters)
    )
    cost = tf.reduce_sum(loss) / batch / steps
    lr = tf.Variable(0.0, trainable=False)
    tvars = tf.trainable_variables()
    grads, norm = tf.clip_by_global_norm(tf.gradients(cost, tvars), 5.0)
    train_op = tf.train.AdamOptimizer(lr).apply_gradients(zip(grads, tvars))

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for epoch in range(2):
            session.run(tf.assign(lr, 0.02 * 0.5**epoch))
            state = session.run(initial_state)
            for i in range(3):
                rows = [
                    codes[r * 40 + i * steps : r * 40 + i * steps + steps + 1] for r in range(4)
                ]
                rows = np.array(rows)
                feeds = {x: rows[:, :-1], y: rows[:, 1:]}
                for place, value in zip(initial_state, state):
                    feeds[place.c], feeds[place.h] = value.c, value.h
                value, length, state, _ = session.run([cost, norm, last_state, train_op], feeds)
                yield [value, length]
