"""Loops and their gradient loops in different regions: between them, what the loops have saved for
the gradients goes as arrays.
"""

from collections import Counter

import numpy as np
import pytest

import headrace as tf
from headrace._src.core import dtypes
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.device import local_devices
from headrace._src.ops.control.tensor_lists import LIST_OF_ROWS, LIST_ROWS, TensorList
from headrace._src.pipeline import Options, compile_step

ROWS, TIME, UNITS = 3, 5, 4


def config(devices, jit=True):
    level = tf.OptimizerOptions.ON_1 if jit else tf.OptimizerOptions.OFF
    options = tf.OptimizerOptions(global_jit_level=level)
    return tf.ConfigProto(
        device_count={"CPU": devices}, graph_options=tf.GraphOptions(optimizer_options=options)
    )


def run(build, devices, jit=True):
    """Return a step's values on so many devices, and the types of the instructions of its
    partitions.
    """
    with tf.Graph().as_default():
        tf.set_random_seed(5)
        fetches, feeds = build(devices)
        with tf.Session(config=config(devices, jit)) as session:
            session.run(tf.global_variables_initializer())
            first = session.run(fetches, feeds)
            values = session.run(fetches, feeds)
            for a, b in zip(first, values, strict=True):
                np.testing.assert_array_equal(a, b)
            *_, plan = session._plans.values()
            (executable,) = plan.variants._settled.values()
            programs = getattr(executable.program, "programs", (executable.program,))
            return values, [Counter(i.op.type for i in p.instructions) for p in programs]


def agree(build, devices):
    """Compare a step on several devices with the interpreted step on one; return its parts."""
    whole, _ = run(build, 1, jit=False)
    parted, parts = run(build, devices)
    for a, b in zip(whole, parted, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-6)
    return parts


def layers(cells, colocated=True, lengths=False):
    """Return a function that builds recurrent layers, split over devices."""

    def build(devices):
        rng = np.random.default_rng(6)
        given = x = tf.placeholder(tf.float32, [ROWS, TIME, UNITS])
        counts = tf.placeholder(tf.int32, [ROWS])
        for i, cell in enumerate(cells):
            with tf.device(f"/cpu:{i * devices // len(cells)}"):
                x, _ = tf.nn.dynamic_rnn(
                    cell(UNITS), x, counts if lengths else None, dtype=tf.float32, scope=f"l{i}"
                )
        with tf.device(f"/cpu:{devices - 1}"):
            loss = tf.reduce_mean(tf.square(x))
        wanted = [given, *tf.trainable_variables()]
        gradients = tf.gradients(loss, wanted, colocate_gradients_with_ops=colocated)
        feeds = {given: rng.normal(size=(ROWS, TIME, UNITS)).astype("f")}
        if lengths:
            feeds[counts] = np.array([2, 4, 1], np.int32)
        return [loss, x, *gradients], feeds

    return build


LSTM, GRU = tf.nn.rnn_cell.BasicLSTMCell, tf.nn.rnn_cell.GRUCell


@pytest.mark.parametrize("lengths", [False, True], ids=["whole", "lengths"])
@pytest.mark.parametrize("colocated", [True, False], ids=["colocated", "not colocated"])
@pytest.mark.parametrize(("cells", "devices"), [((LSTM, GRU), 2), ((GRU, LSTM, LSTM, GRU), 3)])
def test_layers_on_several_devices_are_compiled(cells, devices, colocated, lengths):
    parts = agree(layers(cells, colocated, lengths), devices)
    assert len(parts) == devices
    for part in parts:
        assert part["_Cluster"] and not part["_While"] and not part["EmptyTensorList"]


def test_lists_pass_as_arrays():
    forms = {}
    with tf.Graph().as_default():
        fetches, feeds = layers((LSTM, LSTM))(2)
        options = Options(devices=local_devices({"CPU": 2}), jit="always")
        shapes = [np.shape(v) for v in feeds.values()]
        compile_step(fetches, [], list(feeds), shapes, options, watch=forms.__setitem__)
    types = Counter(n.type for n in forms["separate"].nodes)
    # Only the first layer's gradient loop waits for the other device.
    assert types["_ListRows"] == types["_ListOfRows"] > 4
    rows = [n for n in forms["separate"].nodes if n.type == "_ListRows"]
    assert {n.device[-5:] for n in rows} == {"CPU:0"}
    assert {n.output_shapes[0][0] for n in rows} == {TIME}


