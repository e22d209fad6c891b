"""Sessions with several devices, for tests."""

import threading
import time

import numpy as np
import pytest

import headrace as tf
from headrace._src.devices import step_context, workers
from headrace._src.runtime.partitions import PartitionedExecutable

DEVICES = 3


def config(count=DEVICES, **options):
    """Return the configuration of a session with `count` CPUs."""
    return tf.ConfigProto(device_count={"CPU": count}, **options)


def checking():
    """Return the configuration of a session whose operations are checked for finite numbers."""
    checked = config()
    checked.experimental.check_numerics = True
    return checked


def session(count=DEVICES, **options):
    return tf.Session(config=config(count, **options))


def on(number):
    """Return the scope of a device."""
    return tf.device(f"/cpu:{number}")


def in_thread(call, *args):
    """Start a thread that calls a function; return a function that waits for its result."""
    results = []

    def run():
        try:
            results.append((call(*args), None))
        except BaseException as error:
            results.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join(60)
        if thread.is_alive():
            pytest.fail("the thread hangs")
        value, error = results[0]
        if error is not None:
            raise error
        return value

    return result


def late(run, in_time=lambda error: error.op is not None):
    """Call `run` with a deadline, in ms, and return the error of the step, in which an operation
    ran or waited when the deadline passed. On a busy machine a short deadline passes before that;
    then a longer one follows. in_time: whether the step had come far enough.
    """
    for timeout in (30, 300, 3000, 30_000):
        with pytest.raises(tf.errors.DeadlineExceededError) as caught:
            run(timeout)
        if in_time(caught.value):
            break
    return caught.value


def until_cancelled():
    """Return when the step of this thread is cancelled; at once if it has no deadline."""
    step = step_context.current()
    while step is not None and step.deadline is not None and step.cancellation.error is None:
        time.sleep(0.001)


def blocked_step(s):
    """Return the running step of a session, once it is blocked."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for step in list(s._resources._steps):
            if step.sleeper() is not None:
                return step
        time.sleep(0.001)
    pytest.fail("no step is blocked")


def working():
    """Return how many threads of the pool work; those that idle don't count."""
    alive = [t for t in threading.enumerate() if t.name == "headrace call"]
    return len(alive) - len(workers._idle)


def executable(s, fetches, feeds=()):
    """Return the executable of a step on several devices that a session has prepared."""
    plan = s._plan_for(fetches, dict(feeds) if feeds else None, None)
    found = plan.variants.choose([np.asarray(v) for v in dict(feeds).values()])
    assert isinstance(found, PartitionedExecutable)
    return found


def round_trip(x):
    """Return a tensor whose computation goes to another device, back, and there again."""
    with on(1):
        y = tf.tanh(x, name="there")
    with on(0):
        z = tf.square(y)
    with on(1):
        return y + z
