"""Tensor arrays in graphs that old versions of TensorFlow wrote: a loop over rows, many rows at
once, and the arrays of gradients.
"""

import numpy as np
import pytest

import headrace as tf

VERSIONS = {"first": "", "second": "V2"}
X = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


class Old:
    """The ops of one version, on one array."""

    def __init__(self, version, size, **attrs):
        self.version = version
        self.handle = self("", size=size, dtype=tf.float32, **attrs)

    def __call__(self, name, **values):
        return getattr(tf.raw_ops, f"TensorArray{name}{self.version}")(**values)

    def on(self, name, **values):
        return self(name, handle=self.handle, **values)


@pytest.fixture(params=VERSIONS)
def version(request):
    return VERSIONS[request.param]


def again():
    """The step's results after its graph went through a GraphDef."""
    definition = tf.get_default_graph().as_graph_def()
    with tf.Graph().as_default(), tf.Session() as session:
        found = tf.import_graph_def(definition, return_elements=["result:0"])
        return session.run(found[0])


def test_rows_in_a_loop(version):
    given, made = Old(version, 3), Old(version, 3)
    numbers = tf.range(3)
    flow = given.on("Scatter", indices=numbers, value=tf.constant(X), flow_in=0.0)

    def body(i, flow_out):
        row = given.on("Read", index=i, flow_in=flow, dtype=tf.float32)
        return i + 1, made.on("Write", index=2 - i, value=row * 2.0, flow_in=flow_out)

    _, flow = tf.while_loop(lambda i, _: i < made.on("Size", flow_in=0.0), body, [0, 0.0])
    rows = made.on("Gather", indices=numbers, flow_in=flow, dtype=tf.float32)
    tf.identity(rows, name="result")
    np.testing.assert_array_equal(again(), 2 * X[::-1])


def test_pieces_of_several_lengths(version):
    array = Old(version, 2)
    lengths = np.int64([2, 1])
    flow = array.on("Split", value=tf.constant(X), lengths=lengths, flow_in=0.0)
    joined, found = array.on("Concat", flow_in=flow, dtype=tf.float32)
    with tf.control_dependencies([found]):
        tf.identity(joined, name="result")
    np.testing.assert_array_equal(again(), X)
    with tf.Session() as session:
        assert session.run(found).tolist() == [2, 1]


def test_gradients_are_summed(version):
    array = Old(version, 2)
    flow = array.on("Write", index=1, value=tf.ones([2]), flow_in=0.0)
    sums = array("Grad", handle=array.handle, flow_in=flow, source="gradients")
    for _ in range(2):
        flow = array("Write", handle=sums, index=1, value=tf.ones([2]), flow_in=flow)
    tf.identity(array("Read", handle=sums, index=1, flow_in=flow, dtype=tf.float32), name="result")
    np.testing.assert_array_equal(again(), [2, 2])


def test_all_rows_of_the_first_version():
    array = Old("", 3)
    flow = array.on("Unpack", value=tf.constant(X), flow_in=0.0)
    tf.identity(array.on("Pack", flow_in=flow, dtype=tf.float32), name="result")
    np.testing.assert_array_equal(again(), X)


def test_a_closed_array(version):
    array = Old(version, 2)
    with tf.control_dependencies([array.on("Close")]):
        read = array.on("Read", index=0, flow_in=0.0, dtype=tf.float32)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="closed"):
        session.run(read)
