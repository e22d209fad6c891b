"""Estimator: training, evaluation and prediction of a small model function, and errors."""

import os

import numpy as np
import pytest

import headrace as tf

X = np.arange(12, dtype=np.float32).reshape(6, 2) / 10
Y = X @ np.array([[1.0], [2.0]], np.float32)
Modes = tf.estimator.ModeKeys


def model_fn(features, labels, mode, params):
    w = tf.get_variable("w", initializer=[[params["start"]], [0.0]])
    predictions = {"y": tf.matmul(features["x"], w)}
    if mode == Modes.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions)
    loss = tf.losses.mean_squared_error(labels, predictions["y"])
    step = tf.train.get_global_step()
    train_op = tf.train.GradientDescentOptimizer(params["rate"]).minimize(loss, step)
    metrics = {"error": tf.metrics.mean_absolute_error(labels, predictions["y"])}
    return tf.estimator.EstimatorSpec(mode, predictions, loss, train_op, metrics)


def estimator(directory, **options):
    options.setdefault("params", {"start": 0.5, "rate": 0.1})
    return tf.estimator.Estimator(model_fn, str(directory), **options)


def inputs(epochs=None, labels=Y, batch=3):
    return tf.estimator.inputs.numpy_input_fn(
        {"x": X}, labels, batch_size=batch, num_epochs=epochs, shuffle=False
    )


def expected(steps):
    w = np.array([[0.5], [0.0]])
    for i in range(steps):
        x, y = X[3 * (i % 2) :][:3], Y[3 * (i % 2) :][:3]
        w = w - 0.1 * 2 * x.T @ (x @ w - y) / 3
    return w


def test_trains_from_the_latest_checkpoint_on(tmp_path):
    first = estimator(tmp_path)
    assert first.latest_checkpoint() is None
    assert first.train(inputs(), steps=3) is first
    np.testing.assert_allclose(first.get_variable_value("w"), expected(3), rtol=1e-5)
    again = estimator(tmp_path)
    again.train(inputs(), max_steps=4)
    # The input starts over with each call, so that its fourth step sees the first batch.
    x, y, w = X[:3], Y[:3], expected(3)
    w = w - 0.1 * 2 * x.T @ (x @ w - y) / 3
    np.testing.assert_allclose(again.get_variable_value("w"), w, rtol=1e-5)
    assert again.get_variable_names() == ["global_step", "w"]
    assert again.latest_checkpoint() == str(tmp_path / "model.ckpt-4")
    again.train(lambda: pytest.fail("there's nothing to train"), max_steps=4)


def test_trains_until_the_input_ends(tmp_path):
    made = estimator(tmp_path).train(inputs(epochs=2))
    assert made.get_variable_value("global_step") == 4


def test_evaluates(tmp_path):
    made = estimator(tmp_path)
    before = made.evaluate(inputs(1))
    assert before["global_step"] == 0
    error = np.abs(X @ [[0.5], [0.0]] - Y)
    np.testing.assert_allclose(before["error"], error.mean(), rtol=1e-5)
    np.testing.assert_allclose(before["loss"], (error**2).mean(), rtol=1e-5)
    made.train(inputs(), steps=2)
    after = made.evaluate(inputs(), steps=1, name="half")
    assert sorted(after) == ["error", "global_step", "loss"]
    assert after["global_step"] == 2
    assert os.listdir(made.eval_dir("half"))
    at_start = made.evaluate(inputs(1), checkpoint_path=str(tmp_path / "model.ckpt-0"))
    assert at_start == before
    (events,) = (tmp_path / "eval_half").iterdir()
    written = {v.tag for e in tf.train.summary_iterator(str(events)) for v in e.summary.value}
    assert written == {"checkpoint_path", "error", "loss"}


def test_predicts(tmp_path):
    made = estimator(tmp_path)
    rows = list(made.predict(inputs(1, labels=None, batch=4)))
    np.testing.assert_allclose([row["y"] for row in rows], X[:, :1] / 2, rtol=1e-6)
    batches = made.predict(inputs(1, labels=None, batch=4), "y", yield_single_examples=False)
    assert [len(batch["y"]) for batch in batches] == [4, 2]
    with pytest.raises(ValueError, match=r"at least one output from \['y'\], provided nothing"):
        next(made.predict(inputs(1, labels=None), "nothing"))


