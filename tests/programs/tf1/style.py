"""Neural style in small: an image variable is bent until its features' Gram matrices agree."""

import numpy as np


def features(tf, image, kernels):
    layers = []
    for kernel in kernels:
        image = tf.nn.conv2d(image, kernel, [1, 1, 1, 1], "SAME")
        image = tf.nn.relu(image)
        layers.append(image)
        image = tf.nn.avg_pool(image, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")
    return layers


def gram(tf, layer):
    flat = tf.reshape(layer, [-1, layer.shape[3].value])
    return tf.matmul(flat, flat, transpose_a=True) / tf.cast(tf.size(flat), tf.float32)


def run(tf):
    rng = np.random.RandomState(13)
    content = rng.rand(1, 16, 16, 3).astype("float32")
    style = np.tile(rng.rand(1, 4, 4, 3), (1, 4, 4, 1)).astype("float32")
    kernels = [
        tf.constant(rng.randn(3, 3, a, b).astype("float32") / float(np.sqrt(9 * a)))
        for a, b in [(3, 8), (8, 12), (12, 16)]
    ]
    with tf.Session() as session:
        style_grams = session.run([gram(tf, f) for f in features(tf, tf.constant(style), kernels)])
        content_features = session.run(features(tf, tf.constant(content), kernels))[1]

    image = tf.get_variable("image", initializer=content)
    layers = features(tf, image, kernels)
    style_loss = tf.add_n(
        [tf.reduce_sum(tf.square(gram(tf, f) - g)) for f, g in zip(layers, style_grams)]
    )
    content_loss = tf.reduce_mean(tf.squared_difference(layers[1], content_features))
    smooth = tf.reduce_mean(tf.abs(image[:, 1:] - image[:, :-1])) + tf.reduce_mean(
        tf.square(image[:, :, 1:, :] - image[:, :, :-1, :])
    )
    loss = 10 * style_loss + content_loss + 0.1 * smooth
    (gradient,) = tf.gradients(loss, image)
    moved = image - 4.0 * gradient / (1e-6 + tf.norm(gradient)) * tf.rsqrt(float(content.size))
    with tf.control_dependencies([style_loss, content_loss, smooth]):
        train = tf.assign(image, tf.clip_by_value(moved, 0.0, 1.0))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(12):
            yield session.run([style_loss, content_loss, smooth, train])[:3]
