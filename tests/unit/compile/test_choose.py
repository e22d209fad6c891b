"""Timed choices between equivalent kernels: the faster one wins, independent of the caches'
contents.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from headrace._src.compile.codegen.emit import F32
from headrace._src.compile.run import choose
from headrace._src.compile.run.choose import trial_plan


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
        seconds = choose._race({"slow": way(100_000), "fast": way(10)}, threads)
        assert 0 < seconds["fast"] < seconds["slow"]


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
    assert choose._Round(1.0, 1.95).alone(2)
    assert not choose._Round(1.0, 1.2).alone(2)
    assert choose._Round(1.0, 1.0).alone(1)
