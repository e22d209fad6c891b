"""Loops and branches in structured form: the same results as with the primitives, and graphs that
are left unchanged.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.graph.structured import Unraisable, parts_of
from headrace._src.ops.base.define import b
from headrace._src.ops.control.loops_and_branches import IF, WHILE
from headrace._src.optimize.prune import prune
from headrace._src.optimize.raising import raise_structure


@pytest.fixture(autouse=True)
def _fresh():
    tf.reset_default_graph()


def structured(flow):
    """The kinds of structured nodes of a flow, with those inside of each."""
    found = []
    for node in flow.nodes:
        if node.type in (WHILE.op_type, IF.op_type):
            found.append((node.type, *(structured(part) for part in parts_of(node).values())))
    return found


def raised(*fetches, targets=()):
    return structured(raise_structure(prune(fetches, targets, ())))


def both_ways(fetches, feed=None, monkeypatch=None):
    """The values in structured form, after it was seen that the primitives give the same."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = [session.run(fetches, feed) for _ in range(3)]  # interpreted, then compiled

    def refuse(step):
        raise Unraisable("a test")

    monkeypatch.setattr("headrace._src.pipeline.passes.raise_structure", refuse)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        plain = session.run(fetches, feed)
    monkeypatch.undo()
    for each in found:
        np.testing.assert_allclose(each, plain, rtol=1e-5)
    return found[0]


def test_a_loop(monkeypatch):
    result = tf.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2.0), (0, 3.0))
    assert raised(*result) == [("_While", [], [])]
    assert both_ways(result, monkeypatch=monkeypatch) == (5, 96.0)


def test_a_branch(monkeypatch):
    x = tf.placeholder_with_default(2.0, [])
    y = tf.cond(x > 1.0, lambda: x * 10.0, lambda: x)
    assert raised(y) == [("_If", [], [])]
    assert both_ways(y, monkeypatch=monkeypatch) == 20.0
    assert both_ways(y, {x: 0.5}, monkeypatch) == 0.5


def test_a_branch_in_a_loop_in_a_branch(monkeypatch):
    x = tf.placeholder_with_default(3, [])

    def loop():
        def step(i, y):
            return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: y + x, lambda: y * 2)

        return tf.while_loop(lambda i, y: i < x, step, (0, 1))[1]

    y = tf.cond(x > 0, loop, lambda: x - 1)
    assert raised(y) == [("_If", [("_While", [], [("_If", [], [])])], [])]
    assert both_ways(y, monkeypatch=monkeypatch) == 11
    assert both_ways(y, {x: -4}, monkeypatch) == -5


def test_a_loop_in_a_loop(monkeypatch):
    def inner(n):
        return tf.while_loop(lambda j, s: j < n, lambda j, s: (j + 1, s + j), (0, 0))[1]

    total = tf.while_loop(lambda i, s: i < 5, lambda i, s: (i + 1, s + inner(i)), (0, 0))[1]
    assert raised(total) == [("_While", [], [("_While", [], [])])]
    assert both_ways(total, monkeypatch=monkeypatch) == 10


def test_two_branches_of_one_predicate_with_work_between(monkeypatch):
    x = tf.placeholder_with_default(2.0, [])
    p = x > 1.0
    first = tf.cond(p, lambda: x + 1.0, lambda: x - 1.0)
    second = tf.cond(p, lambda: tf.sqrt(first), lambda: first * first)
    assert [kind for kind, *_ in raised(second)] == ["_If", "_If"]
    assert both_ways(second, monkeypatch=monkeypatch) == pytest.approx(3**0.5)
    assert both_ways(second, {x: -1.0}, monkeypatch) == 4.0


def test_a_later_branch_reads_what_an_earlier_one_made(monkeypatch):
    """As gradients do: the value is dead where it isn't needed."""
    x = tf.placeholder_with_default(2.0, [])
    p = x > 1.0
    no, yes = b.switch_op(x, p)
    inside = yes * 3.0
    merged = b.merge_op([no, inside]).output
    again = b.switch_op(tf.sin(merged), p)
    late = b.merge_op([again[0], again[1] + inside]).output
    assert [kind for kind, *_ in raised(late)] == ["_If", "_If"]
    assert both_ways(late, monkeypatch=monkeypatch) == pytest.approx(np.sin(6.0) + 6.0, rel=1e-6)
    assert both_ways(late, {x: 0.5}, monkeypatch) == pytest.approx(np.sin(0.5), rel=1e-6)


def test_shapes_that_change_are_left_open(monkeypatch):
    def grow(i, x):
        return i + 1, tf.concat([x, x[:1]], 0)

    shapes = (tf.TensorShape([]), tf.TensorShape([None]))
    _, x = tf.while_loop(
        lambda i, x: i < 3, grow, (0, tf.constant([1.0, 2.0])), shape_invariants=shapes
    )
    assert both_ways(x, monkeypatch=monkeypatch).tolist() == [1.0, 2.0, 1.0, 1.0, 1.0]


def test_variables_are_read_and_written_in_order(monkeypatch):
    v = tf.get_variable("v", initializer=1.0, use_resource=True)

    def body(i):
        with tf.control_dependencies([v.assign_add(2.0)]):
            return i + 1

    with tf.control_dependencies([tf.while_loop(lambda i: i < 4, body, [0])]):
        result = v.read_value()
    with tf.Session() as session:
        session.run(v.initializer)
        assert [session.run(result) for _ in range(3)] == [9.0, 17.0, 25.0]


