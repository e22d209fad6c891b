"""A step that only runs again: what the machines say at once is what they say of its messages."""

from typing import Any

import pytest

from headrace._src.core import errors
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer
from tests.unit.distributed.cluster import CLIENT, FakeCluster

W0, W1, PS = (f"/job:{job}/replica:0/task:{i}" for job, i in (("w", 0), ("w", 1), ("ps", 0)))


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster(W0, W1, PS)
    for name in (W0, W1, PS):
        made.start(name)
    return made


def ran(cluster: FakeCluster) -> tuple[int, int]:
    """Run a step once; return its session and its handle."""
    session = cluster.open(W0)
    step = cluster.prepare(W0, session)
    cluster.ask(W0, say.RunStep(3, session, step, 0, 0, ()))
    for task in cluster.tasks.values():
        for number in list(task.started):
            task.end(number)
    cluster.deliver()
    assert cluster.answer(3) == say.StepRan(3, 0, ())
    return session, step


def again(cluster: FakeCluster, request: say.RunStep, client: Peer = CLIENT) -> Any:
    """Return what the master says at once of a request to run a step."""
    return cluster.tasks[W0].master.run_again(client, say.encode(request))


def sent(posts: Any) -> list[do.Send]:
    return [do.Send(peer, say.decode(*frame)) for peer, frame in posts]


def test_a_master_sends_the_same(cluster: FakeCluster) -> None:
    session, step = ran(cluster)
    quick = sent(again(cluster, say.RunStep(4, session, step, 0, 0, ())))
    request = say.RunStep(5, session, step, 0, 0, ())
    usual = cluster.tasks[W0].master.received(CLIENT, request, 0.0)
    assert [each.peer for each in quick] == [each.peer for each in usual]
    assert {each.message.number + 1 for each in quick} == {each.message.number for each in usual}
    assert [e.message[1:] for e in quick] == [e.message[1:] for e in usual]


def test_a_step_ends_as_it_does_else(cluster: FakeCluster) -> None:
    session, step = ran(cluster)
    master = cluster.tasks[W0].master
    posts = again(cluster, say.RunStep(4, session, step, 0, 0, ()))
    for last, (peer, frame) in enumerate(posts, 1 - len(posts)):
        worker = cluster.tasks[peer.name].worker
        assert worker.run_again(master.me, frame) is not None
        assert worker.running() == [frame.number]
        ((to, done),) = worker.ended_again(frame.number, ())
        assert (to, worker.running()) == (master.me, [])
        answer = sent(master.done_again(peer, done))
        assert answer == ([do.Send(CLIENT, say.StepRan(4, 0, ()))] if not last else [])
    assert master.held()["runs"] == 0


def test_a_master_looks_closer_at_what_is_not_usual(cluster: FakeCluster) -> None:
    session, step = ran(cluster)
    usual = say.RunStep(4, session, step, 0, 0, ())
    unusual = [
        usual._replace(timeout=1),
        usual._replace(traced=say.TIMES),
        usual._replace(step=step + 1),
        usual._replace(session=session + 1),
        usual._replace(tensors=(1.0,)),  # of other shapes than it is registered for
    ]
    assert [again(cluster, each) for each in unusual] == [None] * len(unusual)
    assert again(cluster, usual, Peer("another client", 1)) is None
    cluster.kill(PS)
    assert again(cluster, usual) is None
    assert cluster.tasks[W0].master.held()["runs"] == 0


def test_a_master_looks_closer_at_ends_that_are_not_usual(cluster: FakeCluster) -> None:
    session, step = ran(cluster)
    master = cluster.tasks[W0].master
    posts = again(cluster, say.RunStep(4, session, step, 0, 0, ()))
    number, worker = posts[0][1].number, posts[0][0]
    done = say.StepDone(number, 0, 0, ())
    for peer, message in (
        (worker._replace(incarnation=77), done),
        (worker, done._replace(number=number + 1)),
        (worker, done._replace(elements=say.USED)),
        (worker, done._replace(traced=1)),
    ):
        assert master.done_again(peer, say.encode(message)) is None
    assert master.done_again(worker, say.encode(done)) == []
    assert master.done_again(worker, say.encode(done)) is None  # it has said so
    other = posts[1][0]
    failed = say.failed(number, errors.InternalError(None, None, "broken"), say.StepFailed)
    master.received(other, failed, 0.0)
    assert master.done_again(posts[2][0], say.encode(done)) is None


def test_a_worker_looks_closer_at_what_is_not_usual(cluster: FakeCluster) -> None:
    session, step = ran(cluster)
    master, worker = cluster.tasks[W0].me, cluster.tasks[W1].worker
    posts = again(cluster, say.RunStep(4, session, step, 0, 0, ()))
    (frame,) = [frame for peer, frame in posts if peer.name == W1]
    message = say.decode(*frame)
    for peer, each in (
        (cluster.tasks[PS].me, message),
        (master, message._replace(traced=say.TIMES)),
        (master, message._replace(graph=message.graph + 1)),
        (master, message._replace(session=message.session + 1)),
    ):
        assert worker.run_again(peer, say.encode(each)) is None
    worker.received(cluster.tasks[PS].me, say.SentTensor(frame.number, 0, 0, "", (1.0,)))
    assert worker.run_again(master, frame) is None  # a tensor of it has come early
    assert worker.run_again(master, frame._replace(number=frame.number + 1)) is not None
    worker.lost(cluster.tasks[PS].me)
    assert worker.ended_again(frame.number + 1, ()) is None  # it was cancelled
    assert worker.run_again(master, frame._replace(number=frame.number + 2)) is None
