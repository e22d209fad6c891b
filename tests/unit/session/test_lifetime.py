"""Sessions over time: threads, closing, interruption, forks, and what is kept in memory."""

import gc
import os
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import headrace as tf
from headrace._src.gradients.function_gradients import Defun


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as s:
        yield s


def run_in_threads(count, work):
    errors = []

    def guarded(i):
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads)
    if errors:
        raise errors[0]


@pytest.mark.filterwarnings("ignore::headrace._src.session.graph_growth_warning.GraphGrowthWarning")
def test_threads_build_and_run_one_graph(session):
    graph = session.graph
    x = tf.placeholder(tf.float32, [], name="x")

    def work(i):
        with graph.as_default(), tf.name_scope(f"thread{i}"):
            for k in range(20):
                y = tf.add(x * float(i), float(k), name="y")
                assert y.op.name.startswith(f"thread{i}/y")
                assert session.run(y, {x: 2}) == 2 * i + k

    run_in_threads(6, work)
    names = [op.name for op in graph.get_operations()]
    assert len(names) == len(set(names))


def test_updates_from_many_threads_all_count(session):
    v = tf.Variable(np.zeros(3, np.float32))
    r = tf.Variable(np.zeros(3, np.float32), use_resource=True)
    updates = [v.assign_add([1.0, 1.0, 1.0], use_locking=True).op, r.assign_add([1.0, 1.0, 1.0])]
    session.run(tf.global_variables_initializer())
    run_in_threads(4, lambda i: [session.run(updates) for _ in range(50)])
    assert session.run(v).tolist() == [200, 200, 200]
    assert session.run(r).tolist() == [200, 200, 200]


def test_closing_lets_running_steps_end(session):
    started, closed = threading.Event(), threading.Event()

    def wait():
        started.set()
        assert closed.wait(30)
        return np.float32(1)

    v = tf.Variable(2.0, use_resource=True)
    other = tf.Session(graph=session.graph)
    other.run(v.initializer)
    waited = tf.py_func(wait, [], tf.float32)
    with tf.control_dependencies([waited]):
        late = v.read_value() * 3
    results = []
    thread = threading.Thread(target=lambda: results.append(other.run(late)))
    thread.start()
    assert started.wait(30)
    other.close()
    closed.set()
    thread.join(30)
    assert results == [6]
    with pytest.raises(RuntimeError, match="closed Session"):
        other.run(late)


def test_a_closed_session_refuses_everything(session):
    x = tf.placeholder(tf.float32, [])
    other = tf.Session()
    call = other.make_callable(x, [x])
    handle = other.partial_run_setup([x * 2], [x])
    assert other.run(x * 1, {x: 1}) == 1
    other.close()
    other.close()
    for use in (
        lambda: other.run(x, {x: 1}),
        lambda: call(1),
        lambda: other.partial_run(handle, [], {x: 1}),
        lambda: other.partial_run_setup([x], [x]),
        lambda: other.make_callable(x, [x]),
        lambda: x.eval({x: 1}, session=other),
    ):
        with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
            use()


def test_a_session_is_entered_once_at_a_time():
    with tf.Graph().as_default(), tf.Session() as session:
        with pytest.raises(RuntimeError, match="not re-entrant"), session:
            pass
        assert tf.get_default_session() is session
        with session.as_default(), session.as_default():
            assert tf.constant(1).eval() == 1
        with pytest.raises(KeyError), session.as_default():
            raise KeyError
        assert tf.get_default_session() is session
    assert tf.get_default_session() is None


def test_an_interrupted_step_leaves_the_session_usable(session):
    interrupt = [True]

    def function(x):
        if interrupt[0]:
            raise KeyboardInterrupt
        return x

    v = tf.Variable(1.0)
    session.run(v.initializer)
    y = tf.py_func(function, [v.assign_add(1.0)], tf.float32)
    with pytest.raises(KeyboardInterrupt):
        session.run(y)
    interrupt[0] = False
    assert session.run(y) == 3
    handle = session.partial_run_setup([y])
    assert session.partial_run(handle, y) == 4


def test_sessions_work_in_a_forked_child(session):
    x = tf.placeholder(tf.float32, [8, 8])
    y = tf.nn.softmax(tf.matmul(x, x))
    value = np.eye(8, dtype=np.float32)
    expected = session.run(y, {x: value})
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if np.allclose(session.run(y, {x: value}), expected) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_graphs_and_sessions_are_forgotten_after_use():
    @tf.custom_gradient
    def doubled(x):
        return x * 2, lambda d: d * 2

    def use():
        with tf.Graph().as_default() as graph, tf.Session() as session:
            x = tf.placeholder(tf.float32, [2])
            v = tf.Variable([1.0, 2.0])
            y = doubled(x) * v
            d = tf.gradients(y, [x, v])
            z = tf.py_func(lambda a: a, [y], tf.float32)
            session.run(v.initializer)
            session.run([y, d, z], {x: [1, 2]})
            session.make_callable(y, [x])([1, 2])
            session.partial_run_setup([y], [x])
            return weakref.ref(graph), weakref.ref(session), weakref.ref(y)

    references = use()
    gc.collect()
    assert [r() for r in references] == [None, None, None]


def test_a_loop_of_runs_keeps_nothing(session):
    x = tf.placeholder(tf.float32, [None])
    v = tf.Variable(np.zeros(1000, np.float32))
    step = [v.assign_add(tf.ones([1000])), tf.reduce_sum(x * 2)]
    session.run(v.initializer)
    call = session.make_callable(step, [x])

    def loop(count):
        for i in range(count):
            session.run(step, {x: np.ones(i % 7 + 1, np.float32)})
            session.run({"a": step}, {"Placeholder:0": [1.0]})
            call(np.ones(3, np.float32))
            handle = session.partial_run_setup(step, [x])
            session.partial_run(handle, step, {x: [1.0]})

    loop(30)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    loop(300)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 40_000  # NumPy keeps some 20 KB for its reductions, however many there are
    assert not session._partial


def test_the_cache_of_plans_is_bounded(session):
    constants = [tf.constant(i) for i in range(1100)]
    for i, c in enumerate(constants):
        assert session.run(c) == i
    assert len(session._plans) <= 1024 + 1


def test_graphs_whose_functions_have_run_are_freed():
    def run_one():
        with tf.Graph().as_default() as graph, tf.Session() as session:

            @Defun(tf.float32, noinline=True)
            def plus_one(x):
                return tf.py_func(lambda v: v + 1, [x], tf.float32)

            x = tf.placeholder(tf.float32, [3])
            y = plus_one(x)
            for _ in range(3):
                session.run(y, {x: np.ones(3, np.float32)})
        return weakref.ref(graph)

    graphs = [run_one() for _ in range(2)]
    gc.collect()
    assert [graph() for graph in graphs] == [None, None]
