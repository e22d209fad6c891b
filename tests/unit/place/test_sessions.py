"""Placement as sessions show it: logs, metadata, state that stays, and functions on devices."""

from contextlib import closing

import pytest

import headrace as tf
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.gradients.function_gradients import Defun
from headrace._src.ops.control.functional import remote_call

CPU = "/job:localhost/replica:0/task:0/device:CPU:"


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def session(cpus=2, **how):
    return tf.Session(config=tf.ConfigProto(device_count={"CPU": cpus}, **how))


def test_the_log_has_every_operation_once(capsys):
    with tf.device("/cpu:1"):
        a = tf.constant(1.0, name="a")
    b = tf.add(a, 2.0, name="b")
    tf.no_op(name="unused")
    with session(log_device_placement=True) as s:
        s.run(b)
        assert capsys.readouterr().err.splitlines() == [
            f"b: (Add): {CPU}0",
            f"unused: (NoOp): {CPU}0",
            f"a: (Const): {CPU}1",
            f"b/y: (Const): {CPU}0",
        ]
        s.run(b)
        s.run(tf.negative(b, name="c"))
        assert capsys.readouterr().err == f"c: (Neg): {CPU}0\n"


def test_a_single_device_is_logged_too(capsys):
    with session(1, log_device_placement=True) as s:
        s.run(tf.no_op("a"))
    assert capsys.readouterr().err == f"a: (NoOp): {CPU}0\n"


def test_what_can_not_be_placed_is_logged_once_it_can(capsys):
    with session(1, log_device_placement=True) as s:
        a = tf.no_op("a")
        a._set_device("/cpu:3")
        with pytest.raises(InvalidArgumentError, match="for operation a"):
            s.run(a)
        a._set_device("")
        s.run(a)
    assert capsys.readouterr().err == f"a: (NoOp): {CPU}0\n"


def test_metadata_has_a_graph_for_each_device():
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.device("/cpu:1"):
        y = tf.py_func(lambda a: a, [x], tf.float32, name="y")
    z = tf.py_func(lambda a: a, [y], tf.float32, name="z")
    metadata = tf.RunMetadata()
    with session() as s:
        options = tf.RunOptions(output_partition_graphs=True)
        s.run(z, {x: [1.0, 2.0]}, options, metadata)
    found = {node.name: node.device for part in metadata.partition_graphs for node in part.node}
    assert found["y"] == f"{CPU}1" and found["z"] == f"{CPU}0"
    for part in metadata.partition_graphs:
        assert len({node.device for node in part.node}) == 1
    all_nodes = [node for part in metadata.partition_graphs for node in part.node]
    nodes = {n.op: n for n in all_nodes if not n.attr["tensor_name"].s.startswith(b"^")}
    send, recv = nodes["_Send"], nodes["_Recv"]
    assert send.input == ["y"] and send.device == f"{CPU}1" and recv.device == f"{CPU}0"
    for name in ("tensor_name", "send_device", "recv_device", "send_device_incarnation"):
        assert send.attr[name] == recv.attr[name]
    assert recv.attr["tensor_type"].type == send.attr["T"].type == tf.float32.as_datatype_enum


@pytest.mark.parametrize("soft", [False, True])
def test_state_on_two_devices_can_not_be_joined(soft):
    with tf.device("/cpu:1"):
        v = tf.get_variable("v", [1], use_resource=True, initializer=tf.zeros_initializer())
    w = tf.get_variable("w", [1], use_resource=True, initializer=tf.zeros_initializer())
    with session(allow_soft_placement=soft) as s:
        s.run(tf.global_variables_initializer())
        tf.raw_ops.ResourceApplyMomentum(
            var=v.handle, accum=w.handle, lr=1.0, grad=[1.0], momentum=1.0, name="both"
        )
        with pytest.raises(InvalidArgumentError) as error:
            s.run(v)
    message = str(error.value)
    assert "incompatible assigned devices" in message
    assert f"{CPU}0" in message and f"{CPU}1" in message
    assert "'both' takes a reference or a handle from 'v'" in message
    assert "test_sessions.py" in message


@pytest.mark.parametrize("soft", [False, True])
def test_state_does_not_move(soft):
    v = tf.get_variable("v", [1], use_resource=True, initializer=tf.ones_initializer())
    with session(allow_soft_placement=soft) as s:
        s.run(v.initializer)
        with tf.device("/cpu:1"):
            read = tf.raw_ops.ReadVariableOp(resource=v.handle, dtype=tf.float32, name="read2")
        assert s.run(read) == [1.0]
        assert s._placement.device("read2") == f"{CPU}0"
        with tf.colocate_with(v.handle):
            tf.no_op("n")._set_device("/cpu:1")
        if soft:
            assert s.run(read) == [1.0]
            assert s._placement.device("n") == f"{CPU}0"
        else:
            with pytest.raises(InvalidArgumentError, match=r"keeps state on .*CPU:0 already"):
                s.run(read)


def test_requests_of_users_are_ignored_with_one_device_too():
    with tf.device("/cpu:0"):
        v = tf.get_variable("v", [1], use_resource=True, initializer=tf.ones_initializer())
    with tf.device("/gpu:0"):
        read = tf.raw_ops.ReadVariableOp(resource=v.handle, dtype=tf.float32)
    with session(1) as s:
        s.run(v.initializer)
        assert s.run(read) == [1.0]


@pytest.mark.parametrize("target", ["/cpu:1", f"{CPU}1", "/cpu:*", "", "/CPU:0"])
def test_functions_run_on_any_device(target):
    @Defun(tf.float32)
    def double(x):
        return x * 2.0

    with session() as s:
        assert s.run(remote_call(target, [3.0], [tf.float32], double)) == [6.0]


@pytest.mark.parametrize(
    ("target", "message"),
    [("/cpu:7", "functions can't run on /cpu:7"), ("nonsense", "Could not parse nonsense into")],
)
def test_functions_on_no_device(target, message):
    @Defun(tf.float32)
    def double(x):
        return x * 2.0

    with session() as s, pytest.raises(InvalidArgumentError, match=message):
        s.run(remote_call(target, [3.0], [tf.float32], double))


@pytest.mark.parametrize("kind", [tf.InteractiveSession, tf.Session])
def test_state_stays_where_steps_are_placed_one_by_one(kind):
    config = tf.ConfigProto(device_count={"CPU": 2})
    config.graph_options.place_pruned_graph = True
    queue = tf.FIFOQueue(3, tf.float32, shapes=[[]], name="q")
    with tf.device("/cpu:1"):
        enqueue = queue.enqueue(1.0)
    with tf.device("/cpu:7"):
        tf.no_op("never")
    with closing(kind(config=config)) as s:
        s.run(enqueue)
        assert s.run(queue.size()) == 1
        with tf.colocate_with(queue.queue_ref):
            there = tf.no_op("there")
        there._set_device("/cpu:0")
        with pytest.raises(InvalidArgumentError, match=r"q\w* keeps state on .*CPU:1 already"):
            s.run(there)
