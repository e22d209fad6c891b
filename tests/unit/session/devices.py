"""Sessions with several devices, for tests."""

import threading

import pytest

import headrace as tf
from headrace._src.devices import workers

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


def working():
    """Return how many threads of the pool work; those that idle don't count."""
    alive = [t for t in threading.enumerate() if t.name == "headrace call"]
    return len(alive) - len(workers._idle)
