"""Master and worker, without sockets: who is told what, when something fails."""

from math import inf

import numpy as np
import pytest

from headrace._src.core import errors
from headrace._src.core.proto import ConfigProto
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from tests.unit.distributed.cluster import CLIENT, FakeCluster, FakeTask

W0, W1, PS = (f"/job:{job}/replica:0/task:{i}" for job, i in (("w", 0), ("w", 1), ("ps", 0)))


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster(W0, W1, PS)
    for name in (W0, W1, PS):
        made.start(name)
    return made


def running(cluster: FakeCluster, number: int = 3) -> tuple[int, int]:
    """Begin a step on all tasks; return its session and its number."""
    session = cluster.open(W0)
    step = cluster.prepare(W0, session)
    assert cluster.ask(W0, say.RunStep(number, session, step, 0, 0, ())) is None
    (one,) = cluster.tasks[W0].started
    assert all(one in task.started for task in cluster.tasks.values())
    return session, one


def test_a_session_has_the_devices_of_all_tasks(cluster: FakeCluster) -> None:
    cluster.open(W0)
    (opened,) = cluster.answers
    assert [device[0] for device in opened.devices] == [
        f"{task}/device:CPU:0" for task in (W0, W1, PS)
    ]


def test_a_step_ends_when_all_parts_have_ended(cluster: FakeCluster) -> None:
    _, step = running(cluster)
    for name in (W0, W1, PS):
        assert cluster.answer(3) is None
        cluster.tasks[name].end(step)
        cluster.deliver()
    assert cluster.answer(3) == say.StepRan(3, 0, ())


def test_a_graph_is_registered_once_for_each_combination_of_shapes(cluster: FakeCluster) -> None:
    session, step = running(cluster)
    for name in (W0, W1, PS):
        cluster.tasks[name].end(step)
    cluster.deliver()
    before = sum(isinstance(each, do.Build) for each in cluster.tasks[PS].done)
    handle = cluster.prepare(W0, session, 9)
    for number, count in enumerate([0, 1, 0, 1], 10):
        cluster.ask(W0, say.RunStep(number, session, handle, 0, 0, (1.0,) * count))
    after = sum(isinstance(each, do.Build) for each in cluster.tasks[PS].done)
    assert after - before == 2


def test_old_variants_are_deregistered(cluster: FakeCluster) -> None:
    session = cluster.open(W0)
    handle = cluster.prepare(W0, session)
    for count in range(12):
        cluster.ask(W0, say.RunStep(10 + count, session, handle, 0, 0, (1.0,) * count))
        for task in cluster.tasks.values():
            for step in list(task.started):
                task.end(step)
        cluster.deliver()
    forgotten = [each for each in cluster.tasks[PS].done if isinstance(each, do.Forget)]
    assert len(forgotten) == 4


def test_the_first_failure_aborts_the_others_and_is_reported(cluster: FakeCluster) -> None:
    _, step = running(cluster)
    failed = errors.OutOfRangeError(None, None, "the queue is empty")
    cluster.tasks[W1].end(step, error=failed)
    cluster.deliver()
    assert cluster.answer(3) is None  # not before the others have ended
    for name in (W0, PS):
        assert not cluster.tasks[name].cancelled[step].gentle
        cluster.tasks[name].end(step, error=cluster.tasks[name].cancelled[step].error)
    cluster.deliver()
    answer = cluster.answer(3)
    assert (answer.code, answer.message) == (errors.OUT_OF_RANGE, "the queue is empty")


def test_a_worker_that_does_not_end_delays_the_answer_by_a_second_at_most(
    cluster: FakeCluster,
) -> None:
    _, step = running(cluster)
    cluster.tasks[W1].end(step, error=errors.InternalError(None, None, "broken"))
    cluster.deliver()
    cluster.tick(1.01)
    assert cluster.answer(3).message == "broken"


def test_a_lost_task_fails_the_steps_that_it_takes_part_in(cluster: FakeCluster) -> None:
    _, step = running(cluster)
    cluster.kill(PS)
    cluster.deliver()
    for name in (W0, W1):
        cluster.tasks[name].end(step, error=cluster.tasks[name].cancelled[step].error)
    cluster.deliver()
    answer = cluster.answer(3)
    assert answer.code == errors.UNAVAILABLE
    assert PS in answer.message


