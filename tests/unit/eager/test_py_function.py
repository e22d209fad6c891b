"""tf.py_function: what the function sees, what it may return, and what else it may do."""

import copy
import gc
import threading
import weakref

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def run(fetches, feeds=None):
    with tf.Session() as session:
        return session.run(fetches, feeds)


def called(function, *inputs, result=tf.float32):
    """What a function returns when it's called as tf.py_function does."""
    return run(tf.py_function(function, list(inputs), result))


# -- Tensors that have values ----------------------------------------------------------------------


def test_texts():
    def texts(x):
        found = [repr(x), str(x), repr(x[0]), repr(tf.constant("a")), f"{x[1]:.2f}"]
        return found, repr(tf.Variable(1.0).handle)

    found, handle = called(
        lambda x: [str(texts(x)[0]), texts(x)[1]], [1.0, 2.0], result=[tf.string] * 2
    )
    shown = eval(found)
    assert shown[0].endswith("shape=(2,), dtype=float32, numpy=array([1., 2.], dtype=float32)>")
    assert shown[1] == "tf.Tensor([1. 2.], shape=(2,), dtype=float32)"
    assert shown[2].endswith("shape=(), dtype=float32, numpy=1.0>")
    assert shown[3].endswith("dtype=string, numpy=b'a'>")
    assert shown[4] == "2.00"
    assert b"numpy=<unprintable>" in handle


def test_tensors_are_their_values():
    def look(x):
        three = tf.constant(3)
        assert tf.executing_eagerly()
        assert "abcd"[three] == "d" and int(three) == 3 and complex(three) == 3
        assert isinstance(x.numpy(), np.ndarray) and isinstance(three.numpy(), np.int32)
        assert np.sum(x) == 6 and np.asarray(x, np.int64).dtype == np.int64
        assert copy.deepcopy(x) is x and {x: 1}[x] == 1
        for wrong in (lambda: len(three), lambda: list(three)):
            with pytest.raises(TypeError, match=r"[Ss]calar tensor"):
                wrong()
        with pytest.raises(ValueError, match="truth value"):
            bool(x)
        with pytest.raises(NotImplementedError, match=r"\.numpy\(\)"):
            x.eval()
        with pytest.raises(ValueError, match="resource can't become an array"):
            tf.Variable(1.0).handle.numpy()
        return tf.range(len(x)) if x[0] > 0 else None

    assert called(look, [1.0, 2.0, 3.0], result=tf.int32).tolist() == [0, 1, 2]
    assert not tf.executing_eagerly()


def test_arguments_and_arrays_of_them_are_nobody_elses():
    x = tf.constant([1.0, 2.0])

    def scribble(v):
        for array in (v.numpy(), np.asarray(v)):
            array[:] = 9
        return v

    assert run([tf.py_function(scribble, [x], tf.float32), x])[1].tolist() == [1, 2]


def test_static_values_are_known():
    def ranks(x):
        y = tf.reshape(x, tf.stack([x.shape[0], -1]))
        assert tf.get_static_value(y).shape == y.shape == (2, 1)
        return tf.ones(tf.shape(y)[:1])

    assert called(ranks, [1.0, 2.0]).tolist() == [1, 1]


# -- Results ---------------------------------------------------------------------------------------


def test_no_results():
    seen = []
    operation = tf.py_function(lambda x: seen.append(float(x)), [2.5], [])
    assert isinstance(operation, tf.Operation)
    assert run(operation) is None
    assert seen == [2.5]


