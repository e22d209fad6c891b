"""Faults on purpose: when they happen, and what is refused. What they do is tested where processes
can die: tests/faults/clusters.
"""

import pytest

from headrace._src.core import faults


@pytest.fixture
def struck(monkeypatch):
    """The faults that happen, in place of their effects."""
    found = []
    monkeypatch.setattr(faults, "strike", lambda point, kind: found.append((point, kind)))
    monkeypatch.setattr(faults, "_due", {})
    monkeypatch.setattr(faults, "armed", False)
    return found


def test_a_fault_happens_once_when_its_point_is_reached_for_the_nth_time(struck):
    faults.arm("save:kill:3,register:delay:1")
    for _ in range(5):
        faults.reach("save")
    assert struck == [("save", "kill")] and faults.armed
    faults.reach("register")
    assert struck[1:] == [("register", "delay")] and not faults.armed


def test_faults_at_one_point_follow_each_other(struck):
    faults.arm("save:stop:1,save:kill:2")
    for _ in range(4):
        faults.reach("save")
        struck.append("|")
    assert struck == [("save", "stop"), "|", "|", ("save", "kill"), "|", "|"]


def test_other_points_do_nothing(struck):
    faults.reach("restore")
    faults.arm("save:kill:1")
    faults.reach("restore")
    assert not struck


@pytest.mark.parametrize("text", ["save", "save:kill", "save:kill:0", "nowhere:kill:1", "save:x:1"])
def test_a_fault_that_is_none_is_refused(struck, text):
    with pytest.raises(ValueError, match="a fault is point:kind:n"):
        faults.arm(text)
    assert not faults.armed
