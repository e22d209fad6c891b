"""Deep and wide graphs: nothing recurses, and the cost of every stage grows with the graph's size.

No time is asserted, since test machines are shared; a stage that is quadratic runs into the time
limit against hanging.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.core import proto


@pytest.mark.timeout(120)
def test_a_chain_of_8000_operations():
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = y = tf.placeholder(tf.float64, [2])
        for i in range(8_000):
            y = tf.identity(y) if i % 2 else tf.add(y, x)
        (dx,) = tf.gradients(y, x)
        value, slope = session.run([y, dx], {x: [1, 2]})
        np.testing.assert_array_equal(value, [4_001, 8_002])
        np.testing.assert_array_equal(slope, [4_001, 4_001])
        data = graph.as_graph_def().SerializeToString()
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(proto.GraphDef.FromString(data), name="")
        np.testing.assert_array_equal(session.run(y.name, {x.name: [1, 2]}), value)


@pytest.mark.timeout(120)
def test_a_sum_of_2000_terms():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float64, [])
        terms = [x * float(i) for i in range(2000)]
        total = tf.add_n(terms)
        stacked = tf.reduce_sum(tf.stack(terms))
        found = session.run([total, stacked, *tf.gradients([total, stacked], x), *terms], {x: 2})
        expected = np.arange(2000.0).sum()
        assert found[:3] == [2 * expected, 2 * expected, 2 * expected]
        assert found[-1] == 3998


@pytest.mark.timeout(120)
def test_control_edges_alone_order_a_long_chain():
    ran = []
    with tf.Graph().as_default(), tf.Session() as session:
        last = tf.no_op()
        for i in range(3000):
            with tf.control_dependencies([last]):
                last = tf.no_op() if i % 1000 else tf.py_func(lambda i=i: ran.append(i), [], [])
        session.run(last)
    assert ran == [0, 1000, 2000]
