"""A language model in the manner of the PTB tutorial: three models of one set of variables, states
that are fed back, a learning rate that is assigned by hand, all under a Supervisor.
"""

import os
import shutil
import tempfile

import numpy as np

VOCABULARY, HIDDEN, EPOCHS = 12, 6, 3


class Model:
    """A batch of words to the next ones; a training one can be trained."""

    def __init__(self, tf, words, batch, steps, is_training):
        self.batches = (len(words) // batch - 1) // steps
        size = len(words) // batch
        table = tf.reshape(tf.constant(words[: batch * size], tf.int32), [batch, size])
        place = tf.train.range_input_producer(self.batches, shuffle=False).dequeue() * steps
        inputs = tf.strided_slice(table, [0, place], [batch, place + steps])
        targets = tf.strided_slice(table, [0, place + 1], [batch, place + steps + 1])
        inputs.set_shape([batch, steps])
        cells = [tf.nn.rnn_cell.BasicLSTMCell(HIDDEN, forget_bias=0.0) for _ in range(2)]
        cell = tf.nn.rnn_cell.MultiRNNCell(cells)
        self.initial = state = cell.zero_state(batch, tf.float32)
        embedding = tf.get_variable("embedding", [VOCABULARY, HIDDEN])
        embedded = tf.nn.embedding_lookup(embedding, inputs)
        outputs = []
        with tf.variable_scope("RNN"):
            for step in range(steps):
                if step > 0:
                    tf.get_variable_scope().reuse_variables()
                output, state = cell(embedded[:, step, :], state)
                outputs.append(output)
        matrix = tf.get_variable("softmax_w", [HIDDEN, VOCABULARY])
        bias = tf.get_variable("softmax_b", [VOCABULARY])
        logits = tf.matmul(tf.reshape(tf.stack(outputs, 1), [-1, HIDDEN]), matrix) + bias
        labels = tf.reshape(targets, [-1])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        self.cost, self.final = tf.reduce_mean(losses), state
        if is_training:
            self.rate = tf.Variable(0.0, trainable=False)
            self.new_rate = tf.placeholder(tf.float32, [], name="new_rate")
            self.update = tf.assign(self.rate, self.new_rate)
            variables = tf.trainable_variables()
            gradients, _ = tf.clip_by_global_norm(tf.gradients(self.cost, variables), 0.5)
            self.train = tf.train.GradientDescentOptimizer(self.rate).apply_gradients(
                zip(gradients, variables), global_step=tf.train.get_or_create_global_step()
            )

    def perplexity(self, session, operation=()):
        costs, state = 0.0, session.run(self.initial)
        for _ in range(self.batches):
            feeds = {}
            for i, (c, h) in enumerate(self.initial):
                feeds[c], feeds[h] = state[i].c, state[i].h
            fetched = session.run({"c": self.cost, "s": self.final, "o": operation}, feeds)
            costs, state = costs + fetched["c"], fetched["s"]
        return np.exp(costs / self.batches)


def run(tf):
    words = np.cumsum(np.random.RandomState(1).randint(1, 3, 90)) % VOCABULARY
    directory = tempfile.mkdtemp()
    try:
        tf.set_random_seed(3)
        start = tf.random_uniform_initializer(-0.3, 0.3)
        models = []
        for name, data, batch, steps in (
            ("Train", words, 3, 4),
            ("Valid", words[:40], 3, 4),
            ("Test", words[:12], 1, 1),
        ):
            is_training = name == "Train"
            reuse = None if is_training else True
            with tf.name_scope(name), tf.variable_scope("Model", reuse=reuse, initializer=start):
                models.append(Model(tf, data, batch, steps, is_training))
        train, valid, test = models
        supervisor = tf.train.Supervisor(logdir=directory, save_model_secs=0, save_summaries_secs=0)
        with supervisor.managed_session() as session:
            for epoch in range(EPOCHS):
                rate = 2.0 * 0.5 ** max(epoch - 1, 0)
                session.run(train.update, {train.new_rate: rate})
                yield [
                    session.run(train.rate),
                    train.perplexity(session, train.train),
                    valid.perplexity(session),
                ]
            yield [test.perplexity(session)]
            path = os.path.join(directory, "model")
            path = supervisor.saver.save(session, path, global_step=supervisor.global_step)
        yield [int(path.rpartition("-")[2])]
        yield tf.train.load_variable(path, "Model/softmax_b")
    finally:
        shutil.rmtree(directory)
