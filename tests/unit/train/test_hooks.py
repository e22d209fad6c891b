"""Hooks at their exact steps and times: what the recorded traces (tests/oracle/sequences_hooks.py)
leave to chance.
"""

import json
import os
from types import SimpleNamespace

import pytest

import headrace as tf
from headrace._src.train.sessions.hooks import stopping, timers


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph
    tf.summary.FileWriterCache.clear()


@pytest.fixture
def lines(caplog):
    before = tf.get_logger().level
    tf.logging.set_verbosity(tf.logging.INFO)
    yield lambda: [record.getMessage() for record in caplog.records]
    tf.get_logger().setLevel(before)


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances only when told to."""
    found = SimpleNamespace(now=1000.0)
    found.monotonic = lambda: found.now
    monkeypatch.setattr(timers, "time", found)
    return found


def counter():
    step = tf.train.get_or_create_global_step()
    return step, tf.assign_add(step, 1)


def run_steps(hooks, advance, count, clock=None):
    """Run some steps, of a second each if there is a clock."""
    with tf.train.MonitoredSession(hooks=hooks) as session:
        for _ in range(count):
            if clock is not None:
                clock.now += 1
            session.run(advance)


def summaries(directory):
    tf.summary.FileWriterCache.clear()
    found = []
    for name in sorted(os.listdir(directory)):
        if "tfevents" in name:
            for event in tf.train.summary_iterator(os.path.join(directory, name)):
                found += [(event.step, v.tag, v.simple_value) for v in event.summary.value]
    return found


# -- Steps -----------------------------------------------------------------------------------------


@pytest.fixture(params=["before", "after"])
def advanced(request):
    """Return the operation that advances the step, made before or after the hooks' read of it, and
    run in that order.
    """
    if request.param == "after":
        step = tf.train.get_or_create_global_step()
        tf.train.StopAtStepHook(1).begin()
    step, advance = counter()
    return step, advance


def test_summaries_every_three_steps(tmp_path, advanced):
    step, advance = advanced
    with tf.control_dependencies([advance]):
        value = tf.summary.scalar("value", tf.cast(step.read_value(), tf.float32))
    run_steps([tf.train.SummarySaverHook(3, None, str(tmp_path), summary_op=value)], advance, 8)
    assert summaries(tmp_path) == [(1, "value", 1.0), (4, "value", 4.0), (7, "value", 7.0)]


def test_checkpoints_every_three_steps(tmp_path, advanced):
    _, advance = advanced
    saver = tf.train.Saver(max_to_keep=None)
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
    run_steps([tf.train.CheckpointSaverHook(str(tmp_path), save_steps=3)], advance, 8)
    saved = sorted(int(path.name.split("-")[1][0]) for path in tmp_path.glob("*.index"))
    assert saved == [0, 3, 6, 8]


def test_stop_at_the_step(advanced):
    step, advance = advanced
    final = tf.train.FinalOpsHook(step)
    with tf.train.MonitoredSession(hooks=[tf.train.StopAtStepHook(3), final]) as session:
        while not session.should_stop():
            session.run(advance)
    assert final.final_ops_values == 3


def test_profiles_every_three_steps(tmp_path, advanced):
    _, advance = advanced
    run_steps([tf.train.ProfilerHook(3, output_dir=str(tmp_path))], advance, 8)
    found = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert sorted(found) == ["timeline-3.json", "timeline-6.json"]
    for trace in found.values():
        assert any(event["ph"] == "X" for event in trace["traceEvents"])


# -- Seconds ---------------------------------------------------------------------------------------


def test_checkpoints_every_three_seconds(tmp_path, clock):
    _, advance = counter()
    tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver(max_to_keep=None))
    run_steps([tf.train.CheckpointSaverHook(str(tmp_path), save_secs=3)], advance, 7, clock)
    saved = sorted(int(path.name.split("-")[1][0]) for path in tmp_path.glob("*.index"))
    assert saved == [0, 3, 6, 7]


def test_steps_per_second(tmp_path, clock, lines):
    _, advance = counter()
    run_steps([tf.train.StepCounterHook(2, output_dir=str(tmp_path))], advance, 6, clock)
    assert [line for line in lines() if "/sec" in line] == ["global_step/sec: 1"] * 2
    assert summaries(tmp_path) == [(3, "global_step/sec", 1.0), (5, "global_step/sec", 1.0)]


def test_logs_every_two_seconds(clock, lines):
    _, advance = counter()
    run_steps([tf.train.LoggingTensorHook({"n": advance}, every_n_secs=2)], advance, 5, clock)
    assert [line for line in lines() if line.startswith("n =")] == [
        "n = 1",
        "n = 3 (2.000 sec)",
        "n = 5 (2.000 sec)",
    ]


# -- Waiting ---------------------------------------------------------------------------------------


def test_a_waiting_hook_tells_how_far_others_are(lines, monkeypatch):
    step, _ = counter()
    further = tf.assign_add(step, 1500)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        sleep = SimpleNamespace(sleep=lambda seconds: session.run(further))
        monkeypatch.setattr(stopping, "time", sleep)
        hook = tf.train.GlobalStepWaiterHook(3000)
        hook.begin()
        context = tf.train.SessionRunContext(tf.train.SessionRunArgs(step), session)
        hook.before_run(context)
        assert session.run(step) == 3000
    assert lines() == [
        "Waiting for global step 3000 before starting training.",
        "Waiting for global step 3000 before starting training. Current step is 1500.",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Either every_secs or every_steps should be provided"),
        ({"save_secs": 1, "save_steps": 1}, "Can not provide both every_secs and every_steps"),
    ],
)
def test_a_profiler_checks_its_arguments_before_it_writes(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        tf.train.ProfilerHook(output_dir=str(tmp_path), **options)
    assert not list(tmp_path.iterdir())


def test_a_profiler_writes_to_the_working_directory_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tf.train.get_or_create_global_step()
    advance = tf.assign_add(tf.train.get_global_step(), 1)
    with tf.train.MonitoredSession(hooks=[tf.train.ProfilerHook(save_steps=1)]) as session:
        for _ in range(3):
            session.run(advance)
    assert list(tmp_path.glob("timeline-*.json"))
    tf.summary.FileWriterCache.clear()