def test_a_lost_task_does_not_fail_other_steps(cluster: FakeCluster) -> None:
    session = cluster.open(W0)
    cluster.divided = cluster.divided._replace(parts={W0: ({}, b"")}, feeds={W0: ()})
    step = cluster.prepare(W0, session)
    cluster.ask(W0, say.RunStep(3, session, step, 0, 0, ()))
    cluster.kill(W1)
    (number,) = cluster.tasks[W0].started
    cluster.tasks[W0].end(number)
    cluster.deliver()
    assert isinstance(cluster.answer(3), say.StepRan)


def test_a_session_does_not_go_on_with_the_successor_of_a_task(cluster: FakeCluster) -> None:
    session, step = running(cluster)
    for name in (W0, W1, PS):
        cluster.tasks[name].end(step)
    cluster.kill(PS)
    cluster.start(PS)
    cluster.connect(W0, PS)
    handle = cluster.prepare(W0, session, 8)
    answer = cluster.ask(W0, say.RunStep(9, session, handle, 0, 0, ()))
    assert answer.code == errors.ABORTED
    assert "make a new one" in answer.message
    cluster.answers.clear()
    assert cluster.open(W0, 20) != session


def test_a_deadline_cancels_gently_first(cluster: FakeCluster) -> None:
    session = cluster.open(W0)
    handle = cluster.prepare(W0, session)
    cluster.ask(W0, say.RunStep(3, session, handle, 500, 0, ()))
    (step,) = cluster.tasks[W0].started
    cluster.tick(0.6)
    assert all(task.cancelled[step].gentle for task in cluster.tasks.values())
    cluster.tasks[W1].end(step, error=cluster.tasks[W1].cancelled[step].error)
    cluster.deliver()
    assert not cluster.tasks[PS].cancelled[step].gentle
    for name in (W0, PS):
        cluster.tasks[name].end(step, error=cluster.tasks[name].cancelled[step].error)
    cluster.deliver()
    assert cluster.answer(3).code == errors.DEADLINE_EXCEEDED


def test_a_step_that_ends_before_its_cancellation_succeeds(cluster: FakeCluster) -> None:
    session = cluster.open(W0)
    handle = cluster.prepare(W0, session)
    cluster.ask(W0, say.RunStep(3, session, handle, 500, 0, ()))
    (step,) = cluster.tasks[W0].started
    cluster.tick(0.6)
    for name in (W0, W1, PS):
        cluster.tasks[name].end(step)
    cluster.deliver()
    assert isinstance(cluster.answer(3), say.StepRan)


def test_tensors_of_an_old_process_are_dropped(cluster: FakeCluster) -> None:
    old = cluster.tasks[W1].me
    cluster.kill(W1)
    cluster.start(W1)
    _, step = running(cluster)
    worker = cluster.tasks[PS]
    tensor = say.SentTensor(step, 0, 0, "", (1.0,))
    worker.perform(worker.worker.received(old, tensor))
    assert worker.delivered == []
    worker.perform(worker.worker.received(cluster.tasks[W1].me, tensor))
    assert worker.delivered == [(step, tensor)]


def test_tensors_may_come_before_their_step(cluster: FakeCluster) -> None:
    session = cluster.open(W0)
    handle = cluster.prepare(W0, session)
    cluster.tasks[W0].receive(CLIENT, say.RunStep(3, session, handle, 0, 0, ()))
    cluster.deliver()
    (step,) = cluster.tasks[W0].started
    worker, sender = cluster.tasks[PS], cluster.tasks[W0].me
    early = say.SentTensor(step + 1, 0, 0, "", (2.0,))
    worker.perform(worker.worker.received(sender, early))
    assert worker.delivered == []
    cluster.ask(W0, say.RunStep(4, session, handle, 0, 0, ()))
    assert worker.delivered == [(step + 1, early)]


