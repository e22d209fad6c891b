"""A denoising autoencoder whose decoder uses the encoder's weights transposed; RMSProp by hand."""

import numpy as np


def run(tf):
    tf.set_random_seed(11)
    rng = np.random.RandomState(3)
    basis = rng.randn(4, 16)
    data = (1 / (1 + np.exp(-rng.randn(128, 4).dot(basis)))).astype("float32")

    x = tf.placeholder(tf.float32, [None, 16])
    w1 = tf.Variable(tf.random_uniform([16, 12], -0.4, 0.4), name="w1")
    w2 = tf.Variable(tf.truncated_normal([12, 6], stddev=0.4), name="w2")
    biases = [tf.Variable(tf.zeros([n])) for n in (12, 6, 12, 16)]
    noisy = x + tf.random_normal(tf.shape(x), stddev=0.1)
    code = tf.nn.softplus(tf.matmul(noisy, w1) + biases[0])
    code = tf.nn.leaky_relu(tf.matmul(code, w2) + biases[1], alpha=0.1)
    output = tf.tanh(tf.matmul(code, w2, transpose_b=True) + biases[2])
    output = tf.sigmoid(tf.matmul(output, w1, transpose_b=True) + biases[3])
    loss = tf.reduce_mean(tf.squared_difference(output, x))
    sparsity = tf.reduce_mean(tf.abs(code))
    variables = [w1, w2] + biases
    train = []
    gradients = tf.tuple(tf.gradients(loss + 0.001 * sparsity, variables))
    for v, g in zip(variables, gradients):
        scale = tf.Variable(tf.ones_like(v.initialized_value()), trainable=False)
        new = tf.assign(scale, 0.9 * scale + 0.1 * g * g)
        train.append(v.assign_sub(0.02 * g * tf.rsqrt(new + 1e-6)).op)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(20):
            batch = data[step * 32 % 128 :][:32]
            yield session.run([loss, sparsity] + train, {x: batch})[:2]
