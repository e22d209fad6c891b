"""State inside one step: a value that was read doesn't change with later writes. Only ops that
forward a reference unchanged share the variable's memory, also when they are fetched.
"""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as s:
        yield s


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize(
    "look",
    [
        lambda t: t + 0.0,
        lambda t: tf.reshape(t, [3, 1]),
        lambda t: tf.transpose(tf.reshape(t, [1, 3])),
        lambda t: t[1:],
        lambda t: tf.expand_dims(t, 0)[:, ::-1],
        lambda t: tf.stop_gradient(t * 1.0),
        lambda t: tf.unstack(t)[0],
        lambda t: tf.split(t, 3)[2],
        lambda t: tf.broadcast_to(t, [2, 3]),
    ],
)
def test_a_value_that_was_read_does_not_change(session, use_resource, look):
    v = tf.Variable(np.zeros(3, np.float32), use_resource=use_resource)
    session.run(v.initializer)
    seen = look(v.read_value())
    with tf.control_dependencies([seen]):
        updates = [v.assign_add([1.0, 1.0, 1.0]), tf.scatter_add(v, [0, 1, 2], [1.0] * 3)]
    with tf.control_dependencies(updates):
        late = v.read_value()
    for step in range(3):
        first, last, *_ = session.run([seen, late, *updates])
        assert set(np.ravel(first).tolist()) == {2 * step}
        assert set(last.tolist()) == {2 * step + 2}


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("look", [tf.identity, lambda t: tf.stop_gradient(tf.identity(t))])
def test_what_is_fetched_of_a_reference_variable_is_read_last(session, use_resource, look):
    v = tf.Variable([0.0, 0.0], use_resource=use_resource)
    session.run(v.initializer)
    seen = look(v.read_value())
    with tf.control_dependencies([seen]):
        update = v.assign_add([1.0, 1.0])
    for step in range(3):
        first, _ = session.run([seen, update])
        assert set(first.tolist()) == {step + (not use_resource)}


def test_steps_within_steps(session):
    """A Python function of a step may run steps of the same session."""
    x = tf.placeholder(tf.float32, [])
    square = x * x

    def inner(value):
        return session.run(square, {x: value})

    outer = tf.py_func(inner, [x + 1.0], tf.float32)
    assert session.run([outer, square], {x: 2}) == [9, 4]

    def fail(value):
        return session.run(missing)

    missing = tf.placeholder(tf.float32, [], name="missing")
    broken = tf.py_func(fail, [x], tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'missing'"):
        session.run(broken, {x: 1})
    assert session.run(square, {x: 3}) == 9


def test_a_failed_step_keeps_what_it_wrote_and_harms_nothing_else(session):
    v = tf.Variable([1.0, 2.0])
    session.run(v.initializer)
    bad = tf.placeholder(tf.float32)
    with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
        fails = tf.reshape(bad, [7])
    with pytest.raises(tf.errors.InvalidArgumentError):
        session.run(fails, {bad: [1.0]})
    assert session.run(v).tolist() == [2, 3]
    with pytest.raises(tf.errors.InvalidArgumentError):
        session.run(tf.assign(v, bad, validate_shape=True), {bad: [1.0]})
    assert session.run(v).tolist() == [2, 3]


@pytest.mark.parametrize("use_resource", [False, True])
def test_what_follows_from_a_variables_shape_still_needs_the_variable(session, use_resource):
    """Nothing else makes `assert_variables_initialized` fail."""
    v = tf.Variable([1.0], name="v", use_resource=use_resource)
    tf.Variable([[1.0]], name="w", use_resource=use_resource)
    ranks = tf.assert_variables_initialized()
    with tf.control_dependencies([ranks]):
        after = tf.constant(3)
    session.run(v.initializer)
    for target in (ranks, ranks.op, after, tf.group(ranks), ranks + 1):
        with pytest.raises(tf.errors.FailedPreconditionError, match="w"):
            session.run(target)
    session.run(tf.global_variables_initializer())
    assert session.run([ranks, after])[0].tolist() == [1, 2]
