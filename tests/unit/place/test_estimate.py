"""Estimates of steps and graphs: which operations cost what, and what is taken for unknown."""

from dataclasses import replace

import numpy as np
import pytest

import headrace as tf
from headrace._src.devices.device import Device, LinkCost, local_devices
from headrace._src.graph.definition import _REGISTERED, OpKernel
from headrace._src.pipeline import Options, compile_step
from headrace._src.place.choose import choose_by_cost, model_devices, predict
from headrace._src.place.cost_graph import ClusterModel, DeviceModel
from headrace._src.place.estimate import (
    Assumptions,
    Roofs,
    estimate,
    estimate_flow,
    groups_of,
    loop_of,
)
from headrace._src.place.measured import MeasuredCosts

ROOFS = Roofs(flops=1e9, bandwidth=1e8, efficiency=0.5, cached=1.0, node=1e-6, kernel=0.0)


FAST = replace(ROOFS, bandwidth=1e15)  # only floating-point operations count


def optimised(fetches, feeds, shapes, targets=()):
    forms = {}
    options = Options(jit="off")
    compile_step(fetches, targets, feeds, shapes, options, lambda n, f: forms.update({n: f}))
    return forms["dead"]


def times(graph, kind="CPU"):
    return {item.name: item.seconds[kind] for item in graph.items}


def test_a_contraction_costs_its_operations():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 30], name="x")
        w = tf.get_variable("w", [30, 10], use_resource=False)
        y = tf.matmul(x, w, name="y")
        flow = optimised([y], [x], [(20, 30)])
    graph = estimate_flow(flow, {"CPU": FAST})
    assert times(graph)["y"] == pytest.approx(2 * 20 * 30 * 10 / 0.5e9)
    assert {i.name: i.state for i in graph.items}["w"] == 30 * 10 * 4
    assert {o.name: o.size for o in graph.outputs}["x:0"] == 20 * 30 * 4


def test_convolutions_are_counted_by_their_windows():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2, 8, 8, 3], name="x")
        w = tf.placeholder(tf.float32, [3, 3, 3, 5], name="w")
        y = tf.nn.conv2d(x, w, strides=[1, 2, 2, 1], padding="SAME", name="y")
        found = times(estimate(y.graph.get_operations(), roofs={"CPU": FAST}))
    assert found["y"] == pytest.approx(2 * 2 * 4 * 4 * 9 * 3 * 5 / 0.5e9)


def test_fused_element_wise_operations_are_free_and_interpreted_ones_are_not():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [1000], name="x")
        y = tf.tanh(tf.exp(tf.square(x, name="a"), name="b"), name="c")
        flow = optimised([y], [x], [(1000,)])
    fused = times(estimate_flow(flow, {"CPU": ROOFS}))
    assert (fused["a"], fused["b"], fused["c"]) == (4e-5, 0.0, 4e-5)  # x is read, y is written
    plain = Roofs(flops=1e9, bandwidth=1e8, cached=1.0, node=1e-6, compiles=False)
    each = times(estimate_flow(flow, {"CPU": plain}))
    assert [each[n] for n in "abc"] == pytest.approx([8.1e-5] * 3)


