"""Masters and workers under a virtual clock and network. A failure names its seed; to replay it:
python -m headrace._src.distributed.simulator SEED.
"""

from collections.abc import Callable
from typing import Any

import pytest

from headrace._src.distributed import instructions as do
from headrace._src.distributed.runs import Runs
from headrace._src.distributed.simulator import Violation, main, simulate
from headrace._src.distributed.worker import Worker


def shortest_violation(seeds: range, enough: int) -> Violation:
    """Return the violation with the shortest log among the first few that are found."""
    found: list[Violation] = []
    for seed in seeds:
        try:
            simulate(seed)
        except Violation as violation:
            found.append(violation)
        if len(found) == enough:
            break
    assert found, f"no invariant was violated in {seeds}"
    return min(found, key=lambda violation: len(violation.log))


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_invariants_hold(first: int) -> None:
    for seed in range(first, first + 50):
        simulate(seed)


def test_runs_succeed_and_fail_in_many_ways() -> None:
    worlds = [simulate(seed) for seed in range(30)]
    runs = [run for world in worlds for run in world.runs.values()]
    assert sum(run.succeeded for run in runs) > 200
    assert sum(run.failed_by is not None for run in runs) > 50
    verbs = {verb for world in worlds for _, _, verb, _ in world.log}
    assert verbs >= {"crashes", "wakes up", "cuts", "dies", "speaks of the past", "stops"}


def test_a_seed_replays_exactly() -> None:
    assert simulate(11).lines() == simulate(11).lines()


def accept_tensors_of_any_process(self: Worker, peer: Any, message: Any) -> list[Any]:
    return [do.Deliver(message.number, message)]


def accept_answers_of_any_process(self: Runs, run: Any, peer: Any) -> bool:
    return False


@pytest.mark.parametrize(
    ("machine", "check", "without"),
    [
        (Worker, "_deliver", accept_tensors_of_any_process),
        (Runs, "_is_old", accept_answers_of_any_process),
    ],
)
def test_a_seed_fails_without_the_check_of_incarnations(
    machine: type[Any],
    check: str,
    without: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(machine, check, without)
    violation = shortest_violation(range(400), enough=2)
    assert f"seed {violation.seed}:" in str(violation)
    assert "stale" in str(violation)
    assert main([str(violation.seed)]) == 1
    assert capsys.readouterr().out == "\n".join([*violation.log, violation.reason, ""])
    monkeypatch.undo()
    simulate(violation.seed)


def test_many_seeds_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["20", "5"]) == 0
    assert capsys.readouterr().out == "5 seeds, 0 failures\n"
