"""TPUEstimator without a TPU: batch sizes by params, metrics and host calls by functions."""

import numpy as np
import pytest

import headrace as tf

tpu = tf.contrib.tpu
X = np.arange(24, dtype=np.float32).reshape(12, 2) / 10


def input_fn(params):
    index = tf.train.limit_epochs(tf.constant(X), params.get("epochs"))
    batch = tf.train.batch([index], params["batch_size"], enqueue_many=True)
    return {"x": batch}, tf.reduce_sum(batch, axis=1, keepdims=True)


def model_fn(features, labels, mode, params):
    assert params["use_tpu"] is False
    w = tf.get_variable("w", initializer=[[0.5], [0.0]])
    y = tf.matmul(features["x"], w)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tpu.TPUEstimatorSpec(mode, predictions={"y": y})
    loss = tf.reduce_mean((labels - y) ** 2)
    step = tf.train.get_global_step()
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    seen = tf.get_variable("seen", initializer=0.0, trainable=False)

    def metric_fn(labels, predictions):
        return {"error": tf.metrics.mean_absolute_error(labels, predictions)}

    return tpu.TPUEstimatorSpec(
        mode,
        loss=loss,
        train_op=train_op,
        eval_metrics=(metric_fn, {"labels": labels, "predictions": y}),
        host_call=(lambda batch: [seen.assign_add(tf.to_float(tf.shape(batch)[0]))], [y]),
        scaffold_fn=tf.train.Scaffold,
    )


def estimator(directory, **options):
    config = tpu.RunConfig(
        tpu_config=tpu.TPUConfig(iterations_per_loop=10, num_shards=8),
        model_dir=str(directory),
        save_checkpoints_steps=50,
    )
    sizes = {"train_batch_size": 4, "eval_batch_size": 3, "predict_batch_size": 6}
    return tpu.TPUEstimator(model_fn, config=config, use_tpu=False, **sizes, **options)


def test_batch_sizes(tmp_path):
    made = estimator(tmp_path, params={"epochs": None})
    assert made.config.tpu_config.iterations_per_loop == 10
    made.train(input_fn, max_steps=3)
    assert made.get_variable_value("seen") == 12
    results = made.evaluate(input_fn, steps=2)
    assert sorted(results) == ["error", "global_step", "loss"]
    batch = next(made.predict(input_fn, yield_single_examples=False))
    np.testing.assert_allclose(batch["y"], X[:6] @ made.get_variable_value("w"), rtol=1e-6)


def test_what_needs_tpus_is_refused(tmp_path):
    with pytest.raises(tf.errors.UnimplementedError, match="no TPUs"):
        tpu.TPUEstimator(model_fn, config=tpu.RunConfig())
    with pytest.raises(tf.errors.UnimplementedError, match="cluster of TPUs"):
        tpu.RunConfig(master="grpc://tpu:1")
    with pytest.raises(ValueError, match=r"\['batch_size'\] are reserved keys"):
        estimator(tmp_path, params={"batch_size": 3})


def test_specs_are_checked():
    with tf.Graph().as_default():
        loss = tf.constant(1.0)
        for metrics, error in ((3, ValueError), ((3, [loss]), TypeError), ((len, 3), ValueError)):
            spec = tpu.TPUEstimatorSpec("eval", loss=loss, eval_metrics=metrics)
            with pytest.raises(error, match="eval_metrics"):
                spec.as_estimator_spec()
