"""Schedules and moving averages: what the recorded cases don't show."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def run(fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.exponential_decay(0.1, None, 1, 1),
        lambda t: t.natural_exp_decay(0.1, None, 1, 1.0),
        lambda t: t.inverse_time_decay(0.1, None, 1, 1),
        lambda t: t.polynomial_decay(0.1, None, 1),
        lambda t: t.cosine_decay(0.1, None, 1),
        lambda t: t.cosine_decay_restarts(0.1, None, 1),
        lambda t: t.linear_cosine_decay(0.1, None, 1),
        lambda t: t.noisy_linear_cosine_decay(0.1, None, 1),
        lambda t: t.piecewise_constant(None, [1], [1.0, 2.0]),
    ],
)
def test_the_step_is_needed(make):
    with pytest.raises(ValueError, match="None values not supported"):
        make(tf.train)


@pytest.mark.parametrize(
    ("x", "boundaries", "values", "message"),
    [
        (1, [1.0], [1.0, 2.0], "must have the same dtype as x"),
        (1.0, [1], [1.0, 2.0], "must have the same dtype as x"),
        (1, [1], [1.0, 2.0, 3.0], "1 less than the length of values"),
        (1, [1], [1.0, 2], "all with the same dtype"),
    ],
)
def test_wrong_pieces(x, boundaries, values, message):
    with pytest.raises(ValueError, match=message):
        tf.train.piecewise_constant(tf.constant(x), boundaries, values)


def test_noise_fades():
    early, late = (
        tf.train.noisy_linear_cosine_decay(1.0, tf.constant(s), 10**6, variance_decay=2.0)
        for s in (0, 10**5)
    )
    tf.set_random_seed(1)
    exact = run(tf.train.linear_cosine_decay(1.0, tf.constant(10**5), 10**6))
    with tf.Session() as session:
        found = np.array([session.run([early, late]) for _ in range(50)])
    assert found[:, 0].std() > 0.5
    assert found[:, 1] == pytest.approx(exact, abs=1e-3)


def test_rate_follows_the_step():
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(1.0, step, 1, 0.5)
    w = tf.get_variable("w", initializer=0.0)
    train = tf.train.GradientDescentOptimizer(rate).minimize(w * 1.0, global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        assert session.run(w) == -1.75


@pytest.mark.parametrize("use_resource", [False, True])
def test_average_sees_the_update_that_it_waits_for(use_resource):
    w = tf.get_variable("w", initializer=1.0, use_resource=use_resource)
    average = tf.train.ExponentialMovingAverage(0.5)
    with tf.control_dependencies([tf.assign_add(w, 1.0)]):
        update = average.apply([w])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for right in (1.5, 2.25):
            session.run(update)
            assert session.run(average.average(w)) == right


@pytest.mark.parametrize("use_resource", [False, True])
def test_unbiased_average_of_a_constant_is_the_constant(use_resource):
    with tf.variable_scope("", use_resource=use_resource):
        average = tf.train.ExponentialMovingAverage(0.9, zero_debias=True)
        t = tf.constant([3.0, -1.0])
        update = average.apply([t])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(5):
            session.run(update)
        assert session.run(average.average(t)) == pytest.approx([3.0, -1.0], rel=1e-5)


def test_names_to_restore():
    w = tf.get_variable("w", initializer=1.0)
    fixed = tf.get_variable("fixed", initializer=1.0, trainable=False)
    average = tf.train.ExponentialMovingAverage(0.5, name="Mean")
    assert average.average(w) is None
    assert average.average_name(w) == "w/Mean"
    average.apply()
    assert tf.moving_average_variables() == [w]
    assert average.variables_to_restore() == {"w/Mean": w, "fixed": fixed}
    assert average.variables_to_restore([fixed]) == {
        "fixed/Mean": fixed,
        "w": w,
        "w/Mean": average.average(w),
    }


def test_only_floats_are_averaged():
    with pytest.raises(TypeError, match="must be half, float, or double"):
        tf.train.ExponentialMovingAverage(0.5).apply([tf.Variable(1)])


@pytest.mark.parametrize("kind", ["int", "tensor", "ref", "resource"])
def test_warmup_takes_any_step(kind):
    step = {
        "int": lambda: 3,
        "tensor": lambda: tf.constant(3, tf.int64),
        "ref": lambda: tf.Variable(3, use_resource=False),
        "resource": lambda: tf.Variable(3, use_resource=True),
    }[kind]()
    assert run(tf.train.linear_warmup(2.0, step, 4)) == 1.5


def test_a_schedule_starts_when_the_warmup_ends():
    step = tf.placeholder(tf.int64, [])
    rate = tf.train.linear_warmup(
        lambda since: tf.train.polynomial_decay(8.0, since, 4, 0.0), step, 4, start=0.5
    )
    with tf.Session() as session:
        found = [session.run(rate, {step: i}) for i in range(9)]
    assert found == [4, 5, 6, 7, 8, 6, 4, 2, 0]


def test_warmup_scales_a_tensor():
    step = tf.constant(5)
    assert run(tf.train.linear_warmup(tf.constant(3.0, tf.float64), step, 10)) == 1.5
    assert run(tf.train.linear_warmup(3.0, step, 0)) == 3.0


def test_warmup_refuses_negative_steps():
    with pytest.raises(ValueError, match="warmup_steps must not be negative: -1"):
        tf.train.linear_warmup(0.1, 0, -1)
