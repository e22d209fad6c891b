"""An input pipeline of queues: slices of arrays in a shuffled order, a queue runner, batches, and
training until the input ends. Only the graph has a seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(90)
    rng = np.random.RandomState(90)
    data = rng.randn(20, 3).astype("float32")
    answers = data.dot([1.0, -2.0, 0.5]).astype("float32")
    row, answer = tf.train.slice_input_producer([data, answers], num_epochs=2, shuffle=True)
    x, y = tf.train.batch([row, answer], batch_size=5, num_threads=1, capacity=20)
    w = tf.Variable(tf.random_normal([3, 1]))
    loss = tf.reduce_mean(tf.square(tf.squeeze(tf.matmul(x, w), 1) - y))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    init = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
    with tf.Session() as session:
        session.run(init)
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=session, coord=coord)
        try:
            while not coord.should_stop():
                value, _, first = session.run([loss, train, y])
                yield [value, first.sum()]
        except tf.errors.OutOfRangeError:
            yield [-1.0, session.run(w).sum()]
        finally:
            coord.request_stop()
        coord.join(threads)
