"""Critical sections: one at a time, in one step and between steps."""

import threading

import pytest

import headrace as tf
from headrace._src.devices.mutex import Mutex
from headrace._src.devices.pending import Pending


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
    served = []
    third.then(lambda _: served.append("third"))
    assert second.result() is not None and not served
    del second
    assert served
    third.result().release()


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