def test_the_default_graph_of_the_caller_stays(tmp_path):
    graph = tf.get_default_graph()
    rows = estimator(tmp_path).predict(inputs(1, labels=None))
    next(rows)
    assert tf.get_default_graph() is graph
    rows.close()


class Dataset:
    """As much of a dataset as is used: a row for each step, after the initializer has run."""

    def make_initializable_iterator(self):
        self.row = tf.get_local_variable("row", initializer=-100)
        self.initializer = self.row.assign(0)
        return self

    def get_next(self):
        row = self.row.assign_add(1)
        return {"x": tf.gather(X, [row])}, tf.gather(Y, [row])


def test_datasets(tmp_path):
    made = estimator(tmp_path).train(Dataset, steps=2)
    w = np.array([[0.5], [0.0]])
    for row in (1, 2):
        x, y = X[row : row + 1], Y[row : row + 1]
        w = w - 0.1 * 2 * x.T @ (x @ w - y)
    np.testing.assert_allclose(made.get_variable_value("w"), w, rtol=1e-5)


class Listener(tf.train.CheckpointSaverListener):
    def __init__(self):
        self.steps = []

    def after_save(self, session, global_step_value):
        self.steps.append(int(global_step_value))


def test_listeners_hear_of_checkpoints(tmp_path):
    listener = Listener()
    made = estimator(tmp_path, config=tf.estimator.RunConfig(save_checkpoints_steps=2))
    made.train(inputs(), steps=5, saving_listeners=[listener])
    assert listener.steps == [0, 2, 4, 5]
    never = tf.estimator.RunConfig(save_checkpoints_steps=None, save_checkpoints_secs=None)
    with pytest.raises(ValueError, match="There should be a CheckpointSaverHook"):
        estimator(tmp_path / "other", config=never).train(
            inputs(), steps=1, saving_listeners=[listener]
        )


def test_hooks_of_the_spec_and_of_the_call(tmp_path):
    seen = []

    class Hook(tf.train.SessionRunHook):
        def __init__(self, name):
            self.name = name

        def end(self, session):
            seen.append(self.name)

    def hooked(features, labels, mode):
        spec = model_fn(features, labels, mode, {"start": 1.0, "rate": 0.1})
        return spec._replace(
            training_hooks=[Hook("training")], evaluation_hooks=[Hook("evaluation")]
        )

    made = tf.estimator.Estimator(hooked, str(tmp_path))
    made.train(inputs(), steps=1, hooks=[Hook("train")])
    made.evaluate(inputs(1), hooks=[Hook("evaluate")])
    assert sorted(seen) == ["evaluate", "evaluation", "train", "training"]


def test_warm_start(tmp_path):
    old = estimator(tmp_path / "old").train(inputs(), steps=3)
    fresh = estimator(tmp_path / "new", warm_start_from=str(tmp_path / "old"))
    assert fresh.evaluate(inputs(1))["loss"] == old.evaluate(inputs(1))["loss"]
    fresh.train(inputs(), steps=1)
    assert fresh.get_variable_value("global_step") == 1
    renamed = tf.estimator.WarmStartSettings(
        str(tmp_path / "old"), "w", var_name_to_prev_var_name={"v": "w"}
    )
    with pytest.raises(ValueError, match=r"were not used: {'v': 'w'}"):
        estimator(tmp_path / "other", warm_start_from=renamed).train(inputs(), steps=1)


