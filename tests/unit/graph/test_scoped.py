"""The default graph's scopes and collections as functions of tf."""

import pytest

import headrace as tf


def test_they_act_on_the_default_graph():
    with tf.Graph().as_default() as graph:
        assert tf.get_default_graph() is graph
        first = tf.no_op("first")
        with tf.device("/cpu:0"), tf.control_dependencies([first]), tf.name_scope("inner"):
            op = tf.no_op("second")
        assert op.name == "inner/second"
        assert op.device == "/device:CPU:0"
        assert op.control_inputs == [first]
        with tf.colocate_with(first):
            assert tf.no_op().colocation_groups() == [b"loc:@first"]


def test_collections():
    with tf.Graph().as_default():
        tf.add_to_collection("a", 1)
        tf.add_to_collections(["a", "b"], 2)
        assert tf.get_collection("a") == [1, 2]
        tf.get_collection("b").append(3)
        tf.get_collection_ref("b").append(4)
        assert tf.get_collection("b") == [2, 4]


def test_default_session():
    with tf.Graph().as_default():
        assert tf.get_default_session() is None
        with tf.Session() as session:
            assert tf.get_default_session() is session


def test_reset_within_a_graph_is_refused():
    with tf.Graph().as_default(), pytest.raises(AssertionError, match="nested graphs"):
        tf.reset_default_graph()


def test_op_scope_is_an_old_name_scope():
    with (
        tf.Graph().as_default(),
        pytest.warns(DeprecationWarning, match="op_scope"),
        tf.op_scope([], None, "old") as scope,
    ):
        assert scope == "old/"
        assert tf.no_op("x").name == "old/x"
