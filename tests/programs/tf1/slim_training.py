"""TF-Slim: arg_scope, batch normalization, losses in collections, a train op with clipped
gradients, a moving average of the loss. Only the graph has a seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(170)
    rng = np.random.RandomState(170)
    slim = tf.contrib.slim
    images = tf.placeholder(tf.float32, [None, 8, 8, 2])
    labels = tf.placeholder(tf.int32, [None])
    training = tf.placeholder_with_default(True, [])
    with slim.arg_scope(
        [slim.conv2d, slim.fully_connected],
        activation_fn=tf.nn.relu,
        weights_initializer=tf.truncated_normal_initializer(stddev=0.2),
        weights_regularizer=slim.l2_regularizer(0.01),
        normalizer_fn=slim.batch_norm,
        normalizer_params={"is_training": training, "decay": 0.9, "scale": True},
    ):
        net = slim.repeat(images, 2, slim.conv2d, 4, [3, 3], scope="conv1")
        net = slim.max_pool2d(net, [2, 2], scope="pool1")
        net = slim.conv2d(net, 6, [3, 3], stride=2, scope="conv2")
        net = slim.flatten(net)
        net = slim.dropout(net, 0.8, is_training=training, scope="dropout")
        logits = slim.fully_connected(
            net, 4, activation_fn=None, normalizer_fn=None, scope="logits"
        )
    tf.losses.sparse_softmax_cross_entropy(labels, logits)
    total = tf.losses.get_total_loss()
    optimizer = tf.train.AdamOptimizer(0.01)
    train_op = slim.learning.create_train_op(total, optimizer, clip_gradient_norm=2.0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(4):
            feeds = {images: rng.randn(5, 8, 8, 2), labels: rng.randint(0, 4, 5)}
            value = session.run(train_op, feeds)
            feeds[training] = False
            yield [value] + session.run([total, tf.train.get_global_step()], feeds)
