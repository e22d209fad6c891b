"""Layers of tf.contrib.layers: values, and the names of variables and of what is collected."""

import numpy as np

from tests.oracle.case import case

VALUE = np.sin(np.arange(12.0)).reshape(4, 3).astype("float32")
IMAGES = np.sin(np.arange(96.0)).reshape(2, 4, 4, 3).astype("float32")


def layer(name, build, rtol=1e-5):
    def function(tf):
        tf.set_random_seed(3)
        outputs = build(tf, tf.contrib.layers)
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        with tf.control_dependencies([outputs] + updates):
            after = [v.read_value() for v in tf.global_variables()]
        names = [v.op.name for v in tf.global_variables()]
        for key in ("trainable_variables", "model_variables", "mine", "weights_of_mine"):
            names += [key] + [x.op.name for x in tf.get_collection(key)]
        return outputs, after, [tf.constant(name) for name in names]

    function.__name__ = name
    function.__module__ = __name__
    case(function, graph=False, rtol=rtol)


layer("fully_connected", lambda tf, c: c.fully_connected(tf.constant(VALUE), 4))
layer("fully_connected_scope", lambda tf, c: c.fully_connected(VALUE, 4, tf.tanh, scope="fc"))
layer(
    "fully_connected_collected",
    lambda tf, c: c.fully_connected(
        tf.constant(VALUE),
        2,
        weights_regularizer=c.l2_regularizer(0.1),
        variables_collections={"weights": ["weights_of_mine"], "biases": ["mine"]},
    ),
)
layer("fully_connected_no_bias", lambda tf, c: c.linear(VALUE, 2, biases_initializer=None))
layer("fully_connected_of_rank_3", lambda tf, c: c.relu6(VALUE.reshape(2, 2, 3), 2))
layer(
    "fully_connected_normalized",
    lambda tf, c: c.fully_connected(
        VALUE, 4, normalizer_fn=c.batch_norm, normalizer_params={"is_training": True}
    ),
)
layer(
    "reused",
    lambda tf, c: (
        c.fully_connected(VALUE, 3, scope="fc")
        + c.fully_connected(VALUE + 1, 3, scope="fc", reuse=True)
    ),
)
layer("conv2d", lambda tf, c: c.conv2d(IMAGES, 2, [3, 3], scope="c"))
layer("conv2d_strided", lambda tf, c: c.conv2d(IMAGES, 2, 3, 2, "VALID", activation_fn=None))
layer("conv2d_dilated", lambda tf, c: c.conv2d(IMAGES, 2, 2, rate=2, outputs_collections="mine"))
layer(
    "conv2d_normalized",
    lambda tf, c: c.conv2d(IMAGES, 2, 3, normalizer_fn=c.batch_norm, activation_fn=tf.nn.elu),
)
layer("conv2d_transpose", lambda tf, c: c.conv2d_transpose(IMAGES, 2, 3, 2))
layer("max_pool2d", lambda tf, c: c.max_pool2d(IMAGES, 2))
layer("avg_pool2d", lambda tf, c: c.avg_pool2d(IMAGES, [3, 3], 1, "SAME", scope="p"))
layer("flatten", lambda tf, c: c.flatten(IMAGES))
layer("dropout_off", lambda tf, c: c.dropout(VALUE, is_training=False))
layer("dropout", lambda tf, c: c.dropout(tf.constant(VALUE), 0.75, seed=4))
layer("batch_norm", lambda tf, c: c.batch_norm(IMAGES, decay=0.9))
layer("batch_norm_scale", lambda tf, c: c.batch_norm(IMAGES, 0.5, False, True, scope="bn"))
layer("batch_norm_matrix", lambda tf, c: c.batch_norm(VALUE, decay=0.9))
layer("batch_norm_matrix_not_fused", lambda tf, c: c.batch_norm(VALUE, 0.9, fused=False))
layer("batch_norm_at_once", lambda tf, c: c.batch_norm(IMAGES, 0.9, updates_collections=None))
layer("batch_norm_off", lambda tf, c: c.batch_norm(IMAGES, is_training=False))
layer(
    "batch_norm_decided_later",
    lambda tf, c: c.batch_norm(
        IMAGES, 0.9, is_training=tf.placeholder_with_default(True, []), activation_fn=tf.nn.relu
    ),
)
layer(
    "batch_norm_parameters",
    lambda tf, c: c.batch_norm(
        IMAGES,
        scale=True,
        param_initializers={
            "gamma": tf.constant_initializer(2.0),
            "moving_mean": tf.constant_initializer(0.5),
        },
        variables_collections=["mine"],
    ),
)
layer(
    "batch_norm_mine",
    lambda tf, c: c.batch_norm(IMAGES, 0.9, scale=True, updates_collections="mine"),
)
layer(
    "batch_norm_at_once_not_fused",
    lambda tf, c: c.batch_norm(IMAGES, 0.9, scale=True, fused=False, updates_collections=None),
)
layer(
    "batch_norm_at_once_decided_later",
    lambda tf, c: c.batch_norm(
        IMAGES, 0.9, is_training=tf.placeholder_with_default(True, []), updates_collections=None
    ),
)
layer(
    "batch_norm_decided_later_not_fused",
    lambda tf, c: c.batch_norm(
        VALUE,
        0.9,
        is_training=tf.placeholder_with_default(False, []),
        updates_collections="mine",
        fused=False,
    ),
)
layer(
    "batch_norm_of_weighed_examples",
    lambda tf, c: c.batch_norm(IMAGES, 0.9, scale=True, batch_weights=[0.5, 2.0]),
)
layer(
    "batch_norm_channels_first_at_once",
    lambda tf, c: c.batch_norm(
        IMAGES.transpose(0, 3, 1, 2),
        0.9,
        scale=True,
        data_format="NCHW",
        fused=False,
        updates_collections=None,
    ),
)
layer("batch_norm_of_rank_3", lambda tf, c: c.batch_norm(IMAGES[0], updates_collections=None))
layer("instance_norm", lambda tf, c: c.instance_norm(IMAGES), rtol=1e-4)
layer(
    "instance_norm_channels_first",
    lambda tf, c: c.instance_norm(
        IMAGES.transpose(0, 3, 1, 2), data_format="NCHW", activation_fn=tf.nn.relu
    ),
    rtol=1e-4,
)
FOUR = np.cos(np.arange(128.0)).reshape(2, 4, 4, 4).astype("float32")
layer("group_norm", lambda tf, c: c.group_norm(FOUR, 2), rtol=1e-4)
layer(
    "group_norm_channels_first",
    lambda tf, c: c.group_norm(FOUR, 4, -3, (-2, -1), scope="gn", center=False),
    rtol=1e-4,
)
layer(
    "group_norm_of_small_means",
    lambda tf, c: c.group_norm(
        FOUR,
        2,
        mean_close_to_zero=True,
        param_initializers={"beta": tf.ones_initializer()},
        variables_collections=["mine"],
    ),
    rtol=1e-4,
)
layer("unit_norm", lambda tf, c: c.unit_norm(tf.constant(VALUE), 1))
layer("softmax", lambda tf, c: c.softmax(tf.constant(IMAGES)))
layer("maxout", lambda tf, c: c.maxout(tf.constant(FOUR), 2))
layer("conv1d", lambda tf, c: c.conv1d(IMAGES[0], 2, 3, scope="c1"))
layer(
    "conv3d", lambda tf, c: c.convolution(IMAGES[None], 2, 2, 2, weights_regularizer=tf.nn.l2_loss)
)
layer("conv3d_transpose", lambda tf, c: c.conv3d_transpose(IMAGES[None], 2, 2, 2))
layer("separable_conv2d", lambda tf, c: c.separable_conv2d(IMAGES, 4, 3, 2, scope="s"))
layer(
    "separable_conv2d_normalized",
    lambda tf, c: c.separable_conv2d(
        IMAGES,
        2,
        [3, 2],
        stride=2,
        normalizer_fn=c.batch_norm,
        pointwise_initializer=tf.ones_initializer(),
        variables_collections={"weights": ["mine"]},
    ),
)
layer(
    "separable_conv2d_depthwise_only",
    lambda tf, c: c.separable_conv2d(
        IMAGES, None, 3, 2, rate=2, weights_regularizer=c.l2_regularizer(0.1)
    ),
)
layer("layer_norm", lambda tf, c: c.layer_norm(IMAGES), rtol=1e-4)
layer("layer_norm_last_axis", lambda tf, c: c.layer_norm(IMAGES, begin_norm_axis=-1), rtol=1e-4)
layer("layer_norm_plain", lambda tf, c: c.layer_norm(VALUE, False, False, tf.nn.relu), rtol=1e-4)
layer("bias_add", lambda tf, c: c.bias_add(VALUE, tf.nn.relu, tf.ones_initializer()))
layer("one_hot_encoding", lambda tf, c: c.one_hot_encoding(tf.constant([1, 0, 2]), 3, 2.0, -1.0))
layer("stack", lambda tf, c: c.stack(VALUE, c.fully_connected, [3, 4], scope="fc"))
layer("repeat", lambda tf, c: c.repeat(VALUE, 2, c.fully_connected, 3, activation_fn=tf.tanh))


