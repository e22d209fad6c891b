"""Every message survives its way through a frame, and what is no message is refused."""

import numpy as np
import pytest

from headrace._src.core import errors
from headrace._src.distributed import messages as say

ONE = np.ones(3, np.float32)
MESSAGES = [
    say.Goodbye(),
    say.Done(1),
    say.Failed(1, 3, "no", "op", "line"),
    say.Fenced(0, "replaced"),
    say.Notice(0, "waiting"),
    say.OpenSession(1, b"config"),
    say.SessionOpened(1, 2, [["/device:CPU:0", "CPU", 0, 9]]),
    say.ExtendGraph(1, 2, 1, b"graph"),
    say.Prepare(1, 2, ["a:0"], ["b"], ["c:0"], 0),
    say.Prepared(1, 7),
    say.RunStep(1, 2, 3, 100, 1, (ONE, None)),
    say.AdvanceRun(1, 2, 3, "run", ["a:0"], ["b:0"], [], (ONE,)),
    say.StepRan(1, 0, (ONE,)),
    say.CancelRun(0, 2, 3),
    say.CloseSession(1, 2),
    say.ResetContainers(1, ["c"], []),
    say.OpenWorkerSession(1, 2, 0, b""),
    say.WorkerSessionOpened(1, [], 123),
    say.CloseWorkerSession(1, 2),
    say.RegisterGraph(1, 2, 3, {"/job:ps/replica:0/task:0": 5}, {"edges": []}, b"flow"),
    say.DeregisterGraph(0, 2, 3),
    say.RunGraph(1 << 63, 2, 3, 0, -5, (ONE,)),
    say.StepDone(1, 0, say.HELD, ()),
    say.SettleStep(1, 1),
    say.StepFailed(1, 3, "no"),
    say.AbortStep(1, 1, "stop", 1),
    say.SentTensor(1, 2, 3, "loop;0", (None,)),
    say.FetchedPiece(1, 2, (ONE,)),
    say.Spec(0, ["/job:ps/replica:0/task:0"], ["127.0.0.1:1"]),
]


def test_there_is_an_example_of_each_message() -> None:
    assert {type(each) for each in MESSAGES} == set(say._KINDS)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_a_message_survives(message: tuple) -> None:
    assert say.decode(*say.encode(message)) == message


BAD = [
    (0, b""),
    (255, b""),
    (say._KIND[say.Prepare], b"not json"),
    (say._KIND[say.Prepare], b"{}"),
    (say._KIND[say.Prepare], b"[1]"),
    (say._KIND[say.Prepare], b'["x", [], [], [], 0]'),
    (say._KIND[say.Prepare], b"[1, [2], [], [], 0]"),
    (say._KIND[say.Prepare], b"[true, [], [], [], 0]"),
    (say._KIND[say.RegisterGraph], b'[1, 2, {"a": "b"}, {}]'),
    (say._KIND[say.RunStep], b"short"),
    (say._KIND[say.SentTensor], b"\xff" * 9),
    (say._KIND[say.OpenSession], b"[]"),
]


@pytest.mark.parametrize(("kind", "head"), BAD)
def test_what_is_no_message_is_refused(kind: int, head: bytes) -> None:
    with pytest.raises(say.Malformed):
        say.decode(kind, 1, head, ())


def test_an_error_keeps_its_class_and_text() -> None:
    error = errors.OutOfRangeError(None, None, "the queue is empty")
    error.add_detail("inputs: x:0 float32[3]")
    message = say.failed(4, error)
    again = say.error_of(message)
    assert (type(again), again.message) == (errors.OutOfRangeError, "the queue is empty")
    assert message.details == "inputs: x:0 float32[3]"
    assert type(say.error_of(say.failed(4, KeyError("x")))) is errors.InternalError


def test_masters_number_their_steps_differently() -> None:
    ids = say.step_ids(1_700_000_000_000_000_000)
    first = next(ids)
    assert next(ids) == first + 1
    assert first >> 40 == say.steps_of(1_700_000_000_000_000_000)
    assert len({say.steps_of(1_700_000_000_000_000_000 + (i << 10)) for i in range(200)}) > 195
