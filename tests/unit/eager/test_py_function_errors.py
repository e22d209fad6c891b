"""What a Python function raises reaches the caller of Session.run: with its own traceback, and the
line of the program that made the operation.
"""

import traceback

import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def multiply(x):
    return tf.matmul(x, x)  # here it fails


def test_an_operation_in_the_function_fails():
    y = tf.py_function(multiply, [[[1.0, 2.0]]], tf.float32)  # here it is made
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="MatMul") as caught:
            session.run(y)
        error = caught.value
        assert error.op is y.op
        assert "# here it is made" in str(error)
        assert "# here it fails" in "".join(traceback.format_exception(error))
        assert session.run(tf.constant(1.0)) == 1


def test_a_kernel_in_the_function_fails():
    y = tf.py_function(lambda x: tf.gather(x, [5]), [[1.0]], tf.float32)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(y)
    assert isinstance(caught.value.__cause__, tf.errors.InvalidArgumentError)
    assert caught.value.__cause__.op.type == "GatherV2"


def test_what_the_function_catches_is_over():
    def function(x):
        try:
            return tf.matmul(x, x)
        except tf.errors.InvalidArgumentError:
            return x * 2.0

    x = tf.constant([1.0])
    y = tf.py_function(function, [x], tf.float32)
    with tf.Session() as session:
        assert session.run([y, tf.gradients(y, x)[0]]) == [2, 2]


def test_errors_of_calls_in_calls():
    def inner(x):
        raise ValueError("deep down")

    y = tf.py_function(lambda x: tf.py_function(inner, [x], "float"), [1.0], "float")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(y)
    assert "deep down" in str(caught.value)
    assert isinstance(caught.value.__cause__.__cause__, ValueError)


def test_assertions():
    y = tf.py_function(lambda x: tf.Assert(x > 0, [x]) or x, [-1.0], tf.float32)
    failed = pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed")
    with tf.Session() as session, failed:
        session.run(y)


def imported(graph_def, name):
    """Return the results of a graph in a session of its own."""
    with tf.Graph().as_default() as graph:
        (again,) = tf.import_graph_def(graph_def, return_elements=[name])
        with tf.Session(graph=graph) as session:
            return session.run(again)


def test_an_imported_graph_has_the_functions_of_a_graph_in_this_process():
    with tf.Graph().as_default() as graph:
        y = tf.py_function(lambda x: x, [1.0], tf.float32)
    graph_def, name = graph.as_graph_def(), y.name
    assert imported(graph_def, name) == 1.0
    graph._py_functions.clear()
    with pytest.raises(tf.errors.InvalidArgumentError, match="pyfunc_0 is not found"):
        imported(graph_def, name)


@pytest.mark.parametrize("op", ["EagerPyFunc", "PyFunc"])
def test_a_function_of_another_process(op):
    with tf.Graph().as_default() as graph:
        build = tf.py_function if op == "EagerPyFunc" else tf.py_func
        y = build(lambda x: x, [1.0], tf.float32)
    graph_def = graph.as_graph_def()
    (node,) = [n for n in graph_def.node if n.op == op]
    own, _, number = node.attr["token"].s.decode().partition("@")[2].partition(".")
    node.attr["token"].s = f"pyfunc_0@{own[::-1]}x.{number}".encode()
    failed = pytest.raises(tf.errors.InvalidArgumentError, match="pyfunc_0 was built in another")
    with failed as caught:
        imported(graph_def, y.name)
    assert "run it on a device of that process" in caught.value.message
