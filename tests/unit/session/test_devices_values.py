"""Steps on several devices: every kind of value crosses, and state changes in the order that the
step asks for.
"""

import threading

import numpy as np
import pytest

import headrace as tf
from headrace._src.gradients.function_gradients import Defun
from tests.unit.session.devices import checking, config, in_thread, on, session


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


VALUES = {
    "float32": np.float32([[1.5, -2.0]]),
    "float64 scalar": np.float64(2.5),
    "empty": np.zeros((0, 3), np.float32),
    "bool": np.array([True, False]),
    "bool scalar": np.array(True),
    "int64": np.int64([1, 2, 3]),
    "uint8": np.uint8([[250, 3]]),
    "complex64": np.complex64([1 + 2j]),
    "half": np.float16([0.5]),
    "string": np.array([b"one", b"", b"three"], object),
    "string scalar": np.array(b"one", object),
}


@pytest.mark.parametrize("jit", ["OFF", "ON_1"])
@pytest.mark.parametrize("name", VALUES)
def test_values_cross_and_come_back(name, jit):
    level = getattr(tf.OptimizerOptions, jit)
    options = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(global_jit_level=level))
    value = VALUES[name]
    x = tf.placeholder(tf.as_dtype(value.dtype), [None] * value.ndim)
    with on(1):
        y = tf.stack([x, x])
    with on(2):
        z = tf.identity(y[0])
    with on(0):
        back = tf.stack([z, y[1]])
    with session(graph_options=options) as s:
        for _ in range(3):
            found = s.run([back, z], {x: value})
            np.testing.assert_array_equal(found[0], np.stack([value, value]))
            np.testing.assert_array_equal(found[1], value)


def test_bfloat16_crosses():
    x = tf.placeholder(tf.float32, [3])
    with on(1):
        y = tf.cast(x, tf.bfloat16) + tf.cast(1.0, tf.bfloat16)
    with on(2):
        z = tf.cast(y + y, tf.float32)
    with session() as s:
        assert s.run(z, {x: [0.5, 1.0, 2.0]}).tolist() == [3.0, 4.0, 6.0]


def test_sparse_tensors_cross():
    with on(1):
        a = tf.sparse_placeholder(tf.float32)
        b = tf.sparse_reorder(a)
    with on(2):
        total = tf.sparse_reduce_sum(b, 1)
        dense = tf.sparse_tensor_to_dense(b)
    given = tf.SparseTensorValue([[0, 1], [1, 0]], [2.0, 3.0], [2, 2])
    with session() as s:
        found = s.run([total, dense, b], {a: given})
    assert found[0].tolist() == [2, 3] and found[1].tolist() == [[0, 2], [3, 0]]
    assert found[2].values.tolist() == [2, 3]


