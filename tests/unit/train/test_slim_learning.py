"""slim.learning: a training op of a loss, and the loop that runs it."""

import numpy as np
import pytest

import headrace as tf

slim = tf.contrib.slim


def loss_of(x, **kwargs):
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
    return tf.reduce_sum(w * x) + tf.reduce_sum(v * x)


def test_gradients_are_multiplied_and_then_clipped():
    with tf.Graph().as_default(), tf.Session() as session:
        train_op = slim.learning.create_train_op(
            loss_of([3.0, 4.0]),
            tf.train.GradientDescentOptimizer(1.0),
            clip_gradient_norm=1.0,
            gradient_multipliers={"v": 0.1},
        )
        session.run(tf.global_variables_initializer())
        assert session.run(train_op) == 14.0
        w, v = session.run(tf.trainable_variables())
        np.testing.assert_allclose(w, [0.4, 0.2], rtol=1e-6)
        np.testing.assert_allclose(v, [0.7, 0.6], rtol=1e-6)
        assert session.run(tf.train.get_global_step()) == 1
        assert train_op in tf.get_collection(tf.GraphKeys.TRAIN_OP)


def test_updates_run_before_the_loss_counts():
    with tf.Graph().as_default(), tf.Session() as session:
        counter = tf.Variable(0.0, trainable=False)
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, counter.assign_add(1.0))
        optimizer = tf.train.GradientDescentOptimizer(1.0)
        train_op = slim.learning.create_train_op(loss_of([1.0, 1.0]), optimizer)
        session.run(tf.global_variables_initializer())
        session.run(train_op)
        assert session.run(counter) == 1.0


def test_a_loss_that_is_no_number_is_an_error():
    with tf.Graph().as_default(), tf.Session() as session:
        optimizer = tf.train.GradientDescentOptimizer(1.0)
        train_op = slim.learning.create_train_op(loss_of([1.0, float("nan")]), optimizer)
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
            session.run(train_op)


def test_train_stops_after_its_steps_and_goes_on_from_its_checkpoint(tmp_path):
    losses = []
    for last in (3, 5):
        with tf.Graph().as_default():
            optimizer = tf.train.GradientDescentOptimizer(0.5)
            train_op = slim.learning.create_train_op(loss_of([1.0, 1.0]), optimizer)
            loss = slim.learning.train(
                train_op, str(tmp_path), number_of_steps=last, log_every_n_steps=0
            )
            losses.append(loss)
    assert losses == [0.0, -4.0]  # 4, 2, 0 and then -2, -4
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-5")


def test_train_logs_and_traces_every_so_many_steps(tmp_path):
    with tf.Graph().as_default():
        optimizer = tf.train.GradientDescentOptimizer(0.5)
        train_op = slim.learning.create_train_op(loss_of([1.0, 1.0]), optimizer)
        loss = slim.learning.train(
            train_op,
            str(tmp_path),
            number_of_steps=2,
            log_every_n_steps=2,
            trace_every_n_steps=2,
        )
    assert loss == 2.0
    assert list(tmp_path.glob("tf_trace-*.json"))


def test_train_without_a_directory_calls_the_given_step_function():
    seen = []

    def step(session, train_op, global_step, kwargs):
        seen.append(kwargs["extra"])
        return slim.learning.train_step(session, train_op, global_step, kwargs)[0], len(seen) == 2

    with tf.Graph().as_default():
        optimizer = tf.train.GradientDescentOptimizer(0.5)
        train_op = slim.learning.create_train_op(loss_of([1.0, 1.0]), optimizer)
        loss = slim.learning.train(train_op, None, step, {"extra": 7})
    assert (seen, loss) == ([7, 7], 2.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train_op": None}, "train_op cannot be None"),
        ({"number_of_steps": 0}, "must be either None or a positive number"),
        ({"startup_delay_steps": 1}, "Cannot set startup_delay_steps > 0 for the chief"),
        ({"trace_every_n_steps": 1}, "Cannot provide trace_every_n_steps because logdir=None"),
        ({"sync_optimizer": 1}, "sync_optimizer isn't supported"),
    ],
)
def test_train_refuses(arguments, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        slim.learning.train(**{"train_op": tf.constant(1.0), "logdir": None, **arguments})