def test_a_lost_client_ends_its_session(cluster: FakeCluster) -> None:
    _, step = running(cluster)
    master = cluster.tasks[W0]
    master.perform(master.master.lost(CLIENT, 0.0))
    cluster.deliver()
    for task in cluster.tasks.values():
        task.end(step, error=task.cancelled[step].error)
    cluster.deliver()
    closed = [each for each in cluster.tasks[PS].done if isinstance(each, do.CloseState)]
    assert len(closed) == 1


def test_a_first_step_waits_for_aborted_steps_of_others(cluster: FakeCluster) -> None:
    _, step = running(cluster)
    master = cluster.tasks[W0]
    master.perform(master.master.lost(CLIENT, 0.0))
    cluster.deliver()
    session = cluster.open(W1, 30)
    handle = cluster.prepare(W1, session, 31)
    cluster.ask(W1, say.RunStep(32, session, handle, 0, 0, ()))
    assert all(list(task.started) == [step] for task in cluster.tasks.values())
    for task in cluster.tasks.values():
        task.end(step, error=task.cancelled[step].error)
        assert len(task.started) == 1


def test_a_session_waits_for_the_tasks_that_its_filters_name(cluster: FakeCluster) -> None:
    cluster.kill(W1)
    config = ConfigProto(device_filters=["/job:ps"])
    message = say.OpenSession(1, config.SerializeToString())
    assert isinstance(cluster.ask(W0, message), say.SessionOpened)
    message = say.OpenSession(2, b"")
    assert cluster.ask(W0, message) is None
    cluster.tick(2.1)
    (notice,) = [each for each in cluster.answers if isinstance(each, say.Notice)]
    assert W1 in notice.text
    assert f"host-of-{W1}:1" in notice.text
    assert "device_filters" in notice.text
    cluster.start(W1)
    cluster.deliver()
    assert isinstance(cluster.answer(2), say.SessionOpened)


def test_a_session_that_may_not_wait_for_long_says_whom_it_waited_for(cluster: FakeCluster) -> None:
    cluster.kill(PS)
    config = ConfigProto(operation_timeout_in_ms=1500).SerializeToString()
    assert cluster.ask(W0, say.OpenSession(1, config)) is None
    master = cluster.tasks[W0].master
    assert master.alarm == 1.5
    cluster.tick(1.4)
    assert cluster.answer(1) is None
    cluster.tick(0.2)
    assert cluster.answer(1).code == errors.DEADLINE_EXCEEDED
    assert f"waiting for {PS}" in cluster.answer(1).message
    assert not any(master.held().values()) and master.alarm == inf


def test_a_task_with_another_specification_is_refused(cluster: FakeCluster) -> None:
    """Only sessions that wait for it fail."""
    opened = cluster.open(W0)
    cluster.kill(W1)
    assert cluster.ask(W0, say.OpenSession(77, b"")) is None
    master = cluster.tasks[W0]
    master.perform(master.master.refused(W1, "it is at a:1 here, and at b:1 there", 0.0))
    cluster.deliver()
    failed = cluster.answer(77)
    assert isinstance(failed, say.Failed) and failed.code == errors.FAILED_PRECONDITION
    assert "a:1" in failed.message and "b:1" in failed.message
    assert cluster.prepare(W0, opened)


def test_a_closed_session_is_answered_and_gone(cluster: FakeCluster) -> None:
    session, step = running(cluster)
    assert cluster.ask(W0, say.CloseSession(5, session)) == say.Done(5)
    for task in cluster.tasks.values():
        task.end(step, error=task.cancelled[step].error)
    cluster.deliver()
    assert cluster.answer(3).code == errors.CANCELLED
    assert cluster.ask(W0, say.RunStep(6, session, 1, 0, 0, ())).code == errors.ABORTED


def test_containers_are_reset_on_every_task(cluster: FakeCluster) -> None:
    cluster.open(W0)
    assert cluster.ask(W0, say.ResetContainers(7, ["c"], [])) == say.Done(7)
    for task in cluster.tasks.values():
        assert do.ResetState(["c"]) in task.done


def test_a_graph_that_cannot_be_built_fails_its_runs(cluster: FakeCluster) -> None:
    cluster.builds_at_once = False
    session = cluster.open(W0)
    handle = cluster.prepare(W0, session)
    cluster.ask(W0, say.RunStep(3, session, handle, 0, 0, ()))
    bad = cluster.tasks[PS]
    bad.perform(bad.worker.built(bad.builds[0].graph, errors.InvalidArgumentError(None, None, "x")))
    cluster.deliver()
    assert cluster.answer(3).code == errors.INVALID_ARGUMENT


