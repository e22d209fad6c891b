"""tf.raw_ops and tensors as strings."""

import numpy as np
import pytest

import headrace as tf


def test_raw_ops_build_any_op_by_keyword():
    with tf.Graph().as_default(), tf.Session() as session:
        y = tf.raw_ops.MatMul(a=[[1.0, 2.0]], b=[[3.0, 4.0]], transpose_b=True, name="m")
        assert y.op.name == "m"
        assert session.run(y) == 11
        with pytest.raises(TypeError, match="no input or attribute"):
            tf.raw_ops.MatMul(a=1.0, b=1.0, c=1.0)
        with pytest.raises(TypeError, match="needs inputs"):
            tf.raw_ops.MatMul(a=1.0)
        with pytest.raises(AttributeError, match="NoSuchOp"):
            _ = tf.raw_ops.NoSuchOp
    assert "MatMul" in dir(tf.raw_ops)


def test_tensors_travel_as_strings():
    with tf.Graph().as_default(), tf.Session() as session:
        text = tf.serialize_tensor(tf.constant([[1.5, 2.5]]))
        np.testing.assert_array_equal(session.run(tf.parse_tensor(text, tf.float32)), [[1.5, 2.5]])
        with pytest.raises(tf.errors.InvalidArgumentError, match="Type mismatch"):
            session.run(tf.parse_tensor(text, tf.int32))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse"):
            session.run(tf.parse_tensor(b"\xff\xff", tf.float32))


def test_tensor_protos_are_public():
    message = tf.make_tensor_proto([1, 2], tf.float32)
    np.testing.assert_array_equal(tf.make_ndarray(message), np.float32([1, 2]))
    filled = tf.make_tensor_proto(3.0, shape=[2, 2], allow_broadcast=True)
    np.testing.assert_array_equal(tf.make_ndarray(filled), np.full((2, 2), 3.0, "f"))
    with pytest.raises(TypeError, match="Expected Tensor's shape"):
        tf.make_tensor_proto([1, 2], shape=[3], verify_shape=True)


def test_unravel_index():
    with tf.Graph().as_default(), tf.Session() as session:
        got = session.run(tf.unravel_index([2, 5, 7], [3, 3]))
        np.testing.assert_array_equal(got, [[0, 1, 2], [2, 2, 1]])
        with pytest.raises(tf.errors.InvalidArgumentError, match="out of bound"):
            session.run(tf.unravel_index([9], [3, 3]))
