"""Pointwise programs as machine code: every opcode on every type computes what NumPy does."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest

from headrace._src.compile.codegen.kernel_spec import generate
from headrace._src.compile.codegen.pointwise_code import supports
from headrace._src.core.dtypes import as_dtype
from headrace._src.devices.target import host
from headrace._src.lowering.pointwise import OPCODES, Pointwise, record
from tests.unit.compile.probe import Probe, apply
from tests.unit.compile.targets import TARGETS, run_on

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
TYPES = ("bool", *INTEGERS, *FLOATS)
INTEGER_ONLY = ("and", "or", "xor", "not", "quotient", "remainder")
BINARY = ("add", "sub", "mul", "div", "max", "min", "pow", "atan2", "and", "or", "xor",
          "eq", "ne", "lt", "le", "gt", "ge", "quotient", "remainder")  # fmt: skip
FLOAT_ONLY = ("div", "atan2", "sqrt", "rsqrt", "exp", "expm1", "log", "log1p", "tanh", "sigmoid",
              "erf", "sin", "cos")  # fmt: skip


def has_meaning(opcode: str, dtype: str) -> bool:
    """Whether NumPy has this operation with a result of the same type."""
    if dtype == "bool":
        return opcode in ("add", "mul", "max", "min", "and", "or", "xor", "not", "abs", "eq", "ne",
                          "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite")  # fmt: skip
    if dtype in FLOATS:
        return opcode not in INTEGER_ONLY
    return opcode not in FLOAT_ONLY


def values(dtype: str, seed: int, size: int = 200) -> np.ndarray:
    """Numbers of a type with its extremes, in an order of their own."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(as_dtype(dtype).as_numpy_dtype)
    if dtype == "bool":
        return rng.integers(0, 2, size).astype(bool)
    if dtype in INTEGERS:
        info = np.iinfo(kind)
        drawn = rng.integers(max(info.min, -9), 10, size).astype(kind)
        ends = np.array([info.min, info.max, 0, 1], kind)
        return rng.permutation(np.concatenate([drawn, ends, ends]))
    drawn = np.concatenate([rng.normal(0, 1, size), rng.integers(-4, 5, size)])
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, np.nan]
    return rng.permutation(np.concatenate([drawn, ends, ends])).astype(kind)


def tolerance(dtype: str, opcode: str) -> float:
    if dtype in ("float32", "float64") and opcode not in FLOAT_ONLY[1:] and opcode != "pow":
        return 0.0  # one rounding each, as NumPy
    return {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 5e-7}.get(dtype, 1e-15)


def assert_same(got: np.ndarray, expected: np.ndarray, rtol: float = 0.0) -> None:
    assert got.dtype == expected.dtype
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected)
        return
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=0.0 if not rtol else 1e-30)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("opcode", OPCODES)
def test_opcode(opcode, dtype):
    count = 2 if opcode in BINARY else 1
    if not has_meaning(opcode, dtype):
        program = record(lambda e, *x: getattr(e, opcode)(*x), [dtype] * count)
        assert not supports(program)
        return
    program = record(lambda e, *x: getattr(e, opcode + "_")(*x), [dtype] * count)
    assert supports(program)
    inputs = [values(dtype, i) for i in range(count)]
    if opcode == "pow" and dtype in INTEGERS:
        inputs[1] = np.abs(inputs[1]).clip(0, 100)
    if opcode in ("quotient", "remainder"):  # whose divisors are neither 0 nor -1
        inputs[1] = np.where(np.isin(inputs[1].astype(np.int64), (0, -1)), 3, inputs[1])
        inputs[1] = inputs[1].astype(inputs[0].dtype)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        (expected,) = program.evaluate(*inputs)
    if opcode == "rint" and dtype in INTEGERS:
        expected = inputs[0]  # NumPy makes floats of them
    for lanes in (0, 16):
        (got,) = apply(program, *inputs, lanes=lanes)
        assert_same(got, np.asarray(expected), tolerance(dtype, opcode))


@pytest.mark.parametrize("target", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_cast(source, target):
    inputs = values(source, 5)
    if source in FLOATS and target != "bool" and target not in FLOATS:
        # Outside the target's range NumPy promises nothing.
        low = 0 if target.startswith("u") else -100
        inputs = np.nan_to_num(inputs.astype(np.float64), posinf=7.5, neginf=1.5)
        inputs = (inputs * 9).clip(low, 120).astype(as_dtype(source).as_numpy_dtype)
    program = record(lambda e, x: e.cast(x, target), [source])
    with np.errstate(all="ignore"):
        expected = inputs.astype(as_dtype(target).as_numpy_dtype)
    for lanes in (0, 16):
        (got,) = apply(program, inputs, lanes=lanes)
        assert_same(got, expected)


def test_double_to_half_is_rounded_once():
    # Just above a tie of float16 by less than float32 can tell.
    tie = 1 + 2.0**-11
    inputs = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, 65519.999999999, 65520.0, 2.0**-25])
    (got,) = apply(record(lambda e, x: e.cast(x, "float16"), ["float64"]), inputs)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, inputs.astype(np.float16))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("stored", [False, True], ids=["held in float32", "stored"])