def waiting_for_builds(cluster: FakeCluster) -> int:
    """Ask for a run whose graph no worker has built yet; return its session."""
    cluster.builds_at_once = False
    session = cluster.open(W0)
    handle = cluster.prepare(W0, session)
    assert cluster.ask(W0, say.RunStep(3, session, handle, 0, 0, ())) is None
    return session


def assert_nothing_is_held(cluster: FakeCluster) -> None:
    for task in cluster.tasks.values():
        held = {**task.worker.held(), **task.master.held()}
        assert not any(held.values()), held


def test_a_run_that_waits_for_its_graph_is_answered_when_the_session_closes(
    cluster: FakeCluster,
) -> None:
    session = waiting_for_builds(cluster)
    cluster.ask(W0, say.CloseSession(5, session))
    assert cluster.answer(3).code == errors.CANCELLED
    for task in cluster.tasks.values():
        task.perform(task.worker.built(task.builds[0].graph, None))
        assert do.Forget(task.builds[0].graph) in task.done
    cluster.deliver()
    assert_nothing_is_held(cluster)


def test_a_run_that_waits_for_its_graph_can_be_cancelled(cluster: FakeCluster) -> None:
    session = waiting_for_builds(cluster)
    cluster.ask(W0, say.CancelRun(0, session, 3))
    assert cluster.answer(3).code == errors.CANCELLED
    for task in cluster.tasks.values():
        task.perform(task.worker.built(task.builds[0].graph, None))
    cluster.deliver()
    assert all(not task.started for task in cluster.tasks.values())


def test_a_refused_graph_is_deregistered_everywhere(cluster: FakeCluster) -> None:
    waiting_for_builds(cluster)
    good, bad = cluster.tasks[W1], cluster.tasks[PS]
    good.perform(good.worker.built(good.builds[0].graph, None))
    bad.perform(bad.worker.built(bad.builds[0].graph, errors.InternalError(None, None, "x")))
    cluster.deliver()
    assert do.Forget(good.builds[0].graph) in good.done


def test_an_older_process_of_a_task_is_fenced(cluster: FakeCluster) -> None:
    old = cluster.tasks[PS].me
    cluster.kill(PS)
    cluster.start(PS)
    session = cluster.open(W0)
    master = cluster.tasks[W0].master
    cluster.kill(PS)  # even if its successor is gone as well
    (told,) = master.connected(old, 0.0)
    assert told == do.Send(old, say.Fenced(0, f"{PS} has been started again elsewhere"))
    cluster.start(PS)
    assert cluster.open(W0, 10) != session


def test_a_session_goes_on_to_wait_when_an_older_process_of_a_task_comes(
    cluster: FakeCluster,
) -> None:
    old = cluster.tasks[PS].me
    cluster.kill(PS)
    cluster.start(PS)
    cluster.open(W0)
    cluster.kill(PS)
    assert cluster.ask(W0, say.OpenSession(10, b"")) is None
    told = cluster.tasks[W0].master.connected(old, 0.0)
    assert told[1:] == [do.Connect(PS, f"host-of-{PS}:1")]


def test_a_process_that_is_replaced_while_connected_is_fenced(cluster: FakeCluster) -> None:
    cluster.open(W0)
    master, old = cluster.tasks[W0].master, cluster.tasks[PS].me
    new = old._replace(incarnation=old.incarnation + 100)
    assert master.connected(new, 0.0)[0].peer == old
    assert isinstance(master.connected(old, 0.0)[0].message, say.Fenced)


def test_a_task_that_is_connected_again_ends_what_it_had(cluster: FakeCluster) -> None:
    _, step = running(cluster)
    master, worker = cluster.tasks[W0], cluster.tasks[PS]
    master.perform(master.master.lost(worker.me, 0.0))  # the worker does not notice
    cluster.mail.clear()
    cluster.connect(W0, PS)
    cluster.deliver()
    assert step in worker.cancelled
    worker.end(step, error=worker.cancelled[step].error)
    assert worker.worker.held()["sessions of masters"] == 0


