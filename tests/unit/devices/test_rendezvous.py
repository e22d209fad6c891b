"""The rendezvous of a step: the first side waits; errors and the end of the step reach all
waiters.
"""

import threading
from types import SimpleNamespace

import pytest

from headrace._src.core.errors import AbortedError, CancelledError, InternalError
from headrace._src.devices.pending import Pending
from headrace._src.devices.rendezvous import Key, Rendezvous
from headrace._src.devices.step_context import StepContext
from headrace._src.graph.control_roles import DEAD
from headrace._src.ops.base.transfers import RECV

CPU0, CPU1 = (f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))
ABORTED = AbortedError(None, None, "the step is over")


def key(tensor="x:0", iteration=0):
    return Key(CPU0, 7, CPU1, tensor, 0, iteration)


def got(pending):
    """Return the value of a finished Pending."""
    seen = []
    pending.then(seen.append)
    assert seen, "it still waits"
    return pending.result()


@pytest.mark.parametrize("value", [3.0, DEAD, None])
def test_a_value_waits_for_its_receiver_and_a_receiver_for_its_value(value):
    step = Rendezvous()
    step.send(key("first"), value)
    assert got(step.recv_async(key("first"))) is value
    pending = step.recv_async(key("second"))
    step.send(key("second"), value)
    assert got(pending) is value


def test_a_key_tells_iterations_apart_and_prints_as_tensorflows():
    step = Rendezvous()
    step.send(key(iteration=1), "one")
    step.send(key(iteration=0), "zero")
    assert got(step.recv_async(key(iteration=0))) == "zero"
    assert got(step.recv_async(key(iteration=1))) == "one"
    assert str(key(iteration=1)) == f"{CPU0};0000000000000007;{CPU1};x:0;0:1"


@pytest.mark.parametrize("received", [False, True])
def test_a_key_is_used_once(received):
    step = Rendezvous()
    step.send(key(), 1)
    if received:
        got(step.recv_async(key()))
        with pytest.raises(InternalError, match="received twice"):
            step.recv_async(key())
    with pytest.raises(InternalError, match="sent twice"):
        step.send(key(), 2)


def test_two_receivers_of_a_key():
    step = Rendezvous()
    step.recv_async(key())
    with pytest.raises(InternalError, match="received twice"):
        step.recv_async(key())


@pytest.mark.parametrize("receiver_first", [False, True])
def test_an_error_in_place_of_a_value(receiver_first):
    step = Rendezvous()
    pending = step.recv_async(key()) if receiver_first else None
    step.send_error(key(), ZeroDivisionError("a kernel"))
    with pytest.raises(ZeroDivisionError, match="a kernel"):
        got(pending or step.recv_async(key()))


def test_abort_ends_those_who_wait_and_those_who_come_later():
    step = Rendezvous()
    step.send(key("unread"), 1)
    pending = step.recv_async(key())
    step.abort(ABORTED)
    step.abort(CancelledError(None, None, "the second error doesn't count"))
    for call in (
        lambda: got(pending),
        lambda: step.send(key(), 1),
        lambda: step.recv_async(key("unread")),
    ):
        with pytest.raises(AbortedError, match="the step is over"):
            call()


def test_a_receiver_that_was_cancelled_leaves_the_sender_alone():
    step = Rendezvous()
    pending = step.recv_async(key())
    assert pending.cancel(CancelledError(None, None, "stopped"))
    step.send(key(), 1)
    with pytest.raises(CancelledError, match="stopped"):
        pending.result()
    with pytest.raises(InternalError, match="sent twice"):
        step.send(key(), 1)


@pytest.mark.parametrize("receiver_first", [False, True])
def test_put_makes_the_value_of_the_receivers_device(receiver_first):
    step = Rendezvous()
    if receiver_first:
        pending = step.recv(key(), lambda value: value + 1)
        step.send(key(), 1)
        assert got(pending) == 2
    else:
        step.send(key(), 1)
        assert step.recv(key(), lambda value: value + 1) == 2


@pytest.mark.parametrize("receiver_first", [False, True])
def test_the_receiver_fails_if_put_does(receiver_first):
    step = Rendezvous()

    def fail(value):
        raise ZeroDivisionError("no room")

    pending = step.recv(key(), fail) if receiver_first else None
    step.send(key(), 1)  # the sender does not
    with pytest.raises(ZeroDivisionError, match="no room"):
        step.recv(key(), fail) if pending is None else got(pending)


def test_recv_returns_a_value_that_is_there_and_otherwise_waits():
    step = Rendezvous()
    step.send(key("there"), DEAD)
    assert step.recv(key("there")) is DEAD
    with pytest.raises(InternalError, match="received twice"):
        step.recv(key("there"))
    pending = step.recv(key("later"))
    assert isinstance(pending, Pending) and not pending.is_over
    step.send_error(key("wrong"), ZeroDivisionError("a kernel"))
    with pytest.raises(ZeroDivisionError, match="a kernel"):
        step.recv(key("wrong"))
    step.abort(ABORTED)
    with pytest.raises(AbortedError, match="the step is over"):
        got(pending)
    with pytest.raises(AbortedError, match="the step is over"):
        step.recv(key("after"))


def test_a_long_loop_leaves_nothing_behind():
    step = Rendezvous()
    for i in range(100):
        each = Key(CPU0, 7, CPU1, "x:0", "while", i)
        if i % 2:
            step.send(each, i)
            assert step.recv(each) == i
        else:
            pending = step.recv(each)
            step.send(each, i)
            assert got(pending) == i
    assert not (step._over or step._sent or step._receivers or step._unwanted)


def test_values_in_transit_are_listed():
    step = Rendezvous()
    step.send(key("a"), 1)
    step.recv(key("b"))
    assert step.in_transit() == [key("a")]
    step.recv(key("a"))
    assert step.in_transit() == []


@pytest.mark.parametrize("value", [3, DEAD])
def test_a_dead_tensor_is_not_put_on_a_device(value):
    attrs = {
        "send_device": CPU0,
        "send_device_incarnation": 7,
        "recv_device": CPU1,
        "tensor_name": "x:0",
    }
    step = StepContext()
    step.rendezvous.send(key(), value)
    ctx = SimpleNamespace(attrs=attrs, device=SimpleNamespace(put=lambda v: v + 1))
    assert RECV.kernel(ctx=ctx, step=step) is (DEAD if value is DEAD else 4)


def test_what_is_waited_for_can_be_told():
    assert Rendezvous().recv_async(key()).what == f"tensor 'x:0' of {CPU0}"


def test_many_threads_exchange_every_value_once():
    step, count = Rendezvous(), 2000
    keys = [key(f"t{i}") for i in range(count)]
    results = [None] * count

    def send():
        for i, each in enumerate(keys):
            step.send(each, i)

    def receive():
        for i, each in reversed(list(enumerate(keys))):
            step.recv_async(each).then(lambda p, i=i: results.__setitem__(i, p.result()))

    threads = [threading.Thread(target=run) for run in (send, receive)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == list(range(count))


def test_abort_races_with_receivers():
    for _ in range(200):
        step, outcomes = Rendezvous(), []

        def receive(step=step, outcomes=outcomes):
            try:
                step.recv_async(key()).then(outcomes.append)
            except AbortedError as error:
                outcomes.append(error)

        thread = threading.Thread(target=receive)
        thread.start()
        step.abort(ABORTED)
        thread.join()
        assert len(outcomes) == 1
