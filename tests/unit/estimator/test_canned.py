"""Canned estimators: names of classes, and errors about features and labels."""

import numpy as np
import pytest

import headrace as tf

e, fc = tf.estimator, tf.feature_column
X = {"x": np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)}
COLUMNS = [fc.numeric_column("x")]


def inputs(labels, features=X):
    labels = None if labels is None else np.array(labels)
    return e.inputs.numpy_input_fn(features, labels, num_epochs=1, shuffle=False)


@pytest.mark.parametrize(
    ("make", "labels", "error", "message"),
    [
        (
            lambda d: e.LinearClassifier(COLUMNS, d),
            [0, 1, 2, 1],
            tf.errors.InvalidArgumentError,
            "Labels must <= n_classes - 1",
        ),
        (
            lambda d: e.LinearClassifier(COLUMNS, d),
            [0, 1, -1, 1],
            tf.errors.InvalidArgumentError,
            "Labels must >= 0",
        ),
        (
            lambda d: e.DNNClassifier([2], COLUMNS, d, 3),
            [0, 1, 3, 1],
            tf.errors.InvalidArgumentError,
            "Labels must <= n_classes - 1",
        ),
        (
            lambda d: e.DNNClassifier([2], COLUMNS, d, 3),
            [0.5, 1, 2, 1],
            ValueError,
            "Labels dtype should be integer",
        ),
        (
            lambda d: e.DNNClassifier([2], COLUMNS, d, 3),
            [[0, 1, 0]] * 4,
            ValueError,
            "Mismatched label shape. Expected labels dimension=1.  Received 3",
        ),
        (
            lambda d: e.LinearClassifier(COLUMNS, d, label_vocabulary=["a", "b"]),
            [0, 1, 0, 1],
            ValueError,
            "Labels dtype should be string if there is a vocabulary",
        ),
        (
            lambda d: e.LinearRegressor(COLUMNS, d, label_dimension=2),
            [1.0, 2.0, 3.0, 4.0],
            ValueError,
            "Expected labels dimension=2.  Received 1",
        ),
        (
            lambda d: e.LinearRegressor(COLUMNS, d),
            None,
            ValueError,
            "You must provide a labels Tensor",
        ),
        (
            lambda d: e.LinearRegressor([fc.numeric_column("y")], d),
            [1.0] * 4,
            ValueError,
            "Feature y is not in features dictionary. It has: x",
        ),
        (
            lambda d: e.DNNRegressor([2], [], d),
            [1.0] * 4,
            ValueError,
            "feature_columns must not be empty",
        ),
        (
            lambda d: e.DNNRegressor([2], COLUMNS, d, optimizer="Newton"),
            [1.0] * 4,
            ValueError,
            "Unsupported optimizer name: Newton",
        ),
        (
            lambda d: e.DNNRegressor([2], COLUMNS, d, optimizer=3),
            [1.0] * 4,
            ValueError,
            "not an Optimizer instance. Given: 3",
        ),
        (
            lambda d: e.LinearRegressor(COLUMNS, d, weight_column=3),
            [1.0] * 4,
            TypeError,
            "Weight column must be either a string or _NumericColumn",
        ),
        (
            lambda d: e.DNNLinearCombinedRegressor(d, dnn_feature_columns=COLUMNS),
            [1.0] * 4,
            ValueError,
            "dnn_hidden_units must be defined",
        ),
        (
            lambda d: e.DNNLinearCombinedRegressor(d),
            [1.0] * 4,
            ValueError,
            "Either linear_feature_columns or dnn_feature_columns must be defined",
        ),
        (
            lambda d: e.LinearClassifier(COLUMNS, d, n_classes=1),
            [0] * 4,
            ValueError,
            "n_classes must be > 2: 1",
        ),
        (
            lambda d: e.LinearRegressor(COLUMNS, d, label_dimension=0),
            [0] * 4,
            ValueError,
            "Invalid label_dimension 0",
        ),
        (
            lambda d: e.LinearRegressor(COLUMNS, d, loss_reduction="none"),
            [0] * 4,
            ValueError,
            "Invalid loss_reduction: none",
        ),
        (
            lambda d: e.LinearClassifier(COLUMNS, d, label_vocabulary="ab"),
            [0] * 4,
            ValueError,
            "label_vocabulary should be a list or a tuple",
        ),
    ],
)
def test_mistakes(tmp_path, make, labels, error, message):
    with pytest.raises(error, match=message):
        make(str(tmp_path)).train(inputs(labels), steps=1)


def test_features_have_to_be_a_dict(tmp_path):
    for made in (
        e.LinearRegressor(COLUMNS, tmp_path),
        e.DNNRegressor([2], COLUMNS, tmp_path),
        e.DNNLinearCombinedRegressor(tmp_path, linear_feature_columns=COLUMNS),
        e.BaselineRegressor(tmp_path),
    ):
        with pytest.raises(ValueError, match="features should be a dictionary of `Tensor`s"):
            made.train(inputs([1.0] * 4, X["x"]), steps=1)


def test_names_of_classes(tmp_path):
    made = e.LinearClassifier(COLUMNS, tmp_path, label_vocabulary=["low", "high"])
    made.train(inputs(["low", "low", "high", "high"]), steps=1)
    row = next(made.predict(inputs(None)))
    assert row["classes"].tolist() == [b"high"]
    assert row["all_classes"].tolist() == [b"low", b"high"]


def test_signatures_of_an_exported_classifier(tmp_path):
    made = e.LinearClassifier(COLUMNS, tmp_path / "model").train(inputs([0, 1, 1, 0]), steps=1)
    spec = fc.make_parse_example_spec(COLUMNS)
    path = made.export_saved_model(
        tmp_path / "out", e.export.build_parsing_serving_input_receiver_fn(spec)
    )
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.append(2.0)
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.loader.load(session, ["serve"], path.decode())
        found = {key: s.method_name for key, s in loaded.signature_def.items()}
        signature = loaded.signature_def["regression"]
        feeds = {signature.inputs["inputs"].name: [example.SerializeToString()]}
        served = session.run(signature.outputs["outputs"].name, feeds)
    assert found == {
        "serving_default": "tensorflow/serving/classify",
        "classification": "tensorflow/serving/classify",
        "regression": "tensorflow/serving/regress",
        "predict": "tensorflow/serving/predict",
    }
    asked = next(made.predict(inputs(None, {"x": np.array([[2.0]], np.float32)})))
    np.testing.assert_allclose(served[0], asked["logistic"], rtol=1e-6)
