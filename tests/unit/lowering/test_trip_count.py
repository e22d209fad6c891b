"""How often loops run, found before they do."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.graph.structured import is_loop
from headrace._src.lowering.trip_count import most_trips, trip_count
from headrace._src.pipeline import Options, optimise, prepare


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def count(cond, body, start, feeds=(), find=trip_count, most=None):
    """The trip count of a loop, for scalars that are fed."""
    found = tf.while_loop(cond, body, start, maximum_iterations=most)
    step = prepare(tf.nest.flatten(found), [], feeds, Options())
    flow = optimise(step, [() for _ in feeds], Options())
    (loop,) = filter(is_loop, flow.nodes)
    return find(loop)


@pytest.mark.parametrize("trips", [0, 1, 63, 64, 65, 4097, 300_000])
def test_counters(trips):
    assert count(lambda i: i < 3 * trips, lambda i: i + 3, [0]) == trips
    assert count(lambda i: i > 0.0, lambda i: i - 1.0, [float(trips)]) == trips


def test_several_that_count_together():
    assert count(lambda i, j: (i < 100) & (j > -7), lambda i, j: (i + 2, j - 1), [0, 0]) == 7


@pytest.mark.parametrize(
    ("cond", "body", "start", "trips"),
    [
        (lambda x: x < 1000.0, lambda x: x * 2.0, 1.0, 10),
        (lambda i: i < 100, lambda i: i + i % 3 + 1, np.int32(0), 67),
        (lambda x: tf.reduce_max(x) < 5.0, lambda x: x + [1.0, 2.0], [0.0, 0.0], 3),
        (lambda go: go, tf.logical_not, True, 1),
        (lambda i: i > 0, lambda i: i + 1, np.int8(100), 28),  # which wraps
    ],
)
def test_other_than_counters(cond, body, start, trips):
    assert count(cond, body, [tf.constant(start)]) == trips


def test_what_nobody_knows():
    n = tf.placeholder(tf.int32, [])
    assert count(lambda i: i < n, lambda i: i + 1, [0], [n]) is None
    assert count(lambda i: i < 9, lambda i: i + 1, [n], [n]) is None
    assert count(lambda x: x < 9, lambda x: x + tf.random_uniform([]), [0.0]) is None
    assert count(lambda i: i >= 0.0, lambda i: i + 1.0, [0.0]) is None  # for ever


def test_a_bound_is_the_least_count_of_conditions_that_must_hold_together():
    n = tf.placeholder(tf.int32, [])
    unknown = (lambda i: i < n, lambda i: i + 1, [0], [n])
    assert count(*unknown, find=most_trips) is None
    assert count(*unknown, find=most_trips, most=9) == 9
    assert count(lambda i: i < 4, lambda i: i + 1, [0], find=most_trips, most=9) == 4

    def both(i):
        return (i < n) & ((i * 2 < 13) & (i < 11))

    assert count(both, lambda i: i + 1, [0], [n], find=most_trips) == 7
    assert count(lambda i: (i < n) | (i < 5), lambda i: i + 1, [0], [n], find=most_trips) is None
