"""Pure nodes on constants become constants, unless they are large."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.optimize.fold import fold
from tests.unit.optimize.flows import after, flow, node, types


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_what_is_too_large_to_know_at_once_is_folded():
    y = tf.fill([100, 100], 2.0) * 3.0
    made = after(fold, flow(y))
    assert types(made) == []
    np.testing.assert_array_equal(made.fetches[0].constant, np.full((100, 100), 6, np.float32))


def test_a_large_fill_is_left_but_not_a_part_of_a_large_constant():
    large = tf.constant(np.arange(200_000.0))
    made = after(fold, flow([tf.fill([300, 300], 1.0), large[1:]]))
    assert types(made) == ["Fill"]
    assert made.fetches[1].constant.size == 199_999


def test_effects_are_never_folded():
    made = after(fold, flow([tf.random_normal([2]), tf.timestamp()]))
    assert {"RandomStandardNormal", "Timestamp"} <= set(types(made))


def test_a_kernel_that_fails_is_left_to_the_step():
    bad = tf.constant([1, 2]) // tf.constant([0, 1])
    assert types(after(fold, flow(bad))) == ["FloorDiv"]


def test_a_fed_constant_is_none():
    c = tf.constant([1.0, 2.0])
    assert types(after(fold, flow(c + 1.0, {c: (2,)}))) == ["AddV2"]


def test_who_reads_a_constant_waits_for_what_it_waited_for():
    check = tf.Assert(tf.placeholder(tf.bool, []), ["no"], name="check")
    x = tf.placeholder(tf.float32, [])
    with tf.control_dependencies([check]):
        late = tf.constant(1.0)
        large = tf.fill([80, 80], 2.0) * 3.0
    made = after(fold, flow([(late + 2.0) * x, tf.add(large, x, name="y")], {x: ()}))
    assert [c.name for c in node(made, "mul_1").controls] == ["check/Assert"]
    assert [c.name for c in node(made, "y").controls] == ["check/Assert"]
    assert node(made, "y").constant_input(0).shape == (80, 80)


def test_running_a_constant_runs_what_it_waits_for():
    check = tf.Assert(tf.placeholder(tf.bool, []), ["no"], name="check")
    with tf.control_dependencies([check]):
        late = tf.constant(1.0)
    assert [n.name for n in flow([], targets=[late.op]).targets] == ["check/Assert"]


def test_what_native_kernels_compute_is_left_to_them():
    made = after(fold, flow(tf.matmul(tf.ones([2, 2]), tf.ones([2, 2]))))
    assert types(made) == ["MatMul"]
