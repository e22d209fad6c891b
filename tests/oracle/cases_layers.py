"""tf.layers: the layers' nodes, values, gradients, losses and updates. The weights are the default
initializers' under a seed, so that they are equal only if all nodes are made in the same order.
"""

import numpy as np

from tests.oracle.case import case

LAST, FIRST = "channels_last", "channels_first"


def value(tf, *shape, **options):
    seed = options.pop("seed", 0)
    numbers = np.random.RandomState(seed).uniform(-1, 1, shape).astype(np.float32)
    return tf.constant(numbers, **options)


def unknown_batch(tf, x):
    return tf.placeholder_with_default(x, [None] + x.shape.as_list()[1:])


def collected(tf, y):
    """An output, the variables' names, and the losses that were collected."""
    names = [tf.constant(v.name) for v in tf.global_variables()]
    return [y, names, tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)]


def gradients(tf, y):
    """The gradients of an output for all variables that are trained."""
    return tf.gradients(tf.reduce_sum(y * y), tf.trainable_variables())


def updates(tf):
    found = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    return [u.outputs[0] if hasattr(u, "outputs") else u for u in found]


def penalty(tf):
    return lambda w: 0.1 * tf.nn.l2_loss(w)


def clipped(tf):
    return lambda w: tf.clip_by_value(w, -0.1, 0.1)