def scoped(tf, c):
    both = [c.conv2d, c.fully_connected]
    with tf.contrib.framework.arg_scope(both, activation_fn=None) as outer:
        net = c.conv2d(IMAGES, 2, 2)
        with tf.contrib.framework.arg_scope([c.conv2d], stride=2, padding="VALID"):
            net = c.conv2d(net, 2, 2)
    with tf.contrib.framework.arg_scope(outer):
        net = c.fully_connected(c.flatten(net), 3)
    return c.fully_connected(net, 2)


layer("scoped", scoped)


@case(graph=False)
def end_points(tf):
    slim = tf.contrib.slim
    tf.set_random_seed(3)
    layers = [slim.conv2d, slim.max_pool2d, slim.flatten, slim.fully_connected, slim.dropout]
    with tf.variable_scope("net") as scope:
        with slim.arg_scope(layers, outputs_collections=scope.name + "_end_points"):
            net = slim.repeat(tf.constant(IMAGES), 2, slim.conv2d, 2, 3, scope="conv1")
            net = slim.flatten(slim.max_pool2d(net, 2, scope="pool"))
            net = slim.fully_connected(slim.dropout(net, is_training=False), 3, scope="fc")
        kept = slim.utils.convert_collection_to_dict("net_end_points")
        net = slim.utils.collect_named_outputs("mine", "net/logits/", net)
    names = list(kept) + list(slim.utils.convert_collection_to_dict("mine"))
    sizes = [slim.utils.last_dimension(t.shape, 2) for t in kept.values()]
    found = [
        v.op.name for v in slim.get_variables("net/fc") + slim.get_variables_by_name("weights")
    ]
    found += [v.op.name for v in slim.get_model_variables(suffix="biases")]
    found += [v.op.name for v in slim.get_variables_to_restore(exclude=["net/conv1"])]
    return list(kept.values()), [tf.constant(n) for n in names + found], tf.constant(sizes)


@case(graph=False)
def batch_norm_without_bias_of_zeros(tf):
    outputs = tf.contrib.layers.batch_norm(IMAGES, 0.9, zero_debias_moving_mean=True, scope="bn")
    with tf.control_dependencies([outputs] + tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        after = [v.read_value() for v in tf.global_variables()]
    return outputs, after, [tf.constant(v.op.name) for v in tf.global_variables()]