def test_every_kind_of_float_is_rounded_to_bfloat16(target, stored):
    """Every sign, exponent and upper half, NaNs and denormal numbers included, about a tie."""
    uppers = np.arange(1 << 16, dtype=np.uint32) << 16
    lowers = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    inputs = (uppers[:, None] | lowers).reshape(-1).view(np.float32)
    with np.errstate(all="ignore"):
        expected = inputs.astype(ml_dtypes.bfloat16)
    if stored:
        program = record(lambda e, x: e.cast(x, "bfloat16"), ["float32"])
        got = np.zeros_like(expected)
    else:
        program = record(lambda e, x: e.cast(e.cast(x, "bfloat16"), "float32"), ["float32"])
        expected, got = expected.astype(np.float32), np.zeros_like(inputs)
    run_on(target, Probe(program, inputs.size, 16), [inputs, got])
    missing = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), missing)
    bits = np.uint16 if stored else np.uint32
    np.testing.assert_array_equal(got.view(bits)[~missing], expected.view(bits)[~missing])


def test_large_unsigned():
    inputs = np.array([2.0**63, 2.0**64 - 2048, 2.0**62, 3.0])
    (got,) = apply(record(lambda e, x: e.cast(x, "uint64"), ["float64"]), inputs)
    np.testing.assert_array_equal(got, inputs.astype(np.uint64))


@pytest.mark.parametrize("dtype", TYPES)
def test_select_and_constant(dtype):
    program = record(
        lambda e, c, x: (e.select(c, x, e.const(1, dtype)), e.const(-1, dtype)), ["bool", dtype]
    )
    condition, x = values("bool", 1, len(values(dtype, 2))), values(dtype, 2)
    picked, constant = apply(program, condition, x)
    assert_same(picked, np.where(condition, x, np.ones_like(x)))
    assert_same(constant, np.full(x.shape, -1).astype(x.dtype))


def test_nan_constants_reach_the_result():
    program = record(lambda e, x: (e.max(x, float("nan")), e.min(float("nan"), x)), ["float32"])
    for got in apply(program, np.arange(16, dtype=np.float32)):
        assert np.isnan(got).all()


def test_program_of_several_steps():
    program = record(
        lambda e, x, y: (e.max(x * 1.5 + y, 0), e.select(x > y, x - y, e.exp(y))), ["float32"] * 2
    )
    x, y = (np.random.default_rng(i).normal(size=1000).astype(np.float32) for i in range(2))
    for got, expected in zip(apply(program, x, y), program.evaluate(x, y), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-7)


def test_long_opcodes_used_often_are_called():
    """A thousand of them would take seconds to compile if each were written out."""

    def chain(e, x):
        for _ in range(20):
            x = e.tanh(x * 1.5)
        return x

    program = record(chain, ["float32"])
    text = generate(Probe(program, 64, 16), "chain", host())
    assert text.count("call <16 x float> @tanh_v16f32") == 20
    assert text.count("define internal <16 x float> @tanh_v16f32") == 1
    x = values("float32", 1)
    for lanes in (0, 16):
        (got,) = apply(program, x, lanes=lanes)
        np.testing.assert_allclose(got, program.evaluate(x)[0], rtol=1e-5)


@pytest.mark.parametrize("watched", [False, True])
def test_chains_of_a_long_opcode_are_loops(watched):
    """Unless an intermediate value is needed."""

    def chain(e, x):
        middle = x + 0.5
        for _ in range(10):
            middle = e.tanh(middle)
        y = middle
        for _ in range(10):
            y = e.tanh(y)
        return (middle, e.exp(y)) if watched else e.exp(y)

    program = record(chain, ["float32"])
    text = generate(Probe(program, 16, 16), "chain", host())
    assert text.count("phi <16 x float>") == (2 if watched else 1)
    x = values("float32", 1)
    for lanes in (0, 16):
        for got, expected in zip(apply(program, x, lanes=lanes), program.evaluate(x), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_complex_numbers_have_no_code():
    assert not supports(Pointwise(("complex64",), (), (0,)))
