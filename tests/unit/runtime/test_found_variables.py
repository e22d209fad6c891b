"""Variables that a step has looked up are cached until they are removed; temporary variables are
created again for each step.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.devices.resources import removals


def test_a_variable_of_a_container_that_was_reset_is_gone():
    with tf.Graph().as_default(), tf.container("found"):
        v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
        more = tf.assign_add(v, [1.0, 2.0])
        with tf.Session() as session:
            session.run(v.initializer)
            for _ in range(3):
                found = session.run(more)
            np.testing.assert_array_equal(found, [4, 7])
            before = removals()
            tf.Session.reset("", ["found"])
            assert removals() > before
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
                session.run(more)


def test_a_resource_that_was_destroyed_is_gone():
    with tf.Graph().as_default():
        v = tf.get_variable("v", [2], use_resource=True, initializer=tf.ones_initializer())
        value = v.read_value() * 2.0
        destroyed = tf.raw_ops.DestroyResourceOp(resource=v.handle)
        with tf.Session() as session:
            session.run(v.initializer)
            for _ in range(3):
                np.testing.assert_array_equal(session.run(value), [2, 2])
            session.run(destroyed)
            with pytest.raises(tf.errors.OpError):
                session.run(value)


def test_a_temporary_variable_starts_anew_in_every_step():
    with tf.Graph().as_default():
        v = tf.raw_ops.TemporaryVariable(shape=[2], dtype=tf.float32, var_name="t")
        more = tf.assign_add(v, [1.0, 2.0])
        last = tf.raw_ops.DestroyTemporaryVariable(ref=more, var_name="t")
        with tf.Session() as session:
            for _ in range(3):
                np.testing.assert_array_equal(session.run(last), [1, 2])