@pytest.mark.parametrize(
    ("function", "types", "message"),
    [
        (lambda: None, tf.float32, "returns 0 values, but expects to see 1"),
        (lambda: [1.0], [tf.float32] * 2, "returns 1 values, but expects to see 2"),
        (lambda: [1.0, 2.0], tf.float32, "returns 2 values, but expects to see 1"),
        (lambda: [None], [tf.float32], "result 0 is None"),
        (lambda: np.zeros(2), tf.int32, "is an array of float64, but expects int32"),
        (lambda: tf.constant(1), tf.float32, "requested dtype float32 for Tensor with dtype int32"),
        (lambda: 2.5, tf.int32, "Expected int32, got 2.5"),
        (lambda: object(), tf.float32, "object"),
        (lambda: [[1, [2]]], [tf.int32], "TypeError|ValueError"),
    ],
)
def test_wrong_results(function, types, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(tf.py_function(function, [], types))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="to be callable"):
        tf.py_function(3, [], tf.float32)
    with pytest.raises(TypeError, match="object"):
        tf.py_function(abs, [object()], tf.float32)
    with pytest.raises(TypeError, match="to a TensorFlow DType"):
        tf.py_function(abs, [1.0], "no type")


def test_results_of_an_unknown_shape_that_disagrees():
    y = tf.py_function(lambda: [[1.0, 2.0]], [], [tf.float32])[0]
    assert y.shape.ndims is None
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(tf.reshape(y, [3]))


# -- Graphs around it ------------------------------------------------------------------------------


def test_tensors_of_the_graph_are_refused():
    x, v = tf.constant(3.0), tf.Variable(1.0, use_resource=True)
    for outside in (x, v):
        y = tf.py_function(lambda a, o=outside: a + o, [1.0], tf.float32)
        with pytest.raises(tf.errors.InvalidArgumentError, match="belongs to another graph") as no:
            run(y)
        assert "pass it" in str(no.value) and "was made at" in str(no.value)
    before = x.graph.version
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(tf.py_function(lambda: x + x, [], tf.float32))
    assert x.graph.version == before + 1  # the EagerPyFunc, and nothing of its function


def test_eager_tensors_stay_out_of_graphs():
    kept = []
    called(lambda x: kept.append(x) or x, 1.0)
    assert kept[0].numpy() == 1
    with pytest.raises(RuntimeError, match=r"tf\.constant\(tensor\.numpy\(\)\)"):
        kept[0] + 1.0
    with tf.Session() as session, pytest.raises(ValueError, match="not an element of this graph"):
        session.run(kept[0])


def test_graphs_inside():
    def function(x):
        with tf.Graph().as_default(), tf.Session() as session:
            assert not tf.executing_eagerly()
            found = session.run(tf.constant(2.0) * 3.0)
        return found + x

    assert called(function, 1.0) == 7
    with pytest.raises(tf.errors.UnknownError, match=r"RuntimeError: .*Use tensor\.numpy\(\)"):
        called(lambda x: tf.Session().run(x), 1.0)


def test_functions_in_functions_of_graphs():
    for noinline in (False, True):
        defun = tf.python.framework.function.Defun(tf.float32, noinline=noinline)
        cube = defun(lambda x: tf.py_function(lambda v: v * v * v, [x], tf.float32) * 2.0)
        x = tf.constant(3.0)
        y = cube(x)
        dx = tf.gradients(y, x)[0]
        assert run([y, dx, tf.gradients(dx, x)[0]]) == [54, 54, 36]


def test_deadlines():
    endless = tf.py_function(
        lambda: tf.while_loop(lambda i: i >= 0, lambda i: i + 1, [0]), [], tf.int32
    )
    with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=50)) as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(endless)
        assert session.run(tf.constant(1.0)) == 1


def test_primitives_of_control_flow_are_refused():
    with pytest.raises(tf.errors.UnimplementedError, match=r"controls .* use tf\.cond"):
        called(lambda x: tf.raw_ops.Switch(data=x, pred=True)[0], 1.0)


def test_functions_of_graphs():
    @tf.python.framework.function.Defun(tf.float32)
    def cube(x):
        return x * x * x

    x = tf.constant(2.0)
    y = tf.py_function(lambda v: cube(v) + 1.0, [x], tf.float32)
    assert run([y, *tf.gradients(y, x)]) == [9, 12]


# -- State -----------------------------------------------------------------------------------------


