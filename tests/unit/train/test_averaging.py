"""Model averaging by several workers: means of models, and models that approach a center."""

import numpy as np
import pytest

import headrace as tf
from tests.unit.train.replicas import Final, servers, train


def run(make, steps):
    """Train two workers that pull their models in different directions; return the final values
    that each of them sees: its own variable, the center, and the number of meetings.
    """
    finals = {}

    def work(index, session):
        step = tf.train.get_or_create_global_step()
        optimizer, hook, own = make(index)
        w = own()
        loss = tf.reduce_sum(w) * (1.0 + 2 * index)
        update = optimizer.minimize(loss, step)
        center = next(v for v in tf.global_variables() if "center" in v.name)
        finals[index] = Final([w, center, step])
        with session([hook(optimizer), finals[index]]) as s:
            for _ in range(steps):
                s.run(update)

    with servers(2) as targets:
        train(targets, work)
    return [finals[i].values for i in range(2)]


def parts(index, getter_type):
    """Return a custom getter of a worker, and a function that makes its variable."""
    getter = getter_type(f"/job:worker/task:{index}")

    def own():
        with tf.variable_scope("", custom_getter=getter):
            return tf.get_variable("w", initializer=np.zeros(2, np.float32))

    return getter, own


def test_workers_go_on_with_the_mean_of_their_models():
    def make(index):
        getter, own = parts(index, tf.contrib.opt.ModelAverageCustomGetter)
        variable = own()
        optimizer = tf.contrib.opt.ModelAverageOptimizer(
            tf.train.GradientDescentOptimizer(1.0), 2, index == 0, getter, interval_steps=3
        )
        return optimizer, lambda o: o.make_session_run_hook(), lambda: variable

    for values, center, meetings in run(make, 6):
        # Six steps of 1 and of 3, averaged twice.
        np.testing.assert_allclose(values, [-12, -12])
        np.testing.assert_allclose(center, [-12, -12])
        assert meetings == 2


def test_workers_and_the_center_approach_each_other():
    def make(index):
        getter, own = parts(index, tf.contrib.opt.ElasticAverageCustomGetter)
        variable = own()
        optimizer = tf.contrib.opt.ElasticAverageOptimizer(
            tf.train.GradientDescentOptimizer(1.0),
            *(2, getter),
            communication_period=2,
            moving_rate=0.5,
            rho=0.0,
            synchronous=True,
        )
        return optimizer, lambda o: o.make_session_run_hook(index == 0, index), lambda: variable

    ends = run(make, 4)
    for values, center, _ in ends:
        assert -12 < values[0] < 0  # between what both workers would reach alone
        assert center[0] < 0
    assert max(meetings for *_, meetings in ends) == 4


@pytest.fixture
def graph():
    with tf.Graph().as_default() as made:
        yield made


def test_the_center_is_saved_under_the_names_of_the_model(graph, tmp_path):
    getter, own = parts(0, tf.contrib.opt.ElasticAverageCustomGetter)
    getter._worker_device = ""
    optimizer = tf.contrib.opt.ElasticAverageOptimizer(tf.train.AdamOptimizer(0.1), 1, getter)
    with pytest.raises(RuntimeError, match="global_center_variable is empty"):
        optimizer.swapping_saver()
    w = own()
    saver = optimizer.swapping_saver()
    with tf.Session() as session:
        session.run([v.initializer for v in tf.global_variables() + tf.local_variables()])
        session.run(tf.assign(w, [5.0, 5.0]))
        path = saver.save(session, str(tmp_path / "model"))
    np.testing.assert_array_equal(tf.train.load_variable(path, "w"), [0.0, 0.0])


def test_mistakes(graph):
    getter, _ = parts(0, tf.contrib.opt.ModelAverageCustomGetter)
    inner = tf.train.GradientDescentOptimizer(1.0)
    optimizer = tf.contrib.opt.ModelAverageOptimizer(inner, 1, True, getter)
    with pytest.raises(ValueError, match="at least one variable"):
        optimizer.apply_gradients([])
    with pytest.raises(ValueError, match="Global step is required"):
        optimizer.apply_gradients([(None, None)])
    with pytest.raises(ValueError, match="should not be empty"):
        optimizer.get_init_op()


@pytest.mark.parametrize("kind", ["ModelAverage", "ElasticAverage"])
def test_names_of_steps_and_variables_without_a_center(kind):
    step = tf.train.get_or_create_global_step()
    getter, own = parts(0, getattr(tf.contrib.opt, f"{kind}CustomGetter"))
    w = own()
    arguments = (2, True, getter) if kind == "ModelAverage" else (2, getter)
    make = getattr(tf.contrib.opt, f"{kind}Optimizer")
    optimizer = make(tf.train.GradientDescentOptimizer(1.0), *arguments)
    assert optimizer.minimize(tf.reduce_sum(w * w), step, name="my_step").name == "my_step"
    other = tf.get_variable("other", initializer=[0.0])
    with pytest.raises(ValueError, match="'other:0' has no center variable"):
        optimizer.minimize(tf.reduce_sum(other * other), step, var_list=[other])
