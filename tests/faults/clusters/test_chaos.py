"""Twenty faults, one after the other, in a cluster that trains; `make chaos` has a hundred."""

from types import SimpleNamespace

import numpy as np
import pytest

from headrace._src.core.faults import KINDS, POINTS
from tests.faults.clusters import chaos, training


@pytest.mark.timeout(300)
def test_training_survives_twenty_faults(tmp_path, record_property):
    report = chaos.run(seed=15, count=20, directory=tmp_path)
    record_property("report", f"chaos, {report}")
    assert len(report.faults) == 20


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_has_all_points_and_kinds(seed):
    faults = chaos.plan(seed, 20)
    assert {f.point for f in faults} == set(POINTS)
    assert {f.kind for f in faults} == set(KINDS)
    assert sum(f.kind == "delay" for f in faults) <= 3
    assert [str(f) for f in faults] == [str(f) for f in chaos.plan(seed, 20)]


class Run:
    """A run of a cluster that is over, as its checks see it."""

    def __init__(self, directory, *events):
        self.directory = directory
        chief = SimpleNamespace(job="worker", index=0, name="worker0", events=[])
        self.all = [chief]
        for t, (event, about) in enumerate(events):
            chief.events.append({"event": event, "t": float(t), **about})

    def events(self, kind=None):
        (chief,) = self.all
        return [(e["t"], chief, e) for e in chief.events if kind in (None, e["event"])]


def saved_state(directory, counts, damage=None):
    """The final state of two ps that have applied these updates."""
    states = []
    for ps in range(chaos.PS):
        log = np.zeros((chaos.WORKERS, 10, training.WIDTH), np.float32)
        for (worker, batch), times in counts.items():
            log[worker, batch, :4] = times, 0, times * batch, times * worker
        log = log.reshape(-1, training.WIDTH)
        states.append(np.concatenate([training.replay(counts, ps), log]))
    if damage is not None:
        states[1][damage] += 1
    np.savez(directory / "final.npz", *states, np.int64(3))


COUNTS = {(0, 1): 1, (0, 2): 2, (1, 7): 1}
BEGUN = [("created", {"step": 0}), ("begun", {"batch": 2}), ("applied", {"batch": 2, "step": 1})]


def test_the_checks_accept_what_is_right(tmp_path):
    saved_state(tmp_path, COUNTS)
    checked = chaos.Chaos(Run(tmp_path, *BEGUN), seed=0)
    checked._check_state()
    assert checked.report.updates == 4


@pytest.mark.parametrize("damage", [(5, 3), (training.PARAMETERS + 1, 0)])
def test_the_checks_notice_an_update_that_the_log_lacks(tmp_path, damage):
    saved_state(tmp_path, COUNTS, damage)
    with pytest.raises(AssertionError):
        chaos.Chaos(Run(tmp_path, *BEGUN), seed=0)._check_state()


def test_the_checks_notice_an_acknowledged_update_that_is_lost(tmp_path):
    saved_state(tmp_path, {(0, 1): 1, (1, 7): 1})
    with pytest.raises(AssertionError, match="worker0"):
        chaos.Chaos(Run(tmp_path, *BEGUN), seed=0)._check_state()


def test_the_checks_notice_a_checkpoint_that_is_lost(tmp_path):
    history = [("saved", {"step": 20}), ("saved", {"step": 40}), ("created", {"step": 20})]
    with pytest.raises(AssertionError, match="checkpoint of step 40 was lost"):
        chaos.Chaos(Run(tmp_path, *history), seed=0)._check_checkpoints()
