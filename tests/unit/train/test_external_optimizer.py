"""Optimizers outside the graph: TensorFlow's numbers, callbacks, and the state after a failure."""

import sys

import numpy as np
import pytest

import headrace as tf
from tests.unit.train.external_runs import RIGHT, RUNS, minimized


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def square(use_resource, start=(7.0, 7.0)):
    v = tf.get_variable("v", initializer=np.array(start, "f4"), use_resource=use_resource)
    return v, tf.reduce_sum(tf.square(v))


@pytest.mark.parametrize("build", RUNS, ids=lambda build: build.__name__)
def test_as_tensorflow(build):
    np.testing.assert_allclose(minimized(tf, build), RIGHT[build.__name__], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("use_resource", [False, True])
def test_callbacks(use_resource):
    v, loss = square(use_resource)
    optimizer = tf.contrib.opt.ScipyOptimizerInterface(loss)
    seen, steps = [], []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        optimizer.minimize(
            fetches=[loss, v],
            loss_callback=lambda *values: seen.append(values),
            step_callback=steps.append,
        )
        np.testing.assert_allclose(session.run(v), [0, 0], atol=1e-5)
    assert seen[0][0] == 98.0
    assert seen[0][1].tolist() == [7.0, 7.0]
    assert seen[-1][0] < 1e-9
    assert [step.shape for step in steps] == [(2,)] * len(steps)
    assert steps


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_stay_when_it_fails(use_resource):
    v, loss = square(use_resource)
    optimizer = tf.contrib.opt.ScipyOptimizerInterface(loss)

    def stop(x):
        raise KeyboardInterrupt

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(KeyboardInterrupt):
            optimizer.minimize(session, step_callback=stop)
        assert session.run(v).tolist() == [7.0, 7.0]


def test_rows_and_variables_without_gradients():
    table = tf.get_variable("table", initializer=np.ones((4, 2), "f4"))
    other = tf.get_variable("other", initializer=[1.0])
    loss = tf.reduce_sum(tf.square(tf.gather(table, [1, 1]) - 3.0))
    optimizer = tf.contrib.opt.ScipyOptimizerInterface(loss, var_list=[table, other])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        optimizer.minimize(session)
        right = np.ones((4, 2))
        right[1] = 3
        np.testing.assert_allclose(session.run(table), right, rtol=1e-5)
        assert session.run(other) == 1.0


def test_an_algorithm_of_ones_own():
    class Descent(tf.contrib.opt.ExternalOptimizerInterface):
        def _minimize(self, initial_val, loss_grad_func, optimizer_kwargs, **rest):
            x = initial_val
            for _ in range(optimizer_kwargs["steps"]):
                x = x - 0.25 * loss_grad_func(x)[1]
            return x

    v, loss = square(False, (8.0, 4.0))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        Descent(loss, steps=2).minimize()
        assert session.run(v).tolist() == [2.0, 1.0]
        with pytest.raises(NotImplementedError, match="subclass from it and implement"):
            tf.contrib.opt.ExternalOptimizerInterface(loss).minimize()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"jac": False}, "'jac' is set automatically and cannot be injected manually"),
        ({"bounds": []}, "Bounds must be set using the var_to_bounds argument"),
    ],
)
def test_settings_that_are_ours(settings, message):
    _, loss = square(False)
    with tf.Session() as session, pytest.raises(ValueError, match=message):
        session.run(tf.global_variables_initializer())
        tf.contrib.opt.ScipyOptimizerInterface(loss, **settings).minimize(session)


def test_refusals():
    v, loss = square(False)
    make = tf.contrib.opt.ScipyOptimizerInterface
    with pytest.raises(ValueError, match="the loss must be scalar"):
        make(v * v)
    with pytest.raises(ValueError, match="equalities must be scalar"):
        make(loss, equalities=[v + 1.0])
    with pytest.raises(ValueError, match="has variables that are not optimized"):
        make(loss, var_list=[v], var_to_bounds={loss: (0, 1)})
    with pytest.raises(ValueError, match="needs a session"):
        make(loss).minimize()


def test_without_scipy(monkeypatch):
    _, loss = square(False)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(ImportError, match=r'pip install "headrace\[scipy\]"'):
            tf.contrib.opt.ScipyOptimizerInterface(loss).minimize(session)
