"""A generative adversarial network: two scopes, a shared discriminator, Adam for each player."""

import numpy as np


def mlp(tf, x, sizes, activation):
    for i, size in enumerate(sizes):
        w = tf.get_variable(f"w{i}", [x.get_shape()[1], size])
        b = tf.get_variable(f"b{i}", shape=[size], initializer=tf.zeros_initializer)
        x = tf.matmul(x, w) + b
        if i < len(sizes) - 1:
            x = activation(x)
    return x


def adam(tf, loss, scope, rate=0.01):
    variables = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope=scope)
    gradients = tf.tuple(tf.gradients(loss, variables), control_inputs=[loss.op])
    with tf.variable_scope("adam_" + scope):
        power1 = tf.Variable(0.5, trainable=False, name="power1")
        power2 = tf.Variable(0.9, trainable=False, name="power2")
        updates = []
        for v, g in zip(variables, gradients):
            m = tf.Variable(np.zeros(v.shape.as_list(), "float32"), trainable=False)
            s = tf.Variable(np.zeros(v.shape.as_list(), "float32"), trainable=False)
            m1 = m.assign(0.5 * m + 0.5 * g)
            s1 = s.assign(0.9 * s + 0.1 * g**2)
            move = rate * (m1 / (1 - power1)) / (tf.sqrt(s1 / (1 - power2)) + 1e-4)
            updates.append(v.assign_sub(move))
        with tf.control_dependencies(updates):
            return tf.group(power1.assign(power1 * 0.5), power2.assign(power2 * 0.9))


def run(tf):
    tf.set_random_seed(21)
    rng = np.random.RandomState(5)
    real = tf.placeholder(tf.float32, [None, 2], name="real")
    noise = tf.random_uniform([tf.shape(real)[0], 4], -1.0, 1.0, seed=9)
    with tf.variable_scope("generator"):
        fake = mlp(tf, noise, [16, 2], tf.tanh)
    with tf.variable_scope("discriminator") as scope:
        real_logits = mlp(tf, real, [16, 16, 1], tf.nn.softplus)
        scope.reuse_variables()
        fake_logits = mlp(tf, fake, [16, 16, 1], tf.nn.softplus)

    def entropy(logits, label):
        labels = tf.fill(tf.shape(logits), label)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=labels))

    d_loss = entropy(real_logits, 0.9) + entropy(fake_logits, 0.0)
    g_loss = entropy(fake_logits, 1.0)
    d_train = adam(tf, d_loss, "discriminator")
    g_train = adam(tf, g_loss, "generator")
    middle = tf.reduce_mean(fake)
    assert len(tf.trainable_variables("generator")) == 4

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(15):
            angles = rng.rand(64) * 2 * np.pi
            circle = np.stack([np.cos(angles), np.sin(angles)], 1)
            _, d = session.run([d_train, d_loss], feed_dict={real: circle})
            _, g = session.run([g_train, g_loss], feed_dict={real: circle})
            yield [d, g, session.run(middle, {real: circle})]
