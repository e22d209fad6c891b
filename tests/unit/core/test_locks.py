"""Locks and signals."""

import pytest

from headrace._src.core.locks import RLock
from tests.faults import process

CODE = """
import signal, threading
from headrace._src.core import locks

class Interrupt(Exception): pass

def interrupt(*_):
    raise Interrupt

def enter_and_leave():
    while True:
        with lock:
            pass

def try_to_take():
    if lock.acquire(blocking=False):
        lock.release()
        taken.append(True)

lock, taken = locks.{kind}(), []
signal.signal(signal.SIGALRM, interrupt)
for number in range(300):
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4 + number * 1e-6)
        enter_and_leave()
    except Interrupt:
        pass
    other = threading.Thread(target=try_to_take)
    other.start()
    other.join()
print(len(taken))
"""


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_an_interrupt_never_leaves_a_lock_taken(kind):
    assert process.run(CODE.format(kind=kind)) == "300"


def test_a_reentrant_lock_can_be_taken_again():
    lock = RLock()
    with lock, lock:
        assert lock.acquire(blocking=False)
        lock.release()
