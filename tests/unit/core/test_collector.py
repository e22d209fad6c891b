"""The cycle collector is paused while functions run, in any number of threads."""

import gc
import threading

import pytest

from headrace._src.core.collector import without_collector


@pytest.fixture(autouse=True)
def collecting():
    gc.enable()
    yield
    gc.enable()


def test_it_rests_and_goes_on():
    assert without_collector(lambda x, y=0: (gc.isenabled(), x, y))(1, y=2) == (False, 1, 2)
    assert gc.isenabled()


def test_it_goes_on_after_an_error():
    with pytest.raises(ZeroDivisionError):
        without_collector(lambda: 1 / 0)()
    assert gc.isenabled()


def test_where_it_was_off_it_stays_off():
    gc.disable()
    without_collector(lambda: None)()
    assert not gc.isenabled()


def test_functions_in_functions_and_in_threads():
    inside, leave = threading.Event(), threading.Event()

    def wait():
        inside.set()
        leave.wait(60)

    thread = threading.Thread(target=without_collector(wait))
    thread.start()
    inside.wait(60)
    without_collector(without_collector(lambda: None))()
    assert not gc.isenabled()  # the other thread still runs
    leave.set()
    thread.join()
    assert gc.isenabled()
