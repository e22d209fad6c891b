"""Tensors that stay in a session between steps."""

import numpy as np
import pytest

import headrace as tf


def test_a_tensor_stays_and_can_be_used_and_forgotten():
    a, b = tf.constant([10.0, 20.0]), tf.constant(5.0)
    kept = tf.get_session_handle(a * b)
    with tf.Session() as session:
        handle = session.run(kept)
        np.testing.assert_array_equal(handle.eval(), [50, 100])
        holder, x = tf.get_session_tensor(handle.handle, tf.float32)
        y = x + 1.0
        np.testing.assert_array_equal(session.run(y, {holder: handle}), [51, 101])
        np.testing.assert_array_equal(session.run(y, {holder: handle.handle}), [51, 101])
        again = session.run(kept)
        assert again.handle != handle.handle
        deletion, delete = tf.delete_session_tensor(handle.handle)
        session.run(delete, {deletion: handle.handle})
        with pytest.raises(tf.errors.InvalidArgumentError, match="not in the session store"):
            session.run(y, {holder: handle.handle})
        again.delete()
        with pytest.raises(tf.errors.InvalidArgumentError, match="not in the session store"):
            again.eval()


def test_a_loop_outside_of_the_graph():
    start = tf.get_session_handle(tf.constant(0))
    with tf.Session() as session:
        handle = session.run(start)
        holder, x = tf.get_session_tensor(handle.handle, tf.int32)
        step = tf.get_session_handle(x + 3)
        for _ in range(4):
            handle = session.run(step, {holder: handle})
        assert handle.eval() == 12


def test_mistakes_are_told():
    with pytest.raises(TypeError, match="must be of type Tensor"):
        tf.get_session_handle(3)
    with pytest.raises(TypeError, match="a handle is a string"):
        tf.get_session_tensor(3, tf.float32)
    with tf.Session() as session:
        handle = session.run(tf.get_session_handle(tf.constant(1.0)))
        holder, x = tf.get_session_tensor(handle.handle, tf.int32)
        with pytest.raises(tf.errors.InvalidArgumentError, match="not of type int32"):
            session.run(x, {holder: handle})
