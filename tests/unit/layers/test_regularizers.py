"""Regularizers: what they refuse, and names and configurations for them."""

import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda c: c.l1_regularizer(1), "scale cannot be an integer: 1"),
        (lambda c: c.l2_regularizer(-1.0), r"Setting a scale less than 0 on a regularizer: -1\."),
        (lambda c: c.l1_l2_regularizer(1, 1.0), "scale_l1 cannot be an integer: 1"),
        (lambda c: c.apply_regularization(c.l2_regularizer(0.5)), "No weights to regularize."),
        (lambda c: c.apply_regularization(tf.abs, [tf.ones([2, 3])]), "instead of a Tensor with"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make(tf.contrib.layers)


def test_a_scale_of_zero_is_no_loss():
    off = tf.contrib.layers.l2_regularizer(0.0)
    tf.get_variable("w", [2], regularizer=off)
    assert off(tf.ones([2])) is None
    assert tf.losses.get_regularization_losses() == []
    assert tf.contrib.layers.sum_regularizer([None]) is None


def test_apply_regularization_of_collected_weights():
    w = tf.constant([3.0, 4.0])
    tf.add_to_collection(tf.GraphKeys.WEIGHTS, w)
    total = tf.contrib.layers.apply_regularization(tf.contrib.layers.l2_regularizer(1.0))
    with tf.Session() as session:
        assert session.run(total) == 12.5


def test_keras_names_and_configurations():
    room = tf.keras.regularizers
    assert room.get(None) is None
    assert room.get("l2").get_config() == pytest.approx({"l1": 0.0, "l2": 0.01})
    assert room.get(tf.abs) is tf.abs
    made = room.deserialize(room.serialize(room.l1_l2(0.5, 0.25)))
    assert made.get_config() == {"l1": 0.5, "l2": 0.25}
    assert room.deserialize("mine", {"mine": room.L1L2}).get_config() == {"l1": 0.0, "l2": 0.0}
    with pytest.raises(ValueError, match="Unknown regularizer:nope"):
        room.get("nope")
    with pytest.raises(ValueError, match="Could not interpret regularizer identifier:"):
        room.get(3)


def test_initializers_refuse():
    room = tf.contrib.layers
    with pytest.raises(TypeError, match="non-floating point type"):
        room.xavier_initializer(dtype=tf.int32)
    with pytest.raises(TypeError, match="non-floating point type"):
        room.xavier_initializer()([2, 3], tf.int32)
    with pytest.raises(TypeError, match="Unknown mode X"):
        room.variance_scaling_initializer(mode="X")
