"""Each test here has a graph of its own, and XLA devices."""

import pytest

import headrace as tf
from tests.xla_devices import xla

__all__ = ["own_graph", "xla"]


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield
