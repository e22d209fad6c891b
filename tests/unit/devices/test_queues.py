"""Queues without sessions: which requests wait, which are served, and that nothing is lost."""

import contextlib
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from headrace._src.core import dtypes, errors
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.pending import Pending
from headrace._src.devices.queues import FIFOQueueState, PriorityQueueState, RandomShuffleQueueState

SCALAR = (dtypes.int64,), (TensorShape(()),)
CANCELLED = errors.CancelledError(None, None, "the step was cancelled")


def fifo(capacity=-1):
    return FIFOQueueState("q", *SCALAR, capacity)


def element(n):
    return (np.int64(n),)


def drained(queue):
    queue.close(True)
    return [int(queue.dequeue()[0]) for _ in range(queue.size())]


def test_takers_are_served_in_their_order():
    queue = fifo()
    takers = [queue.dequeue(), queue.dequeue_many(2), queue.dequeue()]
    assert all(isinstance(t, Pending) for t in takers)
    queue.enqueue_many([element(n) for n in range(4)])
    assert [t.result()[0].tolist() for t in takers] == [0, [1, 2], 3]


def test_a_taker_may_want_more_than_the_queue_holds():
    queue = fifo(2)
    taker = queue.dequeue_many(5)
    adder = queue.enqueue_many([element(n) for n in range(8)])
    assert taker.result()[0].tolist() == [0, 1, 2, 3, 4]
    assert isinstance(adder, Pending) and queue.size() == 2
    assert int(queue.dequeue()[0]) == 5
    assert adder.result() is None


def test_cancelled_taker_gives_back_what_it_has():
    queue = fifo()
    taker, later = queue.dequeue_many(3), queue.dequeue()
    queue.enqueue_many([element(0), element(1)])
    assert queue.size() == 0 and "2 are there" in taker.what
    assert taker.cancel(CANCELLED)
    with pytest.raises(errors.CancelledError, match="Dequeue operation was cancelled"):
        taker.result()
    assert int(later.result()[0]) == 0
    assert drained(queue) == [1]


def test_cancelled_adder_lets_the_next_one_in():
    queue = fifo(1)
    queue.enqueue(element(0))
    first, second = queue.enqueue(element(1)), queue.enqueue(element(2))
    assert first.cancel(CANCELLED)
    assert int(queue.dequeue()[0]) == 0
    assert second.result() is None
    assert drained(queue) == [2]


def test_closing_too_early_gives_back_and_fails():
    queue = fifo()
    taker = queue.dequeue_many(3)
    queue.enqueue_many([element(0), element(1)])
    assert queue.close(False) is None
    with pytest.raises(errors.OutOfRangeError, match=r"requested 1, current size 0"):
        taker.result()
    assert drained(queue) == [0, 1]


def test_close_waits_for_the_adders_before_it():
    queue = fifo(1)
    queue.enqueue(element(0))
    adder, close, late = queue.enqueue(element(1)), queue.close(False), queue.enqueue(element(2))
    assert not queue.closed
    assert int(queue.dequeue()[0]) == 0
    assert adder.result() is None and close.result() is None and queue.closed
    with pytest.raises(errors.CancelledError, match="FIFOQueue 'q' is closed"):
        late.result()
    assert drained(queue) == [1]


def test_close_may_cancel_the_adders():
    queue = fifo(1)
    queue.enqueue(element(0))
    adder = queue.enqueue(element(1))
    queue.close(True)
    with pytest.raises(errors.CancelledError, match="Enqueue operation was cancelled"):
        adder.result()
    assert drained(queue) == [0]


def test_taker_of_some_gets_the_rest_at_the_end():
    queue = fifo()
    taker = queue.dequeue_many(5, some=True)
    queue.enqueue_many([element(0), element(1)])
    queue.close(False)
    assert taker.result()[0].tolist() == [0, 1]


def test_priorities_survive_being_given_back():
    queue = PriorityQueueState("q", (dtypes.int64,) * 2, (TensorShape(()),) * 2, -1)
    taker = queue.dequeue_many(4)
    queue.enqueue_many([(np.int64(p), np.int64(i)) for i, p in enumerate([2, 1, 1])])
    taker.cancel(CANCELLED)
    queue.enqueue((np.int64(1), np.int64(3)))
    queue.close(False)
    assert queue.dequeue_many(9, some=True)[1].tolist() == [1, 2, 3, 0]


def test_shuffled_elements_are_the_same_elements():
    words = iter(np.random.default_rng(0).integers(0, 2**32, 1000).tolist())
    draws = SimpleNamespace(next=words.__next__)
    queue = RandomShuffleQueueState("q", *SCALAR, -1, keep=3, seeds=(0, 0), draws=draws)
    queue.enqueue_many([element(n) for n in range(20)])
    first = queue.dequeue_many(17)[0].tolist()
    waiter = queue.dequeue()
    assert isinstance(waiter, Pending)
    waiter.cancel(CANCELLED)
    assert first != sorted(first)
    assert sorted(first + drained(queue)) == list(range(20))