def test_a_handle_of_a_resource_is_used_on_its_device():
    with on(1):
        v = tf.Variable(1.0, use_resource=True)
    with on(2):
        read = v.read_value() * 2.0
        with tf.control_dependencies([read]):
            add = v.assign_add(10.0)
        with tf.control_dependencies([add]):
            after = v.read_value() + 0.5
    with session(allow_soft_placement=True) as s:
        s.run(v.initializer)
        assert s.run([read, after]) == [2.0, 11.5]
        assert s.run([read, after]) == [22.0, 21.5]


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("checked", [False, True])
def test_a_variable_is_read_elsewhere_before_and_after_its_update(use_resource, checked):
    with on(1):
        v = tf.Variable(np.float32([1, 2]), use_resource=use_resource)
    with on(0):
        before = v.read_value() * 2.0
        with tf.control_dependencies([before]):
            update = v.assign_add([1.0, 1.0])
        with tf.control_dependencies([update]):
            after = v.read_value() + 0.0
    with on(2):
        with tf.control_dependencies([after]):
            second = v.assign(tf.identity(after) * 10.0)
        with tf.control_dependencies([second]):
            last = tf.identity(v.read_value())
    with tf.Session(config=checking() if checked else config()) as s:
        s.run(tf.global_variables_initializer())
        for step in range(2):
            found = s.run([before, after, last])
            start = np.float32([1, 2]) if step == 0 else np.float32([20, 30])
            assert found[0].tolist() == (start * 2).tolist()
            assert found[1].tolist() == (start + 1).tolist()
            assert found[2].tolist() == ((start + 1) * 10).tolist()


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_loop_across_devices_reads_a_variable_after_each_update(use_resource):
    with on(0):
        v = tf.Variable(2.0, use_resource=use_resource)

    def body(i, a):
        with on(1):
            update = v.assign_add(a)
        with on(2), tf.control_dependencies([update]):
            return i + 1, v.read_value() * 0.5

    _, y = tf.while_loop(lambda i, _: i < 3, body, [0, 1.0])
    with session(allow_soft_placement=True) as s:
        s.run(v.initializer)
        assert s.run(y) == 3.375 and s.run(v) == 6.75


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_variable_is_updated_after_a_branch_elsewhere_has_read_it(use_resource):
    with on(0):
        v = tf.Variable(2.0, use_resource=use_resource)
    with on(1):
        p = tf.placeholder_with_default(True, [])
    with on(2):
        y = tf.cond(p, lambda: tf.identity(v) * 2.0, lambda: tf.constant(0.0))
    with on(0), tf.control_dependencies([y]):
        z = v.assign_add(1.0)
    with session(allow_soft_placement=True) as s:
        s.run(v.initializer)
        assert s.run([y, z]) == [4.0, 3.0]
        assert s.run([y, z], {p: False}) == [0.0, 4.0]


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_sent_value_never_changes_under_its_reader(use_resource):
    """Steps of several threads update a variable while others send it to another device."""
    count = 4096
    with on(1):
        v = tf.Variable(np.zeros(count, np.float32), use_resource=use_resource)
        update = v.assign_add(np.ones(count, np.float32), use_locking=True)
    with on(2):
        read = v.read_value()
        torn = tf.reduce_max(read) - tf.reduce_min(read), read[0], read[-1]
        again = tf.reduce_max(read)
    with session() as s:
        s.run(v.initializer)
        stop = threading.Event()

        def update_until_stopped():
            while not stop.is_set():
                s.run(update.op)

        writers = [in_thread(update_until_stopped) for _ in range(2)]
        try:
            for _ in range(150):
                (difference, first, last), largest, whole = s.run([torn, again, read])
                assert largest in (first, last) and np.ptp(whole) == difference
        finally:
            stop.set()
            for writer in writers:
                writer()


def test_a_received_variable_keeps_its_value_while_its_device_updates_it():
    with on(1):
        v = tf.Variable(np.zeros(5, np.float32))
    with on(2):
        old = tf.py_func(lambda a: a, [v.read_value()], tf.float32)
    with on(1), tf.control_dependencies([old]):
        new = v.assign_add(np.ones(5, np.float32))
    with on(2), tf.control_dependencies([new]):
        kept = tf.identity(old) * 1.0
    with session() as s:
        s.run(v.initializer)
        for i in range(3):
            kept_value, new_value = s.run([kept, new])
            assert kept_value.tolist() == [i] * 5 and new_value.tolist() == [i + 1] * 5


def test_many_threads_run_one_partitioned_step():
    with on(0):
        x = tf.placeholder(tf.float32, [4, 4])
        h = tf.tanh(x)
    with on(1):
        v = tf.Variable(np.eye(4, dtype=np.float32))
        h = tf.matmul(h, v)
    with on(2):
        h = tf.sigmoid(h) * 2.0
    with on(0):
        y = h - x
    rng = np.random.default_rng(3)
    feeds = rng.normal(size=(8, 4, 4)).astype(np.float32)
    with session() as s:
        s.run(v.initializer)
        alone = [s.run(y, {x: f}) for f in feeds]

        def many(i):
            return [s.run(y, {x: feeds[i]}) for _ in range(30)]

        for i, result in enumerate([in_thread(many, i) for i in range(8)]):
            for found in result():
                assert np.array_equal(found, alone[i])


def test_functions_on_several_devices():
    @Defun(tf.float32)
    def twice(a):
        with on(2):
            return a * 2.0

    with on(1):
        x = tf.placeholder(tf.float32, [2])
        y = twice(x)
    with on(0):
        z = twice(y) + tf.gradients(y, x)[0]
    with session() as s:
        assert s.run(z, {x: [1.0, 2.0]}).tolist() == [6, 10]


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("colocated", [False, True])
def test_gradients_of_a_loop_across_devices(swap, colocated):
    def build(spread):
        with tf.Graph().as_default() as graph:
            w = tf.Variable(np.float32([0.5, -0.25]))
            x = tf.placeholder(tf.float32, [2])

            def body(i, a):
                with on(1 if spread else 0):
                    b = tf.tanh(a * w)
                with on(2 if spread else 0):
                    return i + 1, b + x

            _, y = tf.while_loop(lambda i, _: i < 4, body, [0, x], swap_memory=swap)
            found = tf.gradients(y, [x, w], colocate_gradients_with_ops=colocated)
            with session() as s:
                s.run(tf.global_variables_initializer())
                results = [s.run([y, *found], {x: [0.3, 0.7]}) for _ in range(2)]
            assert graph
            return results[1]

    for one, several in zip(build(False), build(True), strict=True):
        np.testing.assert_allclose(several, one, rtol=1e-6)