def test_what_only_control_edges_wait_for_is_free_in_compiled_code():
    """The gradient with respect to the images: tf.gradients lets the filters' gradient wait."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [4, 8, 8, 3], name="x")
        w = tf.get_variable("w", [3, 3, 3, 5], use_resource=False)
        loss = tf.reduce_sum(tf.square(tf.nn.conv2d(x, w, strides=1, padding="SAME")))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        flow = optimised([], [x], [(4, 8, 8, 3)], [train])
    found = times(estimate_flow(flow, {"CPU": ROOFS}))
    assert found["gradients/Conv2D_grad/Conv2DBackpropInput"] == 0.0
    assert found["gradients/Conv2D_grad/Conv2DBackpropFilter"] > 0.0


def test_unknown_sizes_are_assumed():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 7], name="x")
        tf.matmul(x, tf.ones([7, 3]), name="y")
        one, other = (
            times(estimate(graph.get_operations(), roofs={"CPU": FAST}, assumptions=a))["y"]
            for a in (Assumptions(), Assumptions(size=64))
        )
    assert other == pytest.approx(2 * one)


@pytest.mark.parametrize("resource", [False, True])
def test_state_stays_together(resource):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 3], name="x")
        w = tf.get_variable("w", [3, 2], use_resource=resource)
        loss = tf.reduce_sum(tf.square(tf.matmul(x, w)))
        tf.train.AdamOptimizer().minimize(loss)
        groups = groups_of(graph.get_operations())
    (together,) = [g for g in groups if any(op.name == "w" for op in g)]
    names = {op.name for op in together}
    assert any("update_w" in name for name in names)
    assert "w/Adam" in names
    assert "MatMul" not in names


def test_loops_cost_their_iterations():
    def loop(count):
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [50, 50], name="x")
            y = tf.while_loop(
                lambda i, v: i < count, lambda i, v: (i + 1, tf.matmul(v, x)), [0, x], name="loop"
            )[1]
            flow = optimised([y], [x], [(50, 50)])
        return estimate_flow(flow, {"CPU": ROOFS}).seconds["CPU"]

    assert loop(20) == pytest.approx(2 * loop(10), rel=0.05)
    assert loop(10) > 10 * 2 * 50**3 / 1e9


def test_groups_are_placed_by_cost_within_their_constraints():
    """Two towers, joined at the end; one variable is pinned."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [64, 256], name="x")
        towers = []
        for tower in "ab":
            h = x
            for layer in range(3):
                w = tf.get_variable(f"{tower}{layer}", [256, 256], use_resource=False)
                h = tf.matmul(h, w, name=f"{tower}{layer}/product")
            towers.append(h)
        tf.add_n(towers, name="sum")
        operations = graph.get_operations()
    groups = groups_of(operations)
    devices = local_devices({"CPU": 2})
    pinned = [devices[1:] if any(op.name == "a0" for op in group) else devices for group in groups]
    found = choose_by_cost(operations, groups, pinned, devices, {"CPU": Roofs()})
    assert set(found) == set(range(len(groups)))
    # Devices of one process share its cores, so that everything follows the pinned variable.
    assert {device.name for device in found.values()} == {devices[1].name}


def test_the_operations_of_a_loop_stay_together():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [256, 256], name="x")
        tf.while_loop(lambda v: True, lambda v: tf.tanh(tf.matmul(v, x)), [x], name="loop")
        operations = graph.get_operations()
    inside = [op for op in operations if loop_of(op) is not None]
    assert {"MatMul", "Tanh"} <= {op.type for op in inside}
    devices = local_devices({"CPU": 2})
    groups = [[op] for op in operations]
    found = choose_by_cost(operations, groups, [devices] * len(groups), devices)
    assert len({found[operations.index(op)].name for op in inside}) == 1


def test_other_types_of_devices_take_what_they_have_kernels_for(monkeypatch):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [8], name="x")
        tf.sqrt(tf.square(x, name="a"), name="b")
        operations = graph.get_operations()
    monkeypatch.setitem(_REGISTERED, ("Square", "METER"), (OpKernel(np.square),))
    meter = Device("/job:localhost/replica:0/task:0/device:METER:0")
    devices = (*local_devices(), meter)
    feasible = [[meter] if op.name == "a" else devices for op in operations]
    found = choose_by_cost(operations, [[op] for op in operations], feasible, devices)
    assert [d.type for d in found.values()] == ["CPU", "METER", "CPU"]


def test_sessions_devices_share_their_processor_and_use_measured_links():
    devices = local_devices({"CPU": 2})
    a, b = (device.name for device in devices)
    plain = model_devices(devices)
    assert {d.processor for d in plain.devices} == {"/job:localhost/replica:0/task:0"}
    assert plain.link(0, 1).cost(10**9) == 0.0
    measured = MeasuredCosts().with_link(a, b, LinkCost(1e-5, 1e9))
    assert model_devices(devices, measured).link(0, 1) == LinkCost(1e-5, 1e9)
    assert model_devices(devices, measured).link(1, 0).seconds == 0.0


def test_a_split_is_predicted_from_the_whole():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [64, 256], name="x")
        left = tf.matmul(x, x, transpose_b=True, name="left")
        right = tf.matmul(x, x, transpose_a=True, name="right")
        flow = optimised([left, right], [x], [(64, 256)])
    two = ClusterModel((DeviceModel("m0"), DeviceModel("m1")), network=LinkCost(0.0, 1e12))
    whole = predict(flow, {}, two, seconds=1.0)
    assert whole.makespan == pytest.approx(1.0)
    split = predict(flow, {"left": "m0", "right": "m1"}, two, seconds=1.0)
    assert 0.49 < split.makespan < 0.81
    assert split.traffic == {("m0", "m1"): 64 * 256 * 4}
    slow = ClusterModel(two.devices, network=LinkCost(2.0, 1e12))
    assert predict(flow, {"left": "m0", "right": "m1"}, slow, seconds=1.0).makespan > 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="no such device"):
        predict(flow, {"left": "m7"}, two)
