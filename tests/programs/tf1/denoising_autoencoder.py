"""A class with a session inside, as in the examples of 2016: corrupted inputs, tied weights,
Xavier's initialization by hand, partial_fit. Only the graph has a seed.
"""

import numpy as np


def xavier_init(tf, fan_in, fan_out, constant=1):
    low = -constant * np.sqrt(6.0 / (fan_in + fan_out))
    high = constant * np.sqrt(6.0 / (fan_in + fan_out))
    return tf.random_uniform((fan_in, fan_out), minval=low, maxval=high, dtype=tf.float32)


class AdditiveGaussianNoiseAutoencoder:
    def __init__(self, tf, n_input, n_hidden, transfer_function, optimizer, scale=0.1):
        self.tf = tf
        self.n_input, self.n_hidden = n_input, n_hidden
        self.scale = tf.placeholder(tf.float32)
        self.training_scale = scale
        self.weights = self._initialize_weights()
        self.x = tf.placeholder(tf.float32, [None, n_input])
        noisy = self.x + self.scale * tf.random_normal((n_input,))
        self.hidden = transfer_function(
            tf.add(tf.matmul(noisy, self.weights["w1"]), self.weights["b1"])
        )
        self.reconstruction = tf.add(tf.matmul(self.hidden, self.weights["w2"]), self.weights["b2"])
        self.cost = 0.5 * tf.reduce_sum(tf.pow(tf.subtract(self.reconstruction, self.x), 2.0))
        self.optimizer = optimizer.minimize(self.cost)
        self.sess = tf.Session()
        self.sess.run(tf.global_variables_initializer())

    def _initialize_weights(self):
        tf = self.tf
        return {
            "w1": tf.Variable(xavier_init(tf, self.n_input, self.n_hidden)),
            "b1": tf.Variable(tf.zeros([self.n_hidden], dtype=tf.float32)),
            "w2": tf.Variable(tf.zeros([self.n_hidden, self.n_input], dtype=tf.float32)),
            "b2": tf.Variable(tf.zeros([self.n_input], dtype=tf.float32)),
        }

    def partial_fit(self, X):
        feeds = {self.x: X, self.scale: self.training_scale}
        return self.sess.run((self.cost, self.optimizer), feed_dict=feeds)[0]

    def generate(self, hidden):
        return self.sess.run(self.reconstruction, feed_dict={self.hidden: hidden})


def run(tf):
    tf.set_random_seed(60)
    rng = np.random.RandomState(60)
    model = AdditiveGaussianNoiseAutoencoder(
        tf, 10, 6, tf.nn.softplus, tf.train.AdamOptimizer(learning_rate=0.01), scale=0.05
    )
    for _ in range(6):
        cost = model.partial_fit(rng.rand(12, 10))
        yield [cost, model.generate(np.ones((1, 6))).sum()]
    model.sess.close()
