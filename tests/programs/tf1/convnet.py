"""A convolutional network with fused batch normalization whose moving averages are update ops.

Images come as NCHW and are transposed to NHWC: the only layout that TensorFlow runs on a CPU.
"""

import numpy as np


def batch_norm(tf, x, training, decay=0.9):
    channels = x.shape[-1].value
    with tf.variable_scope("norm"):
        gamma = tf.get_variable("gamma", [channels], initializer=tf.ones_initializer())
        beta = tf.get_variable("beta", [channels], initializer=tf.zeros_initializer())
        mean = tf.get_variable(
            "mean", [channels], initializer=tf.zeros_initializer(), trainable=False
        )
        variance = tf.get_variable(
            "variance", [channels], initializer=tf.ones_initializer(), trainable=False
        )
        if not training:
            return tf.nn.fused_batch_norm(
                x, gamma, beta, mean=mean, variance=variance, epsilon=1e-3, is_training=False
            )[0]
        y, batch_mean, batch_variance = tf.nn.fused_batch_norm(x, gamma, beta, epsilon=1e-3)
        for moving, batch in [(mean, batch_mean), (variance, batch_variance)]:
            update = tf.assign_sub(moving, (1 - decay) * (moving - batch))
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update)
        return y


def network(tf, x, training):
    y = tf.transpose(x, [0, 2, 3, 1])
    for i, (channels, stride) in enumerate([(8, 1), (16, 2)]):
        with tf.variable_scope(f"conv{i}"):
            kernel = tf.get_variable("kernel", [3, 3, y.shape[-1].value, channels])
            y = tf.nn.conv2d(y, kernel, strides=[1, stride, stride, 1], padding="SAME")
            y = tf.nn.relu(batch_norm(tf, y, training))
    y = tf.nn.max_pool(y, [1, 2, 2, 1], [1, 2, 2, 1], padding="VALID")
    with tf.variable_scope("depthwise"):
        kernel = tf.get_variable("kernel", [3, 3, 16, 1])
        y += tf.nn.depthwise_conv2d(y, kernel, [1, 1, 1, 1], "SAME")
    y = tf.transpose(y, [0, 3, 1, 2])
    y = tf.reshape(y, [-1, np.prod(y.shape.as_list()[1:])])
    return tf.matmul(y, tf.get_variable("logits", [y.shape[1].value, 4]))


def run(tf):
    tf.set_random_seed(3)
    rng = np.random.RandomState(2)
    labels = rng.randint(4, size=64)
    images = rng.rand(64, 3, 12, 12).astype("float32")
    images[np.arange(64), 0, labels * 3] += 1  # the class is where a bright row is

    x = tf.placeholder(tf.float32, [None, 3, 12, 12])
    y = tf.placeholder(tf.int64, [None])
    with tf.variable_scope("net"):
        logits = network(tf, x, training=True)
    with tf.variable_scope("net", reuse=True):
        predictions = tf.argmax(network(tf, x, training=False), axis=1)
    targets = tf.one_hot(y, 4)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(targets, logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(predictions, y), tf.float32))
    variables = tf.trainable_variables("net")
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        gradients = tf.gradients(loss, variables)
    with tf.control_dependencies(gradients):
        train = [tf.assign_sub(v, 0.05 * g) for v, g in zip(variables, gradients)]
    moving = tf.add_n([tf.reduce_sum(v) for v in tf.global_variables() if "variance" in v.name])

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(12):
            rows = rng.permutation(64)[:32]
            numbers = session.run([loss, train], {x: images[rows], y: labels[rows]})[:1]
            yield numbers + session.run([accuracy, moving], {x: images, y: labels})
