"""Calls at given times: in order, in one thread, and not if they were cancelled."""

import threading
import time

from headrace._src.runtime import deadlines
from headrace._src.runtime.deadlines import Deadline


def test_calls_come_in_the_order_of_their_times_in_one_thread():
    now, calls, over = time.monotonic(), [], threading.Event()
    first = Deadline(now + 1000, lambda: calls.append("never"))

    def call(name):
        calls.append((name, threading.current_thread().name))

    Deadline(now + 0.02, lambda: (call("second"), over.set()))
    Deadline(now - 1.0, lambda: call("first"))
    assert over.wait(20)
    assert calls == [("first", "headrace deadlines"), ("second", "headrace deadlines")]
    first.cancel()
    assert first.is_cancelled


def test_cancelled_calls_do_not_come_and_are_dropped():
    calls, over = [], threading.Event()
    soon = time.monotonic() + 1000
    for _ in range(1000):
        Deadline(soon, lambda: calls.append(1)).cancel()
    assert len(deadlines._clock._due) <= 200
    cancelled = Deadline(soon, lambda: calls.append(1))
    cancelled.cancel()
    cancelled.come()
    Deadline(0.0, over.set)
    assert over.wait(20) and not calls
