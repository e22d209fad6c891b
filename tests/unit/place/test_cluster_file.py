"""Descriptions of clusters: what they say, and what is said of mistakes."""

import json

import pytest

import headrace as tf
from headrace._src.devices.device import LinkCost
from headrace._src.place.cluster_file import cluster_of, read_cluster

TEXT = """
[[machines]]
name = "ps"
memory = "2 GiB"

[[machines]]
name = "worker"
count = 2
speed = 1.5
devices = {CPU = 1, XLA = 2}

[network]
latency = 50e-6
bandwidth = "1.25 GB/s"

[[links]]
between = ["worker:0", "worker:1"]
bandwidth = 1e10
"""


def test_machines_devices_and_links(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(TEXT)
    found = read_cluster(path)
    assert len(found.devices) == 7
    first, *others = found.devices
    assert first.name == "/job:ps/replica:0/task:0/device:CPU:0"
    assert (first.memory, first.speed, first.processor) == (2 << 30, 1.0, "ps:0")
    assert [d.type for d in others] == ["CPU", "XLA", "XLA"] * 2
    assert {d.speed for d in others} == {1.5}
    assert found.link(0, 1) == LinkCost(50e-6, 1.25e9)
    assert found.link(1, 4) == found.link(4, 1) == LinkCost(0.0, 1e10)
    assert found.lanes(1, 4) == ("worker:0 sends", "worker:1 receives")
    assert found.lanes(1, 2) == ()


def test_json_says_the_same(tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"machines": [{"name": "one", "memory": 1000}]}))
    (device,) = read_cluster(path).devices
    assert device.memory == 1000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "the file needs machines"),
        ([], "the file must be a table"),
        ({"machines": []}, "at least one"),
        ({"machines": [{"name": "A b"}]}, "small letters"),
        ({"machines": [{"name": "a", "cores": 2}]}, "a machine has no entry 'cores'; there are"),
        ({"machines": [{"name": "a", "count": 0}]}, "count must be a whole number"),
        ({"machines": [{"name": "a", "speed": "2"}]}, "speed must be a number above 0"),
        ({"machines": [{"name": "a", "memory": "much"}]}, 'such as "16 GiB"'),
        ({"machines": [{"name": "a", "devices": {}}]}, "numbers by types"),
        ({"machines": [{"name": "a", "count": 2}]}, "no network between them"),
        ({"machines": [{"name": "a"}], "network": {"bandwidth": 0}}, "above 0"),
        ({"machines": [{"name": "a"}], "network": {"bandwidth": 1, "latency": -1}}, "at least 0"),
        (
            {"machines": [{"name": "a"}], "links": [{"between": ["a:0", "b:0"], "bandwidth": 1}]},
            "between two of a:0",
        ),
    ],
)
def test_mistakes_are_explained(content, message):
    with pytest.raises(ValueError, match=message):
        cluster_of(content)


def test_the_file_is_named(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text("machines = ")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"cluster\.toml: "):
        read_cluster(path)
