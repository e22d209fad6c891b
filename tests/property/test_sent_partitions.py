"""Partitions that were sent as messages, and compiled without sight of each other, compute what the
whole step computes. Their regions never wait for each other in a circle.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf
from headrace._src.ops.base.transfers import is_recv
from tests.property.test_partitioned import (
    DEVICES,
    config,
    random_control_flow,
    random_step,
    results,
)
from tests.property.watchdog import watched
from tests.sent_steps import partitions_are_sent


def compare_sent(fetches, feeds, jit, seen, rtol=0.0, atol=0.0, driver="fixed"):
    """Run a step on one device, interpreted, and in partitions that were sent."""
    whole = results(fetches, feeds, 1, "off", driver="as is" if driver == "as is" else "fixed")
    with partitions_are_sent():
        parted = results(fetches, feeds, DEVICES, jit, seen, driver=driver)
    for one, several in zip(whole, parted, strict=True):
        for a, b in zip(one, several, strict=True):
            np.testing.assert_allclose(b, a, rtol=rtol, atol=atol)


@pytest.mark.parametrize("driver", ["fixed", "counted", "as is"])
def test_interpreted_partitions_equal_the_whole_bit_for_bit(driver):
    seen = Counter()

    @given(st.data())
    @settings(max_examples=15)
    def check(data):
        with tf.Graph().as_default():
            compare_sent(*random_step(data), "off", seen, driver=driver)

    check()
    assert seen["partitioned"] >= 7 and seen["round trips"] >= 3


def test_compiled_partitions_agree_with_the_whole():
    seen = Counter()

    @given(st.data())
    @settings(max_examples=25)
    def check(data):
        with tf.Graph().as_default():
            compare_sent(*random_step(data), "always", seen, rtol=2e-4, atol=2e-5)

    check()
    assert seen["clusters"] >= 10 and seen["round trips"] >= 8 and seen["several regions"] >= 3


@pytest.mark.parametrize("driver", ["fixed", "as is"])
def test_control_flow_across_devices(driver):
    """In one piece, on the devices of a task; and as primitives."""
    seen = Counter()

    @given(st.data())
    @settings(max_examples=8)
    def check(data):
        with tf.Graph().as_default():
            compare_sent(*random_control_flow(data), "off", seen, driver=driver)

    check()
    assert seen["loops in pieces" if driver == "as is" else "loops that span devices"] >= 3


def test_a_region_does_not_wait_for_the_queue_that_it_fills():
    """A value that comes back from another device was dequeued before. What the same step enqueues
    must not be in one region with what is made of that value.
    """
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [64])
        with tf.device("/cpu:1"):
            queue = tf.FIFOQueue(2, [tf.float32], shapes=[[64]])
            taken = queue.dequeue()
            enqueue = queue.enqueue(tf.tanh(x) * 2.0 + tf.square(x))
        with tf.device("/cpu:0"):
            there = tf.tanh(taken) * 0.5 + tf.square(taken)
        with tf.device("/cpu:1"):
            back = tf.tanh(there) * 0.5 + tf.square(there) + tf.square(x)
        values = np.linspace(-1, 1, 64, dtype=np.float32)
        session = tf.Session(config=config(2, "always"))
        with partitions_are_sent() as seen, session, watched(session):
            found, _ = session.run([back, enqueue], {x: values})
    recvs = [n for part in seen[-1].parts for n in part.flow.nodes if is_recv(n)]
    assert [bool(n.attrs["awaits"]) for n in recvs] == [True, True]
    first = np.tanh(values) * 2 + values**2
    second = np.tanh(first) * 0.5 + first**2
    expected = np.tanh(second) * 0.5 + second**2 + values**2
    np.testing.assert_allclose(found, expected, rtol=1e-5)
