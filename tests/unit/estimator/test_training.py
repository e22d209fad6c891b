"""train_and_evaluate, its exporters, and serving an export."""

import os

import numpy as np
import pytest

import headrace as tf
from tests.unit.estimator.test_estimator import X, estimator, inputs

e = tf.estimator


def receiver():
    return e.export.build_raw_serving_input_receiver_fn({"x": tf.placeholder(tf.float32, [1, 2])})()


def run(made, exporters=(), steps=4, **options):
    return e.train_and_evaluate(
        made,
        e.TrainSpec(inputs(), max_steps=steps),
        e.EvalSpec(inputs(1), exporters=exporters, **options),
    )


def test_evaluates_after_checkpoints(tmp_path):
    made = estimator(tmp_path, config=e.RunConfig(save_checkpoints_steps=2))
    metrics, exports = run(made, throttle_secs=0)
    assert (metrics["global_step"], exports) == (4, [])
    (events,) = (tmp_path / "eval").iterdir()
    steps = [event.step for event in tf.train.summary_iterator(str(events)) if event.step]
    assert steps == [2, 4]
    assert run(made) == (None, None)  # nothing left to train


def test_shortly_after_an_evaluation_there_is_none(tmp_path):
    made = estimator(tmp_path, config=e.RunConfig(save_checkpoints_steps=1))
    run(made)
    (events,) = (tmp_path / "eval").iterdir()
    steps = [event.step for event in tf.train.summary_iterator(str(events)) if event.step]
    assert steps == [1, 4]  # the first, and the one at the end


def test_final_export_is_served(tmp_path):
    made = estimator(tmp_path)
    _, (path,) = run(made, e.FinalExporter("last", receiver))
    assert os.path.dirname(path).decode() == str(tmp_path / "export" / "last")
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.loader.load(session, ["serve"], path.decode())
        signature = loaded.signature_def["serving_default"]
        served = session.run(signature.outputs["y"].name, {signature.inputs["x"].name: X})
    np.testing.assert_allclose(served, X @ made.get_variable_value("w"), rtol=1e-6)


def test_latest_exports_are_kept(tmp_path):
    made = estimator(tmp_path).train(inputs(), steps=1)
    exporter = e.LatestExporter("late", receiver, exports_to_keep=2)
    directory = tmp_path / "exports"
    for name in ("1000000001", "1000000002", "other"):
        (directory / name).mkdir(parents=True)
    path = exporter.export(made, str(directory), made.latest_checkpoint(), {}, False)
    kept = sorted(os.listdir(directory))
    assert kept == ["1000000002", os.path.basename(path).decode(), "other"]


def test_best_export_remembers_earlier_runs(tmp_path):
    made = estimator(tmp_path).train(inputs(), steps=1)
    loss = float(made.evaluate(inputs(1))["loss"])

    def export(result):
        exporter = e.BestExporter("best", receiver)
        return exporter.export(made, str(tmp_path / "best"), made.latest_checkpoint(), result, 0)

    assert export({"loss": loss * 1.1}) is None
    assert export({"loss": loss * 0.9}) is not None


def test_files_that_travel_along(tmp_path):
    (tmp_path / "notes.txt").write_text("read me")
    made = estimator(tmp_path / "model").train(inputs(), steps=1)
    extra = {"docs/notes.txt": str(tmp_path / "notes.txt")}
    path = made.export_savedmodel(tmp_path / "out", receiver, assets_extra=extra, as_text=True)
    found = tmp_path / "out" / os.path.basename(path).decode()
    assert (found / "assets.extra" / "docs" / "notes.txt").read_text() == "read me"
    assert (found / "saved_model.pbtxt").exists()


def test_a_model_that_lacks_variables_of_the_checkpoint(tmp_path):
    made = estimator(tmp_path).train(inputs(), steps=1)

    def larger(features, mode):
        spec = tf.get_variable("extra", initializer=1.0) * features["x"]
        return e.EstimatorSpec(mode, {"y": spec})

    other = e.Estimator(larger, str(tmp_path))
    with pytest.raises(ValueError, match=r"Could not load all requested variables[\s\S]*extra"):
        other.export_saved_model(tmp_path / "out", receiver)
    assert made.latest_checkpoint()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: e.TrainSpec(3), TypeError, "`input_fn` must be callable, given: 3"),
        (lambda: e.TrainSpec(inputs(), max_steps=0), ValueError, "max_steps > 0, given: 0"),
        (lambda: e.TrainSpec(inputs(), hooks=[1]), TypeError, "must be `SessionRunHook` instances"),
        (lambda: e.EvalSpec(inputs(), steps=0), ValueError, "steps > 0, given: 0"),
        (lambda: e.EvalSpec(inputs(), name=3), TypeError, "`name` must be string"),
        (lambda: e.EvalSpec(inputs(), throttle_secs=-1), ValueError, "throttle_secs >= 0"),
        (lambda: e.EvalSpec(inputs(), exporters=[3]), TypeError, "must be an Exporter"),
        (
            lambda: e.EvalSpec(inputs(), exporters=[e.FinalExporter("a", receiver)] * 2),
            ValueError,
            "must have unique names",
        ),
        (lambda: e.LatestExporter("a", receiver, exports_to_keep=0), ValueError, "positive"),
        (lambda: e.BestExporter(compare_fn=lambda a, b: True), ValueError, "must have the argum"),
        (lambda: e.train_and_evaluate(3, None, None), TypeError, r"type `tf.estimator.Estimator`"),
    ],
)
def test_mistakes(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_receivers_and_outputs_are_checked():
    with tf.Graph().as_default():
        x, text = tf.placeholder(tf.float32), tf.placeholder(tf.string)
        for make, message in (
            (lambda: e.export.ServingInputReceiver(None, x), "features must be defined"),
            (lambda: e.export.ServingInputReceiver({"a": 3}, x), "feature a must be a Tensor"),
            (lambda: e.export.ServingInputReceiver(x, {1: x}), "keys must be strings: 1"),
            (lambda: e.export.TensorServingInputReceiver({"a": x}, x), "must be a Tensor"),
            (lambda: e.export.ClassificationOutput(), "At least one of scores and classes"),
            (lambda: e.export.ClassificationOutput(scores=text), "must be a float32 Tensor"),
            (lambda: e.export.RegressionOutput(text), "must be a float32 Tensor"),
            (lambda: e.export.PredictOutput({"a": 3}), "must be a Tensor; got 3"),
        ):
            with pytest.raises(ValueError, match=message):
                make()
        single = e.export.TensorServingInputReceiver(x, text)
        assert (single.features, single.receiver_tensors) == (x, {"input": text})
