"""Loops, recurrent networks and queues as TensorFlow 1 programs. Valid Python 3.7.

`CASES`: name -> function of (tf, np) that builds the case in a graph of its own and returns a
function to time. A call does many iterations, or moves many items, and returns a number that all
frameworks must agree on.
"""

import threading

ITERATIONS = 100000
STEPS, ROWS, SIZE = 50, 32, 256
ITEMS, MANY_ITEMS, BATCH, CAPACITY = 2000, 40000, 100, 50
RATE = 0.1


def counting(tf, np):
    """The smallest loop: what an iteration costs beside its work."""
    with tf.Graph().as_default():
        n = tf.placeholder(tf.int32, [])
        counted = tf.while_loop(lambda i: i < n, lambda i: i + 1, [tf.constant(0)])
        session = tf.Session()
    return lambda: float(session.run(counted, {n: ITERATIONS}))


# -- Recurrent networks ---------------------------------------------------------------------------


def looped(tf, inputs):
    """An LSTM over time, written with tf.while_loop; its outputs by time."""
    kernel = tf.get_variable("kernel", [2 * SIZE, 4 * SIZE])
    bias = tf.get_variable("bias", [4 * SIZE], initializer=tf.zeros_initializer())
    wide = [ROWS, SIZE]
    read = tf.TensorArray(tf.float32, STEPS, element_shape=wide).unstack(inputs)
    written = tf.TensorArray(tf.float32, STEPS, element_shape=wide)

    def step(time, c, h, outputs):
        gates = tf.nn.bias_add(tf.matmul(tf.concat([read.read(time), h], 1), kernel), bias)
        take, candidate, keep, give = tf.split(gates, 4, axis=1)
        c = c * tf.sigmoid(keep + 1.0) + tf.sigmoid(take) * tf.tanh(candidate)
        h = tf.tanh(c) * tf.sigmoid(give)
        return time + 1, c, h, outputs.write(time, h)

    start = [tf.constant(0), tf.zeros(wide), tf.zeros(wide), written]
    return tf.while_loop(lambda time, *_: time < STEPS, step, start)[-1].stack()


def library(tf, inputs):
    """The same by tf.nn.dynamic_rnn; by `looped` where the library has no cells any more."""
    try:
        cell = tf.nn.rnn_cell.BasicLSTMCell(SIZE)
    except AttributeError:  # TensorFlow 2 with Keras 3
        return looped(tf, inputs)
    return tf.nn.dynamic_rnn(cell, inputs, dtype=tf.float32, time_major=True)[0]


def recurrent(unroll, train):
    """A case that runs an LSTM forward, or takes a training step with it."""

    def build(tf, np):
        random = np.random.RandomState(4)
        fed, wanted = random.uniform(-1, 1, [2, STEPS, ROWS, SIZE]).astype("float32")
        weights = random.uniform(-0.08, 0.08, [2 * SIZE, 4 * SIZE]).astype("float32")
        with tf.Graph().as_default():
            inputs = tf.placeholder(tf.float32, fed.shape)
            loss = tf.reduce_mean(tf.square(unroll(tf, inputs) - wanted))
            kernel, bias = tf.trainable_variables()
            fetches = [loss]
            if train:
                slopes = tf.gradients(loss, [kernel, bias])
                fetches += [tf.assign_sub(v, RATE * g).op for v, g in zip((kernel, bias), slopes)]
            session = tf.Session()
            session.run(tf.global_variables_initializer())
        kernel.load(weights, session)
        return lambda: float(session.run(fetches, {inputs: fed})[0])

    return build


# -- Queues ---------------------------------------------------------------------------------------


def queue(producers, batch=None):
    """A case with threads that enqueue and one, the caller, that dequeues: `batch` items in a run,
    or a single one if it is None. The queue is small, so that both sides wait.
    """
    element = [] if batch is None else [batch]
    items = ITEMS if batch is None else MANY_ITEMS

    def build(tf, np):
        with tf.Graph().as_default():
            fifo = tf.FIFOQueue(CAPACITY * (batch or 1), [tf.float32], [[]])
            value = tf.placeholder(tf.float32, element)
            put = fifo.enqueue(value) if batch is None else fifo.enqueue_many(value)
            get = fifo.dequeue() if batch is None else fifo.dequeue_many(batch)
            session = tf.Session()
        shares = np.arange(items, dtype="float32").reshape([producers, -1] + element)
        runs = items // (batch or 1)

        def produce(share):
            for item in share:
                session.run(put, {value: item})

        def call():
            threads = [threading.Thread(target=produce, args=(share,)) for share in shares]
            for thread in threads:
                thread.start()
            total = sum(float(np.sum(session.run(get))) for _ in range(runs))
            for thread in threads:
                thread.join()
            return total

        return call

    return build


CASES = {
    "loop": counting,
    "lstm": recurrent(looped, train=False),
    "lstm-train": recurrent(looped, train=True),
    "rnn": recurrent(library, train=False),
    "rnn-train": recurrent(library, train=True),
    "queue-1": queue(producers=1),
    "queue-8": queue(producers=8),
    "queue-many-1": queue(producers=1, batch=BATCH),
    "queue-many-8": queue(producers=8, batch=BATCH),
}
