"""An observer sees the steps that sessions prepare: their forms, their runs, and nodes that are not
compiled.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.session.watching import observed_by


class Watch:
    def __init__(self, fetches, targets, feeds, options):
        self.names = [t.name for t in fetches], [op.name for op in targets], [t.name for t in feeds]
        self.passes, self.refused, self.seconds, self.reasons = [], [], [], []

    def passed(self, name, form):
        self.passes.append(name)

    def told(self, node, reason):
        self.refused.append((node.name, reason))

    def runs_as_is(self, reason):
        self.reasons.append(reason)

    def ran(self, seconds):
        self.seconds.append(seconds)


@pytest.fixture
def steps():
    """The watches of the steps that a test's sessions prepare."""
    found = []

    def observe(*what):
        found.append(Watch(*what))
        return found[-1]

    with tf.Graph().as_default(), observed_by(observe):
        yield found


def test_runs_of_every_kind_are_counted(steps):
    x = tf.placeholder(tf.float32, [], name="x")
    y = tf.exp(x, name="y")
    with tf.Session() as session:
        for _ in range(3):
            session.run(y, {x: 1.0})
        session.run(y, {x: 1.0}, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE))
        session.make_callable(y, [x])(1.0)
        session.run([y, y], {x: 2.0})
    assert {tuple(map(tuple, step.names)) for step in steps} == {(("y:0",), (), ("x:0",))}
    assert sum(len(step.seconds) for step in steps) == 6
    assert all(0 < s < 60 for step in steps for s in step.seconds)


def test_passes_are_seen_when_they_run(steps):
    x = tf.placeholder(tf.float32, [None], name="x")
    y = tf.tanh(tf.exp(x) * 2.0) + 1.0
    with tf.Session() as session:
        session.run(y, {x: [1.0]})
        (step,) = steps
        assert step.passes[:3] == ["prune", "reread", "place"]
        assert step.passes[-1] == "schedule"
        before = len(step.passes)
        session.run(y, {x: [1.0]})  # comes back, and is compiled
        assert {"rewrite", "cluster", "schedule"} <= set(step.passes[before:])
        before = len(step.passes)
        session.run(y, {x: [1.0]})
        assert len(step.passes) == before
        session.run(y, {x: [1.0, 2.0]})
        assert "specialise" in step.passes[before:]


@pytest.mark.needs_llvm
def test_nodes_that_are_not_compiled_are_told(steps):
    y = tf.strings.as_string(tf.exp(tf.random.uniform([3])), name="text")
    with tf.Session() as session:
        session.run(y)
        session.run(y)
    assert ("text", "no lowering rule") in steps[0].refused


def test_why_a_step_runs_as_it_is(steps):
    x = tf.placeholder(tf.float32, [None], name="x")
    y = tf.exp(x)
    with tf.Session() as session:
        for size in range(1, 10):
            session.run(y, {x: np.ones(size)})
    assert steps[0].reasons == ["it is specialised for 8 shapes of feeds at most"]


def test_an_exception_of_the_watch_ends_the_run(steps, monkeypatch):
    def stop(self, seconds):
        raise SystemExit("enough")

    monkeypatch.setattr(Watch, "ran", stop)
    with tf.Session() as session, pytest.raises(SystemExit, match="enough"):
        session.run(tf.constant(1.0))


def test_without_an_observer_nothing_is_watched():
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.constant(1.0))
        (plan,) = {id(p.variants): p for p in session._plans.values()}.values()
        assert plan.run == plan.variants.run
