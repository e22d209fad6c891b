"""Heads of tf.contrib.estimator: losses, metrics, predictions and exports, as TensorFlow 1.15.5 has
them, and estimators that are given one.
"""

import numpy as np
import pytest

import headrace as tf

heads = tf.contrib.estimator
ONE = np.array([[1.5], [-0.5]], "float32")
THREE = np.array([[1.0, 2.0, -1.0], [0.5, -1.0, 0.2]], "float32")
WEIGHTS = np.array([[1.0], [3.0]], "float32")
NUMBERS = np.array([[1.0], [0.0]], "float32")


def evaluated(head, logits, labels):
    """The loss and the metrics of a batch."""
    with tf.Graph().as_default(), tf.Session() as session:
        features = {"w": tf.constant(WEIGHTS)}
        spec = head.create_estimator_spec(features, "eval", logits, labels)
        session.run([tf.local_variables_initializer(), tf.tables_initializer()])
        loss = session.run(spec.loss)
        updates = {key: update for key, (_, update) in spec.eval_metric_ops.items()}
        return float(loss), {k: round(float(v), 4) for k, v in session.run(updates).items()}


def predicting(head, logits):
    with tf.Graph().as_default():
        return head.create_estimator_spec({}, "infer", tf.constant(logits))


def test_binary_with_a_name_weights_and_thresholds():
    head = heads.binary_classification_head(
        weight_column="w", thresholds=[0.25, 0.5], label_vocabulary=["no", "yes"], name="h"
    )
    loss, metrics = evaluated(head, ONE, np.array([["yes"], ["no"]]))
    assert loss == pytest.approx(0.8118221)
    assert metrics["accuracy/positive_threshold_0.25/h"] == 0.25
    assert metrics["precision/positive_threshold_0.25/h"] == 0.25
    assert metrics["recall/positive_threshold_0.5/h"] == 1.0
    assert metrics["average_loss/h"] == 0.4059 and metrics["accuracy_baseline/h"] == 0.75


def test_several_labels():
    head = heads.multi_label_head(3, classes_for_class_based_metrics=[1])
    loss, metrics = evaluated(head, THREE, np.array([[1, 0, 1], [0, 0, 1]]))
    assert loss == pytest.approx(0.9398215)
    assert metrics == {
        "average_loss": 0.9398,
        "auc": 0.3889,
        "auc_precision_recall": 0.3889,
        "probability_mean/class1": 0.5749,
        "auc/class1": 1.0,
        "auc_precision_recall/class1": 0.0,
    }
    outputs = predicting(head, THREE).export_outputs
    assert sorted(outputs) == ["classification", "predict", "serving_default"]


def test_several_labels_by_name_in_a_sparse_tensor():
    def labels():
        places = [[0, 0], [0, 1], [1, 0]]
        return tf.SparseTensor(places, [b"a", b"c", b"c"], [2, 2])

    names = {"label_vocabulary": ["a", "b", "c"]}
    with tf.Graph().as_default(), tf.Session() as session:
        spec = heads.multi_label_head(3, **names).create_estimator_spec({}, "eval", THREE, labels())
        session.run(tf.tables_initializer())
        assert session.run(spec.loss) == pytest.approx(0.9398215)


def test_numbers_through_a_link():
    head = heads.regression_head("w", 3, tf.losses.Reduction.SUM, inverse_link_fn=tf.exp, name="h")
    loss, metrics = evaluated(head, THREE, np.ones((2, 3), "float32"))
    assert loss == pytest.approx(19.67)
    assert metrics == {"average_loss/h": 1.6392, "prediction/mean/h": 1.6824, "label/mean/h": 1.0}
    assert sorted(predicting(head, THREE).predictions) == ["logits", "predictions"]


@pytest.mark.parametrize(
    ("make", "labels", "loss", "mean"),
    [
        (heads.poisson_regression_head, [[1.0], [2.0]], 2.620013, 2.5441),
        (
            lambda: heads.poisson_regression_head(compute_full_loss=False),
            *([[1.0], [2.0]], 2.2941098, 2.5441),
        ),
        (heads.logistic_regression_head, [[1.0], [0.3]], 0.41274512, 0.5976),
        (
            lambda: heads.regression_head(loss_fn=lambda labels, logits: tf.abs(labels - logits)),
            *(NUMBERS, 0.5, 0.5),
        ),
    ],
)
def test_losses_of_numbers(make, labels, loss, mean):
    found, metrics = evaluated(make(), ONE, np.asarray(labels, "float32"))
    assert found == pytest.approx(loss)
    assert metrics["prediction/mean"] == pytest.approx(mean, abs=2e-4)


