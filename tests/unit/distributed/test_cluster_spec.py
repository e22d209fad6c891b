"""ClusterSpec behaves as TensorFlow 1.15's."""

import json

import pytest

import headrace as tf
from headrace._src.distributed.cluster_spec import conflict
from headrace._src.transport.connect import same_address

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


def test_the_numbers_of_tasks_may_come_from_json() -> None:
    spec = tf.train.ClusterSpec(json.loads('{"worker": {"2": "w2:1", "0": "w0:1"}}'))
    assert spec.as_dict() == {"worker": {0: "w0:1", 2: "w2:1"}}


def test_a_cluster_def_and_back() -> None:
    message = tf.train.ClusterSpec(LISTS).as_cluster_def()
    assert [job.name for job in message.job] == ["ps", "worker"]
    assert tf.train.ClusterSpec(message) == tf.train.ClusterSpec(LISTS)
    assert tf.train.ClusterSpec(tf.train.ClusterSpec(LISTS)) == tf.train.ClusterSpec(LISTS)
    assert tf.train.ClusterSpec(LISTS) != tf.train.ClusterSpec({"worker": ["w0:1"]})


def test_an_empty_cluster_is_false() -> None:
    assert not tf.train.ClusterSpec({})
    assert tf.train.ClusterSpec(LISTS)


@pytest.mark.parametrize(
    "bad",
    [
        *("worker", 3, {"worker": "w0:1"}, {1: ["w0:1"]}, {"w": [3]}),
        *({"w": {"x": "a:1"}}, {"w": {1.5: "a:1"}}),
    ],
)
def test_what_is_no_cluster_is_refused(bad: object) -> None:
    with pytest.raises(TypeError):
        tf.train.ClusterSpec(bad)


def test_unknown_jobs_and_tasks() -> None:
    spec = tf.train.ClusterSpec(LISTS)
    with pytest.raises(ValueError, match="No such job in cluster: 'chief'"):
        spec.num_tasks("chief")
    with pytest.raises(ValueError, match="No task with index 5 in job 'worker'"):
        spec.task_address("worker", 5)


def test_what_two_specifications_disagree_about() -> None:
    own = {"a": "h:1", "b": "h:2"}
    never = lambda first, second: False  # noqa: E731
    assert conflict(own, {"b": "h:2", "c": "h:3"}, never) is None
    assert conflict(own, {"b": "h:9"}, never) == "b is at h:2 here, and at h:9 there"
    assert conflict(own, {"b": "h:9"}, lambda first, second: True) is None


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:1", "127.0.0.2:1", False),
        ("127.0.0.1:0", "127.0.0.1:2", True),
        ("0.0.0.0:2", "10.0.0.1:2", True),
        ("127.0.0.1:2", "127.0.0.1:2", True),
    ],
)
def test_addresses_that_are_written_in_different_ways(first: str, second: str, same: bool) -> None:
    assert same_address(first, second) == same_address(second, first) == same
