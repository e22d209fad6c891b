"""Partitions that were sent as messages, and compiled without sight of each other, compute what the
whole step computes. Their regions never wait for each other in a circle.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf
from tests.property.test_partitioned import DEVICES, random_step, results
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