def test_losses_of_several_heads_are_added():
    pair = [heads.regression_head(name="r"), heads.binary_classification_head(name="b")]
    labels = {"r": NUMBERS, "b": np.array([[1], [0]])}
    loss, metrics = evaluated(heads.multi_head(pair), {"r": ONE, "b": ONE}, labels)
    assert loss == pytest.approx(0.58774513)
    assert (metrics["loss/r"], metrics["loss/b"], metrics["accuracy/b"]) == (0.25, 0.3377, 1.0)
    both = np.concatenate([ONE, 2 * ONE], axis=1)
    loss, _ = evaluated(heads.multi_head(pair, [0.5, 2.0]), both, labels)
    assert loss == pytest.approx(0.48684904)
    spec = predicting(heads.multi_head(pair), both)
    assert ("r", "predictions") in spec.predictions
    assert {"r", "b/classification", "predict", "serving_default"} <= set(spec.export_outputs)


def test_training_summarizes_under_the_heads_name():
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        head = heads.multi_class_head(3, name="h", loss_reduction=tf.losses.Reduction.SUM)
        logits = THREE * tf.get_variable("v", [])
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        spec = head.create_estimator_spec({}, "train", logits, np.array([[1], [2]]), optimizer)
        names = [t.op.name for t in tf.get_collection(tf.GraphKeys.SUMMARIES)]
        assert names == ["loss/h", "average_loss/h"]
        assert spec.train_op.name.startswith("h/") and step is tf.train.get_global_step()


def test_making_a_head_makes_tensorflows_nodes():
    with tf.Graph().as_default() as graph:
        heads.binary_classification_head()
        heads.multi_label_head(3)
        heads.regression_head()
        assert graph.get_operations() == []
        heads.multi_class_head(4)
        assert len(graph.get_operations()) == 15


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: heads.multi_head([]), "Must specify heads"),
        (lambda: heads.multi_head([heads.regression_head()]), "must have name specified"),
        (lambda: heads.multi_head([heads.regression_head(name="r")], [1, 2]), "the same size"),
        (lambda: heads.multi_class_head(2), "n_classes must be > 2: 2"),
        (lambda: heads.multi_label_head(1), "n_classes must be > 1"),
        (lambda: heads.multi_label_head(3, label_vocabulary=["a"]), "Length of label_vocabulary"),
        (
            lambda: heads.multi_label_head(3, classes_for_class_based_metrics=[5]),
            r"must be in range \[0, 2\]. Given: 5",
        ),
        (
            lambda: heads.binary_classification_head(thresholds=[1.5]),
            r"thresholds not in \(0, 1\)",
        ),
        (
            lambda: heads.regression_head(loss_fn=lambda a, b: 0),
            "loss_fn must contain argument: labels",
        ),
        (
            lambda: heads.regression_head(loss_fn=lambda labels, logits, more: 0),
            r"loss_fn has unexpected args: \['more'\]",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_estimators_take_a_head(tmp_path):
    x = {"x": np.arange(8.0, dtype="float32")}
    y = (x["x"][:, None] > 3).astype("float32")
    feed = tf.estimator.inputs.numpy_input_fn(x, y, batch_size=4, num_epochs=None, shuffle=False)
    columns = [tf.feature_column.numeric_column("x")]
    head = heads.logistic_regression_head(name="p")
    made = [
        tf.estimator.LinearEstimator(head, columns, tmp_path / "linear"),
        tf.estimator.DNNEstimator(head, [3], columns, tmp_path / "dnn"),
        tf.estimator.DNNLinearCombinedEstimator(head, tmp_path / "both", columns, "Ftrl", columns,
                                                dnn_hidden_units=[2]),
        tf.estimator.BaselineEstimator(head, tmp_path / "baseline"),
    ]  # fmt: skip
    for estimator in made:
        estimator.train(feed, steps=2)
        results = estimator.evaluate(feed, steps=2)
        assert results["global_step"] == 2 and results["label/mean/p"] == 0.5
