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
    monkeypatch.setenv("TF_CONFIG", "{cluster")
    with pytest.raises(ValueError, match="TF_CONFIG is not JSON"):
        RunConfig()


CLUSTER = {"chief": ["h:0"], "ps": ["h:1", "h:2"], "worker": ["h:3", "h:4", "h:5"]}
FACTS = [
    *("task_type", "task_id", "is_chief", "master", "evaluation_master", "num_ps_replicas"),
    *("num_worker_replicas", "global_id_in_cluster"),
]


def in_task(monkeypatch, kind, index, cluster=CLUSTER, **more):
    found = {"cluster": cluster, "task": {"type": kind, "index": index}, **more}
    monkeypatch.setenv("TF_CONFIG", json.dumps(found))
    return RunConfig()


# What TensorFlow 1.15.5 gives for these.
@pytest.mark.parametrize(
    ("kind", "index", "facts", "filters"),
    [
        ("chief", 0, [True, "grpc://h:0", "", 2, 4, 0], ["/job:ps", "/job:chief"]),
        ("worker", 1, [False, "grpc://h:4", "", 2, 4, 2], ["/job:ps", "/job:worker/task:1"]),
        (
            *("ps", 1, [False, "grpc://h:2", "", 2, 4, 5]),
            ["/job:ps", "/job:worker", "/job:chief", "/job:master"],
        ),
        ("evaluator", 0, [False, "", "", 0, 0, None], None),
    ],
)
def test_tasks_of_a_cluster(monkeypatch, kind, index, facts, filters):
    config = in_task(monkeypatch, kind, index).replace(tf_random_seed=3)
    assert [getattr(config, name) for name in FACTS] == [kind, index, *facts]
    spec = {} if kind == "evaluator" else CLUSTER
    assert config.cluster_spec == tf.train.ClusterSpec(spec)
    if filters is None:
        assert config.session_config is None
    else:
        assert list(config.session_config.device_filters) == filters
        assert config.session_config.allow_soft_placement
    monkeypatch.delenv("TF_CONFIG")
    assert config.replace(tf_random_seed=4).task_type == kind


def test_other_forms_of_clusters(monkeypatch):
    config = in_task(monkeypatch, "chief", 0, {"chief": ["h:0"]})
    assert (config.master, config.num_worker_replicas, config.is_chief) == ("", 1, True)
    config = in_task(monkeypatch, "worker", 0, {"master": ["h:0"], "worker": ["h:1"]})
    assert (config.is_chief, config.num_worker_replicas, config.global_id_in_cluster) == (
        *(False, 2, 1),
    )
    assert in_task(monkeypatch, "chief", 0, session_master="m", service={"a": 1}).master == "m"
    own = tf.ConfigProto(log_device_placement=True)
    assert RunConfig(session_config=own).session_config is own


@pytest.mark.parametrize(
    ("cluster", "task", "message"),
    [
        ({"worker": ["h:0"]}, {"type": "worker", "index": 0}, 'must have one "chief" node'),
        ({"chief": ["h:0", "h:1"]}, {"type": "chief", "index": 0}, 'only one "chief" node'),
        (CLUSTER, {"index": 0}, "task type must be set"),
        (CLUSTER, {"type": "ps"}, "task index must be set"),
        (CLUSTER, {"type": "ps", "index": -1}, "non-negative"),
        (CLUSTER, {"type": "ps", "index": 2}, "2 is not a valid task_id for task_type ps"),
        (CLUSTER, {"type": "boss", "index": 0}, "boss is not a valid task_type"),
        ({"chief": ["h:0"], "master": ["h:1"]}, {}, "job `chief` is not supported"),
        ({"master": ["h:1"]}, {"type": "evaluator", "index": 0}, "`evaluator` is not supported"),
        ({}, {"type": "ps"}, "task type must be WORKER"),
        ({}, {"index": 1}, "task index must be 0"),
    ],
)
def test_wrong_clusters(monkeypatch, cluster, task, message):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    with pytest.raises(ValueError, match=message):
        RunConfig()
