"""Placement by constraints: requests, groups, and what happens when they can't be met."""

import pytest

import headrace as tf
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.device import Device, find_device, local_devices
from headrace._src.graph import definition
from headrace._src.graph.definition import OpKernel
from headrace._src.optimize.prune import prune
from headrace._src.place.constraints import Placement, place

CPUS = local_devices({"CPU": 3})


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def placed(*ops, soft=False):
    nodes = place(prune([], list(ops), []), CPUS, soft).nodes
    return {node.name: CPUS.index(find_device(node.device)) for node in nodes}


def on(device, name):
    with tf.device(device):
        return tf.no_op(name)


def test_requests_are_met_and_the_first_device_takes_the_rest():
    assert placed(on("/cpu:1", "a"), on("/job:localhost/cpu:2", "b"), tf.no_op("c")) == {
        "a": 1,
        "b": 2,
        "c": 0,
    }


def test_groups_share_the_device_that_suits_them_all(graph):
    a = tf.no_op("a")
    with graph.colocate_with(a):
        b = tf.no_op("b")
    b._set_device("/task:0")
    a._set_device("/cpu:2")
    assert placed(a, b) == {"a": 2, "b": 2}


def test_operations_on_references_stay_with_their_variable():
    with tf.device("/cpu:1"):
        v = tf.Variable(1.0, name="v")
    update = tf.assign_add(v, 1.0).op
    assert placed(update)[update.name] == placed(update)["v"] == 1


def test_operations_that_only_read_a_reference_may_be_elsewhere():
    with tf.device("/cpu:1"):
        v = tf.Variable(1.0, name="v")
    with tf.device("/cpu:2"):
        double = tf.multiply(v._as_graph_element(), 2.0).op
    assert placed(double)[double.name] == 2
    assert placed(double)["v"] == 1


def test_requests_that_can_not_be_met(graph):
    a, far = on("/cpu:1", "a"), on("/cpu:9", "far")
    with graph.colocate_with(a):
        b = tf.no_op("b")
    b._set_device("/cpu:2")
    with pytest.raises(InvalidArgumentError, match="explicitly assigned to /device:CPU:9 but"):
        placed(far)
    with pytest.raises(InvalidArgumentError, match="Cannot colocate nodes b and a"):
        placed(a, b)
    assert placed(a, b, far, soft=True) == {"a": 0, "b": 0, "far": 0}


def test_a_graph_is_checked_as_it_grows():
    with tf.Graph().as_default() as graph:
        placement = Placement(graph, CPUS[:1])
        with tf.device("/cpu:0"):
            variable = tf.Variable(1.0, use_resource=False)
        placement.extend()
        with tf.device("/cpu:1"):
            bad = tf.no_op("bad")
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="for operation bad"):
                placement.extend()
        bad._set_device("")
        placement.extend()
        update = variable.assign(2.0)
        update.op._set_device("/cpu:0")
        placement.extend()
        other = tf.no_op("other")
        other._set_attr("_class", ["loc:@bad"])
        bad._set_device("/cpu:3")
        with pytest.raises(InvalidArgumentError, match="for operation bad"):
            placement.extend()


def test_groups_are_joined_as_a_graph_grows():
    with tf.Graph().as_default() as graph:
        placement = Placement(graph, CPUS)
        with tf.device("/cpu:0"):
            first = tf.no_op("first")
        with tf.device("/cpu:1"):
            second = tf.no_op("second")
        placement.extend()
        with graph.colocate_with(first), graph.colocate_with(second):
            tf.no_op("both")
        with pytest.raises(InvalidArgumentError, match="Cannot colocate"):
            placement.extend()


MOON = Device("/job:localhost/replica:0/task:0/device:MOON:0")  # has no kernels


def test_operations_without_a_kernel(graph):
    with tf.device("/device:MOON:0"):
        a = tf.no_op("a")
    with graph.colocate_with(a):
        tf.no_op("b")
    tf.no_op("c")
    devices = (MOON, *CPUS)
    with pytest.raises(InvalidArgumentError, match="No OpKernel was registered to support Op") as e:
        Placement(graph, devices).extend()
    assert "no supported kernel for MOON devices is available" in str(e.value)
    assert e.value.op is a
    placement = Placement(graph, devices, soft=True)
    placement.extend()
    assert {placement.device(name) for name in "abc"} == {CPUS[0].name}


def test_a_kernel_makes_a_device_feasible(graph, monkeypatch):
    monkeypatch.setitem(definition._REGISTERED, ("NoOp", "MOON"), (OpKernel(lambda: None),))
    a = tf.no_op("a")
    with graph.colocate_with(a):
        tf.constant(1.0, name="b")
    tf.no_op("c")
    placement = Placement(graph, (MOON, *CPUS))
    placement.extend()
    assert [placement.device(name) for name in "abc"] == [CPUS[0].name] * 2 + [MOON.name]


def test_a_group_may_be_named_before_it_has_operations(graph):
    placement = Placement(graph, CPUS)
    early = tf.no_op("early")
    early._set_attr("_class", ["loc:@late"])
    placement.extend()
    assert placement.device("early") == CPUS[0].name
    with tf.device("/cpu:2"):
        tf.no_op("late")
    placement.extend()
    assert placement.device("early") == placement.device("late") == CPUS[2].name


def test_a_long_chain_of_shapes(graph):
    with tf.device("/cpu:1"):
        x = tf.negative(tf.placeholder(tf.float32, [2]))
    for _ in range(2000):
        x = tf.raw_ops.Shape(input=x)
    placement = Placement(graph, CPUS)
    placement.extend()
    assert placement.device(x.op.name) == CPUS[1].name


def test_a_message_says_why_operations_are_together(graph):
    a, b = on("/cpu:1", "a"), on("/cpu:2", "b")
    with graph.colocate_with(a, ignore_existing=True):
        c = tf.no_op("c")
    c._set_device("")
    c._set_attr("_class", ["loc:@a", "loc:@b"])
    with pytest.raises(InvalidArgumentError) as error:
        placed(a, b, c)
    lines = str(error.value).splitlines()
    assert lines[0].startswith("Cannot colocate nodes b and a: Cannot merge devices with")
    chain = [line.strip() for line in lines if "is colocated" in line]
    assert chain == [
        "'c' is colocated with 'b' (loc:@b)",
        "'c' is colocated with 'a' (loc:@a)",
    ]
    assert sum("test_constraints.py" in line for line in lines) >= 3
