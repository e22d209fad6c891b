"""The partitions of a step on several tasks: nothing but pumping runs them, nothing is lost when
they are cancelled, and they end once.
"""

import threading

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.errors import AbortedError, CancelledError, DeadlineExceededError
from headrace._src.devices import workers
from headrace._src.devices.pending import Pending
from headrace._src.devices.rendezvous import _Received
from headrace._src.runtime import ShapesChanged
from headrace._src.runtime.served import takes_elements
from tests.unit.runtime.tasks import Cluster, cluster, executables, program_of, split
from tests.unit.session.devices import on, session

STOP = CancelledError(None, None, "enough")


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture(autouse=True)
def no_threads(monkeypatch):
    """No step here has anything for a thread of the pool."""
    monkeypatch.setattr(workers, "start", lambda call: pytest.fail("a thread was started"))


def round_trip(x):
    with on(1):
        y = tf.tanh(x, name="there")
    with on(0):
        z = tf.square(y)
    with on(1):
        return y + z


# -- Values ----------------------------------------------------------------------------------------


def test_a_round_trip_between_two_tasks():
    x = tf.placeholder(tf.float32, [2])
    y = round_trip(round_trip(x))
    with session() as s:
        wanted = s.run(y, {x: [0.5, 1.0]})
        for _ in range(3):
            step = cluster(s, [y], {x: np.float32([0.5, 1.0])}).start().run()
            assert step.is_over and step.error is None
            assert step.values[0].tolist() == wanted.tolist()
        assert not s._resources._steps
