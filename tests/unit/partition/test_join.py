"""Steps whose devices never work at the same time are joined again."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.graph.partition import PartitionedProgram
from headrace._src.ops.base.transfers import is_recv, is_send
from headrace._src.runtime.partitions import PartitionedStep
from tests.unit.session.devices import executable, on, session

ALWAYS = tf.GraphOptions(
    optimizer_options=tf.OptimizerOptions(global_jit_level=tf.OptimizerOptions.ON_1)
)


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def program(fetches, feeds=()) -> PartitionedProgram:
    with session() as s:
        s.run(tf.global_variables_initializer())
        return executable(s, fetches, feeds).program


def layers():
    """Return a network whose layers are on different devices, and the update of its weights."""
    x = tf.placeholder(tf.float32, [4, 4])
    h, weights = x, []
    for device in (0, 1, 2):
        with on(device):
            start = np.eye(4, dtype=np.float32) * 0.5
            weights.append(tf.get_variable(f"w{device}", initializer=start))
            h = tf.tanh(tf.matmul(h, weights[-1]))
    with on(2):
        loss = tf.reduce_sum(h)
    return x, loss, weights


def test_layers_are_joined_and_keep_their_partitions():
    x, loss, _ = layers()
    value = np.ones((4, 4), np.float32)
    found = program([loss], {x: value})
    assert found.joined is not None and len(found.programs) == 3
    ops = [i.op for i in found.joined.instructions]
    assert not any(is_send(op) or is_recv(op) for op in ops)
    rest = [i.op.name for i in found.instructions if not (is_send(i.op) or is_recv(i.op))]
    assert sorted(op.name for op in ops) == sorted(rest)
    assert str(found).endswith("joined: the devices never work at the same time")


@pytest.mark.needs_llvm
def test_a_joined_step_begins_no_partitions(monkeypatch):
    x, loss, weights = layers()
    gradients = tf.gradients(loss, weights, colocate_gradients_with_ops=True)
    step = tf.train.GradientDescentOptimizer(0.1).apply_gradients(zip(gradients, weights))
    value = np.ones((4, 4), np.float32)
    late = tf.RunOptions(timeout_in_ms=600_000)
    with session(graph_options=ALWAYS) as s:
        s.run(tf.global_variables_initializer())
        apart = [s.run([loss, step], {x: value}, options=late)[0] for _ in range(3)]
        s.run(tf.global_variables_initializer())
        monkeypatch.setattr(PartitionedStep, "run", lambda *_: pytest.fail("not joined"))
        assert [s.run([loss, step], {x: value})[0] for _ in range(3)] == apart


def test_what_could_run_beside_a_product_stays_in_partitions():
    x = tf.placeholder(tf.float32, [4, 4])
    with on(1):
        y = tf.matmul(x, x)
    with on(2):
        z = tf.exp(x)
    with on(0):
        total = y + z
    assert program([total], {x: np.ones((4, 4), np.float32)}).joined is None


def test_short_operations_are_joined_whatever_waits_for_them():
    x = tf.placeholder(tf.float32, [4])
    with on(1):
        y = tf.exp(x)
    with on(2):
        z = tf.tanh(x)
    with on(0):
        total = y + z
    with session() as s:
        value = np.ones(4, np.float32)
        assert executable(s, [total], {x: value}).program.joined is not None
        np.testing.assert_allclose(s.run(total, {x: value}), np.exp(value) + np.tanh(value), 1e-6)


def test_control_edges_keep_their_order():
    with on(0):
        v = tf.Variable(1.0, use_resource=False)
    with on(1):
        w = tf.Variable(2.0, use_resource=False)
        doubled = tf.assign(w, w * 2.0)
    with on(0), tf.control_dependencies([doubled]):
        added = tf.assign_add(v, 1.0)
    with on(1), tf.control_dependencies([added]):
        last = tf.assign_add(w, 1.0)
    with session() as s:
        s.run(tf.global_variables_initializer())
        found = executable(s, [last]).program.joined
        assert found is not None
        names = [i.op.name for i in found.instructions]
        places = [names.index(op.op.name) for op in (doubled, added, last)]
        assert places == sorted(places)
        assert s.run([last, added]) == [5.0, 2.0]


@pytest.mark.parametrize("kind", ["blocks", "python"])
def test_what_may_wait_for_something_else_stays_in_partitions(kind):
    with on(0):
        queue = tf.FIFOQueue(2, tf.float32, [])
        put = queue.enqueue(3.0)
        if kind == "blocks":
            x = queue.dequeue()
        else:
            x = tf.py_func(lambda: np.float32(3), [], tf.float32)
    with on(1):
        y = x + 1.0
    with session() as s:
        s.run(put)
        assert executable(s, [y]).program.joined is None
        assert s.run(y) == 4.0


def test_a_feed_and_a_constant_of_several_devices_are_one():
    x = tf.placeholder(tf.float32, [2])
    c = tf.constant([1.0, 2.0])
    with on(1):
        y = x * c
    with on(2):
        z = y + c * x
    value = np.array([3, 4], np.float32)
    with session() as s:
        assert executable(s, [z, x, y], {x: value}).program.joined is not None
        found = s.run([z, x, y], {x: value})
    np.testing.assert_array_equal(found, [[6, 16], [3, 4], [3, 8]])


def test_an_error_names_its_operation():
    x = tf.placeholder(tf.float32, [None])
    with on(1):
        y = tf.square(x)
    with on(2):
        z = tf.reshape(y, [2], name="two")
    with session() as s:
        with pytest.raises(tf.errors.InvalidArgumentError, match="two"):
            s.run(z, {x: [1.0]})
        assert s.run(z, {x: [1.0, 2.0]}).tolist() == [1.0, 4.0]