def test_a_task_that_goes_while_a_session_is_opened_is_awaited(cluster: FakeCluster) -> None:
    cluster.kill(W1)
    assert cluster.ask(W0, say.OpenSession(1, b"")) is None  # PS has answered, W1 has not
    cluster.kill(PS)
    new = cluster.start(W1).me
    cluster.connect(W0, W1)
    cluster.deliver()
    assert cluster.answer(1) is None
    cluster.start(PS)
    cluster.connect(W0, PS)
    cluster.deliver()
    incarnations = [device[3] for device in cluster.answer(1).devices]
    assert incarnations == [cluster.tasks[name].me.incarnation for name in (W0, W1, PS)]
    assert incarnations[1] == new.incarnation


def test_a_task_that_was_lost_answers_too_late(cluster: FakeCluster) -> None:
    master, old = cluster.tasks[W0], cluster.tasks[PS].me
    master.receive(CLIENT, say.OpenSession(1, b""))
    (asked,) = [m for _, peer, m in cluster.mail if peer == old]
    cluster.kill(PS)
    cluster.start(PS)
    cluster.connect(W0, PS)
    cluster.deliver()
    refused = say.Failed(asked.number, errors.INVALID_ARGUMENT, "no such device")
    master.receive(old, refused)
    cluster.deliver()
    assert isinstance(cluster.answer(1), say.SessionOpened)


def test_an_answer_of_another_process_is_not_counted(cluster: FakeCluster) -> None:
    waiting_for_builds(cluster)
    master = cluster.tasks[W0]
    requests = {each.request.number for each in cluster.tasks[PS].builds}
    old = cluster.tasks[PS].me._replace(incarnation=0)
    for number in requests:
        master.perform(master.master.received(old, say.Done(number), 0.0))
    for name in (W0, W1):
        task = cluster.tasks[name]
        task.perform(task.worker.built(task.builds[0].graph, None))
    cluster.deliver()
    assert not cluster.tasks[W0].started


def test_steps_with_a_task_that_was_lost_are_refused_even_if_it_is_back(
    cluster: FakeCluster,
) -> None:
    session, step = running(cluster)
    for name in (W0, W1, PS):
        cluster.tasks[name].end(step)
    cluster.deliver()
    worker = cluster.tasks[PS]
    worker.perform(worker.worker.lost(cluster.tasks[W1].me))  # tensors may be lost with it
    handle = next(iter(cluster.tasks[W0].master._sessions[session].steps))
    cluster.ask(W0, say.RunStep(9, session, handle, 0, 0, ()))
    assert not worker.started
    for name in (W0, W1):
        task = cluster.tasks[name]
        for each in list(task.started):
            task.end(each, error=task.cancelled[each].error)
    cluster.deliver()
    assert cluster.answer(9).code == errors.ABORTED
    assert W1 in cluster.answer(9).message


def test_a_graph_is_not_used_if_a_task_was_lost_while_it_was_built(cluster: FakeCluster) -> None:
    waiting_for_builds(cluster)
    worker = cluster.tasks[PS]
    worker.perform(worker.worker.lost(cluster.tasks[W1].me))
    worker.perform(worker.worker.built(worker.builds[0].graph, None))
    cluster.deliver()
    assert do.Forget(worker.builds[0].graph) in worker.done
    assert cluster.answer(3).code == errors.ABORTED


def test_a_new_process_of_a_master_ends_the_steps_of_the_old_one(cluster: FakeCluster) -> None:
    _, step = running(cluster)
    worker, old = cluster.tasks[PS], cluster.tasks[W0].me
    new = old._replace(incarnation=old.incarnation + 100)
    opening = say.OpenWorkerSession(1, 1, 0, b"")
    worker.perform(worker.worker.received(new, opening))
    assert step in worker.cancelled
    (refused,) = worker.worker.received(old, opening._replace(session=9))
    assert refused.message.code == errors.ABORTED


