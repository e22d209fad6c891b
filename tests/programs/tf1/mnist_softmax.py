"""The first tutorial of 2015: softmax regression in an InteractiveSession, by run() and eval()."""

import numpy as np


def run(tf):
    rng = np.random.RandomState(0)
    images = rng.rand(60, 36).astype("float32")
    labels = np.eye(10, dtype="float32")[rng.randint(0, 10, 60)]

    session = tf.InteractiveSession()
    x = tf.placeholder("float", shape=[None, 36])
    y_ = tf.placeholder("float", shape=[None, 10])
    W = tf.Variable(tf.zeros([36, 10]))
    b = tf.Variable(tf.zeros([10]))
    session.run(tf.global_variables_initializer())
    y = tf.nn.softmax(tf.matmul(x, W) + b)
    cross_entropy = -tf.reduce_sum(y_ * tf.log(y))
    train_step = tf.train.GradientDescentOptimizer(0.01).minimize(cross_entropy)
    correct_prediction = tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1))
    accuracy = tf.reduce_mean(tf.cast(correct_prediction, "float"))
    for i in range(10):
        batch = images[i * 6 : i * 6 + 6], labels[i * 6 : i * 6 + 6]
        train_step.run(feed_dict={x: batch[0], y_: batch[1]})
        feeds = {x: images, y_: labels}
        yield [accuracy.eval(feeds), cross_entropy.eval(feeds), np.abs(W.eval()).sum()]
    session.close()
