"""What the tests of the neural network kernels share: recorded cases and numeric gradients."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures" / "nn_kernels"
# TensorFlow's CTC loss computes part of its float64 in float32.
TOLERANCE = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-7}


@dataclass(frozen=True)
class Case:
    """One call of a TensorFlow 1.15.5 kernel. Outputs that it leaves unset are not in `outputs`."""

    kernel: str
    attrs: dict
    inputs: list
    outputs: dict


def recorded(family):
    """The cases of one file of scripts/record_nn_kernels.py, as pytest parameters."""
    with np.load(FIXTURES / f"{family}.npz") as file:
        arrays = dict(file)
    cases = []
    for index, case in enumerate(json.loads(str(arrays.pop("cases")))):
        sides = {"in": {}, "out": {}}
        for side, found in sides.items():
            found.update(
                (int(key.rsplit("/", 1)[1]), array)
                for key, array in arrays.items()
                if key.startswith(f"{index}/{side}/")
            )
        inputs = [sides["in"][j] for j in sorted(sides["in"])]
        cases.append(Case(case["kernel"], case["attrs"], inputs, sides["out"]))
    return [pytest.param(case, id=f"{case.kernel}-{i}") for i, case in enumerate(cases)]


def check(case, kernel):
    """Run `kernel` on a recorded case: same dtypes, same shapes, close values."""
    result = kernel(*case.inputs, **case.attrs)
    result = result if isinstance(result, tuple) else (result,)
    for index, expected in case.outputs.items():
        assert result[index].dtype == expected.dtype
        assert result[index].shape == expected.shape
        tolerance = TOLERANCE.get(expected.dtype.name, 0)
        np.testing.assert_allclose(result[index], expected, rtol=tolerance, atol=tolerance)


def numeric_gradient(function, x, weights, step=1e-6):
    """d(sum(weights * function(x)))/dx by central differences, in float64."""
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        values = []
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * step
            values.append(np.sum(weights * function(moved)))
        gradient[index] = (values[0] - values[1]) / (2 * step)
    return gradient


def assert_gradient(actual, function, x, weights):
    np.testing.assert_allclose(actual, numeric_gradient(function, x, weights), rtol=1e-5, atol=1e-7)
