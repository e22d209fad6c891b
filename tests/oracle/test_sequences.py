"""Every recorded sequence of steps gives what it gave under TensorFlow 1.15.5, errors included."""

import importlib
import json
from pathlib import Path

import pytest

import headrace as tf
from tests.oracle.sequences import SEQUENCES, run_sequence

FIXTURES = Path(__file__).parent.parent / "fixtures" / "sequences"
RECORDED = {}
for path in sorted(FIXTURES.glob("*.json")):
    importlib.import_module(f"tests.oracle.sequences_{path.stem}")
    RECORDED.update(json.loads(path.read_text()))


def test_all_sequences_are_recorded():
    assert set(RECORDED) == set(SEQUENCES)


@pytest.mark.filterwarnings("ignore:the graph grew")
@pytest.mark.parametrize("key", sorted(RECORDED))
def test_sequence(key):
    assert run_sequence(tf, SEQUENCES[key]) == RECORDED[key]