def test_an_assertion_fails_in_the_branch_that_is_taken():
    x = tf.placeholder(tf.float32, [])

    def checked():
        with tf.control_dependencies([tf.Assert(x < 5.0, ["too large"])]):
            return tf.identity(x)

    y = tf.cond(x > 0.0, checked, lambda: -x)
    with tf.Session() as session:
        assert session.run(y, {x: -9.0}) == 9.0
        assert session.run(y, {x: 4.0}) == 4.0
        with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
            session.run(y, {x: 6.0})


@pytest.mark.parametrize("fetch", ["dead", "index"])
def test_what_cannot_be_raised(fetch):
    no, yes = b.switch_op(1.0, tf.placeholder_with_default(True, []))
    merged = b.merge_op([no, yes])
    with pytest.raises(Unraisable):
        raised(yes if fetch == "dead" else merged.value_index)
    with tf.Session() as session:
        assert session.run(merged.value_index) == 1


def test_a_predicate_must_be_a_scalar():
    p = tf.placeholder(tf.bool)
    y = tf.cond(p, lambda: 1.0, lambda: 2.0)
    with tf.Session() as session:
        assert session.run(y, {p: True}) == 1.0
        with pytest.raises(tf.errors.InvalidArgumentError, match="scalar"):
            session.run(y, {p: [True, False]})


def test_an_endless_loop_can_be_stopped():
    forever = tf.while_loop(lambda i: i >= 0, lambda i: tf.abs(i), [1])
    assert raised(forever) == [("_While", [], [])]
    with tf.Session() as session:
        for _ in range(3):
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(forever, options=tf.RunOptions(timeout_in_ms=50))
        assert session.run(tf.constant(1) + 1) == 2


def test_a_loops_variable_decides_a_branch(monkeypatch):
    def body(i, on, x):
        return i + 1, tf.logical_not(on), tf.cond(on, lambda: x * 2.0, lambda: x + 1.0)

    result = tf.while_loop(lambda i, on, x: i < 4, body, (0, True, 3.0))
    assert raised(*result) == [("_While", [], [("_If", [], [])])]
    assert both_ways(result[2], monkeypatch=monkeypatch) == 15


def test_the_predicate_of_an_inner_branch_decides_one_of_its_gradients(monkeypatch):
    x = tf.placeholder_with_default(2.0, [])
    y = tf.cond(x > 1.0, lambda: tf.cond(x < 3.0, lambda: x**3, lambda: x), lambda: -x)
    for _ in range(2):
        y = tf.gradients(y, x)[0]
    assert raised(y)
    assert both_ways(y, monkeypatch=monkeypatch) == 12


def test_a_loop_whose_condition_is_not_marked(monkeypatch):
    tf.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2.0), (0, 3.0), name="loop")
    graph_def = tf.get_default_graph().as_graph_def()
    nodes = [node for node in graph_def.node if node.op != "LoopCond"]
    for node in nodes:
        node.input[:] = [i.replace("loop/LoopCond", "loop/Less") for i in node.input]
    tf.reset_default_graph()
    (result,) = tf.import_graph_def(tf.GraphDef(node=nodes), return_elements=["loop/Exit_1:0"])
    assert raised(result) == [("_While", [], [])]
    assert both_ways(result, monkeypatch=monkeypatch) == 96.0


def taken_in_a_branch(predicate, accumulator):
    return tf.cond(predicate, lambda: accumulator.take_grad(1), lambda: -1.0)


def applied_in_a_branch(predicate, accumulator):
    def apply():
        with tf.control_dependencies([accumulator.apply_grad(2.0, local_step=100)]):
            return tf.constant(1.0)

    return tf.cond(predicate, apply, lambda: -1.0)


@pytest.mark.timeout(60)
def test_a_branch_that_waits_for_another_one_is_not_raised():
    """TensorFlow runs both branches at the same time."""
    accumulator = tf.ConditionalAccumulator(tf.float32, shape=[])
    p, q = tf.placeholder(tf.bool, []), tf.placeholder(tf.bool, [])
    taken, applied = taken_in_a_branch(p, accumulator), applied_in_a_branch(q, accumulator)
    with pytest.raises(Unraisable, match="may wait for"):
        raised(taken, applied)
    with tf.Session() as session:
        for _ in range(2):
            assert session.run([taken, applied], {p: True, q: True}) == [2.0, 1.0]
            assert session.run([taken, applied], {p: False, q: False}) == [-1.0, -1.0]


def test_a_branch_that_waits_alone_or_in_order_is_raised():
    accumulator = tf.ConditionalAccumulator(tf.float32, shape=[])
    p = tf.placeholder(tf.bool, [])
    assert raised(taken_in_a_branch(p, accumulator)) == [("_If", [], [])]
    with tf.control_dependencies([accumulator.apply_grad(2.0, local_step=100)]):
        ready = tf.identity(p)
    taken = taken_in_a_branch(ready, accumulator)
    assert raised(taken) == [("_If", [], [])]
    with tf.Session() as session:
        assert session.run(taken, {p: True}) == 2.0


@pytest.mark.timeout(60)
def test_a_deadline_ends_a_wait_in_a_branch():
    queue = tf.FIFOQueue(3, tf.float32, shapes=[[]])
    p = tf.placeholder(tf.bool, [])
    taken = tf.cond(p, queue.dequeue, lambda: -1.0)
    assert raised(taken) == [("_If", [], [])]
    with tf.Session() as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(taken, {p: True}, tf.RunOptions(timeout_in_ms=50))
        session.run(queue.enqueue(3.0))
        assert session.run(taken, {p: True}, tf.RunOptions(timeout_in_ms=20000)) == 3.0
