"""RunConfig: defaults, copies, and what is refused."""

import json

import pytest

import headrace as tf

RunConfig = tf.estimator.RunConfig


def test_defaults():
    config = RunConfig()
    assert (config.save_checkpoints_secs, config.save_checkpoints_steps) == (600, None)
    assert (config.keep_checkpoint_max, config.save_summary_steps) == (5, 100)
    assert (config.is_chief, config.task_type, config.task_id, config.master) == (
        *(True, "worker", 0, ""),
    )
    assert RunConfig(save_checkpoints_steps=3).save_checkpoints_secs is None


def test_replace():
    config = RunConfig("here", tf_random_seed=1)
    changed = config.replace(save_checkpoints_steps=7, tf_random_seed=2)
    assert (changed.save_checkpoints_steps, changed.save_checkpoints_secs) == (7, None)
    assert (changed.model_dir, changed.tf_random_seed, config.tf_random_seed) == ("here", 2, 1)
    back = changed.replace(save_checkpoints_secs=60)
    assert (back.save_checkpoints_steps, back.save_checkpoints_secs) == (None, 60)
    with pytest.raises(ValueError, match="Replacing master is not supported"):
        config.replace(master="elsewhere")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"save_checkpoints_steps": 1, "save_checkpoints_secs": 1}, "cannot be both set"),
        ({"model_dir": ""}, "should be non-empty"),
        ({"save_summary_steps": -1}, "save_summary_steps should be >= 0"),
        ({"log_step_count_steps": 0}, "log_step_count_steps should be > 0"),
        ({"tf_random_seed": 1.5}, "tf_random_seed must be integer"),
        ({"session_config": {}}, "must be instance of ConfigProto"),
        ({"device_fn": lambda node: ""}, 'exactly one argument "op"'),
        ({"protocol": "http"}, "protocol should be grpc"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        RunConfig(**options)


def test_what_needs_other_processes_is_refused(monkeypatch):
    with pytest.raises(tf.errors.UnimplementedError, match="train_distribute"):
        RunConfig(train_distribute=object())
    monkeypatch.setenv("TF_CONFIG", json.dumps({"model_dir": "there"}))
    assert RunConfig().model_dir == "there"
    with pytest.raises(ValueError, match="must have the same value as the model_dir in TF_CONFIG"):
        RunConfig("here")
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1"]}}))
    with pytest.raises(tf.errors.UnimplementedError, match="one process"):
        RunConfig()
    monkeypatch.setenv("TF_CONFIG", "{cluster")
    with pytest.raises(ValueError, match="TF_CONFIG is not JSON"):
        RunConfig()
