"""A step counts as brief after some brief runs, and as long after some long ones."""

from headrace._src.runtime.pace import _BRIEF, _LONG, _RUNS, Pace


def opinions(pace, *seconds):
    found = []
    for each in seconds:
        pace.note(each)
        found.append(pace.is_brief)
    return found


def test_a_step_is_brief_once_some_runs_in_succession_were():
    pace = Pace()
    assert not pace.is_brief
    assert opinions(pace, *[_BRIEF] * _RUNS) == [False] * (_RUNS - 1) + [True]


def test_a_run_that_is_not_brief_begins_the_count_again():
    pace = Pace()
    assert not any(opinions(pace, *[_BRIEF] * (_RUNS - 1), _BRIEF * 1.1))
    assert opinions(pace, *[_BRIEF] * _RUNS)[-2:] == [False, True]


def test_a_brief_step_is_long_once_some_runs_in_succession_were():
    pace = Pace()
    opinions(pace, *[0.0] * _RUNS)
    between = (_BRIEF + _LONG) / 2
    assert all(opinions(pace, *[between] * 9, *[2 * _LONG] * (_RUNS - 1), between))
    assert opinions(pace, *[2 * _LONG] * _RUNS) == [True] * (_RUNS - 1) + [False]