def test_masters_that_number_their_steps_alike_are_refused(cluster: FakeCluster) -> None:
    cluster.open(W0)
    worker, other = cluster.tasks[PS], cluster.tasks[W1].me
    twin = other._replace(incarnation=cluster.tasks[W0].me.incarnation)
    (refused,) = worker.worker.received(twin, say.OpenWorkerSession(1, 1, 0, b""))
    assert "number their steps alike" in refused.message.message


def test_tensors_of_steps_that_never_start_are_dropped(cluster: FakeCluster) -> None:
    session = cluster.open(W0)
    worker, master = cluster.tasks[PS], cluster.tasks[W0].me
    number = next(say.step_ids(master.incarnation))
    tensor = say.SentTensor(number, 0, 0, "", (1.0,))
    worker.perform(worker.worker.received(cluster.tasks[W1].me, tensor))
    assert worker.worker.held()["early tensors"] == 1
    cluster.ask(W0, say.CloseSession(5, session))
    assert_nothing_is_held(cluster)
    worker.perform(worker.worker.received(cluster.tasks[W1].me, tensor))
    assert_nothing_is_held(cluster)


def test_a_session_whose_state_cannot_be_made_is_forgotten(cluster: FakeCluster) -> None:
    worker, master = cluster.tasks[PS].worker, cluster.tasks[W0].me
    (opening,) = worker.received(master, say.OpenWorkerSession(7, 1, 0, b""))
    error = errors.InvalidArgumentError(None, None, "no such device")
    (answer,) = worker.not_opened(opening.session, 7, error)
    assert answer == do.Send(master, say.Failed(7, errors.INVALID_ARGUMENT, "no such device"))
    assert not any(worker.held().values())


def test_nothing_is_held_after_a_session(cluster: FakeCluster) -> None:
    session, step = running(cluster)
    cluster.ask(W0, say.ResetContainers(7, [], []))
    cluster.ask(W0, say.CloseSession(5, session))
    for task in cluster.tasks.values():
        task.end(step, error=task.cancelled[step].error)
    cluster.deliver()
    assert_nothing_is_held(cluster)


# -- Elements that steps have taken ----------------------------------------------------------------


def settled(task: FakeTask) -> list[tuple[int, bool]]:
    return [(each.step, each.returns) for each in task.done if isinstance(each, do.Settle)]


@pytest.mark.parametrize("used", [False, True])
def test_a_cancelled_step_puts_elements_back_unless_they_were_used(
    cluster: FakeCluster, used: bool
) -> None:
    session = cluster.open(W0)
    handle = cluster.prepare(W0, session)
    cluster.ask(W0, say.RunStep(3, session, handle, 500, 0, ()))
    (step,) = cluster.tasks[W0].started
    cluster.tasks[PS].end(step, elements=say.HELD)  # it has taken one, sent it, and ended
    cluster.deliver()
    cluster.tick(0.6)
    for name in (W0, W1):
        error = cluster.tasks[name].cancelled[step].error
        cluster.tasks[name].end(step, error=error, elements=say.USED if used else 0)
        assert not settled(cluster.tasks[PS])
        cluster.deliver()
    assert cluster.answer(3).code == errors.DEADLINE_EXCEEDED
    assert settled(cluster.tasks[PS]) == [(step, not used)]
    assert not settled(cluster.tasks[W1])


@pytest.mark.parametrize("fails", [False, True])
def test_elements_of_a_step_that_was_not_cancelled_are_dropped(
    cluster: FakeCluster, fails: bool
) -> None:
    _, step = running(cluster)
    error = errors.InvalidArgumentError(None, None, "bad") if fails else None
    cluster.tasks[PS].end(step, elements=say.HELD)
    cluster.tasks[W1].end(step, error=error)
    cluster.tasks[W0].end(step)
    cluster.deliver()
    assert settled(cluster.tasks[PS]) == [(step, False)]


def test_elements_are_dropped_if_a_task_that_may_have_used_them_is_lost(
    cluster: FakeCluster,
) -> None:
    session = cluster.open(W0)
    handle = cluster.prepare(W0, session)
    cluster.ask(W0, say.RunStep(3, session, handle, 500, 0, ()))
    (step,) = cluster.tasks[W0].started
    cluster.tasks[PS].end(step, elements=say.HELD)
    cluster.deliver()
    cluster.tick(0.6)
    cluster.kill(W1)
    cluster.tasks[W0].end(step, error=cluster.tasks[W0].cancelled[step].error)
    cluster.deliver()
    assert settled(cluster.tasks[PS]) == [(step, False)]


