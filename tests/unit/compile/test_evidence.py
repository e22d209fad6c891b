"""Which way is the fastest, decided on injected timings: no noise may lead to a slow choice."""

import random

import pytest

from headrace._src.compile.run.evidence import Evidence, TimedRun, gather
from headrace._src.compile.run.second_thoughts import SecondThoughts


class Machine:
    """Ways with known times, on a machine whose clock moves only when one of them runs.
    `noise(time of day, generator)` gives the factor by which a run takes longer, and whether it was
    undisturbed.
    """

    def __init__(self, ways, noise, seed=0):
        self.ways, self.noise = ways, noise
        self.clock, self.random = 0.0, random.Random(seed)

    def now(self):
        return self.clock

    def time(self, name):
        factor, alone = self.noise(self.clock, self.random)
        seconds = self.ways[name] * factor
        self.clock += seconds
        return TimedRun(seconds, alone)

    def race(self, evidence=None, patience=0.1, enough=0.01):
        """Time all ways, or, if there is evidence, those that may be the fastest."""
        names = evidence.leading if evidence else list(self.ways)
        evidence = evidence or Evidence.none(self.ways)
        return gather(evidence, names, self.time, self.now, 3, enough, patience)


def quiet(now, r):
    return r.uniform(1.0, 1.01), True


def bursts(now, r):
    """Half of the runs share a core with something else."""
    return (r.uniform(1.2, 3.0), False) if r.random() < 0.5 else quiet(now, r)


def hog(now, r):
    """A busy process on every core: no run is undisturbed."""
    return r.uniform(1.3, 2.5), False


def hog_at_first(now, r):
    return hog(now, r) if now < 0.3 else quiet(now, r)


def bursts_and_hog_at_first(now, r):
    """A heavy load at first, in which some run is lucky."""
    return (r.uniform(1.5, 4.0), False) if now < 1 and r.random() < 0.8 else quiet(now, r)


def slow_clock(now, r):
    """The processor changes its frequency, for all ways alike."""
    return (1.3 if int(now * 100) % 2 else 1.0) * r.uniform(1.0, 1.01), True


@pytest.mark.parametrize("noise", [quiet, bursts, slow_clock])
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_noise_does_not_lead_to_a_slow_choice(noise, order):
    times = {"a": 0.001, "b": 0.00115}
    for seed in range(50):
        machine = Machine({name: times[name] for name in order}, noise, seed)
        evidence = machine.race()
        assert evidence.is_clear
        assert evidence.best == "a"


def test_a_clear_result_takes_few_rounds():
    evidence = Machine({"a": 0.01, "b": 0.02}, quiet).race()
    assert dict(evidence.rounds) == {"a": 3, "b": 3}


def test_a_race_is_extended_while_the_result_is_unclear():
    evidence = Machine({"a": 0.001, "b": 0.0012}, bursts).race()
    still = Machine({"a": 0.001, "b": 0.0012}, quiet).race()
    assert evidence.is_clear and still.is_clear
    beside_a_hog = Machine({"a": 0.004, "b": 0.0045}, hog).race()
    assert beside_a_hog.rounds["a"] > still.rounds["a"] // 2
    assert not beside_a_hog.is_clear


def test_a_way_that_is_far_behind_may_vary():
    def varies(now, r):
        return r.uniform(1.0, 1.5), True

    machine = Machine({"a": 0.004, "b": 0.02}, varies)
    evidence = machine.race()
    assert evidence.best == "a" and evidence.rounds["b"] == 3


def test_patience_ends():
    machine = Machine({"a": 0.004, "b": 0.0045}, hog)
    machine.race(patience=0.1)
    assert 0.1 < machine.clock < 0.2


def test_later_samples_correct_a_choice_that_was_made_beside_a_hog():
    wrong = 0
    for seed in range(50):
        machine = Machine({"a": 0.02, "b": 0.022}, hog_at_first, seed)
        evidence = machine.race()
        assert not evidence.is_clear
        wrong += evidence.best != "a"
        machine.clock = 1.0
        for _ in range(3):
            evidence = machine.race(evidence, patience=0.02)
        assert evidence.is_clear and evidence.best == "a"
    assert wrong  # else the model of a hog is too gentle to show anything


def test_ways_that_are_nearly_equal_are_a_clear_tie():
    evidence = Machine({"a": 0.001, "b": 0.00101}, quiet).race()
    assert evidence.is_clear
    assert evidence.loss("a") < 0.00003


def test_only_ways_that_may_win_are_timed_again():
    evidence = Machine({"a": 0.001, "b": 0.0011, "c": 0.01}, quiet).race()
    assert evidence.leading == ["a", "b"]
    evidence = Machine({"a": 0.001, "b": 0.002, "c": 0.01}, quiet).race()
    assert evidence.leading == ["a", "b"]


