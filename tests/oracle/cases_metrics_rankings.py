"""tf.metrics of the k best predictions: values, after two batches, and the variables' names."""

import numpy as np

from tests.oracle.case import case

PREDICTIONS = np.array(
    [[0.1, 0.3, 0.2, 0.4], [0.5, 0.1, 0.3, 0.15], [0.2, 0.25, 0.3, 0.35]], "float32"
)
LABELS = np.array([[3, 1], [1, 1], [2, -1]], "int64")


def sparse(tf):
    indices = [[0, 0], [0, 1], [1, 0], [2, 0]]
    return tf.SparseTensor(indices, tf.constant([3, 1, 1, 2], tf.int64), [3, 2])


def one_each(tf):
    return tf.constant([3, 1, 2], tf.int64)


def beyond(tf):
    return tf.constant([[3, 7], [0, 4], [2, -1]], tf.int64)


def sparse_beyond(tf):
    values = tf.constant([3, 9, 1, 2], tf.int64)
    return tf.SparseTensor([[0, 0], [0, 1], [1, 0], [2, 0]], values, [3, 2])


def register(name, build):
    def function(tf):
        metric = build(tf)
        with tf.control_dependencies([metric[1]]):
            again = [v.read_value() for v in tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)]
        names = [tf.constant(v.op.name) for v in tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)]
        return [metric[1], again, names]

    function.__name__ = name
    function.__module__ = __name__
    case(function, graph=False)


def dense(tf):
    return tf.constant(LABELS)


for _labels in (dense, sparse, one_each):
    for _metric in ("precision_at_k", "recall_at_k"):
        for _class in (None, 1):
            for _weights in (None, [1.0, 2.0, 0.5]):
                register(
                    "_".join(
                        [_metric, _labels.__name__]
                        + ["class"] * (_class is not None)
                        + ["weighted"] * (_weights is not None)
                    ),
                    lambda tf, m=_metric, y=_labels, c=_class, w=_weights: getattr(tf.metrics, m)(
                        y(tf), tf.constant(PREDICTIONS), 2, class_id=c, weights=w
                    ),
                )

for _labels in (dense, sparse, one_each, beyond, sparse_beyond):
    for _weights in (None, [1.0, 2.0, 0.5]):
        register(
            "average_precision_" + _labels.__name__ + "_weighted" * (_weights is not None),
            lambda tf, y=_labels, w=_weights: tf.metrics.average_precision_at_k(
                y(tf), tf.constant(PREDICTIONS), 3, weights=w
            ),
        )

for _metric in ("precision_at_top_k", "recall_at_top_k"):
    register(
        _metric,
        lambda tf, m=_metric: getattr(tf.metrics, m)(
            tf.constant(LABELS), tf.constant([[3, 0], [1, 2], [0, 2]], tf.int64)
        ),
    )
    register(
        _metric + "_named",
        lambda tf, m=_metric: getattr(tf.metrics, m)(
            tf.constant(LABELS), tf.constant([[3, 0], [1, 2], [0, 2]], tf.int64), 2, 1, name="mine"
        ),
    )


@case(graph=False)
def more_dimensions(tf):
    predictions = tf.constant(np.stack([PREDICTIONS, PREDICTIONS[::-1]]))
    labels = tf.constant(np.stack([LABELS, LABELS]))
    weights = tf.constant([[1.0], [2.0]])
    return [
        tf.metrics.precision_at_k(labels, predictions, 2, weights=weights)[1],
        tf.metrics.recall_at_k(labels, predictions, 2, class_id=1)[1],
        tf.metrics.average_precision_at_k(labels, predictions, 2, weights=weights)[1],
    ]
