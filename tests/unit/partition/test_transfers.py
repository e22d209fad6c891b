"""Edges between devices become transfers: one for each value and destination."""

from dataclasses import replace

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.errors import InternalError
from headrace._src.graph.dataflow import rebuild
from headrace._src.graph.structured import Unraisable, parts_of
from headrace._src.ops.base.transfers import is_transfer
from headrace._src.optimize.raising import raise_structure
from headrace._src.partition.transfers import add_transfers, settle_devices, verify_transfers
from tests.unit.partition.steps import CPU, joined, placed


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def on(number):
    return tf.device(f"/cpu:{number}")


def transfers(flow):
    return [(n.inputs[0].producer.name, n.device) for n in flow.nodes if is_transfer(n)]


def test_a_value_travels_once_to_each_device():
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(0):
        a = tf.tanh(x, name="a")
    with on(1):
        b, c = a + 1.0, a * 2.0
    with on(2):
        d = a - b
    flow = joined([b, c, d], feeds=[x])
    assert transfers(flow) == [("a", CPU[1]), ("a", CPU[2]), ("add", CPU[2])]
    names = [n.name for n in flow.nodes if is_transfer(n)]
    assert names == ["a/to_CPU_1", "a/to_CPU_2", "add/to_CPU_2"]


def test_several_outputs_of_a_node_travel_separately():
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(0):
        first, second = tf.split(x, 2, name="s")
    with on(1):
        y = first + second
    names = [n.name for n in joined([y], feeds=[x]).nodes if is_transfer(n)]
    assert names == ["s/to_CPU_1", "s_1/to_CPU_1"]


def test_names_of_transfers_are_new():
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(0):
        a = tf.tanh(x, name="a")
        b = tf.tanh(x, name="a/to_CPU_1")
    with on(1):
        y = a + b
    flow = joined([y], feeds=[x])
    names = [n.name for n in flow.nodes if n.constant is None]
    assert len(set(names)) == len(names)


def test_feeds_and_constants_are_everywhere():
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(0):
        one = tf.constant([1.0, 2.0])
    with on(1):
        a = x + one
    with on(2):
        b = x * one
    assert transfers(joined([a, b], feeds=[x])) == []


def test_a_step_of_one_device_stays_as_it_is():
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(1):
        flow = placed([tf.tanh(x) + 1.0], feeds=[x])
    assert add_transfers(flow) is flow


def test_a_reference_is_read_once_for_each_reader():
    """A write may come between two readers; the value is then another one."""
    with on(0):
        v = tf.Variable(1.0, name="v")
    with on(1):
        first = tf.identity(v._ref(), name="first")
        with tf.control_dependencies([first]):
            update = v.assign_add(1.0)
        with tf.control_dependencies([update]):
            second = tf.identity(v._ref(), name="second")
    flow = joined([first, second])
    moved = [n for n in flow.nodes if is_transfer(n)]
    sources = {n.inputs[0].producer.type for n in moved}
    assert len(moved) >= 2, sources
    assert all(not n.types[0].dtype._is_ref_dtype for n in moved)


def test_a_transfer_back_is_not_made():
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(0):
        a = tf.tanh(x, name="a")
    with on(1):
        b = tf.identity(a, name="b")
    with on(0):
        y = a + b
    assert transfers(joined([y], feeds=[x])) == [("a", CPU[1]), ("b", CPU[0])]


def test_control_edges_between_devices_stay():
    x = tf.placeholder(tf.float32, [], name="x")
    with on(0):
        check = tf.Assert(x > 0, [x])
    with on(1), tf.control_dependencies([check]):
        y = tf.identity(x, name="y")
    flow = joined([y], feeds=[x])
    (node,) = [n for n in flow.nodes if n.name == "y"]
    assert [c.device for c in node.controls] == [CPU[0]] and not transfers(flow)


def loop(x, first, second):
    """A loop with an operation on each of two devices."""

    def body(i, a):
        with tf.device(first):
            b = tf.tanh(a, name="b")
        with tf.device(second):
            return i + 1, b * 2.0

    return tf.while_loop(lambda i, _: i < 3, body, [0, x], name="loop")[1]


def test_a_loop_of_one_device_goes_there():
    x = tf.placeholder(tf.float32, [], name="x")
    with on(0):
        y = x + 1.0
    flow = add_transfers(raise_structure(placed([loop(x, "/cpu:2", "/cpu:2"), y], feeds=[x])))
    assert [n.device for n in flow.nodes if parts_of(n)] == [CPU[2]]


def test_a_loop_of_two_devices_has_the_transfers_inside():
    x = tf.placeholder(tf.float32, [], name="x")
    flow = add_transfers(raise_structure(placed([loop(x, "/cpu:1", "/cpu:2")], feeds=[x])))
    verify_transfers(flow)
    (node,) = [n for n in flow.nodes if parts_of(n)]
    assert ("loop/b", CPU[2]) in transfers(node.attrs["body"])
    devices = {n.name: n.device for n in node.attrs["body"].nodes}
    assert devices["loop/b"] == CPU[1] and devices["loop/mul"] == CPU[2]


def test_a_loop_that_spans_tasks_has_no_structured_form():
    x = tf.placeholder(tf.float32, [], name="x")
    raised = raise_structure(placed([loop(x, "/cpu:1", "/cpu:2")], feeds=[x]))
    (node,) = [n for n in raised.nodes if parts_of(n)]
    body = node.attrs["body"]
    other = CPU[2].replace("task:0", "task:1")
    moved = rebuild(body, lambda n, i, c: n.moved(i, c, other if n.device == CPU[2] else None))
    apart = replace(raised, nodes=(replace(node, attrs={**node.attrs, "body": moved}),))
    with pytest.raises(Unraisable, match="spans"):
        add_transfers(apart)


def test_nodes_without_a_device_get_that_of_a_neighbour():
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(1):
        a = tf.tanh(x, name="a")
    with on(2):
        b = tf.square(a, name="b")
    flow = joined([b], feeds=[x])
    lost = {}
    nodes = []
    for node in flow.nodes:
        inputs = tuple(lost.get(v, v) for v in node.inputs)
        new = node.moved(inputs, node.controls, "" if node.name == "b" else node.device)
        lost.update(zip(node.outputs, new.outputs, strict=True))
        nodes.append(new)
    # `devices` still has two: the transfer and its source
    settled = settle_devices(
        replace(flow, nodes=tuple(nodes), fetches=tuple(lost[v] for v in flow.fetches))
    )
    assert {n.name: n.device for n in settled.nodes}["b"] == CPU[2]


def test_the_verifier_finds_a_value_that_is_read_from_another_device():
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(0):
        a = tf.tanh(x, name="a")
    with on(1):
        b = a + np.float32([1, 2])
    with pytest.raises(InternalError, match=r"add on .*CPU:1 reads a:0 on .*CPU:0"):
        verify_transfers(placed([b], feeds=[x]))


def test_a_gradient_loop_is_where_its_lists_are():
    x = tf.placeholder(tf.float32, [2])
    with on(1):
        _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.tanh(a)), [0, x])
    gradients = tf.gradients(y, x)
    flow = add_transfers(raise_structure(placed(gradients, feeds=[x])))
    verify_transfers(flow)
    assert [n.device for n in flow.nodes if parts_of(n)] == [CPU[1], CPU[1]]
    # The empty list was on the first device, and is made on the second one too.
    assert CPU[1] in {n.device for n in flow.nodes if n.type == "EmptyTensorList"}
    sent = [n.outputs[0] for n in flow.nodes if is_transfer(n)]
    assert sent and not any(v.dtype.name == "variant" for v in sent)
