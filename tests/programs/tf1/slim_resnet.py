"""A residual network in the manner of tf.contrib.slim: argument scopes, end points, a train op."""

import numpy as np


def bottleneck(tf, inputs, depth, inner, stride, outputs_collections):
    slim = tf.contrib.slim
    with tf.variable_scope(None, "bottleneck_v2", [inputs]) as scope:
        before = slim.batch_norm(inputs, activation_fn=tf.nn.relu, scope="preact")
        if depth == slim.utils.last_dimension(inputs.get_shape(), min_rank=4):
            shortcut = slim.max_pool2d(inputs, [1, 1], stride=stride, scope="shortcut")
        else:
            shortcut = slim.conv2d(
                before, depth, 1, stride, normalizer_fn=None, activation_fn=None, scope="shortcut"
            )
        residual = slim.conv2d(before, inner, [1, 1], scope="conv1")
        residual = slim.conv2d(residual, inner, 3, stride=stride, scope="conv2")
        residual = slim.conv2d(
            residual, depth, [1, 1], normalizer_fn=None, activation_fn=None, scope="conv3"
        )
        return slim.utils.collect_named_outputs(
            outputs_collections, scope.name, shortcut + residual
        )


def network(tf, images):
    slim = tf.contrib.slim
    plain = {"normalizer_fn": None, "activation_fn": None}
    with tf.variable_scope("resnet") as scope:
        ends = scope.name + "_end_points"
        with slim.arg_scope([slim.conv2d], outputs_collections=ends):
            net = slim.conv2d(images, 6, 3, stride=2, scope="conv1", **plain)
            for unit, stride in (("unit_0", 1), ("unit_1", 2)):
                with tf.variable_scope(unit):
                    net = bottleneck(tf, net, 8, 3, stride, ends)
            net = slim.batch_norm(net, activation_fn=tf.nn.relu, scope="postnorm")
            net = tf.reduce_mean(net, [1, 2], name="pool5", keepdims=True)
            net = slim.conv2d(net, 3, 1, scope="logits", **plain)
        return tf.squeeze(net, [1, 2]), slim.utils.convert_collection_to_dict(ends)


def arguments(tf):
    slim = tf.contrib.slim
    norm = {"is_training": True, "decay": 0.9, "epsilon": 1e-5, "scale": True}
    weights = {
        "weights_regularizer": slim.l2_regularizer(1e-4),
        "weights_initializer": slim.variance_scaling_initializer(),
        "normalizer_fn": slim.batch_norm,
    }
    scope = slim.arg_scope
    with scope([slim.conv2d], **weights), scope([slim.batch_norm], **norm) as both:
        return both


def run(tf):
    slim = tf.contrib.slim
    tf.set_random_seed(17)
    random = np.random.RandomState(3)
    images = tf.placeholder(tf.float32, [None, 8, 8, 2])
    labels = tf.placeholder(tf.int64, [None])
    with slim.arg_scope(arguments(tf)):
        logits, end_points = network(tf, images)
    slim.losses.softmax_cross_entropy(logits, slim.one_hot_encoding(labels, 3), label_smoothing=0.1)
    loss = slim.losses.get_total_loss()
    train = slim.learning.create_train_op(
        loss, tf.train.MomentumOptimizer(0.05, 0.9), clip_gradient_norm=4.0
    )
    shown = end_points["resnet/unit_1/bottleneck_v2"]
    size, _ = slim.model_analyzer.analyze_vars(slim.get_trainable_variables())
    yield [len(end_points), len(slim.get_model_variables()), size]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(12):
            feed = {images: random.rand(6, 8, 8, 2), labels: random.randint(0, 3, 6)}
            spread = session.run(shown, feed).std()
            yield [session.run(train, feed), spread]
