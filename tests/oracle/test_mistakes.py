"""Every recorded mistake raises the same error as in TensorFlow 1.15.5: of its class, with
TensorFlow's phrase in the first line.
"""

import json
from pathlib import Path

import pytest

import headrace as tf
from tests.oracle.mistakes import MISTAKES, run_mistake

RECORDED = json.loads(
    (Path(__file__).parent.parent / "fixtures" / "mistakes.json").read_text(encoding="utf-8")
)


def test_all_mistakes_are_recorded():
    assert set(RECORDED) == set(MISTAKES)


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_mistake(name):
    recorded, found = RECORDED[name], run_mistake(tf, name)
    phrases = MISTAKES[name][1] or [recorded["line"]]
    for phrase in phrases:
        assert phrase in recorded["line"]
        assert phrase in found["line"]
    # A shape error is both of what TensorFlow raises while a graph is built and while it runs.
    assert recorded["type"] in found["kinds"]
    for key in ("code", "op", "node_def"):  # ours may know an op where TensorFlow's doesn't
        assert recorded.get(key) in (None, found.get(key))
