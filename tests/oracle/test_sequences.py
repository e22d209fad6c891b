"""Every recorded sequence of steps gives the same results as under TensorFlow 1.15.5, errors
included.
"""

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


MODES = {
    "primitives": {"opt_level": tf.OptimizerOptions.L0},
    "interpreted": {"global_jit_level": tf.OptimizerOptions.OFF},
    "compiled": {"global_jit_level": tf.OptimizerOptions.ON_1},
}


@pytest.mark.filterwarnings("ignore:the graph grew")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", sorted(k for k in RECORDED if k.startswith("references.")))
def test_references_in_every_mode(key, mode):
    options = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(**MODES[mode]))
    config = tf.ConfigProto(graph_options=options)
    assert run_sequence(tf, SEQUENCES[key], config) == RECORDED[key]
