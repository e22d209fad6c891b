"""What a process has one of is made once, whichever threads ask."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace._src.core.once import once


def test_threads_that_meet_get_the_same():
    made, meeting = [], threading.Barrier(8)

    @once
    def make():
        made.append(object())
        threading.Event().wait(0.05)  # so that the others come while it is being made
        return made[-1]

    def ask():
        meeting.wait(10)
        return make()

    with ThreadPoolExecutor(8) as pool:
        found = [each.result(10) for each in [pool.submit(ask) for _ in range(8)]]
    assert len(made) == 1
    assert all(each is made[0] for each in found)


def test_a_failure_is_not_kept():
    calls = []

    @once
    def make():
        """Its text."""
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the first time")
        return None

    with pytest.raises(OSError, match="the first time"):
        make()
    assert make() is None
    assert make() is None
    assert len(calls) == 2
    assert make.__doc__ == "Its text."