def test_metrics_can_be_added(tmp_path):
    def more(labels, predictions):
        return {"largest": tf.metrics.mean(tf.reduce_max(predictions["y"] - labels))}

    made = tf.estimator.add_metrics(estimator(tmp_path), more)
    assert sorted(made.evaluate(inputs(1))) == ["error", "global_step", "largest", "loss"]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda e: e.train(inputs(), steps=1, max_steps=2), ValueError, "both steps and max_steps"),
        (lambda e: e.train(inputs(), steps=0), ValueError, "steps > 0, given: 0"),
        (lambda e: e.train(inputs(), max_steps=-1), ValueError, "max_steps > 0, given: -1"),
        (lambda e: e.train(inputs(), hooks=[3]), TypeError, "must be a SessionRunHook, given: 3"),
        (lambda e: e.train({"x": X}), TypeError, "input_fn has to be a function"),
        (lambda e: e.train(lambda: (X, Y, Y)), ValueError, "as a len 2 tuple"),
        (lambda e: e.evaluate(inputs(), steps=0), ValueError, "steps > 0, given: 0"),
        (lambda e: e.get_variable_value("w"), ValueError, "Could not find trained model"),
        (lambda e: e.export_saved_model("x", lambda: None), ValueError, "find trained model"),
        (lambda e: e.export_saved_model("x", None), ValueError, "input_receiver_fn must be"),
    ],
)
def test_mistaken_calls(tmp_path, call, error, message):
    with pytest.raises(error, match=message):
        call(estimator(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_fn": None}, "model_fn must be provided"),
        ({"model_fn": lambda labels: 0}, "must include features argument"),
        ({"model_fn": lambda features, flavour: 0}, r"not expected args: \['flavour'\]"),
        ({"model_fn": lambda features: 0, "params": {}}, "does not include params argument"),
        ({"config": 3}, "must be an instance of `RunConfig`"),
        ({"config": tf.estimator.RunConfig("other")}, "set both in constructor and `RunConfig`"),
        ({"warm_start_from": 3}, "must be a string or a WarmStartSettings"),
    ],
)
def test_mistaken_estimators(options, message):
    made = {"model_fn": model_fn, "model_dir": "here", **options}
    with pytest.raises(ValueError, match=message):
        tf.estimator.Estimator(**made)


def test_members_are_not_overridden():
    class Mine(tf.estimator.Estimator):
        def train(self):
            pass

    with pytest.raises(ValueError, match=r"cannot override members .* \['train'\]"):
        Mine(model_fn, "here")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda t: {"mode": Modes.TRAIN, "loss": t}, ValueError, "Missing train_op"),
        (lambda t: {"mode": Modes.EVAL}, ValueError, "Missing loss"),
        (lambda t: {"mode": Modes.PREDICT}, ValueError, "Missing predictions"),
        (lambda t: {"mode": Modes.EVAL, "loss": [t]}, TypeError, "loss must be Tensor"),
        (lambda t: {"mode": Modes.EVAL, "loss": tf.stack([t, t])}, ValueError, "must be scalar"),
        (
            lambda t: {"mode": Modes.EVAL, "loss": t, "eval_metric_ops": {"a": t}},
            TypeError,
            r"must be \(metric_value, update_op\) tuples",
        ),
        (
            lambda t: {"mode": Modes.PREDICT, "predictions": t, "export_outputs": {"a": t}},
            TypeError,
            "must be ExportOutput objects",
        ),
        (
            lambda t: {"mode": Modes.TRAIN, "loss": t, "train_op": "step"},
            TypeError,
            "train_op must be Operation or Tensor",
        ),
    ],
)
def test_mistaken_specs(make, error, message):
    with tf.Graph().as_default(), pytest.raises(error, match=message):
        tf.estimator.EstimatorSpec(**make(tf.constant(1.0)))


def test_tensors_of_another_graph_are_told():
    with tf.Graph().as_default():
        loss = tf.constant(1.0)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="must be from the default graph"):
        tf.estimator.EstimatorSpec(Modes.EVAL, loss=loss)


def test_labels_that_a_model_does_not_take(tmp_path):
    made = tf.estimator.Estimator(lambda features, mode: None, str(tmp_path))
    with pytest.raises(ValueError, match="does not take labels, but input_fn returns labels"):
        made.train(inputs(), steps=1)
    with pytest.raises(ValueError, match="should return an EstimatorSpec, but returned None"):
        made.train(inputs(labels=None), steps=1)


def test_reserved_metrics(tmp_path):
    made = tf.estimator.add_metrics(estimator(tmp_path), lambda: {"loss": tf.metrics.mean(1.0)})
    with pytest.raises(ValueError, match='"loss" is not allowed'):
        made.evaluate(inputs(1))