@pytest.mark.parametrize("first", [False, True])
def test_elements_are_dropped_if_nobody_can_say_what_became_of_them(
    cluster: FakeCluster, first: bool
) -> None:
    _, step = running(cluster)
    ps = cluster.tasks[PS]
    if first:
        cluster.kill(W0)
        ps.end(step, error=ps.cancelled[step].error, elements=say.HELD)
    else:
        ps.end(step, elements=say.HELD)
        cluster.kill(W0)
    cluster.deliver()
    assert settled(ps) == [(step, False)]
    assert not ps.worker.held()["steps with elements"]


def test_a_task_that_ends_after_the_grace_period_is_told_to_drop_elements(
    cluster: FakeCluster,
) -> None:
    session, step = running(cluster)
    cluster.ask(W0, say.CancelRun(0, session, 3))
    for name in (W0, W1):
        cluster.tasks[name].end(step, error=cluster.tasks[name].cancelled[step].error)
    cluster.deliver()
    cluster.tick(1.1)
    assert cluster.answer(3).code == errors.CANCELLED
    error = cluster.tasks[PS].cancelled[step].error
    cluster.tasks[PS].end(step, error=error, elements=say.HELD)
    cluster.deliver()
    assert settled(cluster.tasks[PS]) == [(step, False)]


def with_cover(cluster: FakeCluster) -> FakeTask:
    """Let W1's part of a step end with tensors for PS; return W1."""
    parts = dict(cluster.divided.parts)
    parts[W1] = {"covered": True}, b""
    cluster.divided = cluster.divided._replace(parts=parts, covers={PS: (W1,)})
    return cluster.tasks[W1]


def sent_to_the_master(task: FakeTask) -> list[str]:
    kinds = say.StepDone, say.StepFailed
    sends = [each for each in task.done if isinstance(each, do.Send)]
    return [type(each.message).__name__ for each in sends if isinstance(each.message, kinds)]


def test_a_part_whose_end_follows_from_another_ends_without_a_word(cluster: FakeCluster) -> None:
    covered = with_cover(cluster)
    _, step = running(cluster)
    covered.end(step)
    cluster.tasks[W0].end(step)
    cluster.deliver()
    assert cluster.answer(3) is None
    cluster.tasks[PS].end(step)
    cluster.deliver()
    assert cluster.answer(3) == say.StepRan(3, 0, ())
    assert sent_to_the_master(covered) == []


def test_a_part_that_ended_without_a_word_does_not_delay_a_failure(cluster: FakeCluster) -> None:
    covered = with_cover(cluster)
    _, step = running(cluster)
    covered.end(step)
    cluster.tasks[W0].end(step)
    cluster.tasks[PS].end(step, error=errors.OutOfRangeError(None, None, "the queue is empty"))
    cluster.deliver()  # and no clock
    assert cluster.answer(3).code == errors.OUT_OF_RANGE
    assert sent_to_the_master(covered) == ["StepDone"]


def test_a_covered_part_says_that_it_has_failed(cluster: FakeCluster) -> None:
    covered = with_cover(cluster)
    _, step = running(cluster)
    covered.end(step, error=errors.InternalError(None, None, "broken"))
    cluster.deliver()
    assert all(step in cluster.tasks[name].cancelled for name in (W0, PS))


def test_a_covered_part_that_is_traced_sends_its_trace(cluster: FakeCluster) -> None:
    covered = with_cover(cluster)
    session = cluster.open(W0)
    handle = cluster.prepare(W0, session)
    cluster.ask(W0, say.RunStep(3, session, handle, 0, say.TIMES, ()))
    (step,) = covered.started
    stats = np.zeros(4, np.uint8)
    for task in cluster.tasks.values():
        assert cluster.answer(3) is None
        del task.started[step]
        task.perform(task.worker.ended(step, (), None, stats))
        cluster.deliver()
    assert cluster.answer(3).traced == 3
