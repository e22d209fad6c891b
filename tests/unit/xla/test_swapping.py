"""Loops that ask for swap_memory: a session says once that it has no effect."""

import logging

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.config import settings
from headrace._src.xla.swapping import report_swapping
from tests.unit.xla.xla_steps import XlaStep


class Session:
    """Something that can be told once."""


def loop(swap_memory):
    x = tf.placeholder(tf.float32, [3])

    def turns(x):
        return tf.while_loop(
            lambda i, a: i < 5,
            lambda i, a: (i + 1, tf.sin(a) + x),
            [0, tf.zeros([3])],
            swap_memory=swap_memory,
        )[1]

    y = tf.cond(tf.reduce_sum(x) > 0, lambda: turns(x), lambda: x)
    return XlaStep([y, *tf.gradients(y, x)], [x])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_SWAP_DIR", str(tmp_path))
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()


@pytest.mark.usefixtures("folder")
def test_it_is_said_on_jaxs_cpu_where_a_cpu_device_would_swap(caplog):
    step, session = loop(True), Session()
    with caplog.at_level(logging.WARNING, "headrace"):
        report_swapping(step.cluster.nodes, "cpu", session)
    assert "has no effect on XLA devices" in caplog.text and "memory of the cpu" in caplog.text


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("swap_memory", [False, True])
def test_it_is_said_once_where_memories_differ(caplog, platform, swap_memory):
    step, sessions = loop(swap_memory), (Session(), Session())
    with caplog.at_level(logging.WARNING, "headrace"):
        for session in sessions:
            for _ in range(2):
                report_swapping(step.cluster.nodes, platform, session)
    told = [r.getMessage() for r in caplog.records if "swap_memory" in r.getMessage()]
    assert len(told) == (2 if swap_memory and platform == "gpu" else 0)
    assert all("while" in text and "gpu" in text for text in told)


def test_it_changes_no_value():
    fed = np.float32([0.1, 0.2, 0.3])
    for plain, swapped in zip(loop(False)(fed), loop(True)(fed), strict=True):
        np.testing.assert_array_equal(plain, swapped)
