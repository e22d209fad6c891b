"""tf.metrics: what a first batch updates to, and the names of the variables. Nodes are compared for
means and binary metrics.
"""

import numpy as np

from tests.oracle.case import case

EXACT = {
    "mean": lambda m, tf, x, y, **o: m.mean(x, **o),
    "accuracy": lambda m, tf, x, y, **o: m.accuracy(tf.cast(x * 3, "int32"), y, **o),
    "percentage_below": lambda m, tf, x, y, **o: m.percentage_below(x, 0.5, **o),
    "mean_absolute_error": lambda m, tf, x, y, **o: m.mean_absolute_error(x, y, **o),
    "mean_squared_error": lambda m, tf, x, y, **o: m.mean_squared_error(x, y, **o),
    "true_positives": lambda m, tf, x, y, **o: m.true_positives(x > 0.5, y > 0.4, **o),
    "true_negatives": lambda m, tf, x, y, **o: m.true_negatives(x > 0.5, y > 0.4, **o),
    "false_positives": lambda m, tf, x, y, **o: m.false_positives(x > 0.5, y > 0.4, **o),
    "false_negatives": lambda m, tf, x, y, **o: m.false_negatives(x > 0.5, y > 0.4, **o),
    "precision": lambda m, tf, x, y, **o: m.precision(x > 0.5, y > 0.4, **o),
    "recall": lambda m, tf, x, y, **o: m.recall(x > 0.5, y > 0.4, **o),
    "mean_tensor": lambda m, tf, x, y, **o: m.mean_tensor(x, **o),
}
LIMITS = [0.2, 0.5, 0.7]
EQUAL = {
    "root_mean_squared_error": lambda m, tf, x, y, **o: m.root_mean_squared_error(x, y, **o),
    "mean_relative_error": lambda m, tf, x, y, **o: m.mean_relative_error(
        x, y, tf.constant([0.5, 0.0, 1.0, 2.0, 1.0, 1.0]), **o
    ),
    "mean_cosine_distance": lambda m, tf, x, y, **o: m.mean_cosine_distance(
        tf.reshape(x, [3, 2]), tf.reshape(y, [3, 2]), 1, **o
    ),
    "precision_at_thresholds": lambda m, tf, x, y, **o: m.precision_at_thresholds(
        x > 0.5, y, LIMITS, **o
    ),
    "recall_at_thresholds": lambda m, tf, x, y, **o: m.recall_at_thresholds(
        x > 0.5, y, LIMITS, **o
    ),
    "true_positives_at": lambda m, tf, x, y, **o: m.true_positives_at_thresholds(
        x > 0.5, y, LIMITS, **o
    ),
    "true_negatives_at": lambda m, tf, x, y, **o: m.true_negatives_at_thresholds(
        x > 0.5, y, LIMITS, **o
    ),
    "false_positives_at": lambda m, tf, x, y, **o: m.false_positives_at_thresholds(
        x > 0.5, y, LIMITS, **o
    ),
    "false_negatives_at": lambda m, tf, x, y, **o: m.false_negatives_at_thresholds(
        x > 0.5, y, LIMITS, **o
    ),
    "auc": lambda m, tf, x, y, **o: m.auc(x > 0.5, y, **o),
    "auc_few": lambda m, tf, x, y, **o: m.auc(x > 0.5, y, num_thresholds=7, **o),
    "auc_given": lambda m, tf, x, y, **o: m.auc(x > 0.5, y, thresholds=[0.7, 0.3], **o),
    "auc_minoring": lambda m, tf, x, y, **o: m.auc(
        x > 0.5, y, num_thresholds=7, summation_method="minoring", **o
    ),
    "auc_pr": lambda m, tf, x, y, **o: m.auc(x > 0.5, y, num_thresholds=9, curve="PR", **o),
    "auc_pr_majoring": lambda m, tf, x, y, **o: m.auc(
        x > 0.5, y, num_thresholds=7, curve="PR", summation_method="majoring", **o
    ),
    "auc_pr_careful": lambda m, tf, x, y, **o: m.auc(
        x > 0.5, y, curve="PR", summation_method="careful_interpolation", **o
    ),
    "sensitivity_at_specificity": lambda m, tf, x, y, **o: m.sensitivity_at_specificity(
        x > 0.5, y, 0.5, **o
    ),
    "specificity_at_sensitivity": lambda m, tf, x, y, **o: m.specificity_at_sensitivity(
        x > 0.5, y, 0.5, **o
    ),
    "mean_iou": lambda m, tf, x, y, **o: m.mean_iou(
        tf.cast(x * 3, "int32"), tf.cast(y * 3, "int32"), 4, **o
    ),
    "mean_per_class_accuracy": lambda m, tf, x, y, **o: m.mean_per_class_accuracy(
        tf.cast(x * 3, "int32"), tf.cast(y * 3, "int32"), 4, **o
    ),
}


def updated(tf, build, weights):
    random = np.random.RandomState(0)
    x = tf.constant(random.uniform(0, 1, 6).astype(np.float32))
    y = tf.constant(random.uniform(0, 1, 6).astype(np.float32))
    options = {} if weights is None else {"weights": tf.constant(weights), "name": "m"}
    collections = {"metrics_collections": "values", "updates_collections": ["updates"]}
    update = build(tf.metrics, tf, x, y, **options, **collections)[1]
    names = [tf.constant(v.name) for v in tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)]
    sizes = [len(tf.get_collection(key)) for key in ("values", "updates", "local_variables")]
    return [update, names, tf.constant(sizes)]


def register(name, build, weights, graph):
    def function(tf):
        return updated(tf, build, weights)

    function.__name__ = name
    function.__module__ = __name__
    case(function, graph=graph)


WEIGHTS = [1.0, 0.0, 2.0, 0.5, 1.0, 3.0]
for _name, _build in list(EXACT.items()) + list(EQUAL.items()):
    register(_name, _build, None, _name in EXACT)
    if _name != "mean_cosine_distance":
        register(_name + "_weighted", _build, WEIGHTS, _name in EXACT)


@case(graph=False)
def weights_of_one_dimension_less(tf):
    return tf.metrics.mean(tf.constant([[1.0], [2.0]]), weights=tf.constant([1.0, 3.0]))[1]


@case(graph=False)
def weights_of_one_dimension_more(tf):
    return tf.metrics.mean(tf.constant([1.0, 2.0]), weights=tf.constant([[1.0], [3.0]]))[1]


@case(graph=False)
def weights_of_unknown_rank(tf):
    weights = tf.placeholder_with_default(tf.constant([1.0, 3.0]), None)
    return tf.metrics.mean(tf.constant([[1.0], [2.0]]), weights=weights)[1]


@case(graph=False)
def labels_of_one_dimension_more(tf):
    return tf.metrics.accuracy(tf.constant([[1], [2]]), tf.constant([1, 3]))[1]
