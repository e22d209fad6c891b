"""The rendezvous of a step on several tasks: tensors meet their receivers whichever comes first,
and nothing is kept for steps that have ended.
"""

import pytest

from headrace._src.core.errors import AbortedError, InternalError
from headrace._src.devices.pending import Pending
from headrace._src.devices.rendezvous import Key, RemoteRendezvous
from headrace._src.graph.control_roles import DEAD

HERE, THERE = (f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2))
OTHER = "/job:worker/replica:0/task:0/device:CPU:1"
ABORTED = AbortedError(None, None, "the step is over")


def key(sender=THERE, receiver=HERE, tensor="x:0", frame=0, iteration=0):
    return Key(sender, 7, receiver, tensor, frame, iteration)


def rendezvous():
    """Return a rendezvous and the list of what it pushes."""
    pushed = []
    step = RemoteRendezvous({HERE, OTHER}.__contains__, lambda *sent: pushed.append(sent))
    return step, pushed


OUT = key(HERE, THERE)


def test_what_other_tasks_receive_is_pushed():
    step, pushed = rendezvous()
    failed = AbortedError(None, None, "no")
    step.send(OUT, 3)
    step.send(key(HERE, OTHER), 4)
    step.send_error(OUT._replace(tensor="y:0"), failed)
    step.send(OUT._replace(tensor="z:0"), DEAD)
    assert pushed == [
        (OUT, 3, None),
        (OUT._replace(tensor="y:0"), None, failed),
        (OUT._replace(tensor="z:0"), DEAD, None),
    ]
    assert step.recv(key(HERE, OTHER)) == 4
    assert not step.in_transit()


def test_a_key_is_pushed_once_except_in_loops():
    step, pushed = rendezvous()
    step.send(OUT, 1)
    with pytest.raises(InternalError, match="sent twice"):
        step.send(OUT, 1)
    for i in range(3):
        step.send(OUT._replace(frame="loop", iteration=i), i)
    assert len(pushed) == 4 and len(step._over) == 1


@pytest.mark.parametrize("value", [3.0, None, DEAD])
@pytest.mark.parametrize("frame", [0, "0;0;while"])
def test_tensors_arrive_before_or_after_their_receivers(value, frame):
    step, _ = rendezvous()
    first, second = (key(frame=frame, iteration=i) for i in range(2))
    assert step.arrive(first, value)
    assert step.recv(first) is value
    pending = step.recv(second)
    assert isinstance(pending, Pending) and not pending.is_over
    assert step.arrive(second, value)
    assert pending.result() is value
    assert not step.in_transit()


def test_an_error_arrives_in_place_of_a_tensor():
    step, _ = rendezvous()
    step.arrive_error(key(), ABORTED)
    with pytest.raises(AbortedError):
        step.recv(key())
    pending = step.recv(key(tensor="y:0"))
    step.arrive_error(key(tensor="y:0"), ABORTED)
    with pytest.raises(AbortedError):
        pending.result()


def test_what_arrives_for_an_aborted_step_is_dropped():
    step, pushed = rendezvous()
    step.arrive(key(), 1)
    waiting = step.recv(key(tensor="y:0"))
    step.abort(ABORTED)
    with pytest.raises(AbortedError):
        waiting.result()
    assert not step.arrive(key(tensor="y:0"), 2)
    assert not step.arrive_error(key(tensor="z:0"), InternalError(None, None, ""))
    assert not step.offer(key(tensor="u:0"), lambda: pytest.fail("it was asked for"))
    assert not step.in_transit()
    for attempt in (lambda: step.send(OUT, 1), lambda: step.recv(key())):
        with pytest.raises(AbortedError):
            attempt()
    assert not pushed


@pytest.mark.parametrize("wrong", [key(receiver=THERE), key(OTHER, HERE)])
def test_tensors_that_are_not_for_this_task_are_refused(wrong):
    step, _ = rendezvous()
    with pytest.raises(InternalError, match="not for here"):
        step.arrive(wrong, 1)
    with pytest.raises(InternalError, match="not for here"):
        step.offer(wrong, lambda: None)


def test_a_tensor_that_arrives_twice_is_refused():
    step, _ = rendezvous()
    step.arrive(key(), 1)
    with pytest.raises(InternalError, match="sent twice"):
        step.arrive(key(), 1)
    step.recv(key())
    with pytest.raises(InternalError, match="sent twice"):
        step.arrive(key(), 1)


def test_an_offered_tensor_is_asked_for_when_it_is_received():
    step, _ = rendezvous()
    asked = []
    step.offer(key(), lambda: asked.append("x"))
    assert not asked
    first = step.recv(key())
    second = step.recv(key(tensor="y:0"))
    assert asked == ["x"]
    step.offer(key(tensor="y:0"), lambda: asked.append("y"))
    assert asked == ["x", "y"]
    step.arrive(key(), 1)
    step.arrive(key(tensor="y:0"), 2)
    assert (first.result(), second.result()) == (1, 2)


def test_an_offer_to_a_receiver_that_was_cancelled_is_not_taken():
    step, _ = rendezvous()
    step.recv(key()).cancel(ABORTED)
    step.offer(key(), lambda: pytest.fail("it was asked for"))
    assert not step._offers