IMAGES = (2, 5, 6, 3)
LAYERS = {
    "dense": ((3, 4), lambda layers, tf, x: layers.dense(x, 2)),
    "dense_relu": (
        (3, 4),
        lambda layers, tf, x: layers.dense(x, 2, activation=tf.nn.relu, name="fc"),
    ),
    "dense_string": ((3, 4), lambda layers, tf, x: layers.dense(x, 2, "tanh", use_bias=False)),
    "dense_regularized": (
        (3, 4),
        lambda layers, tf, x: layers.dense(
            x,
            2,
            kernel_initializer=tf.random_normal_initializer(seed=1),
            bias_initializer=tf.ones_initializer(),
            kernel_regularizer=penalty(tf),
            bias_regularizer=penalty(tf),
            activity_regularizer=penalty(tf),
            kernel_constraint=clipped(tf),
            bias_constraint=clipped(tf),
        ),
    ),
    "dense_3d": ((2, 3, 4), lambda layers, tf, x: layers.dense(x, 5)),
    "dense_twice": ((3, 4), lambda layers, tf, x: layers.dense(layers.dense(x, 4), 2)),
    "dense_frozen": (
        (3, 4),
        lambda layers, tf, x: layers.dense(layers.dense(x, 4, trainable=False), 2),
    ),
    "dense_reused": (
        (3, 4),
        lambda layers, tf, x: (
            layers.dense(x, 2, name="fc") + layers.dense(-x, 2, name="fc", reuse=True)
        ),
    ),
    "conv1d": ((2, 7, 3), lambda layers, tf, x: layers.conv1d(x, 4, 3)),
    "conv1d_strided": (
        (2, 7, 3),
        lambda layers, tf, x: layers.conv1d(x, 2, 3, 2, "same", activation="relu"),
    ),
    "conv1d_causal": ((2, 7, 3), lambda layers, tf, x: layers.conv1d(x, 2, 3, padding="causal")),
    "conv1d_dilated": ((2, 7, 3), lambda layers, tf, x: layers.conv1d(x, 2, 3, dilation_rate=2)),
    "conv2d": (IMAGES, lambda layers, tf, x: layers.conv2d(x, 4, 3)),
    "conv2d_strided": (
        IMAGES,
        lambda layers, tf, x: layers.conv2d(x, 2, [3, 2], (2, 1), "same", activation=tf.nn.relu),
    ),
    "conv2d_dilated": (
        IMAGES,
        lambda layers, tf, x: layers.conv2d(x, 2, 2, dilation_rate=2, use_bias=False, name="deep"),
    ),
    "conv2d_regularized": (
        IMAGES,
        lambda layers, tf, x: layers.conv2d(
            x, 2, 2, kernel_regularizer=penalty(tf), bias_regularizer=penalty(tf)
        ),
    ),
    "conv3d": ((2, 4, 5, 4, 2), lambda layers, tf, x: layers.conv3d(x, 3, 2, (1, 2, 1), "same")),
    "conv2d_transpose": (IMAGES, lambda layers, tf, x: layers.conv2d_transpose(x, 4, 3, 2, "same")),
    "conv2d_transpose_valid": (
        IMAGES,
        lambda layers, tf, x: layers.conv2d_transpose(x, 2, (3, 2), (2, 1), activation=tf.nn.relu),
    ),
    "conv3d_transpose": (
        (1, 2, 3, 2, 2),
        lambda layers, tf, x: layers.conv3d_transpose(x, 3, 2, (1, 2, 1)),
    ),
    "separable_conv1d": (
        (2, 7, 3),
        lambda layers, tf, x: layers.separable_conv1d(x, 4, 3, 2, "same"),
    ),
    "separable_conv1d_causal": (
        (2, 7, 3),
        lambda layers, tf, x: layers.separable_conv1d(
            x, 4, 3, padding="causal", depth_multiplier=2
        ),
    ),
    "separable_conv2d": (IMAGES, lambda layers, tf, x: layers.separable_conv2d(x, 4, 3)),
    "separable_conv2d_all": (
        IMAGES,
        lambda layers, tf, x: layers.separable_conv2d(
            x,
            4,
            (2, 3),
            padding="same",
            depth_multiplier=2,
            activation="relu",
            depthwise_regularizer=penalty(tf),
            pointwise_regularizer=penalty(tf),
        ),
    ),
    "max_pooling1d": ((2, 7, 3), lambda layers, tf, x: layers.max_pooling1d(x, 2, 2)),
    "max_pooling1d_same": ((2, 7, 3), lambda layers, tf, x: layers.max_pooling1d(x, 3, 2, "same")),
    "average_pooling1d": ((2, 7, 3), lambda layers, tf, x: layers.average_pooling1d(x, 2, 1)),
    "max_pooling2d": (IMAGES, lambda layers, tf, x: layers.max_pooling2d(x, 2, 2)),
    "max_pooling2d_named": (
        IMAGES,
        lambda layers, tf, x: layers.max_pooling2d(x, [3, 2], [2, 1], padding="same", name="p"),
    ),
    "average_pooling2d": (IMAGES, lambda layers, tf, x: layers.average_pooling2d(x, (2, 3), 2)),
    "max_pooling3d": ((2, 4, 5, 4, 2), lambda layers, tf, x: layers.max_pooling3d(x, 2, 2)),
    "average_pooling3d": (
        (2, 4, 5, 4, 2),
        lambda layers, tf, x: layers.average_pooling3d(x, 2, 1, padding="same"),
    ),
    "flatten": (IMAGES, lambda layers, tf, x: layers.flatten(x)),
    "flatten_first": (IMAGES, lambda layers, tf, x: layers.flatten(x, data_format=FIRST)),
    "flatten_vector": ((4,), lambda layers, tf, x: layers.flatten(x)),
    "dropout": ((3, 4), lambda layers, tf, x: layers.dropout(x, 0.4, training=True)),
    "dropout_off": ((3, 4), lambda layers, tf, x: layers.dropout(x)),
    "dropout_asked": (
        (3, 4),
        lambda layers, tf, x: layers.dropout(
            x, 0.4, (None, 1), seed=1, training=tf.placeholder_with_default(True, [])
        ),
    ),
}


def register(name, build, **options):
    build.__name__ = name
    build.__module__ = __name__
    case(build, rtol=1e-4, atol=1e-5, **options)


def _register(name, shape, build):
    def known(tf):
        tf.set_random_seed(3)
        return build(tf.layers, tf, value(tf, *shape))

    def unknown(tf):
        tf.set_random_seed(3)
        return collected(tf, build(tf.layers, tf, unknown_batch(tf, value(tf, *shape))))

    register(name, lambda tf: collected(tf, known(tf)))
    register(name + "_unknown_batch", unknown)
    if "pool" not in name and "flatten" not in name and "dropout" not in name:
        register(name + "_gradients", lambda tf: gradients(tf, known(tf)), graph=False)


for _name, (_shape, _build) in LAYERS.items():
    _register(_name, _shape, _build)


# -- Channels first: TensorFlow has no kernels for most of it on a CPU, so only nodes and shapes are
# compared --------------------------------------------------------------------------------------

