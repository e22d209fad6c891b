"""A hundred steps of every optimizer give TensorFlow 1.15.5's numbers, and its nodes."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import headrace as tf
from tests.unit.train.optimizer_runs import CONTRIB, runs, train

FIXTURE = Path(__file__).parents[2] / "fixtures" / "optimizers.json.gz"
RECORDED = json.loads(gzip.decompress(FIXTURE.read_bytes()))


@pytest.mark.parametrize(("name", "use_resource"), runs())
def test_hundred_steps(name, use_resource):
    names, losses, variables = RECORDED[f"{name}_{'resource' if use_resource else 'ref'}"]
    ours, our_losses, our_variables = train(tf, name, use_resource)
    assert name in CONTRIB or ours == names
    np.testing.assert_allclose(our_losses, losses, rtol=1e-5, atol=1e-7)
    assert our_variables.keys() == variables.keys()
    for key, value in variables.items():
        np.testing.assert_allclose(our_variables[key], value, rtol=1e-5, atol=1e-6, err_msg=key)