def test_values_and_variables_kept_between_calls():
    kept = {}

    def count(x):
        if not kept:
            kept.update(total=tf.Variable(0.0), last=x)
        change = x - kept["last"]
        kept["last"] = x
        kept["total"].assign_add(x)
        assert kept["total"].numpy() == kept["total"].read_value().numpy() == int(kept["total"])
        return kept["total"] * 1.0, change

    x = tf.placeholder(tf.float32, [])
    y = tf.py_function(count, [x], [tf.float32] * 2)
    with tf.Session() as session:
        found = [session.run(y, {x: value}) for value in (1.0, 3.0, 2.0)]
    assert found == [[1, 0], [4, 2], [6, -1]]


def test_get_variable_and_layers():
    def dense(x):
        w = tf.get_variable("w", [2, 3], initializer=tf.ones_initializer())
        return tf.matmul(x, w)

    assert called(dense, [[1.0, 2.0]]).tolist() == [[3, 3, 3]]


def test_queues():
    def through(x):
        queue = tf.FIFOQueue(3, tf.float32)
        queue.enqueue(x)
        queue.enqueue(x * 2)
        return queue.dequeue() + queue.dequeue()

    assert called(through, 2.0) == 6


def test_an_operation_that_waits():
    def through(x):
        queue = tf.FIFOQueue(1, tf.float32)
        graph = tf.get_default_graph()

        def fill():
            with graph.as_default():
                queue.enqueue(x)

        taken = threading.Timer(0.0, fill)
        taken.start()
        value = queue.dequeue()
        taken.join()
        return value

    assert called(through, 2.0) == 2


def test_random_numbers_are_others_at_each_call():
    for draw in (lambda: tf.random_uniform([4]), lambda: tf.random_uniform([4], seed=7)):
        y = tf.py_function(draw, [], tf.float32)
        with tf.Session() as session:
            found = {tuple(session.run(y).tolist()) for _ in range(5)}
        assert len(found) == 5


def test_calls_from_many_threads():
    def function(x):
        y = x
        for _ in range(10):
            y = y + x
        assert tf.get_default_graph() is y.graph
        return y

    x = tf.placeholder(tf.float32, [])
    y = tf.py_function(function, [x], tf.float32)
    fetches = [y, *tf.gradients(y * y, x)]
    results = {}
    with tf.Session() as session:

        def work(number):
            results[number] = [session.run(fetches, {x: number}) for _ in range(10)]

        threads = [threading.Thread(target=work, args=[n]) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {n: [[11 * n, 242 * n]] * 10 for n in range(4)}


# -- Memory ----------------------------------------------------------------------------------------


class Alive:
    """How many eager graphs there are, without the help of Python's collector of circles."""

    def __init__(self):
        self._graphs = []

    def note(self):
        self._graphs.append(weakref.ref(tf.get_default_graph().get_operations()[-1]))

    def count(self):
        return sum(ref() is not None for ref in self._graphs)


def test_graphs_are_gone_after_the_step():
    alive = Alive()

    def function(x):
        y = x * 2.0
        alive.note()
        return y

    x = tf.constant(1.0)
    y = tf.py_function(function, [x], tf.float32)
    _, z = tf.while_loop(
        lambda i, _: i < 5,
        lambda i, v: (i + 1, tf.reshape(tf.py_function(function, [v], tf.float32), [])),
        (0, x),
    )
    fetches = [[y], [y, *tf.gradients(y, x)], [z, *tf.gradients(z, x)]]
    gc.disable()
    try:
        with tf.Session() as session:
            for fetch in fetches:
                for _ in range(30):
                    session.run(fetch)
                    assert alive.count() == 0
    finally:
        gc.enable()
    assert len(alive._graphs) == 30 + 30 + 150


def test_assertions():
    def check(x):
        tf.assert_positive(x, message="a positive x is wanted")
        return x

    assert called(check, [1.0, 2.0]).tolist() == [1, 2]
    with pytest.raises(tf.errors.OpError, match="a positive x is wanted"):
        called(check, [1.0, -2.0])