def test_a_gradient_of_a_gradient_agrees():
    def build(devices):
        x = tf.placeholder(tf.float32, [ROWS])
        with tf.device("/cpu:0"):
            _, y = tf.while_loop(
                lambda i, a: i < 4, lambda i, a: (i + 1, tf.tanh(a * 1.5) + x), [0, x]
            )
        with tf.device(f"/cpu:{devices - 1}"):
            z = tf.reduce_sum(y * y * y)
        (first,) = tf.gradients(z, x, colocate_gradients_with_ops=True)
        with tf.device(f"/cpu:{devices - 1}"):
            w = tf.reduce_sum(first * first)
        second = tf.gradients(w, x, colocate_gradients_with_ops=True)
        return [z, first, *second], {x: np.array([0.3, -0.2, 0.7], "f")}

    agree(build, 2)


def test_a_loop_in_a_loop_agrees():
    def build(devices):
        x = tf.placeholder(tf.float32, [ROWS])

        def body(i, a):
            _, b = tf.while_loop(
                lambda j, b: j < 3, lambda j, b: (j + 1, tf.sin(b) * 1.1 + a), [0, a]
            )
            return i + 1, b

        with tf.device("/cpu:0"):
            _, y = tf.while_loop(lambda i, a: i < 2, body, [0, x])
        with tf.device(f"/cpu:{devices - 1}"):
            z = tf.reduce_sum(y * y)
        gradients = tf.gradients(z, x, colocate_gradients_with_ops=True)
        return [z, *gradients], {x: np.array([0.3, -0.2, 0.7], "f")}

    agree(build, 2)


@pytest.mark.parametrize("most", [None, 9])
def test_a_loop_that_goes_on_while_a_value_is_small(most):
    def build(devices):
        x = tf.placeholder(tf.float32, [ROWS])
        with tf.device("/cpu:0"):
            _, y = tf.while_loop(
                lambda i, a: tf.reduce_sum(a) < 50.0,
                lambda i, a: [i + 1, a * a + x],
                [0, x],
                maximum_iterations=most,
            )
        with tf.device(f"/cpu:{devices - 1}"):
            z = tf.reduce_sum(y * y)
        gradients = tf.gradients(z, x, colocate_gradients_with_ops=True)
        return [z, *gradients], {x: np.array([0.9, 1.2, 0.7], "f")}

    parts = agree(build, 2)
    # Without a bound, the size of an array that passes what was saved isn't known.
    assert parts[0]["_While"] == (0 if most else 2)


def test_two_gradient_loops_take_what_one_loop_saved():
    def build(devices):
        x = tf.placeholder(tf.float32, [ROWS])
        with tf.device("/cpu:0"):
            _, y = tf.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, tf.tanh(a + x)), [0, x])
        gradients = []
        for scale in (1.0, 2.0):
            with tf.device(f"/cpu:{devices - 1}"):
                before = sum(map(tf.stop_gradient, gradients))  # so one comes after the other
                z = tf.reduce_sum(tf.exp(y * scale + before))
            gradients += tf.gradients(z, x, colocate_gradients_with_ops=True)
        return gradients, {x: np.array([0.3, -0.2, 0.7], "f")}

    parts = agree(build, 2)
    assert not any(part["_While"] for part in parts)


def test_a_loop_behind_a_queue_is_compiled_with_its_gradients():
    with tf.Graph().as_default():
        queue = tf.FIFOQueue(4, tf.float32, [[ROWS, TIME, UNITS]])
        put = queue.enqueue(np.ones([ROWS, TIME, UNITS], "f"))
        y, _ = tf.nn.dynamic_rnn(LSTM(UNITS), queue.dequeue(), dtype=tf.float32)
        fetches = [tf.reduce_sum(y), *tf.gradients(y, tf.trainable_variables())]
        with tf.Session(config=config(1)) as session:
            session.run(tf.global_variables_initializer())
            for _ in range(2):
                session.run(put)
                session.run(fetches)
            *_, plan = session._plans.values()
            (executable,) = plan.variants._settled.values()
            assert not any(i.op.type == "_While" for i in executable.program.instructions)


def test_rows_of_a_list_make_the_list_again():
    values = [np.full(2, i, np.float32) for i in range(3)]
    made = TensorList(dtypes.float32, (2,))
    for value in values:
        made = made.push(value)
    attrs = {"T": dtypes.float32, "shape": TensorShape([5, 2])}
    rows, count = LIST_ROWS.kernel(made, **attrs)
    np.testing.assert_array_equal(rows, [*values, [0, 0], [0, 0]])
    assert count == 3
    again = LIST_OF_ROWS.kernel(rows, count, **attrs)
    np.testing.assert_array_equal(list(again), values[::-1])
    rows, count = LIST_ROWS.kernel(TensorList(dtypes.float32, (2,)), **attrs)
    assert count == 0 and not rows.any()