def test_ten_thousand_waiters_hold_no_thread():
    queue = fifo()
    before = set(threading.enumerate())
    waiters = [queue.dequeue() for _ in range(10_000)]
    assert not set(threading.enumerate()) - before
    for waiter in waiters[::2]:
        assert waiter.cancel(CANCELLED)
    queue.enqueue_many([element(n) for n in range(5_000)])
    assert [int(w.result()[0]) for w in waiters[1::2]] == list(range(5_000))


def test_many_threads_lose_and_double_nothing():
    queue = fifo(7)
    count, each = 8, 500
    taken = [[] for _ in range(count)]

    def wait(answer):
        if not isinstance(answer, Pending):
            return answer
        over = threading.Event()
        answer.then(lambda _: over.set())
        assert over.wait(60)
        return answer.result()

    def produce(k):
        for n in range(0, each, 5):
            wait(queue.enqueue_many([element(k * each + n + i) for i in range(5)]))

    def consume(k):
        for _ in range(each // 10):
            taken[k] += wait(queue.dequeue_many(9))[0].tolist()
            taken[k].append(int(wait(queue.dequeue())[0]))

    works = [(f, k) for k in range(count) for f in (produce, consume)]
    threads = [threading.Thread(target=f, args=(k,)) for f, k in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(n for part in taken for n in part) == list(range(count * each))
    assert queue.size() == 0


def test_cancelling_against_filling_loses_nothing():
    queue = fifo(4)
    taken, rounds = [], 300

    def cancel_each(waiters):
        for waiter in waiters:
            waiter.cancel(CANCELLED)

    for start in range(rounds):
        waiters = [w for w in [queue.dequeue_many(2) for _ in range(3)] if isinstance(w, Pending)]
        canceller = threading.Thread(target=cancel_each, args=(waiters,))
        canceller.start()
        queue.enqueue(element(2 * start))
        queue.enqueue(element(2 * start + 1))
        canceller.join(60)
        for waiter in waiters:
            with contextlib.suppress(errors.CancelledError):
                taken += waiter.result()[0].tolist()
        taken += [int(queue.dequeue()[0]) for _ in range(queue.size())]
    assert sorted(taken) == list(range(2 * rounds))


# -- Going on in another process -------------------------------------------------------------------


def again(queue):
    """A queue like it, in the state that it was saved in."""
    twin = type(queue)("twin", queue.types, queue.shapes, queue.given_capacity)
    twin.resume(queue.saved())
    return twin


def test_what_waits_for_room_is_saved_too():
    queue = fifo(capacity=2)
    queue.enqueue_many([element(n) for n in range(4)])
    queue.enqueue(element(4))
    queue.close(False)
    twin = again(queue)
    assert [int(twin.dequeue()[0]) for _ in range(5)] == list(range(5))
    with pytest.raises(errors.OutOfRangeError):
        twin.dequeue()
    twin.resume(queue.saved())  # again, like a program that initialises after restoring
    assert [int(twin.dequeue()[0]) for _ in range(5)] == list(range(5))
    assert queue.size() == 2 and [int(queue.dequeue()[0]) for _ in range(5)] == list(range(5))


def test_what_a_waiter_has_got_so_far_is_saved():
    queue = fifo()
    taker = queue.dequeue_many(3)
    queue.enqueue_many([element(1), element(2)])
    assert drained(again(queue)) == [1, 2]
    queue.enqueue(element(3))
    assert taker.result()[0].tolist() == [1, 2, 3]


def test_elements_of_many_shapes_and_priorities_are_saved():
    queue = PriorityQueueState("q", (dtypes.int64, dtypes.string), None, -1)
    texts = [np.array([b"a", b""], object), np.array(b"b", object), np.array([], object)]
    for priority, text in zip((2, 1, 1), texts, strict=True):
        queue.enqueue((np.int64(priority), text))
    twin = again(queue)
    found = [twin.dequeue()[1].tolist() for _ in range(3)]
    assert found == [b"b", [], [b"a", b""]]


def test_a_damaged_state_is_refused():
    queue = fifo()
    queue.enqueue_many([element(1), element(2)])
    saved = queue.saved()
    saved["elements/count"] = np.array(3)
    with pytest.raises(errors.DataLossError):
        queue.resume(saved)


def test_batches_of_strings_that_came_one_by_one():
    queue = FIFOQueueState("q", (dtypes.string,), (TensorShape(()),), -1)
    for text in (b"a", b"b"):
        queue.enqueue((np.array(text, object),))
    assert queue.dequeue_many(2)[0].tolist() == [b"a", b"b"]