def test_tensor_arrays_are_written_on_several_devices():
    with on(1):
        array = tf.TensorArray(tf.float32, 4)

    def body(i, a):
        with on(2):
            value = tf.to_float(i) * 2.0
        return i + 1, a.write(i, value)

    _, array = tf.while_loop(lambda i, _: i < 4, body, [0, array])
    with on(0):
        y = array.stack() + 1.0
    with session(allow_soft_placement=True) as s:
        assert s.run(y).tolist() == [1, 3, 5, 7]
        assert s.run(y).tolist() == [1, 3, 5, 7]


def test_a_variable_with_another_shape_is_noticed_before_anything_has_begun():
    with on(0):
        count = tf.Variable(0.0)
        counted = count.assign_add(1.0)
    with on(1):
        v = tf.Variable(np.zeros(2, np.float32), validate_shape=True)
        grow = tf.assign(v, np.zeros(5, np.float32), validate_shape=False)
    with on(2), tf.control_dependencies([counted]):
        y = v.read_value() * 2.0
    with session() as s:
        s.run(tf.global_variables_initializer())
        for _ in range(3):
            s.run([y, counted])
        s.run(grow.op)
        assert s.run([y, counted])[0].shape == (5,)
        assert s.run(count) == 4.0


def test_savers_restore_variables_of_several_devices(tmp_path):
    variables = []
    for i in range(3):
        with on(i):
            variables.append(tf.Variable(np.full(3, i, np.float32), name=f"v{i}"))
    change = [v.assign_add(np.ones(3, np.float32)) for v in variables]
    saver = tf.train.Saver(sharded=True)
    with session() as s:
        s.run(tf.global_variables_initializer())
        s.run(change)
        path = saver.save(s, str(tmp_path / "model"))
        s.run(change)
        saver.restore(s, path)
        assert [v.tolist() for v in s.run(variables)] == [[1] * 3, [2] * 3, [3] * 3]
    with session() as s:
        saver.restore(s, path)
        assert s.run(variables[2]).tolist() == [3] * 3


def test_interactive_sessions_and_callables():
    s = tf.InteractiveSession(config=config())
    try:
        with on(1):
            x = tf.placeholder(tf.float32, [])
            y = x * 2.0
        with on(2):
            z = y + 1.0
        assert z.eval({x: 2.0}) == 5.0
        call = s.make_callable([y, z], [x])
        assert call(3.0) == [6.0, 7.0] and call(4.0) == [8.0, 9.0]
    finally:
        s.close()


def test_partial_runs_use_several_devices():
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    with on(1):
        c = a * 2.0
    with on(2):
        d = c + b
    with session() as s:
        handle = s.partial_run_setup([c, d], [a, b])
        assert s.partial_run(handle, c, {a: 3.0}) == 6.0
        assert s.partial_run(handle, d, {b: 1.0}) == 7.0


def test_checked_numbers_name_the_operation_on_its_device():
    x = tf.placeholder(tf.float32, [2])
    with on(1):
        y = tf.log(x, name="logarithm")
    with on(2):
        z = y + 1.0
    with tf.Session(config=checking()) as s:
        assert s.run(z, {x: [1.0, 1.0]}).tolist() == [1.0, 1.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match="logarithm"):
            s.run(z, {x: [0.0, 1.0]})


def test_prints_and_asserts_are_in_order(capfd):
    with on(1):
        x = tf.placeholder(tf.float32, [])
        first = tf.Print(x, [x], "first ")
    with on(2):
        second = tf.Print(first + 1.0, [first], "second ")
    with on(0), tf.control_dependencies([tf.Assert(second > 0, [second], name="positive")]):
        third = tf.Print(second * 2.0, [second], "third ")
    with session() as s:
        assert s.run(third, {x: 1.0}) == 4.0
        printed = capfd.readouterr().err
        assert printed.index("first") < printed.index("second") < printed.index("third")
        with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
            s.run(third, {x: -3.0})
        assert "third" not in capfd.readouterr().err