CHANNELS_FIRST = {
    "conv1d": ((2, 3, 7), lambda layers, x, **o: layers.conv1d(x, 4, 3, 2, **o)),
    "conv1d_causal": (
        (2, 3, 7),
        lambda layers, x, **o: layers.conv1d(x, 4, 3, padding="causal", **o),
    ),
    "conv1d_dilated": (
        (2, 3, 7),
        lambda layers, x, **o: layers.conv1d(x, 4, 3, dilation_rate=2, **o),
    ),
    "conv2d": ((2, 3, 5, 6), lambda layers, x, **o: layers.conv2d(x, 4, 3, 2, "same", **o)),
    "conv2d_dilated": (
        (2, 3, 5, 6),
        lambda layers, x, **o: layers.conv2d(x, 4, 2, padding="same", dilation_rate=2, **o),
    ),
    "conv3d": ((2, 2, 4, 5, 4), lambda layers, x, **o: layers.conv3d(x, 3, 2, **o)),
    "conv2d_transpose": (
        (2, 3, 5, 6),
        lambda layers, x, **o: layers.conv2d_transpose(x, 4, 3, 2, **o),
    ),
    "conv3d_transpose": (
        (2, 2, 4, 5, 4),
        lambda layers, x, **o: layers.conv3d_transpose(x, 3, 2, 2, **o),
    ),
    "separable_conv1d": (
        (2, 3, 7),
        lambda layers, x, **o: layers.separable_conv1d(x, 4, 3, 2, **o),
    ),
    "separable_conv2d": (
        (2, 3, 5, 6),
        lambda layers, x, **o: layers.separable_conv2d(x, 4, 3, 2, **o),
    ),
    "max_pooling1d": ((2, 3, 7), lambda layers, x, **o: layers.max_pooling1d(x, 2, 2, **o)),
    "average_pooling1d": (
        (2, 3, 7),
        lambda layers, x, **o: layers.average_pooling1d(x, 2, 2, "same", **o),
    ),
    "max_pooling2d": ((2, 3, 5, 6), lambda layers, x, **o: layers.max_pooling2d(x, 2, 2, **o)),
    "average_pooling2d": (
        (2, 3, 5, 6),
        lambda layers, x, **o: layers.average_pooling2d(x, 2, 2, **o),
    ),
    "max_pooling3d": ((2, 2, 4, 5, 4), lambda layers, x, **o: layers.max_pooling3d(x, 2, 2, **o)),
    "average_pooling3d": (
        (2, 2, 4, 5, 4),
        lambda layers, x, **o: layers.average_pooling3d(x, 2, 2, **o),
    ),
}


def _register_first(name, shape, build, unknown):
    def function(tf):
        tf.set_random_seed(3)
        x = value(tf, *shape)
        y = build(tf.layers, unknown_batch(tf, x) if unknown else x, data_format=FIRST)
        return tf.constant([-1 if n is None else n for n in y.shape.as_list()])

    function.__name__ = "channels_first_" + name + ("_unknown_batch" if unknown else "")
    function.__module__ = __name__
    # TensorFlow asks for devices, and initialises variables, while it builds this one.
    case(function, graph=name != "conv2d_transpose")


for _name, (_shape, _build) in CHANNELS_FIRST.items():
    _register_first(_name, _shape, _build, False)
    _register_first(_name, _shape, _build, True)


# -- Scopes and classes ---------------------------------------------------------------------------


@case
def dense_in_partitions(tf):
    tf.set_random_seed(3)
    with tf.variable_scope("s", partitioner=tf.fixed_size_partitioner(2)):
        return collected(tf, tf.layers.dense(value(tf, 3, 4), 2))


@case
def dense_in_resources(tf):
    tf.set_random_seed(3)
    with tf.variable_scope("s", use_resource=True):
        return collected(tf, tf.layers.dense(value(tf, 3, 4), 2))


@case
def dense_of_scope(tf):
    tf.set_random_seed(3)
    with tf.variable_scope(
        "s", initializer=tf.random_normal_initializer(), regularizer=penalty(tf)
    ):
        y = tf.layers.dense(value(tf, 3, 4), 2)
    with tf.variable_scope("s", reuse=True):
        return collected(tf, y + tf.layers.dense(value(tf, 3, 4, seed=1), 2))


@case
def classes(tf):
    tf.set_random_seed(3)
    x = value(tf, *IMAGES)
    conv = tf.layers.Conv2D(4, 3, padding="same", name="c")
    dense = tf.layers.Dense(2, activation=tf.nn.sigmoid)
    pool = tf.layers.MaxPooling2D(2, 2)
    flat = tf.layers.Flatten()
    y = dense(flat(pool(conv(x))))
    return collected(tf, y + dense.apply(flat.apply(pool.apply(conv.apply(-x)))))


