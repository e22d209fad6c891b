"""A hundred steps of every optimizer give TensorFlow 1.15.5's numbers, and its nodes."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import headrace as tf
from tests.unit.train.optimizer_runs import OPTIMIZERS, train

FIXTURE = Path(__file__).parents[2] / "fixtures" / "optimizers.json.gz"
RECORDED = json.loads(gzip.decompress(FIXTURE.read_bytes()))


@pytest.mark.parametrize("kind", ["ref", "resource"])
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_hundred_steps(name, kind):
    names, losses, variables = RECORDED[f"{name}_{kind}"]
    ours, our_losses, our_variables = train(tf, name, kind == "resource")
    assert ours == names
    np.testing.assert_allclose(our_losses, losses, rtol=1e-5, atol=1e-7)
    assert our_variables.keys() == variables.keys()
    for key, value in variables.items():
        np.testing.assert_allclose(our_variables[key], value, rtol=1e-5, atol=1e-6, err_msg=key)
