"""Variables of XLA devices: JAX arrays for regions, NumPy arrays for everybody else."""

import threading

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.errors import FailedPreconditionError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.device import find_device
from headrace._src.xla.device import Xla
from tests.unit.xla.xla_steps import DEVICE, XlaStep, variable_value


def variable(value=None, shape=(3,)):
    state = find_device(DEVICE).variable("v", tf.float32, TensorShape.of(shape))
    if value is not None:
        state.assign(np.float32(value))
    return state


def test_it_is_empty_at_first():
    state = variable()
    assert not state.is_initialized
    for use in (state.read, state.look, state.writable, state.on_device):
        with pytest.raises(FailedPreconditionError, match="uninitialized value v"):
            use()


def test_the_last_write_counts_on_either_side():
    state = variable([1, 2, 3])
    with state.lock:
        state.adopt_array(state.on_device() + 1, (3,))
    assert state.read().tolist() == [2, 3, 4]
    state.update(np.multiply, np.float32(2))
    with state.lock:
        assert np.asarray(state.on_device()).tolist() == [4, 6, 8]
        state.writable()[0] = 5
        assert np.asarray(state.on_device()).tolist() == [5, 6, 8]
        given = np.float32([1, 2, 3])
        state.assign(given)
        array = state.on_device()
        given[:] = 0
        state.writable()[:] = [5, 6, 8]
        assert np.asarray(array).tolist() == [1, 2, 3]
    assert state.saved()["value"].tolist() == [5, 6, 8]
    state.resume({"value": np.float32([7, 8, 9])})
    with state.lock:
        assert np.asarray(state.on_device()).tolist() == [7, 8, 9]


def test_what_was_read_stays_what_it_was():
    v = tf.get_variable("v", [1000], initializer=tf.zeros_initializer())
    step = XlaStep([], [], [v.assign_add(tf.ones([1000])).op])
    state = step.variable(variable_value(step, v))
    state.assign(np.zeros(1000, np.float32))
    read = []
    for _ in range(4):
        read.append(state.read())
        step()
    assert [x[0] for x in read] == [0, 1, 2, 3]
    assert not read[0].flags.writeable


def test_fetched_values_outlive_the_variable():
    v = tf.get_variable("v", [1000], initializer=tf.zeros_initializer())
    before = v * 1.5
    with tf.control_dependencies([before]):
        after = v.assign_add(tf.ones([1000])) * 1.0
    step = XlaStep([before, after])
    state = step.variable(variable_value(step, v))
    state.assign(np.zeros(1000, np.float32))
    found = [step() for _ in range(3)]
    assert [(a[0], b[0]) for a, b in found] == [(0, 1), (1.5, 2), (3, 3)]


def test_memory_is_reused_while_nobody_holds_it():
    v = tf.get_variable("v", [1000], initializer=tf.zeros_initializer())
    step = XlaStep([], [], [v.assign_add(tf.ones([1000])).op])
    state = step.variable(variable_value(step, v))
    state.assign(np.zeros(1000, np.float32))
    step()
    old = state.on_device()
    step()
    assert old.is_deleted()
    assert (state.read() == 2).all()


def test_the_device_counts_a_value_once():
    device = Xla(DEVICE, memory_limit=10_000)

    def in_use():
        return device.allocator.statistics().in_use

    state = device.variable("v", tf.float32, TensorShape.of([1000]))
    assert in_use() == 0
    state.assign(np.ones(1000, np.float32))
    assert in_use() == 4000
    with state.lock:
        array = state.on_device()
    del array
    read = state.read()
    state.update(np.add, np.float32(1))
    assert in_use() == 4000 and read[0] == 1
    with pytest.raises(MemoryError, match="8,000 bytes"):
        state.assign(np.ones(2000, np.float32))
    assert state.read()[0] == 2
    del state
    assert in_use() == 0


def test_regions_count_the_variables_that_they_initialise():
    v = tf.get_variable("v", [1000], initializer=tf.zeros_initializer())
    step = XlaStep([], [], [v.assign(tf.fill([1000], 2.0) + 1.0).op])
    device = Xla(DEVICE, memory_limit=5000)
    states = [device.variable("v", tf.float32, TensorShape.of([1000])) for _ in range(2)]
    first = step.states["v"] = states[0]
    for _ in range(3):
        step()
    assert device.allocator.statistics().in_use == 4000 and (first.read() == 3).all()
    step.states["v"] = states[1]
    with pytest.raises(MemoryError, match="4,000 bytes"):
        step()
    assert not states[1].is_initialized


def test_steps_of_several_threads_lose_no_update():
    names = ("a", "b", "c")
    a, b, c = (tf.get_variable(n, [], initializer=tf.zeros_initializer()) for n in names)
    states = {}
    one = XlaStep([], [], [a.assign_add(1.0).op, b.assign_add(1.0).op], states)
    two = XlaStep([], [], [v.assign_add(1.0).op for v in (b, c, a)], states)
    for step, found in ((one, (a, b)), (two, (a, b, c))):
        for v in found:
            step.variable(variable_value(step, v)).assign(np.float32(0))
    runs = [lambda: [one() for _ in range(50)], lambda: [two() for _ in range(50)]] * 2
    threads = [threading.Thread(target=run) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [float(states[n].read()) for n in names] == [200, 200, 100]


def test_64_bits_stay_64_bits():
    x = tf.placeholder(tf.float64, [2])
    n = tf.placeholder(tf.int64, [])
    step = XlaStep([x / 3, n + 1], [x, n])
    y, m = step(np.float64([1, 2]), np.int64(1 << 40))
    assert y.dtype == np.float64 and y.tolist() == [1 / 3, 2 / 3]
    assert m.dtype == np.int64 and m == (1 << 40) + 1


def test_the_programs_own_use_of_jax_is_not_changed():
    import jax.numpy as jnp

    x = tf.placeholder(tf.float64, [2])
    XlaStep([x * 2], [x])(np.float64([1, 2]))
    assert jnp.arange(3).dtype == np.int32
    assert jnp.asarray([1.0]).dtype == np.float32
