"""Measured costs: joined over steps, applied to estimates, kept in files; links from samples."""

import json
import math

import pytest

import headrace as tf
from headrace._src.core import proto
from headrace._src.devices.device import LinkCost
from headrace._src.place.cost_graph import CostGraph, CostItem
from headrace._src.place.measured import (
    Measured,
    MeasuredCosts,
    calibrate,
    fingerprint,
    fit_link,
)


def graph_of(**seconds):
    return CostGraph.apart(
        [CostItem(n, {"CPU": s}, i) for i, (n, s) in enumerate(seconds.items())], []
    )


def test_steps_are_joined():
    costs = MeasuredCosts().with_times([("CPU", "a", 3.0), ("CPU", "b", 1.0), ("CPU", "b", 1.0)])
    costs = costs.with_times([("CPU", "a", 1.0), ("XLA", "a", 7.0)])
    assert costs.nodes["CPU", "a"] == Measured(2, 2.0, 1.0)
    assert costs.nodes["CPU", "b"] == Measured(1, 2.0, 2.0)  # twice in a loop
    assert costs.seconds("XLA", "a") == 7.0
    assert costs.seconds("CPU", "c") is None
    assert str(costs).splitlines()[1].split() == ["a", "XLA", "1", "7000000.0", "7000000.0"]


def test_a_trace_of_a_step_is_read():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [200], name="x")
        y = tf.strings.as_string(x, name="texts")
        metadata = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        session.run(y, {x: range(200)}, options=options, run_metadata=metadata)
    costs = MeasuredCosts().with_step(metadata.step_stats)
    assert costs.seconds("CPU", "texts") > 0


def test_traces_in_nanoseconds_are_preferred():
    stats = proto.StepStats()
    device = stats.dev_stats.add(device="/job:localhost/replica:0/task:0/device:CPU:0")
    device.node_stats.add(node_name="a", op_end_rel_micros=3)
    device.node_stats.add(node_name="b", op_end_rel_micros=3, op_end_rel_nanos=3210)
    costs = MeasuredCosts().with_step(stats)
    assert costs.seconds("CPU", "a") == pytest.approx(3.5e-6)
    assert costs.seconds("CPU", "b") == pytest.approx(3.21e-6)


def test_measured_costs_replace_estimates_and_clusters_are_shared_out():
    costs = MeasuredCosts().with_times([("CPU", "a", 5.0), ("CPU", "b/cluster", 8.0)])
    found = costs.applied(graph_of(a=1.0, b=1.0, c=3.0, d=2.0), {"b/cluster": ["b", "c"]})
    assert [item.seconds["CPU"] for item in found.items] == [5.0, 2.0, 6.0, 2.0]
    free = costs.applied(graph_of(b=0.0, c=0.0), {"b/cluster": ["b", "c"]})
    assert [item.seconds["CPU"] for item in free.items] == [4.0, 4.0]


def test_costs_are_scaled_to_a_measured_step():
    found = calibrate(graph_of(a=1.0, b=3.0), 2.0)
    assert [item.seconds["CPU"] for item in found.items] == [0.5, 1.5]
    with pytest.raises(ValueError, match="costs nothing on CPU"):
        calibrate(graph_of(a=0.0), 2.0)


def test_a_file_keeps_the_costs(tmp_path):
    costs = MeasuredCosts({("CPU", "a"): Measured(3, 2.0, 1.5)}, graph="abc")
    costs = costs.with_link("x", "y", LinkCost(1e-5, 1e9))
    costs.save(tmp_path / "costs.json")
    assert MeasuredCosts.load(tmp_path / "costs.json") == costs


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"format": "x"}, tf.errors.InvalidArgumentError, "not a file of measured costs"),
        ({"version": 9}, tf.errors.InvalidArgumentError, "has version 9 .* reads version 1"),
        ({"nodes": {"CPU": {"a": [1]}}}, tf.errors.DataLossError, "is damaged"),
        ({"nodes": {"CPU": {"a": [1, -2.0, -2.0]}}}, tf.errors.DataLossError, "is damaged"),
        ({"nodes": []}, tf.errors.DataLossError, "is damaged"),
    ],
)
def test_bad_files_are_refused(tmp_path, change, error, message):
    path = tmp_path / "costs.json"
    MeasuredCosts().save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(error, match=message):
        MeasuredCosts.load(path)
    path.write_text("{")
    with pytest.raises(tf.errors.DataLossError, match="is not JSON"):
        MeasuredCosts.load(path)


def test_a_graph_has_a_fingerprint():
    def made(name):
        with tf.Graph().as_default() as graph:
            tf.square(tf.placeholder(tf.float32, [], name="x"), name=name)
        return fingerprint(graph.get_operations())

    assert made("a") == made("a") != made("b")


def test_a_link_is_fitted_to_samples():
    exact = fit_link([(size, 1e-5 + size / 1e9) for size in (0, 100, 10**4, 10**6, 10**8)])
    assert exact.seconds == pytest.approx(1e-5)
    assert exact.bytes_per_second == pytest.approx(1e9)
    assert fit_link([(100, 2e-5), (100, 4e-5)]).bytes_per_second == math.inf
    through_origin = fit_link([(10**6, 1e-3), (10**8, 0.2)])
    assert through_origin.seconds == 0.0
    with pytest.raises(ValueError, match="no samples"):
        fit_link([])
    with pytest.raises(ValueError, match="at least 0"):
        fit_link([(-1, 1.0)])
