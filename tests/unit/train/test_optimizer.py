"""What all optimizers share: slots, gating, the loss's forms, and errors for wrong arguments."""

import collections

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def variable(name="w", value=(1.0, 2.0), **settings):
    return tf.get_variable(name, initializer=np.array(value, "float32"), **settings)


def descend(steps=1, **arguments):
    w = variable()
    train = tf.train.GradientDescentOptimizer(0.25).minimize(tf.reduce_sum(w * w), **arguments)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            session.run(train)
        return session.run(w)


def test_minimize_steps_toward_the_minimum():
    assert descend(2).tolist() == [0.25, 0.5]


@pytest.mark.parametrize("gate", [0, 1, 2])
def test_gates_change_no_value(gate):
    assert descend(gate_gradients=gate).tolist() == [0.5, 1.0]


def test_grad_loss_scales_the_gradient():
    assert descend(grad_loss=tf.constant(2.0)).tolist() == [0.0, 0.0]


def test_loss_may_be_a_function():
    w = variable()
    pairs = tf.train.GradientDescentOptimizer(1.0).compute_gradients(lambda: tf.reduce_sum(w))
    assert [v for _, v in pairs] == [w]


def test_var_list_restricts_and_nests():
    w, other = variable(), variable("other")
    pairs = tf.train.AdamOptimizer().compute_gradients(
        tf.reduce_sum(w * other), var_list={"a": [other]}
    )
    assert [v for _, v in pairs] == [other]


def test_unconnected_variables_have_no_gradient_and_stay(graph):
    w, other = variable(), variable("other")
    optimizer = tf.train.MomentumOptimizer(0.5, 0.5)
    pairs = optimizer.compute_gradients(tf.reduce_sum(w))
    assert pairs[1] == (None, other)
    train = optimizer.apply_gradients(pairs)
    assert optimizer.get_slot(other, "momentum") is None
    assert graph.get_collection(tf.GraphKeys.TRAIN_OP) == [train]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run(other).tolist() == [1.0, 2.0]


def test_slots_are_made_once_and_found_by_name():
    w = variable()
    optimizer = tf.train.AdamOptimizer()
    assert optimizer.get_slot_names() == [] and optimizer.get_slot(w, "m") is None
    for _ in range(2):
        optimizer.minimize(tf.reduce_sum(w))
    assert optimizer.get_slot_names() == ["m", "v"]
    assert optimizer.get_slot(w, "m").op.name == "w/Adam"
    assert optimizer.get_slot(w, "other") is None
    own = [v.op.name for v in optimizer.variables()]
    assert own == ["beta1_power", "beta2_power", "w/Adam", "w/Adam_1"]
    assert optimizer.get_name() == "Adam"
    with tf.Graph().as_default():
        assert optimizer.variables() == []


def test_slots_of_parts_are_parts_of_slots():
    parts = list(tf.get_variable("p", [4, 2], partitioner=tf.fixed_size_partitioner(2)))
    optimizer = tf.train.MomentumOptimizer(0.5, 0.5)
    optimizer.minimize(tf.reduce_sum(parts[1]), var_list=parts)
    info = optimizer.get_slot(parts[1], "momentum")._get_save_slice_info()
    assert (info.full_name, info.spec) == ("p/Momentum", "4 2 2,2:0,2")


@pytest.mark.parametrize("use_resource", [False, True])
def test_slot_of_a_variable_without_static_shape(use_resource):
    start = tf.placeholder_with_default(np.ones(3, "float32"), None)
    w = tf.Variable(start, validate_shape=False, use_resource=use_resource)
    train = tf.train.MomentumOptimizer(0.5, 0.5).minimize(tf.reduce_sum(w * w))
    with tf.Session() as session:
        session.run(w.initializer)
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run(w).tolist() == [0.0, 0.0, 0.0]


def test_only_rows_with_gradients_change():
    for use_resource in (False, True):
        table = variable(f"t{use_resource}", [[1.0]] * 4, use_resource=use_resource)
        optimizer = tf.train.AdagradOptimizer(0.5)
        train = optimizer.minimize(tf.reduce_sum(tf.gather(table, [2, 2])), var_list=[table])
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train)
            squares = session.run(optimizer.get_slot(table, "accumulator"))
            np.testing.assert_allclose(squares.ravel(), [0.1, 0.1, 4.1, 0.1], rtol=1e-6)
            assert np.flatnonzero(session.run(table).ravel() != 1).tolist() == [2]


def test_subclass_needs_only_its_update():
    class Signs(tf.train.Optimizer):
        def _apply_dense(self, grad, var):
            return var.assign_sub(tf.sign(grad)).op

    w = variable(value=[3.0, -3.0])
    train = Signs(False, "Signs").minimize(tf.reduce_sum(w * w))
    assert train.name == "Signs"
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run(w).tolist() == [2.0, -2.0]


def _refused(error, match):
    return pytest.raises(error, match=match)


