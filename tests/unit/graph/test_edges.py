"""Graphs at the edges: names that clash, scopes of several threads, failed operations."""

import threading

import numpy as np
import pytest

import headrace as tf


@pytest.fixture
def graph():
    with tf.Graph().as_default() as g:
        yield g


@pytest.mark.parametrize("name", ["_a", "a b", "a:0", "/a", "-a", "", "é", "a\n"])
def test_names_that_no_node_can_have(graph, name):
    for make in (
        tf.no_op,
        lambda n: tf.constant(1, name=n),
        lambda n: tf.placeholder("int32", name=n),
    ):
        with pytest.raises(ValueError, match=r"is not a valid (node|scope) name"):
            make(name)
    assert graph.get_operations() == []


def test_a_scope_as_a_name_can_be_used_once(graph):
    with tf.name_scope("a") as scope:
        tf.identity(1.0, name=scope)
        with pytest.raises(ValueError, match="Duplicate node name in graph: 'a'"):
            tf.identity(2.0, name=scope)
        with pytest.raises(ValueError, match="Duplicate node name in graph: 'a'"):
            tf.constant(2.0, name=scope)
    assert graph.get_operation_by_name("a").inputs[0].op.name == "a/input"


def test_operations_that_fail_leave_no_trace(graph):
    x = tf.placeholder("float32", [2, 3])
    y = tf.placeholder("float32", [4, 5])
    with pytest.raises(ValueError, match="Dimensions must be equal"):
        tf.matmul(x, y)
    assert x.consumers() == []
    assert [op.type for op in graph.get_operations()] == ["Placeholder", "Placeholder"]
    assert tf.matmul(x, x, transpose_b=True).op.inputs[0].consumers() != []


def test_elements_by_bytes_and_by_what_stands_for_them(graph):
    c = tf.constant(1, name="c")
    v = tf.Variable(1.0, name="v")
    assert graph.as_graph_element(b"c") is c.op
    assert graph.as_graph_element("c:0") is c
    assert graph.as_graph_element(v).op.name == "v"
    for bad in ("c:-1", "c:x", "c:", ":0", ""):
        with pytest.raises((ValueError, KeyError)):
            graph.as_graph_element(bad)
    for bad in (3, None, object(), [c]):
        with pytest.raises(TypeError, match=r"Can not convert a .* into a Tensor or Operation"):
            graph.as_graph_element(bad)
    with pytest.raises(ValueError, match="can't both be False"):
        graph.as_graph_element("c", allow_tensor=False, allow_operation=False)
    with pytest.raises(ValueError, match="appears to refer to a Tensor, not a Operation"):
        graph.get_operation_by_name("c:0")


def test_scopes_belong_to_their_thread(graph):
    gate = tf.no_op("gate")
    made = []

    def build():
        made.append(tf.get_default_graph() is graph)
        with graph.as_default():
            made.append(tf.no_op("b"))

    with (
        tf.name_scope("n"),
        tf.device("/cpu:1"),
        tf.control_dependencies([gate]),
        graph.colocate_with(gate),
        graph.gradient_override_map({"NoOp": "q"}),
    ):
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
    assert made[0] is False
    op = made[1]
    assert (op.name, op.device, op.control_inputs, op.attrs) == ("b", "", [], {})


def test_exceptions_close_every_scope(graph):
    gate = tf.no_op("gate")
    for manager in (
        tf.name_scope("n"),
        tf.device("/cpu:3"),
        tf.control_dependencies([gate]),
        tf.control_dependencies(None),
        graph.colocate_with(gate),
        graph.container("c"),
        graph.gradient_override_map({"NoOp": "q"}),
        graph._attr_scope({"_x": 1}),
        tf.Graph().as_default(),
        tf.variable_scope("v"),
    ):
        with pytest.raises(KeyError), manager:
            tf.no_op()
            raise KeyError
        op = tf.no_op("after")
        assert op.graph is graph
        assert op.name.startswith("after")
        assert (op.device, op.control_inputs, op.attrs) == ("", [], {})


def test_bad_scopes_change_nothing(graph):
    with pytest.raises(TypeError), tf.control_dependencies([3]):
        pass
    with pytest.raises(TypeError), graph.colocate_with(3):
        pass
    with pytest.raises(ValueError, match="ignore_existing"), graph.colocate_with(None):
        pass
    with pytest.raises(ValueError, match="Unknown attribute"), tf.device("/foo"):
        pass
    with tf.Graph().as_default():
        other = tf.constant(1.0)
    with pytest.raises(ValueError, match="is not an"), tf.control_dependencies([other]):
        pass
    op = tf.no_op("op")
    assert (op.name, op.device, op.control_inputs, op.attrs) == ("op", "", [], {})


def test_constants_can_not_be_changed_from_outside(graph):
    value = np.ones(3, np.float32)
    c = tf.constant(value)
    value[:] = 7
    with tf.Session() as session:
        assert session.run(c).tolist() == [1, 1, 1]
        session.run(tf.py_func(lambda v: v.fill(9), [c], []))
        assert session.run(c).tolist() == [1, 1, 1]


def test_groups_and_tuples_refuse_what_is_no_operation(graph):
    for bad in (3, None, "a"):
        with pytest.raises(TypeError, match=r"tf\.group"):
            tf.group(tf.no_op(), bad)
    with pytest.raises(ValueError, match="Must have at least one Tensor"):
        tf.tuple([None])


def test_op_scope_is_an_old_name_scope(graph):
    a = tf.constant(1.0)
    with pytest.warns(DeprecationWarning, match="op_scope"), tf.op_scope([a], None, "d") as scope:
        assert scope == "d/"
