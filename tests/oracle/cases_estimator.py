"""Canned estimators: the nodes of their models, predictions, losses, metrics, variables' names, and
what one training step does to the variables.
"""

import tempfile

import numpy as np

from tests.oracle.case import case

LABELS = np.array([[1], [0], [1], [1]])
CLASSES = np.array([2, 0, 1, 2])


def features(tf):
    return {
        "x": tf.constant([[0.5, -1.0], [1.5, 2.0], [-0.5, 0.0], [3.0, 1.0]]),
        "age": tf.constant([[23.0], [41.0], [67.0], [12.0]]),
        "word": tf.constant([["cat"], ["dog"], ["cat"], ["newt"]]),
        "weight": tf.constant([[1.0], [2.0], [0.5], [1.0]]),
    }


def dense(tf):
    fc = tf.feature_column
    word = fc.categorical_column_with_hash_bucket("word", 6)
    return [
        fc.numeric_column("x", shape=(2,)),
        fc.embedding_column(word, 3, combiner="sum"),
        fc.indicator_column(fc.crossed_column(["word", ages(tf)], 5)),
    ]


def ages(tf):
    fc = tf.feature_column
    return fc.bucketized_column(fc.numeric_column("age"), [20.0, 40.0, 60.0])


def wide(tf):
    fc = tf.feature_column
    return [
        fc.numeric_column("x", shape=(2,)),
        ages(tf),
        fc.categorical_column_with_hash_bucket("word", 6),
    ]


def shared(tf):
    fc = tf.feature_column
    word = fc.categorical_column_with_hash_bucket("word", 6)
    ids = fc.categorical_column_with_hash_bucket("id", 6, tf.int64)
    return fc.shared_embedding_columns([word, ids], 2)


def with_ids(tf):
    return dict(features(tf), id=tf.constant([[3], [1], [0], [5]], tf.int64))


def estimators(tf):
    """Name: (estimator, labels, features)."""
    e, raw = tf.estimator, features
    reduction = tf.losses.Reduction.SUM_OVER_BATCH_SIZE
    return {
        "linear": lambda: (e.LinearClassifier(wide(tf)), LABELS, raw),
        "linear_classes": lambda: (
            e.LinearClassifier(wide(tf), n_classes=3, sparse_combiner="mean"),
            CLASSES,
            raw,
        ),
        "linear_number": lambda: (
            e.LinearRegressor(wide(tf), optimizer="SGD", weight_column="weight"),
            LABELS * 2.5,
            raw,
        ),
        "dnn": lambda: (e.DNNClassifier([4, 3], dense(tf)), LABELS, raw),
        "dnn_weighted": lambda: (
            e.DNNClassifier(
                [4], dense(tf), weight_column="weight", optimizer="Adam", loss_reduction=reduction
            ),
            LABELS,
            raw,
        ),
        "dnn_classes": lambda: (
            e.DNNClassifier([4], dense(tf), n_classes=3, activation_fn=tf.nn.tanh),
            CLASSES,
            raw,
        ),
        "dnn_number": lambda: (
            e.DNNRegressor([5], dense(tf), label_dimension=2, batch_norm=True, dropout=0.5),
            np.array([[1.0, 2.0], [0.5, 1.0], [3.0, -1.0], [0.0, 0.0]], np.float32),
            raw,
        ),
        "combined": lambda: (
            e.DNNLinearCombinedClassifier(
                linear_feature_columns=wide(tf), dnn_feature_columns=dense(tf), dnn_hidden_units=[4]
            ),
            LABELS,
            raw,
        ),
        "combined_number": lambda: (
            e.DNNLinearCombinedRegressor(
                linear_feature_columns=wide(tf),
                linear_optimizer=tf.train.GradientDescentOptimizer(0.1),
                dnn_feature_columns=dense(tf),
                dnn_hidden_units=[4],
                dnn_optimizer=lambda: tf.train.AdamOptimizer(0.01),
            ),
            LABELS * 2.5,
            raw,
        ),
        "baseline": lambda: (e.BaselineClassifier(n_classes=3), CLASSES, raw),
        "baseline_number": lambda: (e.BaselineRegressor(), LABELS * 2.5, raw),
        "shared_dnn": lambda: (e.DNNClassifier([4], shared(tf)), LABELS, with_ids),
        "shared_linear": lambda: (e.LinearClassifier(shared(tf)), LABELS, with_ids),
    }


def model(tf, name, mode):
    with tf.Graph().as_default():  # where an estimator is made there may be any graph
        estimator, labels, raw = estimators(tf)[name]()
    tf.set_random_seed(11)
    tf.train.create_global_step()
    config = tf.estimator.RunConfig(tempfile.gettempdir())
    labels = None if mode == "infer" else tf.constant(labels)
    return estimator.model_fn(raw(tf), labels, mode, config)


def names_of(tf, variables):
    return tf.constant([v.name for v in variables] or ["none"])


def predicting(name):
    def build(tf):
        spec = model(tf, name, "infer")
        outputs = [tf.constant(key) for key in sorted(spec.export_outputs)]
        return spec.predictions, outputs, names_of(tf, tf.global_variables())

    return build


def evaluating(name):
    def build(tf):
        spec = model(tf, name, "eval")
        updates = {key: update for key, (_, update) in spec.eval_metric_ops.items()}
        return spec.loss, updates, [tf.constant(key) for key in sorted(updates)]

    return build


def training(name):
    """The loss, and all variables after a step."""

    def build(tf):
        spec = model(tf, name, "train")
        with tf.control_dependencies([getattr(spec.train_op, "op", spec.train_op)]):
            after = [v.read_value() for v in tf.global_variables()]
        summaries = [tf.constant(s.op.name) for s in tf.get_collection(tf.GraphKeys.SUMMARIES)]
        return spec.loss, after, names_of(tf, tf.global_variables()), summaries

    return build


def add(name, build, **options):
    def run(tf):
        return build(tf)

    run.__name__ = name
    run.__module__ = __name__
    case(imports=False, **options)(run)


# A model computes the same in each mode: there is no need to try all combinations.
PREDICTED = ["dnn", "dnn_classes", "dnn_number", "combined_number", "baseline", "shared_dnn"]
EVALUATED = ["linear", "linear_classes", "linear_number", "dnn_weighted", "dnn_number"]
TRAINED = ["linear", "linear_number", "dnn_weighted", "dnn_classes", "dnn_number", "combined"]
TRAINED += ["combined_number", "baseline_number", "shared_dnn", "shared_linear"]
for name in PREDICTED:
    add(name + "_predicts", predicting(name))
for name in EVALUATED:
    add(name + "_evaluates", evaluating(name), graph=False)
for name in TRAINED:
    add(name + "_trains", training(name), graph=False)
