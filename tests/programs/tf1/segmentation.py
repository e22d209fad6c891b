"""A small U-shaped network: strided, transposed and atrous convolutions, dice loss."""

import numpy as np


def conv(tf, x, channels, name, rate=1, stride=1):
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [3, 3, x.shape[3], channels])
        bias = tf.get_variable("bias", [channels], initializer=tf.zeros_initializer())
        y = tf.nn.convolution(x, kernel, "SAME", strides=[stride] * 2, dilation_rate=[rate] * 2)
        return tf.nn.crelu(tf.nn.bias_add(y, bias))


def run(tf):
    tf.set_random_seed(67)
    rng = np.random.RandomState(21)
    rows, columns = np.mgrid[:16, :16]
    middles = rng.randint(4, 12, size=(8, 2, 1, 1))
    masks = ((rows - middles[:, 0]) ** 2 + (columns - middles[:, 1]) ** 2 < 12).astype("float32")
    images = (masks + 0.4 * rng.randn(8, 16, 16))[..., None].astype("float32")

    x = tf.constant(images)
    mask = tf.constant(masks)[..., tf.newaxis]
    tf.get_variable_scope().set_initializer(
        tf.variance_scaling_initializer(1.0, "fan_out", "uniform")
    )
    padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="REFLECT")
    outer = conv(tf, padded[:, 1:-1, 1:-1], 4, "outer")
    inner = conv(tf, tf.nn.lrn(outer, depth_radius=2, bias=1.0, alpha=0.1), 6, "down", stride=2)
    inner = tf.concat([conv(tf, inner, 4, "atrous", rate=2), inner], axis=3)
    kernel = tf.get_variable("up", [2, 2, 4, int(inner.shape[-1])])
    up = tf.nn.conv2d_transpose(inner, kernel, [8, 16, 16, 4], [1, 2, 2, 1], padding="VALID")
    blocks = tf.depth_to_space(conv(tf, inner, 8, "blocks"), 2)
    logits = tf.nn.separable_conv2d(
        tf.concat([outer, up, blocks], axis=-1),
        tf.get_variable("depthwise", [3, 3, 16, 1]),
        tf.get_variable("pointwise", [1, 1, 16, 1]),
        strides=[1, 1, 1, 1],
        padding="SAME",
    )
    probability = tf.sigmoid(logits)
    overlap = tf.reduce_sum(probability * mask, [1, 2, 3])
    sizes = tf.reduce_sum(probability, [1, 2, 3]) + tf.reduce_sum(mask, [1, 2, 3])
    dice = tf.reduce_mean(2 * overlap / sizes)
    entropy = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=mask, logits=logits))
    variables = tf.trainable_variables()
    gradients = tf.tuple(tf.gradients([entropy, 1 - dice], variables), control_inputs=[dice])
    train = tf.group(*[v.assign_sub(0.1 * g) for v, g in zip(variables, gradients)])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(10):
            yield session.run([entropy, dice, train])[:2]
