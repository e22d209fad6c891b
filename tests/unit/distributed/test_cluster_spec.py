"""ClusterSpec behaves as TensorFlow 1.15's."""

import pytest

import headrace as tf

LISTS = {"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]}


def test_a_list_of_addresses_numbers_the_tasks() -> None:
    spec = tf.train.ClusterSpec(LISTS)
    assert spec.jobs == ["worker", "ps"]
    assert spec.num_tasks("worker") == 2
    assert spec.task_indices("worker") == [0, 1]
    assert spec.task_address("worker", 1) == "w1:1"
    assert spec.job_tasks("ps") == ["p0:1"]
    assert spec.as_dict() == LISTS


def test_a_dictionary_may_leave_tasks_out() -> None:
    spec = tf.train.ClusterSpec({"worker": {2: "w2:1", 0: "w0:1"}})
    assert spec.as_dict() == {"worker": {0: "w0:1", 2: "w2:1"}}
    assert spec.job_tasks("worker") == ["w0:1", None, "w2:1"]
    assert spec.task_indices("worker") == [0, 2]


def test_a_cluster_def_and_back() -> None:
    message = tf.train.ClusterSpec(LISTS).as_cluster_def()
    assert [job.name for job in message.job] == ["ps", "worker"]
    assert tf.train.ClusterSpec(message) == tf.train.ClusterSpec(LISTS)
    assert tf.train.ClusterSpec(tf.train.ClusterSpec(LISTS)) == tf.train.ClusterSpec(LISTS)
    assert tf.train.ClusterSpec(LISTS) != tf.train.ClusterSpec({"worker": ["w0:1"]})


def test_an_empty_cluster_is_false() -> None:
    assert not tf.train.ClusterSpec({})
    assert tf.train.ClusterSpec(LISTS)


@pytest.mark.parametrize("bad", ["worker", 3, {"worker": "w0:1"}, {1: ["w0:1"]}, {"w": [3]}])
def test_what_is_no_cluster_is_refused(bad: object) -> None:
    with pytest.raises(TypeError):
        tf.train.ClusterSpec(bad)


def test_unknown_jobs_and_tasks() -> None:
    spec = tf.train.ClusterSpec(LISTS)
    with pytest.raises(ValueError, match="No such job in cluster: 'chief'"):
        spec.num_tasks("chief")
    with pytest.raises(ValueError, match="No task with index 5 in job 'worker'"):
        spec.task_address("worker", 5)