def test_a_way_that_was_always_disturbed_is_timed_again():
    evidence = Evidence.none(["a", "b", "c"])
    for i in range(6):
        evidence = evidence.plus("a", TimedRun(0.0017 + 0.0002 * i, False))
        evidence = evidence.plus("b", TimedRun(0.0010, True)).plus("c", TimedRun(0.0011, True))
    assert not evidence.is_clear and set(evidence.leading) == {"a", "b", "c"}
    for _ in range(2):
        evidence = evidence.plus("a", TimedRun(0.0016, True))
    assert evidence.is_clear and evidence.leading == ["b", "c"]


def test_none_of_many_ways_is_given_up_because_of_a_hog():
    ways = {"a": 0.02, "b": 0.022, "c": 0.028, "d": 0.1}
    for seed in range(50):
        machine = Machine(ways, bursts_and_hog_at_first, seed)
        evidence = machine.race()
        machine.clock = 1.0
        for _ in range(4):
            evidence = machine.race(evidence, patience=0.02)
        assert evidence.is_clear and evidence.best == "a"


def test_evidence_survives_the_cache():
    evidence = Machine({"a": 0.001, "b": 0.002}, bursts).race()
    stored = evidence.as_json()
    assert Evidence.from_json(stored, ["a", "b"]) == evidence
    assert Evidence.from_json(stored, ["a", "c"]) is None
    for other in (None, {"a": 0.1, "b": 0.2}, {**stored, "version": 1}, [], {"version": 2}):
        assert Evidence.from_json(other, ["a", "b"]) is None


# -- Second thoughts -------------------------------------------------------------------------------


class Asked:
    """A question with a machine of its own."""

    def __init__(self, key, chosen, machine, patience=0.1):
        self.key, self.chosen, self.machine = key, chosen, machine
        self.evidence = machine.race(patience=patience)


def again(question):
    question.evidence = question.machine.race(question.evidence, patience=0.02)
    return question.evidence


def steps_until_replanned(thoughts, seconds, most=2000):
    clock = iter(range(10**6))
    for step in range(most):
        if thoughts.after(seconds) and thoughts.visit(lambda: next(clock) * 0.02):
            return step
    return None


def test_a_wrong_choice_is_found_within_a_minute_of_steps():
    for seed in range(20):
        machine = Machine({"a": 0.004, "b": 0.006}, hog_at_first, seed)
        question = Asked("q", "b", machine)
        machine.clock = 1.0
        step = steps_until_replanned(SecondThoughts([question], again), 0.1)
        assert step is not None and step * 0.1 < 60


def test_what_hardly_counts_is_left_as_it_is():
    question = Asked("q", "b", Machine({"a": 0.0010, "b": 0.0011}, quiet))
    thoughts = SecondThoughts([question], again)
    assert steps_until_replanned(thoughts, 0.1) is None  # a thousandth of a step
    assert thoughts.is_done


def test_unclear_questions_come_first_and_timing_takes_a_small_share():
    clear = Asked("clear", "a", Machine({"a": 0.001, "b": 0.002}, quiet))
    unclear = Asked("unclear", "a", Machine({"a": 0.004, "b": 0.0045}, hog))
    order = []

    def timed(question):
        order.append(question.key)
        return again(question)

    thoughts = SecondThoughts([clear, unclear], timed)
    clock = iter(range(10**6))
    for _ in range(100):  # 10 seconds of steps
        if thoughts.after(0.1):
            thoughts.visit(lambda: next(clock) * 0.02)
    assert order and set(order) == {"unclear"}
    assert len(order) * 0.02 <= 0.05 * 100 * 0.1


def test_the_evidence_is_looked_at_only_after_a_visit(monkeypatch):
    """A look at it takes as long as a tenth of a short step."""
    question = Asked("q", "a", Machine({"a": 0.004, "b": 0.0045}, hog))
    thoughts = SecondThoughts([question], again)
    looks = []
    monkeypatch.setattr(SecondThoughts, "_next", lambda self: looks.append(self))
    for _ in range(100):
        assert not thoughts.is_done
        thoughts.after(0.0001)
    assert not looks
    thoughts.visit(lambda: 0.0)
    assert len(looks) == 1


def test_the_longest_work_comes_first():
    works = {"short": 0.001, "long": 0.02, "middle": 0.005}
    asked = [Asked(n, "a", Machine({"a": s, "b": 1.1 * s}, hog)) for n, s in works.items()]
    order = []

    def timed(question):
        order.append(question.key)
        return question.evidence

    thoughts = SecondThoughts(asked, timed)
    for _ in range(3):
        thoughts.visit(lambda: 0.0)
    assert order == ["long", "middle", "short"]
