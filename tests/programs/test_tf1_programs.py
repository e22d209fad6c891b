"""Programs written for TensorFlow 1 give the numbers that TensorFlow 1.15.5 gives, step by step."""

import json
from pathlib import Path

import numpy as np
import pytest

import headrace as tf
from tests.programs.tf1 import NAMES, run

RECORDED = json.loads((Path(__file__).parent.parent / "fixtures" / "programs.json").read_text())


def test_every_program_is_recorded():
    assert sorted(RECORDED) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_program(name):
    numbers, _ = run(tf, name)
    assert [len(step) for step in numbers] == [len(step) for step in RECORDED[name]]
    for step, (ours, theirs) in enumerate(zip(numbers, RECORDED[name], strict=True)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6, err_msg=f"step {step}")
