"""Critical sections: one at a time, in one step and between steps."""

import gc
import threading

import pytest

import headrace as tf
from headrace._src.devices.mutex import Mutex
from headrace._src.devices.pending import Pending


@pytest.fixture
def no_collection():
    """No garbage collection but the one that the test asks for."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def test_a_mutex_serves_in_order_and_is_freed_by_who_forgets_it():
    mutex = Mutex("m")
    first, second, third = mutex.acquire(), mutex.acquire(), mutex.acquire()
    assert isinstance(second, Pending) and isinstance(third, Pending)
    first.release()
    first.release()
    served = threading.Event()
    third.then(lambda _: served.set())
    assert second.result() is not None and not served.is_set()
    del second
    assert served.wait(60)
    third.result().release()


def test_a_lock_may_be_lost_while_its_mutex_decides(no_collection):
    """The garbage collector may free a lock in any call, also in one of the same mutex."""
    mutex = Mutex("m")
    unreachable = [mutex.acquire()]
    unreachable.append(unreachable)
    del unreachable
    waiters = []

    def wait():
        def ready():
            is_free = not mutex._held
            gc.collect()
            return is_free

        waiters.append(mutex.attempt(lambda: "served", ready))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(60)
    (waiter,) = waiters
    served = threading.Event()
    waiter.then(lambda _: served.set())
    assert served.wait(60) and waiter.result() == "served"


def test_increments_in_a_section_are_not_lost():
    section = tf.CriticalSection()
    v = tf.Variable(0.0, use_resource=True)

    def increment():
        old = v.read_value()
        with tf.control_dependencies([old]):
            return v.assign(old + 1.0, read_value=False)

    ops = [section.execute(increment) for _ in range(20)]
    with tf.Session() as session:
        session.run(v.initializer)
        session.run(ops)
        assert session.run(v) == 20
        threads = [threading.Thread(target=session.run, args=(ops,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert session.run(v) == 100


def test_a_failed_step_gives_the_lock_back():
    section = tf.CriticalSection()
    x = tf.placeholder(tf.float32)
    checked = section.execute(lambda: tf.check_numerics(x, "bad"))
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(checked, {x: float("nan")})
        assert session.run(checked, {x: 2.0}) == 2


def test_structures_come_back_as_they_were():
    section = tf.CriticalSection()
    found = section.execute(lambda: {"a": tf.constant(1), "b": (tf.constant(2), 3)})
    with tf.Session() as session:
        assert session.run(found) == {"a": 1, "b": (2, 3)}
        assert session.run(section.execute(lambda: None)) is None


def test_mistakes_are_told():
    section, other = tf.CriticalSection(name="one"), tf.CriticalSection(name="two")
    with pytest.raises(ValueError, match="already running"):
        section.execute(lambda: section.execute(lambda: tf.constant(1)))
    v = tf.Variable(0.0, use_resource=True)
    section.execute(lambda: v.read_value())
    with pytest.raises(ValueError, match="exclusive"):
        other.execute(lambda: v.read_value())
    other.execute(lambda: v.read_value(), exclusive_resource_access=False)
