"""Requests of a partial run, as they come in any order relative to the step's start and fetches."""

from collections.abc import Sequence

import pytest

from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer
from headrace._src.distributed.piecewise_run import PiecewiseRun
from headrace._src.distributed.sessions import Divided, MasterSession, RegisteredGraph, RunningStep

CLIENT, TASK, OTHER = Peer("client", 1), Peer("/job:w/task:0", 1), Peer("/job:w/task:1", 1)


@pytest.fixture
def session() -> MasterSession:
    tasks: dict[str, Peer | None] = {TASK.name: TASK, OTHER.name: OTHER}
    return MasterSession(1, CLIENT, say.OpenSession(1, b""), tasks, set(), {}, 0.0, 0.0)


@pytest.fixture
def run(session: MasterSession) -> RunningStep:
    pieces = {"a": [(TASK.name, 7), (OTHER.name, 8)], "b": [(TASK.name, 9)]}
    graph = RegisteredGraph(3, session, Divided({}, {}, (), pieces=pieces))
    return RunningStep(5, CLIENT, say.RunStep(1, 1, 2, 0, 0, ()), graph, {TASK.name, OTHER.name})


@pytest.fixture
def partial(session: MasterSession) -> PiecewiseRun:
    made = session.partials["run"] = PiecewiseRun(session, CLIENT)
    return made


def asked(
    number: int, feeds: Sequence[str] = (), fetches: Sequence[str] = (), targets: Sequence[str] = ()
) -> say.AdvanceRun:
    values = tuple(1.0 for _ in feeds)
    return say.AdvanceRun(number, 1, 2, "run", list(feeds), list(fetches), list(targets), values)


def test_feeds_wait_for_the_start_and_go_to_each_task_once(
    partial: PiecewiseRun, run: RunningStep
) -> None:
    assert partial.asked(asked(1, ["a"], ["x"])) == []
    sent = partial.started(run)
    assert [(each.peer, each.message.edge) for each in sent] == [(TASK, 7), (OTHER, 8)]
    sent = partial.asked(asked(2, ["b"], ["y"]))
    assert [(each.peer, each.message.edge) for each in sent] == [(TASK, 9)]
    assert not partial.feeds


def test_a_task_that_has_ended_is_not_fed(partial: PiecewiseRun, run: RunningStep) -> None:
    partial.started(run)
    run.left.discard(TASK.name)
    (sent,) = partial.asked(asked(1, ["a"], ["x"]))
    assert sent.peer == OTHER


def test_a_request_is_answered_when_all_its_fetches_have_come(
    partial: PiecewiseRun, run: RunningStep
) -> None:
    partial.asked(asked(1, [], ["x", "y"], ["z"]))
    partial.started(run)
    assert partial.fetched("x", 1.0) == partial.fetched("^z", None) == []
    (answer,) = partial.fetched("y", 2.0)
    assert answer.message == say.StepRan(1, 0, (1.0, 2.0))
    assert not partial.requests and not partial.values


def test_a_run_that_ends_is_forgotten_with_its_last_fetch(
    session: MasterSession, partial: PiecewiseRun, run: RunningStep
) -> None:
    partial.started(run)
    partial.fetched("x", 1.0)
    assert partial.ended() == [] and session.partials
    partial.asked(asked(2, [], ["x"]))
    (answer,) = partial.answer()
    assert answer.message.tensors == (1.0,)
    assert not session.partials


def test_a_run_that_fails_fails_its_requests_and_keeps_the_error(
    session: MasterSession, partial: PiecewiseRun, run: RunningStep
) -> None:
    for number in (1, 2):
        partial.asked(asked(number, [], ["x"]))
    partial.started(run)
    answers = partial.failed(say.Failed(0, 3, "bad"))
    assert [(each.message.number, each.message.message) for each in answers] == [
        (1, "bad"),
        (2, "bad"),
    ]
    assert partial.over and partial.error is not None and not partial.requests
    assert session.partials["run"] is partial
