"""Gradients at poles, at the ends of domains, at infinities and NaNs are TensorFlow's, most of all
where nothing arrives: behind a mask they are 0 for the functions whose TensorFlow gradient is.
"""

from pathlib import Path

import numpy as np
import pytest

import headrace as tf
from tests.oracle.singular_gradients import CASES, run

FIXTURE = Path(__file__).parents[2] / "fixtures" / "singular_gradients.npz"
RECORDED = np.load(FIXTURE)
TOLERANCE = {"float16": 2e-3, "float32": 2e-5, "complex64": 2e-5}


@pytest.mark.parametrize("jit", [-1, 1], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_gradients_at_singular_points_are_tensorflows(name, jit):
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = jit
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        found = dict(run(tf, session, name))
    assert found
    for key, value in found.items():
        expected = RECORDED[f"{name}/{key}"]
        assert value.dtype == expected.dtype, key
        tolerance = TOLERANCE.get(expected.dtype.name, 1e-9)
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance, err_msg=key)
