"""Placement by cost: constraints hold, one device is never better, and the optimum is near."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace._src.place.choose import choose
from headrace._src.place.coarsen import coarsen
from headrace._src.place.contract import contract
from headrace._src.place.greedy import greedy
from headrace._src.place.improve import improve
from headrace._src.place.simulate import makespan, score, simulate
from tests.property.random_costs import brute_force, random_problem

SEEDS = st.integers(0, 2**32)
CLOSE = 1e-9  # sums in another order


def problem_of(seed, **options):
    return random_problem(random.Random(seed), **options)


@given(SEEDS, st.sampled_from((2, 3)), st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_constraints_hold_and_one_device_is_not_better(seed, devices, memory, clustered):
    problem = problem_of(seed, most=30, devices=devices, memory=memory)
    found = greedy(problem, clustered)
    assert problem.allows(found)
    reached = score(problem, found, clustered)
    alone = [a for a in map(problem.everything_on, range(devices)) if a is not None]
    assert all(reached <= score(problem, a, clustered) for a in alone)
    better = improve(problem, found, 30, clustered)
    assert problem.allows(better)
    assert score(problem, better, clustered) <= reached


@given(SEEDS, st.sampled_from((2, 3)), st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_choice_of_sessions_keeps_the_same_promises(seed, devices, memory, search):
    problem = problem_of(seed, most=20, devices=devices, memory=memory)
    joined, into = contract(problem)
    assert len(into) == len(problem.feasible)
    assert all(set(joined.feasible[n]) <= set(problem.feasible[g]) for g, n in enumerate(into))
    found = choose(problem, search)
    assert problem.allows(found)
    alone = [a for a in map(problem.everything_on, range(devices)) if a is not None]
    assert all(score(problem, found, True) <= score(problem, a, True) for a in alone)


@given(SEEDS, st.sampled_from((2, 3)), st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_timeline_is_a_schedule(seed, devices, clustered):
    """Items wait for their inputs and for their processor, transfers for their lanes; the bounds
    that hold for every schedule hold for this one.
    """
    rng = random.Random(seed)
    problem = random_problem(rng, most=30, devices=devices)
    assignment = tuple(rng.choice(able) for able in problem.feasible)
    timeline = simulate(problem, assignment, clustered)
    assert timeline == simulate(problem, assignment, clustered)
    devices = {d.name: d for d in problem.cluster.devices}
    ran = {r.item: r for r in timeline.ran}
    sent = {(s.tensor, s.target): s for s in timeline.sent}
    assert len(sent) == len(timeline.sent)  # each tensor goes to a device once
    for output in problem.graph.outputs:
        producer = ran[problem.graph.items[output.producer].name]
        for number in output.readers:
            reader = ran[problem.graph.items[number].name]
            if reader.device == producer.device:
                assert producer.end <= reader.start + CLOSE
            else:
                transfer = sent[output.name, reader.device]
                assert producer.end - CLOSE <= transfer.ready <= transfer.start <= transfer.end
                assert transfer.end <= reader.start + CLOSE
    by_processor = [
        [(r.start, r.end) for r in timeline.ran if devices[r.device].processor == name]
        for name in timeline.processors
    ]
    by_lane = [
        [(s.start, s.end) for s in timeline.sent if lane in s.lanes] for lane in timeline.lanes
    ]
    for used in (*by_processor, *by_lane):
        used.sort()
        assert all(a[1] <= b[0] + CLOSE for a, b in pairwise(used))
    assert timeline.makespan == max(r.end for r in timeline.ran)
    assert timeline.makespan == makespan(problem, assignment, clustered)
    assert timeline.makespan >= max(timeline.processors.values()) - CLOSE
    assert timeline.bottleneck[2] <= 1 + CLOSE
    held = [
        sum(i.state for i in problem.graph.items if assignment[i.group] == d)
        for d in range(len(devices))
    ]
    assert all(peak >= least for peak, least in zip(timeline.memory.values(), held, strict=True))
    assert timeline.critical[-1] in {r.item for r in timeline.ran if r.end == timeline.makespan}
    assert ran[timeline.critical[0]].start == 0


@pytest.mark.parametrize(("devices", "most", "count"), [(2, 12, 120), (3, 8, 60), (3, 12, 8)])
def test_the_mean_gap_to_the_optimum_is_small(devices, most, count):
    gaps, searched = [], []
    for seed in range(count):
        problem = problem_of(seed, most=most, devices=devices)
        best = brute_force(problem)
        found = greedy(problem)
        gaps.append(makespan(problem, found) / best - 1)
        searched.append(makespan(problem, improve(problem, found, 300)) / best - 1)
        assert gaps[-1] >= -CLOSE
    assert sum(gaps) / count <= 0.10, gaps
    assert sum(searched) / count <= 0.03, searched


@given(SEEDS, st.sampled_from((2, 3)))
@settings(max_examples=300, deadline=None)
def test_clusters_hold_the_same_work(seed, devices):
    """Each cluster is on one device and comes after those that it reads, and nothing is lost."""
    rng = random.Random(seed)
    problem = random_problem(rng, most=30, devices=devices)
    assignment = tuple(rng.choice(able) for able in problem.feasible)
    step = coarsen(problem, assignment)
    assert sorted(i for inside in step.members for i in inside) == list(range(len(problem.group)))
    for inside, device in zip(step.members, step.where, strict=True):
        assert {assignment[problem.group[i]] for i in inside} == {device}
    for producer, readers in zip(step.producer, step.readers, strict=True):
        assert all(producer < reader for reader in readers)
    sent = simulate(problem, assignment, clustered=True).traffic
    assert sent == simulate(problem, assignment).traffic
