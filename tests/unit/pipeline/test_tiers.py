"""When a step is compiled, and what happens without a compiler."""

import dataclasses
import logging
import types
from contextlib import nullcontext

import pytest

import headrace as tf
from headrace._src.pipeline import Options, clusters, compile_at, finish, optimise, passes, prepare


def flow(size):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, size])
        y = tf.matmul(x, tf.ones([size, size]))
        return optimise(prepare([y], [], [x], Options()), [(size, size)], Options())


def test_the_policy():
    light, heavy = flow(10), flow(500)
    assert compile_at(light, "off") is compile_at(heavy, "off") is None
    assert compile_at(light, "always") == compile_at(heavy, "always") == 1
    assert compile_at(light, "second") == 2
    assert compile_at(heavy, "auto") == compile_at(heavy, "second") == 1


def test_a_step_is_compiled_once_interpreting_has_cost_as_much():
    """At the 32nd run at the latest, sooner if a run takes long."""
    found = [compile_at(flow(size), "auto") for size in (1, 10, 100, 200, 400)]
    assert found[0] == found[1] == 32
    assert found == sorted(found, reverse=True)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 10**7])
        step = optimise(prepare([tf.tanh(x) + 1.0], [], [x], Options()), [(5, 10**7)], Options())
    assert compile_at(step, "auto") == 2


@pytest.mark.parametrize(("count", "expected"), [(10**5, 2), (10**7, 1)])
def test_many_random_numbers_are_heavy(count, expected):
    with tf.Graph().as_default():
        step = prepare([tf.random_normal([count])], [], [], Options())
    assert compile_at(optimise(step, [], Options()), "second") == expected


@pytest.fixture
def compiler(monkeypatch):
    """A compiler that notes the flows it gets and leaves them as they are."""
    seen = []
    passes = types.SimpleNamespace(
        available=lambda: True,
        touching=lambda flow: nullcontext(),
        rewrite=lambda flow: flow,
        separate_lists=lambda flow: flow,
        recompute=lambda flow, limit: flow,
        cluster=lambda flow, tell: seen.append(flow) or flow,
    )
    monkeypatch.setattr(clusters, "import_module", lambda name: passes)
    clusters.has_compiler.cache_clear()
    yield seen
    clusters.has_compiler.cache_clear()


def session_with(jit):
    level = {"off": tf.OptimizerOptions.OFF, "second": 0, "always": tf.OptimizerOptions.ON_1}[jit]
    options = tf.OptimizerOptions(global_jit_level=level)
    return tf.Session(
        config=tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=options))
    )


@pytest.mark.parametrize(
    ("jit", "expected"), [("off", [0, 0, 0]), ("second", [0, 1, 1]), ("always", [1, 1, 1])]
)
def test_a_session_compiles_each_combination_of_shapes_once(jit, expected, compiler):
    with tf.Graph().as_default(), session_with(jit) as session:
        x = tf.placeholder(tf.float32, [None])
        y = x * 2.0
        found = []
        for _ in expected:
            assert session.run(y, {x: [1, 2]}).tolist() == [2, 4]
            found.append(len(compiler))
        assert found == expected
        session.run(y, {x: [1, 2, 3]})
        session.run(y, {x: [1, 2, 3]})
        assert len(compiler) == 2 * expected[-1]


def test_a_light_step_is_compiled_at_its_32nd_run(monkeypatch, compiler):
    auto = dataclasses.replace(passes.settings(), jit="auto")
    monkeypatch.setattr(passes, "settings", lambda: auto)
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None])
        y = x * 2.0
        for run in range(1, 40):
            assert session.run(y, {x: [1, 2]}).tolist() == [2, 4]
            assert len(compiler) == (run >= 32)
        session.run(y, {x: [1, 2, 3]})
        assert len(compiler) == 1


def test_a_missing_library_is_told_once(monkeypatch, caplog):
    def refuse(name):
        raise ImportError("no LLVM here", name="llvmlite")

    monkeypatch.setattr(clusters, "import_module", refuse)
    clusters.has_compiler.cache_clear()
    with caplog.at_level(logging.WARNING, "headrace"):
        for _ in range(2):
            assert finish(flow(3), Options(), compiled=True).instructions
    clusters.has_compiler.cache_clear()
    assert [r.getMessage() for r in caplog.records] == ["steps are not compiled: no LLVM here"]


def test_a_fault_of_the_compiler_costs_no_result(monkeypatch, caplog):
    def fail(flow, tell):
        raise RuntimeError("a fault")

    broken = types.SimpleNamespace(cluster=fail)
    monkeypatch.setattr(clusters, "has_compiler", lambda: True)
    monkeypatch.setattr(clusters, "import_module", lambda name: broken)
    with pytest.raises(RuntimeError, match="a fault"):
        clusters.cluster(flow(3))
    monkeypatch.setattr(clusters, "settings", lambda: types.SimpleNamespace(verify=False))
    given = flow(3)
    with caplog.at_level(logging.WARNING, "headrace"):
        assert clusters.cluster(given) is given
    assert "a step is not compiled: a fault" in caplog.text
