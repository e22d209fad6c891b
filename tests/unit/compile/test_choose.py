"""Timed choices between equivalent kernels: the faster one wins, independent of the caches'
contents.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

import headrace as tf
from headrace._src.compile.codegen.emit import F32
from headrace._src.compile.run import choose, second_thoughts
from headrace._src.compile.run.choose import trial_plan
from headrace._src.compile.run.evidence import Evidence
from headrace._src.pipeline import Options, compile_step


@dataclass(frozen=True)
class Multiply:
    """y = x * x for one element, again and again."""

    times: int
    arguments = ("x", "out:y")
    counters = 0

    def scratch(self, threads):
        return 0

    def emit(self, team):
        f, (x, y) = team.f, team.args
        start = f.load(F32, x)
        (value,) = f.loop(0, self.times, lambda _, v: f.fmul(v, start), [start])
        f.store(value, y)


def way(times):
    return trial_plan([(Multiply(times), ("x", "y"))], {"x": 64, "y": 64})


def test_the_faster_way_wins():
    for threads in (1, 2):
        ways = {"slow": lambda: way(100_000), "fast": lambda: way(10)}
        evidence = choose._race(Evidence.none(ways), list(ways), ways, threads, 0.01, 0.04)
        assert 0 < evidence.seconds["fast"] < evidence.seconds["slow"]
        assert evidence.best == "fast"


def test_a_choice_says_what_was_offered_and_how_long_it_took():
    ways = {"slow": lambda: way(100_000), "fast": lambda: way(10)}
    choices = []
    with choose.noting(choices):
        assert choose.fastest("squares", ways, 1) == "fast"
        assert choose.fastest("squares", ways, 1) == "fast"  # recalled, with its times
    first, second = choices
    assert first == second
    assert (first.key, first.chosen) == ("squares", "fast")
    assert first.kernels == {"slow": (Multiply(100_000),), "fast": (Multiply(10),)}
    assert first.seconds["fast"] < first.seconds["slow"]
    assert choose.fastest("squares", ways, 1) == "fast"
    assert len(choices) == 2


def test_strict_accuracy_takes_the_first_way_untimed(monkeypatch):
    monkeypatch.setattr(choose, "settings", lambda: SimpleNamespace(accuracy="strict"))
    choices = []
    with choose.noting(choices):
        assert choose.fastest("k", {"a": lambda: way(9), "b": lambda: way(1)}, 1) == "a"
    assert choices[0].seconds == {}


def test_what_lay_in_memory_before_does_not_slow_a_way():
    """Every format reads the bytes that are there as numbers that are not tiny."""
    for dtype in (np.float16, np.float32, np.float64):
        (value,) = np.full(dtype().itemsize, choose._NUMBERS, np.uint8).view(dtype)
        assert np.finfo(dtype).tiny < value < 2


def test_a_round_that_was_disturbed_is_told_from_one_that_was_not():
    assert choose._was_alone(1.0, 1.95, 2)
    assert not choose._was_alone(1.0, 1.2, 2)
    assert choose._was_alone(1.0, 1.0, 1)


def test_timing_again_adds_to_the_evidence_that_is_kept():
    ways = {"slow": lambda: way(20_000), "fast": lambda: way(10)}
    with choose.asking() as questions:
        choose.fastest("squares again", ways, 1)
        choose.fastest("alone", {"a": lambda: way(1)}, 1)
    (question,) = questions.values()
    assert question.chosen == "fast"
    before = question.evidence
    after = choose.time_again(question)
    assert question.evidence == after
    assert after.rounds["fast"] > before.rounds["fast"]
    assert after.best == "fast"


def test_strict_accuracy_asks_nothing(monkeypatch):
    monkeypatch.setattr(choose, "settings", lambda: SimpleNamespace(accuracy="strict"))
    with choose.asking() as questions:
        choose.fastest("k", {"a": lambda: way(9), "b": lambda: way(1)}, 1)
    assert not questions


def test_a_region_gets_the_kernels_that_turn_out_to_be_faster(monkeypatch):
    """The product's choice is made on wrong evidence; steps go on, and then it is corrected."""
    monkeypatch.setattr(second_thoughts, "_SHARE", {False: 1e9, True: 1e9})
    monkeypatch.setattr(second_thoughts, "_GAIN", -1.0)
    with tf.Graph().as_default():
        x = tf.placeholder("float32", [600, 700], name="x")
        y = tf.matmul(x, tf.constant(np.full((700, 700), 0.5, np.float32)))
        options, forms = Options(jit="always"), {}
        compile_step([y], [], [x], [(600, 700)], options, lambda n, form: forms.update({n: form}))
    (cluster,) = (n for n in forms["cluster"].nodes if n.type == "_Cluster")
    compiled = cluster.definition.kernel
    assert compiled._thoughts is not None  # there are several ways to multiply so much
    native, value = compiled._cluster, np.full((600, 700), 2.0, np.float32)
    for _ in range(6):
        (result,) = compiled([value], ctx=None)
        np.testing.assert_allclose(result, 700.0)
    assert compiled._cluster is not native
