"""The rendezvous of a step on several tasks: tensors meet their receivers whichever comes first,
and nothing is kept for steps that have ended.
"""

import pytest

from headrace._src.core.errors import AbortedError, InternalError
from headrace._src.devices.pending import Pending
from headrace._src.devices.rendezvous import Key, RemoteRendezvous
from headrace._src.devices.rendezvous_table import RendezvousTable
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


# -- The steps of a task ---------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def table(**limits):
    clock = Clock()
    made = []

    def make(step):
        made.append(step)
        return rendezvous()[0]

    return RendezvousTable(make, clock=clock, **limits), clock, made


def test_a_step_has_one_rendezvous_from_its_first_mention_to_its_end():
    steps, _, made = table()
    early = steps.mention(1)
    early.arrive(key(), 5)
    assert steps.mention(1) is early and steps.early() == [1] and steps.running() == []
    assert steps.start(1) is early and steps.mention(1) is early
    assert early.recv(key()) == 5
    assert steps.start(2) is steps.mention(2)
    assert made == [1, 2] and steps.running() == [1, 2] and steps.early() == []
    waiting = early.recv(key(tensor="y:0"))
    steps.end(1)
    with pytest.raises(AbortedError, match="has ended"):
        waiting.result()
    assert steps.mention(1) is None and steps.running() == [2]


def test_a_step_starts_once_and_not_after_its_end():
    steps, _, _ = table()
    steps.start(1)
    with pytest.raises(AbortedError, match="is running"):
        steps.start(1)
    steps.end(2, ABORTED)  # it was aborted elsewhere before it came here
    with pytest.raises(AbortedError, match="has ended"):
        steps.start(2)
    waiting = steps.mention(3).recv(key())
    steps.end(3, ABORTED)
    with pytest.raises(AbortedError, match="the step is over"):
        waiting.result()


def test_steps_that_never_start_are_dropped_by_age():
    steps, clock, _ = table(patience=10.0)
    first = steps.mention(1)
    first.arrive(key(), 1)
    clock.now = 8.0
    steps.mention(2)
    steps.mention(1)  # another tensor does not make it younger
    clock.now = 11.0
    assert steps.expire() == [1]
    assert not first.in_transit() and steps.mention(1) is None
    steps.start(2)
    clock.now = 100.0
    assert steps.expire() == [] and steps.running() == [2]
    early = steps.mention(3)
    clock.now = 200.0
    steps.mention(4)
    assert steps.early() == [4] and not early.arrive(key(), 1)


def test_the_number_of_steps_that_have_not_started_is_limited():
    steps, _, _ = table(most_early=3)
    found = [steps.mention(i) for i in range(5)]
    assert steps.early() == [2, 3, 4]
    assert not found[0].arrive(key(), 1) and found[2].arrive(key(), 1)
    for i in range(10, 20):
        steps.start(i)
    assert steps.early() == [2, 3, 4] and len(steps.running()) == 10


def test_the_memory_of_ended_steps_is_limited():
    steps, _, _ = table(remembered=100)
    for i in range(1000):
        steps.start(i)
        steps.end(i)
    assert len(steps._ended) == 100
    assert steps.mention(999) is None and steps.mention(950) is None