def test_wrong_losses_and_variables():
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    with _refused(ValueError, "No variables to optimize"):
        optimizer.minimize(tf.constant(1.0))
    w, unrelated = variable(), variable("unrelated")
    with _refused(ValueError, "gate_gradients must be one of"):
        optimizer.minimize(tf.reduce_sum(w), gate_gradients=3)
    with _refused(ValueError, "Invalid type .*int32"):
        optimizer.minimize(tf.constant(1))
    with _refused(ValueError, "No gradients provided for any variable, check your graph"):
        optimizer.minimize(tf.reduce_sum(w), var_list=[unrelated])
    with _refused(NotImplementedError, "unsupported type"):
        optimizer.minimize(tf.reduce_sum(w), var_list=["w"])


def test_wrong_gradients():
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    w = variable()
    with _refused(ValueError, "No variables provided"):
        optimizer.apply_gradients([])
    with _refused(ValueError, "No gradients provided for any variable"):
        optimizer.apply_gradients([(None, w)])
    with _refused(TypeError, "Gradient must be convertible"):
        optimizer.apply_gradients([(object(), w)])
    with _refused(NotImplementedError, "Trying to update a Tensor"):
        optimizer.apply_gradients([(tf.constant([1.0, 1.0]), w.value())])
    bound = variable("bound", [[1.0]], constraint=tf.abs)
    with _refused(RuntimeError, "constraint function on a sparse variable"):
        optimizer.minimize(tf.reduce_sum(tf.gather(bound, [0])), var_list=[bound])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: t.AdagradOptimizer(0.1, 0.0), "initial_accumulator_value must be positive"),
        (lambda t: t.ProximalAdagradOptimizer(0.1, -1.0), "must be positive"),
        (lambda t: t.AdagradDAOptimizer(0.1, None, 0.0), "must be positive"),
        (lambda t: t.FtrlOptimizer(0.1, 0.5), "needs to be negative or zero"),
        (lambda t: t.FtrlOptimizer(0.1, l1_regularization_strength=-1.0), "positive or zero"),
        (lambda t: t.AdamOptimizer(name=""), "Must specify the optimizer name"),
    ],
)
def test_wrong_settings(make, message):
    with _refused(ValueError, message):
        make(tf.train)


def test_limits_of_a_step_are_checked_when_it_runs():
    w = variable()
    train = tf.train.FtrlOptimizer(-0.1).minimize(tf.reduce_sum(w))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with _refused(tf.errors.InvalidArgumentError, "lr is not a positive scalar"):
            session.run(train)


def test_global_step():
    assert tf.train.get_global_step() is None
    step = tf.train.create_global_step()
    assert tf.train.get_or_create_global_step() is step
    with _refused(ValueError, "already exists"):
        tf.train.create_global_step()
    train = tf.train.GradientDescentOptimizer(0.1).minimize(
        tf.reduce_sum(variable()), global_step=step
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        assert tf.train.global_step(session, step) == 3


def test_global_step_is_found_by_its_name_and_checked():
    step = tf.Variable(7, name="global_step", trainable=False)
    assert tf.train.get_global_step().op is step.op
    for wrong in (tf.constant(1.0), tf.constant([1])):
        with _refused(TypeError, "global_step"):
            tf.train.assert_global_step(wrong)
    with _refused(TypeError, "must be a Variable or Tensor"):
        tf.train.assert_global_step(3)
    tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, step)
    tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, step)
    with _refused(RuntimeError, "Multiple items"):
        tf.train.get_global_step()


@pytest.mark.parametrize("of", [dict.values, lambda d: collections.deque(d.values())])
def test_var_list_may_be_any_sequence_or_view(of):
    variables = {"x": tf.Variable(1.0), "y": tf.Variable(2.0)}
    kept = tf.Variable(3.0)
    loss = tf.square(variables["x"]) + 3 * variables["y"] + kept
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=of(variables))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(tf.group(of({"train": train})))
        found = session.run([variables["x"], variables["y"], kept])
    np.testing.assert_allclose(found, [0.8, 1.7, 3.0], rtol=1e-6)


def test_tuple_takes_an_iterator():
    with tf.Session() as session:
        assert session.run(tf.tuple(tf.constant(i) for i in range(3))) == [0, 1, 2]


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: tf.train.AdagradOptimizer(3.0, 0.1), 1 - 0.3 / np.sqrt(0.11)),
        (lambda: tf.train.RMSPropOptimizer(0.1), 1 - 0.01 / np.sqrt(0.901)),
    ],
)
def test_slots_that_do_not_start_as_zeros_follow_a_shape_known_in_the_step(
    make, expected, resource
):
    start = tf.placeholder_with_default(np.ones(2, np.float32), [None])
    v = tf.Variable(start, validate_shape=False, use_resource=resource)
    train = make().apply_gradients([(tf.constant([0.1, 0.1]), v)])
    with tf.Session() as session:
        session.run(v.initializer)  # the slots have the shape of its initial value
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(v), [expected] * 2, rtol=1e-5)