@case
def dense_of_float64(tf):
    tf.set_random_seed(3)
    x = tf.constant(np.arange(6.0).reshape(2, 3))
    return collected(tf, tf.layers.dense(x, 2))


# -- Batch normalization --------------------------------------------------------------------------


def _normalized(label, shape, unknown=False, training=True, **options):
    def build(tf):
        tf.set_random_seed(3)
        x = value(tf, *shape)
        given = {k: v(tf) if callable(v) else v for k, v in options.items()}
        when = training(tf) if callable(training) else training
        return tf.layers.batch_normalization(
            unknown_batch(tf, x) if unknown else x, training=when, **given
        )

    name = "batch_normalization_" + label
    register(name, lambda tf: [collected(tf, build(tf)), updates(tf)])
    if options.get("center", True) and options.get("trainable", True):
        register(name + "_gradients", lambda tf: gradients(tf, build(tf)), graph=False)


def _asked(tf):
    return tf.placeholder_with_default(True, [])


_normalized("training", (4, 3))
_normalized("training_unknown_batch", (4, 3), unknown=True)
_normalized("inference", (4, 3), training=False)
_normalized("asked", (4, 3), training=_asked)
_normalized("image", IMAGES)
_normalized("image_unknown_batch", IMAGES, unknown=True)
_normalized("image_inference", IMAGES, training=False)
_normalized("image_asked", IMAGES, training=_asked)
_normalized("image_not_fused", IMAGES, fused=False)
_normalized("image_plain", IMAGES, center=False, scale=False, momentum=0.5, epsilon=0.1)
_normalized("image_plain_not_fused", IMAGES, center=False, scale=False, fused=False)
_normalized("axis", (4, 3, 2), axis=1)
_normalized("parts", (4, 3), virtual_batch_size=2)
_normalized("parts_inference", (4, 3), virtual_batch_size=2, training=False)
_normalized("parts_axis", (4, 3, 2), axis=1, virtual_batch_size=2, fused=True)
_normalized("parts_axes", IMAGES, axis=[1, 2], virtual_batch_size=1, training=_asked)
_normalized("parts_renorm", IMAGES, virtual_batch_size=1, renorm=True)
_normalized("axes", IMAGES, axis=[1, 2])
_normalized("image_axis", IMAGES, axis=1, fused=False)
_normalized("named", IMAGES, name="bn", trainable=False)
_normalized(
    "given",
    (4, 3),
    beta_initializer=lambda tf: tf.constant_initializer(0.3),
    gamma_initializer=lambda tf: tf.constant_initializer(0.7),
    moving_mean_initializer=lambda tf: tf.constant_initializer(0.1),
    moving_variance_initializer=lambda tf: tf.constant_initializer(0.2),
    beta_regularizer=penalty,
    gamma_regularizer=penalty,
    gamma_constraint=clipped,
    momentum=0.9,
)
_normalized("renorm", (4, 3), renorm=True)
_normalized(
    "renorm_clipped",
    IMAGES,
    renorm=True,
    renorm_momentum=0.8,
    renorm_clipping=lambda tf: {"rmin": 0.5, "rmax": 2.0, "dmax": 0.1},
)
_normalized("renorm_asked", (4, 3), renorm=True, training=_asked)
_normalized("adjusted", (4, 3), adjustment=lambda tf: lambda shape: (1.5, 0.25))


@case(graph=False)
def batch_normalization_in_network(tf):
    tf.set_random_seed(3)
    x = value(tf, *IMAGES)
    for _ in range(2):
        x = tf.nn.relu(tf.layers.batch_normalization(tf.layers.conv2d(x, 4, 2), training=True))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        loss = tf.reduce_mean(x)
    return [loss, tf.gradients(loss, tf.trainable_variables())]


@case
def added_metric(tf):
    layer = tf.layers.Dense(2, kernel_initializer=tf.ones_initializer(), name="measured")
    y = layer(tf.constant([[1.0, 2.0], [3.0, 4.0]]))
    layer.add_metric(y, name="mean_output", aggregation="mean")
    layer.add_metric(tf.reduce_max(y), name="largest", aggregation="mean")
    means = [
        tf.get_default_graph().get_tensor_by_name(n + ":0") for n in ("Identity", "Identity_1")
    ]
    for metric in layer.metrics:
        for variable in metric.variables:
            tf.add_to_collection(tf.GraphKeys.LOCAL_VARIABLES, variable)
    return means
