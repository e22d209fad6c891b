"""tf.losses: nodes, values, gradients, weights of each shape that fits, reductions, collections."""

import numpy as np

from tests.oracle.case import case


def value(tf, *shape, **options):
    seed, low = options.pop("seed", 0), options.pop("low", -1)
    numbers = np.random.RandomState(seed).uniform(low, 1, shape).astype(np.float32)
    return tf.constant(numbers, **options)


def pair(tf, *shape):
    return value(tf, *shape, low=0.1), value(tf, *shape, seed=1, low=0.1)


LOSSES = {
    "absolute_difference": lambda losses, tf, x, y, **o: losses.absolute_difference(x, y, **o),
    "cosine_distance": lambda losses, tf, x, y, **o: losses.cosine_distance(x, y, axis=1, **o),
    "hinge_loss": lambda losses, tf, x, y, **o: losses.hinge_loss(x, y, **o),
    "huber_loss": lambda losses, tf, x, y, **o: losses.huber_loss(x, y, delta=0.3, **o),
    "log_loss": lambda losses, tf, x, y, **o: losses.log_loss(x, y, **o),
    "mean_squared_error": lambda losses, tf, x, y, **o: losses.mean_squared_error(x, y, **o),
    "sigmoid": lambda losses, tf, x, y, **o: losses.sigmoid_cross_entropy(x, y, **o),
    "sigmoid_smoothed": lambda losses, tf, x, y, **o: losses.sigmoid_cross_entropy(
        x, y, label_smoothing=0.2, **o
    ),
    "softmax": lambda losses, tf, x, y, **o: losses.softmax_cross_entropy(x, y, **o),
    "softmax_smoothed": lambda losses, tf, x, y, **o: losses.softmax_cross_entropy(
        x, y, label_smoothing=0.2, **o
    ),
    "sparse_softmax": lambda losses, tf, x, y, **o: losses.sparse_softmax_cross_entropy(
        tf.constant([1, 0, 2, 1]), y, **o
    ),
    "pairwise": lambda losses, tf, x, y, **o: losses.mean_pairwise_squared_error(x, y, **o),
}


def register(name, build, **options):
    build.__name__ = name
    build.__module__ = __name__
    case(build, **options)


def collected(tf, loss):
    return [loss, tf.losses.get_losses()]


def gradient(tf, build):
    x, y = pair(tf, 4, 3)
    return tf.gradients(build(tf.losses, tf, x, y), y)


for _name, _build in LOSSES.items():
    register(
        _name,
        lambda tf, build=_build: collected(tf, build(tf.losses, tf, *pair(tf, 4, 3))),
    )
    register(_name + "_gradient", lambda tf, build=_build: gradient(tf, build), graph=False)
    register(
        _name + "_weighted",
        lambda tf, build=_build: build(
            tf.losses, tf, *pair(tf, 4, 3), weights=0.3, scope="s", loss_collection=None
        ),
    )

WEIGHTS = {
    "number": lambda tf: 0.7,
    "zero": lambda tf: 0.0,
    "scalar": lambda tf: tf.constant(0.7),
    "all": lambda tf: tf.constant([[1.0, 0.0, 2.0]] * 4),
    "rows": lambda tf: tf.constant([[1.0], [0.0], [2.0], [3.0]]),
    "columns": lambda tf: tf.constant([[1.0, 0.0, 2.0]]),
    "unknown": lambda tf: tf.placeholder_with_default([[1.0], [0.0], [2.0], [3.0]], [None, None]),
    "ints": lambda tf: tf.constant([[1], [0], [2], [3]]),
    "unranked": lambda tf: tf.placeholder_with_default([[1.0], [0.0], [2.0], [3.0]], None),
}
REDUCTIONS = (
    "NONE",
    "SUM",
    "MEAN",
    "SUM_OVER_BATCH_SIZE",
    "SUM_OVER_NONZERO_WEIGHTS",
    "SUM_BY_NONZERO_WEIGHTS",
)


def _weighed(tf, weights, reduction):
    x = value(tf, 4, 3)
    reduction = getattr(tf.losses.Reduction, reduction)
    return tf.losses.compute_weighted_loss(x, weights(tf), reduction=reduction)


for _label, _weights in WEIGHTS.items():
    register(
        "weights_" + _label,
        lambda tf, weights=_weights: _weighed(tf, weights, "SUM_BY_NONZERO_WEIGHTS"),
    )
for _reduction in REDUCTIONS:
    register(
        "reduction_" + _reduction.lower(),
        lambda tf, reduction=_reduction: _weighed(tf, WEIGHTS["rows"], reduction),
    )


@case
def loss_of_integers(tf):
    return tf.losses.absolute_difference(tf.constant([1, 2]), tf.constant([3, 5]))


@case
def loss_of_float64(tf):
    x = tf.constant([1.0, 2.0], tf.float64)
    return tf.losses.compute_weighted_loss(x, tf.constant([1.0, 0.0]))


@case
def loss_of_unknown_batch(tf):
    x, y = (tf.placeholder_with_default(v, [None, 3]) for v in pair(tf, 4, 3))
    return tf.losses.mean_squared_error(x, y)


@case
def weights_of_columns_and_an_unknown_batch(tf):
    x = tf.placeholder_with_default(np.ones((2, 3), "float32"), [None, 3])
    return tf.losses.compute_weighted_loss(x, tf.constant([[1.0, 2.0, 0.0]]))


@case
def pairwise_weighted_by_example(tf):
    x, y = pair(tf, 4, 3)
    return tf.losses.mean_pairwise_squared_error(
        x, y, weights=tf.constant([[1.0], [0.0], [2.0], [0.5]])
    )


@case
def pairwise_of_three_dimensions(tf):
    return tf.losses.mean_pairwise_squared_error(*pair(tf, 2, 3, 2))


@case
def sparse_softmax_of_columns(tf):
    labels = tf.constant([[1], [0], [2], [1]])
    weights = tf.constant([[1.0], [0.0], [2.0], [3.0]])
    return tf.losses.sparse_softmax_cross_entropy(labels, value(tf, 4, 3), weights)


@case
def total(tf):
    x, y = pair(tf, 4, 3)
    tf.losses.mean_squared_error(x, y)
    with tf.name_scope("inner"):
        tf.losses.absolute_difference(x, y)
    tf.losses.add_loss(tf.constant(2.0))
    tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, tf.constant(3.0))
    return [
        tf.losses.get_total_loss(),
        tf.losses.get_total_loss(add_regularization_losses=False, name="bare"),
        tf.losses.get_total_loss(scope="inner"),
        tf.losses.get_regularization_loss(),
        tf.losses.get_regularization_losses(),
        tf.losses.get_losses("inner"),
    ]


@case
def no_regularization(tf):
    return tf.losses.get_regularization_loss()
