"""Regions of XLA devices: whole steps as one function, equal to the session's results."""

import numpy as np

import headrace as tf
from tests.unit.xla.xla_steps import compare

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def test_a_product_a_sum_and_a_relu_are_one_function():
    x = tf.placeholder(tf.float32, [4, 3])
    w = tf.constant(np.arange(6, dtype=np.float32).reshape(3, 2))
    y = tf.nn.relu(tf.matmul(x, w) + 1.0)
    compare([y], [x], [X])


def test_a_training_step_updates_its_variables():
    x = tf.placeholder(tf.float32, [4, 3])
    w = tf.Variable(tf.ones([3, 2]), use_resource=False)
    b = tf.Variable(tf.zeros([2]), use_resource=False)
    loss = tf.reduce_mean(tf.square(tf.nn.tanh(tf.matmul(x, w) + b)))
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    step = compare([loss], [x], [X], [train], steps=3)
    assert step.cluster.effect.value == "writes"


def test_resource_variables_are_updated_too():
    x = tf.placeholder(tf.float32, [4, 3])
    w = tf.get_variable("w", [3, 2], initializer=tf.ones_initializer(), use_resource=True)
    loss = tf.reduce_sum(tf.square(tf.matmul(x, w)))
    train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    compare([loss], [x], [X], [train], steps=3)


def test_windows_that_leave_elements_over():
    x = tf.placeholder(tf.float32, [2, 6, 7, 3])
    values = np.random.default_rng(1).normal(size=(2, 6, 7, 3)).astype(np.float32)
    for pool in (tf.nn.max_pool2d, tf.nn.avg_pool2d):
        y = pool(x, 1, 2, "VALID") + pool(x, 2, 2, "VALID")[:, :1, :1]
        compare([y, *tf.gradients(tf.square(y), x)], [x], [values])
