"""Twenty faults, one after the other, in a cluster that trains; `make chaos` has a hundred."""

import pytest

from headrace._src.core.faults import KINDS, POINTS
from tests.faults.clusters import chaos


@pytest.mark.timeout(300)
def test_training_survives_twenty_faults(tmp_path, capsys):
    report = chaos.run(seed=15, count=20, directory=tmp_path)
    with capsys.disabled():
        print(f"\n{report}")
    assert len(report.faults) == 20


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_has_all_points_and_kinds(seed):
    faults = chaos.plan(seed, 20)
    assert {f.point for f in faults} == set(POINTS)
    assert {f.kind for f in faults} == set(KINDS)
    assert sum(f.kind == "delay" for f in faults) <= 3
    assert [str(f) for f in faults] == [str(f) for f in chaos.plan(seed, 20)]
