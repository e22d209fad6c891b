"""A step on several tasks computes what it computes in one session, whatever the order in which
tensors arrive and the tasks run; and it ends wherever it is cancelled.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf
from headrace._src.core.errors import CancelledError
from headrace._src.runtime.partitions import PartitionedExecutable
from tests.property.test_partitioned import DEVICES, config, random_step, results
from tests.unit.runtime.tasks import Cluster, executables

TASKS = [[(0,), (1, 2)], [(0,), (1,), (2,)], [(0, 2), (1,)]]
STOP = CancelledError(None, None, "enough")


def in_tasks(session, fetches, feeds, tasks, driver):
    """Return the tasks of a step, or None if it is on one device or has several variants."""
    plan = session._plan_for(fetches, feeds, None)
    values = [np.asarray(v) for v in feeds.values()]
    found = plan.variants.choose(values)
    if not isinstance(found, PartitionedExecutable):
        return None
    program = found.program
    observe = (lambda *_: None) if driver == "counted" else None
    made = [one for one in executables(session, program, *tasks) if one[2]]
    return Cluster(made, values, len(program.sources), observe=observe)


@pytest.mark.parametrize("driver", ["fixed", "counted"])
def test_tasks_compute_what_one_session_computes(driver):
    seen = Counter()

    @given(st.data())
    @settings(max_examples=30)
    def check(data):
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="order"))
        tasks = data.draw(st.sampled_from(TASKS), label="tasks")
        with tf.Graph().as_default():
            fetches, feeds = random_step(data)
            ((*wanted,),) = results(fetches, feeds, 1, "off", runs=1)
            with tf.Session(config=config(DEVICES, "off")) as session:
                session.run(tf.global_variables_initializer())
                step = in_tasks(session, fetches, feeds, tasks, driver)
                if step is None:
                    return
                step.start()
                while step.random_event(rng):
                    seen["events"] += 1
                assert step.error is None and step.is_over
                for found, value in zip(step.values, wanted, strict=True):
                    np.testing.assert_array_equal(found, value)
                seen["steps"] += 1

    check()
    assert seen["steps"] >= 10 and seen["events"] >= 60


@given(st.data())
@settings(max_examples=30)
def test_a_cancelled_step_ends(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="order"))
    tasks = data.draw(st.sampled_from(TASKS), label="tasks")
    moment = data.draw(st.integers(0, 20), label="moment")
    gentle = data.draw(st.booleans(), label="gentle")
    with tf.Graph().as_default():
        fetches, feeds = random_step(data)
        with tf.Session(config=config(DEVICES, "off")) as session:
            session.run(tf.global_variables_initializer())
            step = in_tasks(session, fetches, feeds, tasks, "fixed")
            if step is None:
                return
            step.start()
            for _ in range(moment):
                step.random_event(rng)
            for one in step.steps:
                one.cancel(STOP, gentle)
                step.random_event(rng)
            while step.random_event(rng):
                pass
            assert step.is_over and step.error in (None, STOP)
            assert not session._resources._steps
