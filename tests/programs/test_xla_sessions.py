"""Whole programs on an XLA device, alone and together with a CPU: the numbers are the CPU's."""

import logging

import numpy as np
import pytest

import headrace as tf
from headrace._src.runtime.partitions import PartitionedExecutable
from headrace._src.xla.cluster import XlaCluster

XLA = "/device:XLA:0"
CPU = "/device:CPU:0"


def network(first, second):
    """A small network with its layers on two devices; return its loss, the training step, a feed
    and the second layer's weights.
    """
    rng = np.random.default_rng(0)
    x = tf.placeholder(tf.float32, [None, 6], name="x")
    with tf.device(first):
        w = tf.get_variable("w", initializer=rng.normal(0, 0.5, (6, 8)).astype(np.float32))
        h = tf.nn.dropout(tf.tanh(tf.matmul(x, w)), rate=0.2, seed=3)
    with tf.device(second):
        v = tf.get_variable("v", initializer=rng.normal(0, 0.5, (8, 3)).astype(np.float32))
        logits = tf.matmul(h, v)
        loss = tf.reduce_mean(tf.square(logits - 1.0))
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    return loss, optimizer.minimize(loss, colocate_gradients_with_ops=True), x, v


def losses(first, second, steps=6, after=None):
    with tf.Graph().as_default():
        tf.set_random_seed(7)
        loss, train, x, v = network(first, second)
        fed = np.random.default_rng(1).random((5, 6), np.float32)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            found = [session.run([loss, train], {x: fed})[0] for _ in range(steps)]
            if after is not None:
                after(session, v)
            return found


def kernels(session):
    for plan in session._plans.values():
        for executable in plan.variants._settled.values():
            for instruction in executable.program.instructions:
                yield executable, instruction.op.definition.kernel


@pytest.mark.parametrize("first, second", [(CPU, XLA), (XLA, CPU), (XLA, XLA)])
def test_training_gives_the_cpus_losses(first, second):
    def check(session, v):
        found = list(kernels(session))
        assert any(isinstance(kernel, XlaCluster) for _, kernel in found)
        several = any(isinstance(e, PartitionedExecutable) for e, _ in found)
        assert several == (first != second)
        assert type(session.run(v)) is np.ndarray

    np.testing.assert_allclose(losses(first, second, after=check), losses(CPU, CPU), rtol=2e-5)


@pytest.mark.filterwarnings("error")
def test_random_numbers_are_in_the_region_that_uses_them():
    with tf.Graph().as_default(), tf.device(XLA):
        v = tf.get_variable("v", [4, 4], initializer=tf.orthogonal_initializer(seed=1))
        with tf.Session() as session:
            for _ in range(2):
                session.run(v.initializer)
            found = [kernel for _, kernel in kernels(session) if isinstance(kernel, XlaCluster)]
            value = session.run(v)
    types = [{node.type for node in kernel.nodes} for kernel in found]
    assert types and all({"_Numbers", "Qr", "Assign"} <= found for found in types)
    np.testing.assert_allclose(value @ value.T, np.eye(4), atol=1e-6)


def test_variables_on_the_device_are_saved_and_restored(tmp_path):
    def save(session, v):
        path = tf.train.Saver().save(session, str(tmp_path / "model"))
        before = session.run(v)
        session.run(v.assign(tf.zeros_like(v)))
        tf.train.Saver().restore(session, path)
        np.testing.assert_array_equal(session.run(v), before)

    losses(CPU, XLA, after=save)


def test_loops_and_branches_on_the_device():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        with tf.device(XLA):
            _, y = tf.while_loop(
                lambda i, a: i < 5, lambda i, a: (i + 1, tf.sin(a) + x), [0, tf.zeros([3])]
            )
            z = tf.cond(tf.reduce_sum(x) > 0, lambda: y * 2.0, lambda: y - 1.0)
            (gradient,) = tf.gradients(z, x, colocate_gradients_with_ops=True)
        with tf.Session() as session:
            for fed in ([0.1, 0.2, 0.3], [-0.1, -0.2, -0.3]):
                found = [session.run([z, gradient], {x: fed}) for _ in range(3)]
                expected = by_numpy(np.array(fed, np.float64))
                for values in found:
                    np.testing.assert_allclose(values[0], expected[0], rtol=1e-5)
                    np.testing.assert_allclose(values[1], expected[1], rtol=1e-4)


def by_numpy(x):
    y, slope = np.zeros(3), np.zeros(3)
    for _ in range(5):
        slope = np.cos(y) * slope + 1
        y = np.sin(y) + x
    return (y * 2, slope * 2) if x.sum() > 0 else (y - 1, slope)


def test_an_op_without_a_kernel_moves_to_the_cpu_under_soft_placement(caplog):
    with tf.Graph().as_default():
        with tf.device(XLA):
            texts = tf.as_string(tf.constant([1, 2]) * 2)
            joined = tf.strings.reduce_join(texts, separator=" ")
        with (
            tf.Session() as session,
            pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device"),
        ):
            session.run(joined)
        with (
            caplog.at_level(logging.WARNING, "headrace"),
            tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session,
        ):
            for _ in range(2):
                assert session.run(joined) == b"2 4"
    told = [r.getMessage() for r in caplog.records if "AsString" in r.getMessage()]
    assert len(told) == 1 and "no kernel for XLA devices" in told[0]
