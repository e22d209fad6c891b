"""Networks whose graphs are seeded once: what is drawn depends on how many operations were made
before, by gradients and optimizers too. Random numbers are drawn before, between and after them.
"""

import numpy as np


def mlp(tf):
    x, y = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.int64, [None])
    h = tf.layers.dense(x, 8, tf.nn.relu, kernel_initializer=tf.random_normal_initializer())
    h = tf.layers.dropout(h, 0.3, training=True)
    w, b = tf.Variable(tf.truncated_normal([8, 3])), tf.Variable(tf.zeros([3]))
    logits = tf.matmul(h, w) + b
    loss = tf.losses.sparse_softmax_cross_entropy(y, logits) + 0.01 * tf.nn.l2_loss(w)
    train = tf.train.AdamOptimizer(0.01).minimize(loss)
    noise = tf.random_normal([3])
    rng = np.random.RandomState(0)
    feeds = {x: rng.rand(10, 6), y: rng.randint(0, 3, 10)}
    return loss, [train], [noise], feeds


def cnn(tf):
    x = tf.placeholder(tf.float32, [4, 8, 8, 1])
    h = tf.layers.conv2d(x, 4, 3, activation=tf.nn.relu, padding="same")
    h = tf.layers.batch_normalization(h, training=True)
    h = tf.layers.max_pooling2d(h, 2, 2)
    h = tf.layers.flatten(h)
    logits = tf.layers.dense(tf.nn.dropout(h, keep_prob=0.8), 2)
    loss = tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits_v2(
            labels=tf.one_hot([0, 1, 1, 0], 2), logits=logits
        )
    )
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
    between = tf.random_uniform([2])
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 10, 0.9)
    optimizer = tf.train.MomentumOptimizer(rate, 0.9)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = optimizer.apply_gradients(zip(gradients, variables), global_step=step)
    tf.summary.scalar("loss", loss)
    tf.summary.histogram("logits", logits)
    tf.train.Saver()
    after = tf.random_shuffle(tf.range(6))
    feeds = {x: np.random.RandomState(1).rand(4, 8, 8, 1)}
    return loss, [train], [between, tf.cast(after, tf.float32)], feeds


def lstm(tf):
    x, lengths = tf.placeholder(tf.float32, [None, 5, 3]), tf.placeholder(tf.int32, [None])
    cell = tf.nn.rnn_cell.LSTMCell(4, initializer=tf.orthogonal_initializer())
    cell = tf.nn.rnn_cell.DropoutWrapper(cell, output_keep_prob=0.9)
    outputs, _ = tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float32)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(outputs[:, -1], 1)))
    train = tf.train.RMSPropOptimizer(0.01).minimize(loss)
    after = tf.Variable(tf.random_uniform([2, 2], -1.0, 1.0))
    feeds = {x: np.random.RandomState(2).rand(2, 5, 3), lengths: [5, 3]}
    return loss, [train], [after], feeds


def gan(tf):
    x = tf.placeholder(tf.float32, [None, 4])

    def generator(z):
        with tf.variable_scope("generator"):
            return tf.layers.dense(tf.layers.dense(z, 6, tf.nn.leaky_relu), 4, tf.tanh)

    def discriminator(t, reuse):
        with tf.variable_scope("discriminator", reuse=reuse):
            return tf.layers.dense(tf.layers.dense(t, 6, tf.nn.relu), 1)

    made = generator(tf.random_normal([5, 3]))
    real, fake = discriminator(x, False), discriminator(made, True)

    def cross_entropy(logits, labels):
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=labels))

    d_loss = cross_entropy(real, tf.ones_like(real)) + cross_entropy(fake, tf.zeros_like(fake))
    g_loss = cross_entropy(fake, tf.ones_like(fake))
    d_vars = [v for v in tf.trainable_variables() if v.name.startswith("discriminator")]
    g_vars = [v for v in tf.trainable_variables() if v.name.startswith("generator")]
    d_train = tf.train.AdamOptimizer(0.01, beta1=0.5).minimize(d_loss, var_list=d_vars)
    between = tf.random_uniform([2])
    g_train = tf.train.AdamOptimizer(0.01, beta1=0.5).minimize(g_loss, var_list=g_vars)
    after = tf.random_normal([2])
    feeds = {x: np.random.RandomState(3).rand(5, 4)}
    return d_loss + g_loss, [d_train, g_train], [between, after], feeds


def vae(tf):
    x = tf.placeholder(tf.float32, [None, 6])
    h = tf.layers.dense(x, 5, tf.nn.softplus)
    mean, spread = tf.layers.dense(h, 2), tf.layers.dense(h, 2)
    z = mean + tf.exp(spread) * tf.random_normal(tf.shape(mean))
    out = tf.layers.dense(tf.layers.dense(z, 5, tf.nn.elu), 6, tf.nn.sigmoid)
    likelihood = tf.reduce_sum(
        x * tf.log(1e-6 + out) + (1.0 - x) * tf.log(1e-6 + 1.0 - out), axis=1
    )
    divergence = 0.5 * tf.reduce_sum(
        tf.exp(2.0 * spread) + tf.square(mean) - 1.0 - 2.0 * spread, axis=1
    )
    loss = tf.reduce_mean(divergence - likelihood)
    train = tf.train.AdagradOptimizer(0.1).minimize(loss)
    after = tf.truncated_normal([3])
    feeds = {x: (np.random.RandomState(4).rand(7, 6) < 0.5).astype("float32")}
    return loss, [train], [after], feeds


def run(tf):
    for build in (mlp, cnn, lstm, gan, vae):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(7)
            loss, train, random, feeds = build(tf)
            session.run(tf.global_variables_initializer())
            for _ in range(2):
                drawn = session.run(random)
                found = session.run([loss] + train, feeds)[0]
                yield [found] + [n for numbers in drawn for n in np.ravel(numbers)]
