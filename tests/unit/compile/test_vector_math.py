"""Elementary functions against NumPy's extended precision: dense samples and special values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from headrace._src.compile.codegen import vector_math
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.lowering.pointwise import record
from tests.unit.compile.probe import Probe, apply

LONG = np.longdouble


@pytest.fixture(autouse=True)
def _quietly():
    """Overflow and invalid operations are what is tested here."""
    with np.errstate(all="ignore"):
        yield


def _sigmoid(x):
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))


def _erf(x):
    return np.array([math.erf(v) for v in x.astype(np.float64)], LONG)


# opcode -> (reference, allowed units in the last place for float32 and float64); vector_math's
# table, with half a unit more for erf in float64, whose reference is rounded.
FUNCTIONS = {
    "exp": (np.exp, 1.0, 1.0),
    "expm1": (np.expm1, 1.5, 2.0),
    "log": (np.log, 1.0, 1.0),
    "log1p": (np.log1p, 1.5, 1.5),
    "tanh": (np.tanh, 1.5, 2.5),
    "sigmoid": (_sigmoid, 2.5, 2.5),
    "erf": (_erf, 1.5, 2.5),
    "sin": (np.sin, 2.0, 1.0),
    "cos": (np.cos, 2.0, 1.0),
    "sqrt": (np.sqrt, 0.5001, 0.5001),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.5, 1.5),
    "pow": (np.power, 1.0, 1.5),
    "atan2": (np.arctan2, 2.5, 2.5),
}
BINARY = ("pow", "atan2")


def specials(dtype) -> np.ndarray:
    info = np.finfo(dtype)
    positive = [
        0, np.inf, info.max, info.tiny, info.smallest_subnormal, 1, 2, 3, 0.5, info.eps,
        1 - info.epsneg, 88.7228, 88.73, 103.9, 104.1, 709.78, 709.79, 745.1, 745.2, np.pi,
        np.pi / 2, 1e6, 1e10, 1e22, 1e38, 1e200,
    ]  # fmt: skip
    return np.array([*positive, *(-v for v in positive), np.nan]).astype(dtype)


def samples(dtype, seed: int) -> np.ndarray:
    """Numbers of all magnitudes: any bits, moderate ones, and many near zero and one."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 256, 8000 * np.dtype(dtype).itemsize, np.uint8).view(dtype)
    spread = [rng.uniform(-s, s, 8000) for s in (1, 3, 12, 110, 800, 5000)]
    near = [
        rng.normal(0, 1e-3, 4000),
        1 + rng.normal(0, 1e-3, 4000),
        np.exp(rng.normal(0, 9, 4000)),
    ]
    return np.concatenate([specials(dtype), bits, *spread, *near]).astype(dtype)


def arguments(name: str, dtype) -> list[np.ndarray]:
    x = samples(dtype, 1)
    if name not in BINARY:
        return [x]
    y = np.random.default_rng(2).permutation(samples(dtype, 3))
    rng = np.random.default_rng(4)
    base, exponent = rng.uniform(0.9, 1.1, 20000), rng.uniform(-7000, 7000, 20000)
    edges = np.meshgrid(specials(dtype), specials(dtype))
    first = np.concatenate([edges[0].ravel(), x, np.abs(x), base])
    second = np.concatenate([edges[1].ravel(), y, y * dtype(0.02), exponent])
    return [first.astype(dtype), second.astype(dtype)]


def units_apart(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The error of each finite result in units in the last place; of others 0 or infinity."""
    info = np.finfo(got.dtype)
    rounded = exact.astype(got.dtype)
    exponent = np.floor(np.log2(np.maximum(np.abs(exact), LONG(info.tiny))))
    error = np.abs(got.astype(LONG) - exact) / 2.0 ** (exponent - info.nmant)
    special = ~np.isfinite(rounded)
    equal = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    error = np.where(special, np.where(equal, 0, np.inf), error)
    # One of the two may have rounded to infinity.
    at_limit = np.isinf(got) & (np.abs(exact) > 0.99999 * LONG(info.max))
    return np.where(np.isnan(error), np.inf, np.where(at_limit, 0, error))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_is_bounded(name, dtype):
    inputs = arguments(name, dtype)
    program = record(lambda e, *x: getattr(e, name)(*x), [np.dtype(dtype).name] * len(inputs))
    (got,) = apply(program, *inputs, lanes=64 // np.dtype(dtype).itemsize)
    check(name, inputs, got)


def check(name: str, inputs: list[np.ndarray], got: np.ndarray) -> None:
    reference, *limits = FUNCTIONS[name]
    exact = reference(*(x.astype(LONG) for x in inputs))
    error = units_apart(got, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= limits[got.dtype == np.float64], [x[worst] for x in inputs]
    zeros = (got == 0) & (exact == 0)
    assert np.array_equal(np.signbit(got[zeros]), np.signbit(exact[zeros]))


@dataclass(frozen=True)
class WithoutTables(Probe):
    """The same kernel as processors without AVX-512 have it."""

    def emit(self, team):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vector_math, "has_table_for", lambda f, x: False)
            super().emit(team)


def test_tanh_without_tables():
    program = record(lambda e, x: e.tanh(x), ["float32"])
    x = np.resize(samples(np.float32, 1), 65536)
    got = np.zeros_like(x)
    run_kernel(WithoutTables(program, x.size, 16), [x, got], threads=1)
    check("tanh", [x], got)


@pytest.mark.parametrize("lanes", [0, 4, 8])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_lanes_do_not_matter(name, lanes):
    inputs = [x[:3000] for x in arguments(name, np.float32)]
    program = record(lambda e, *x: getattr(e, name)(*x), ["float32"] * len(inputs))
    (wide,) = apply(program, *inputs, lanes=16)
    (other,) = apply(program, *inputs, lanes=lanes)
    np.testing.assert_array_equal(other, wide)
