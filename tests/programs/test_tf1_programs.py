"""Programs written for TensorFlow 1 give the numbers that TensorFlow 1.15.5 gives, step by step.

All their ops could be placed on XLA devices, except for those that test_xla_coverage.py names.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import headrace as tf
from headrace._src.pipeline import passes
from tests.programs.test_xla_coverage import EXEMPT, without_kernels
from tests.programs.tf1 import NAMES, run

RECORDED = json.loads((Path(__file__).parent.parent / "fixtures" / "programs.json").read_text())


def test_every_program_is_recorded():
    assert sorted(RECORDED) == NAMES


@pytest.fixture
def only_on_cpus(monkeypatch):
    """The op types without a kernel for XLA devices in the steps that are prepared."""
    found = set()
    run_stage = passes.run_stage

    def watched(stage, form, options):
        result = run_stage(stage, form, options)
        if stage == "prepare":
            found.update(without_kernels(result))
        return result

    monkeypatch.setattr(passes, "run_stage", watched)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_program(name, only_on_cpus):
    numbers, _ = run(tf, name)
    assert only_on_cpus <= set(EXEMPT)
    assert [len(step) for step in numbers] == [len(step) for step in RECORDED[name]]
    for step, (ours, theirs) in enumerate(zip(numbers, RECORDED[name], strict=True)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6, err_msg=f"step {step}")
