"""The random kernels against TensorFlow 1.15.5's recorded outputs, and the laws of their state.

The fixture is made by scripts/record_random.py; each stateful case was run twice in one session.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from headrace._src.ops.random import distributions, philox
from headrace._src.ops.random.philox import PhiloxState, Stream

FIXTURE = Path(__file__).parents[2] / "fixtures" / "random" / "tf115.npz"
PARAMETERS = ["means", "stdevs", "minvals", "maxvals"]


def recorded():
    """Every case with its recorded outputs."""
    with np.load(FIXTURE) as stored:
        pools = {name: stored[name] for name in stored.files}
    position = dict.fromkeys(pools, 0)
    for case in json.loads(str(pools["cases"])):
        shape, name = case["outputs"]["shape"], case["outputs"]["dtype"]
        size = int(np.prod(shape, dtype=int))
        outputs = []
        for _ in range(case["outputs"]["count"]):
            start = position[name]
            outputs.append(pools[name][start : start + size].reshape(shape))
            position[name] += size
        yield case, outputs


CASES = list(recorded())


def case_name(case):
    shape = case["args"].get("shape", case["args"].get("logits_shape"))
    return f"{case['op']}-{case['args'].get('dtype')}-{shape}-{case['seed']}"


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def call(case, source):
    """Run our kernel for a case; `source` is a state, or the seeds of a stateless op."""
    op, args = case["op"], case["args"]
    if op == "shuffle":
        value = np.arange(np.prod(args["shape"], dtype=int)).reshape(args["shape"])
        return distributions.shuffle(source, value)
    if op == "multinomial":
        logits = np.array(args["logits"], args["logits_dtype"]).reshape(args["logits_shape"])
        return distributions.multinomial(source, logits, args["num_samples"], args["dtype"])
    shape, dtype = args["shape"], dtype_of(args["dtype"])
    if op == "parameterized_truncated_normal":
        parameters = [np.array(args[name], dtype) for name in PARAMETERS]
        return distributions.parameterized_truncated_normal(source, shape, *parameters)
    if op == "random_gamma":
        return distributions.random_gamma(source, shape, np.array(args["alpha"], dtype))
    if op == "random_poisson_v2":
        rate = np.array(args["rate"], args["rate_dtype"])
        return distributions.random_poisson_v2(source, shape, rate, dtype)
    kernel = getattr(philox, op.replace("stateless_standard_normal", "stateless_normal"))
    if op.endswith("uniform_int"):
        return kernel(source, shape, args["minval"], args["maxval"], dtype)
    return kernel(source, shape, dtype)


def assert_agree(op, got, want):
    assert got.shape == want.shape
    if got.dtype == ml_dtypes.bfloat16:
        want = want.view(ml_dtypes.bfloat16)
    assert got.dtype == want.dtype
    exact = got.dtype.kind == "i" or "uniform" in op or "poisson" in op
    # Box-Muller and similar transforms: the last bits of log, sin and cos depend on the platform.
    tolerance = {2: 2e-3, 4: 1e-6, 8: 1e-14}[got.dtype.itemsize]
    if got.dtype == ml_dtypes.bfloat16:
        tolerance = 1e-2
    if exact:
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize(("case", "outputs"), CASES, ids=[case_name(c) for c, _ in CASES])
def test_kernel_matches_tensorflow(case, outputs):
    stateless = case["op"].startswith("stateless_")
    source = case["seed"] if stateless else PhiloxState(*case["seed"])
    for want in outputs:
        assert_agree(case["op"], call(case, source), want)


def test_known_answers_of_philox_4x32_10():
    """The published vectors: counter and key all zero bits, all one bits."""
    zero = philox.words(Stream(0, 0), 1)[0]
    ones = philox.words(Stream(2**64 - 1, 2**128 - 1), 1)[0]
    assert [hex(w) for w in zero] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    assert [hex(w) for w in ones] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


@pytest.mark.parametrize("counter", [2**64 - 2, 2**128 - 2])
def test_counter_carries_into_its_upper_half(counter):
    stream = Stream(9, counter)
    one_by_one = [philox.words(stream.skip(i), 1)[0] for i in range(4)]
    np.testing.assert_array_equal(philox.words(stream, 4), one_by_one)


@pytest.mark.parametrize("draw", [philox.uniform, philox.standard_normal, philox.truncated_normal])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_output_does_not_depend_on_chunks(draw, dtype, monkeypatch):
    whole = draw(PhiloxState(3, 4), (5, 40_001), dtype)
    monkeypatch.setattr(philox, "_CHUNK", 777)
    np.testing.assert_array_equal(draw(PhiloxState(3, 4), (5, 40_001), dtype), whole)


def test_state_round_trip_continues_the_sequence():
    state, copy = PhiloxState(5, -6), PhiloxState(1, 1)
    philox.uniform(state, (10,), np.float32)
    copy.set_state(state.get_state())
    expected = philox.uniform(state, (10,), np.float32)
    np.testing.assert_array_equal(philox.uniform(copy, (10,), np.float32), expected)
    assert copy.get_state() == state.get_state()


def test_set_state_rejects_what_is_no_state():
    with pytest.raises(ValueError, match="not a Philox state"):
        PhiloxState(1, 1).set_state((1 << 64, 0))
    with pytest.raises(ValueError, match="reserve -1"):
        PhiloxState(1, 1).reserve(-1)


def test_unseeded_states_differ_and_half_seeded_do_not():
    assert PhiloxState(0, 0).get_state() != PhiloxState(0, 0).get_state()
    assert PhiloxState(0, 1).get_state() == PhiloxState(0, 1).get_state()


def test_concurrent_reservations_never_overlap():
    state = PhiloxState(1, 2)
    with ThreadPoolExecutor(8) as pool:
        starts = list(pool.map(lambda _: state.reserve(3).counter, range(4000)))
    assert sorted(c - (2 << 64) for c in starts) == list(range(0, 12000, 3))


def test_the_counter_carries_into_its_upper_word():
    state = PhiloxState(1, 2)
    state.set_state((1, (3 << 64) - 5))
    first, second = state.reserve(7), state.reserve(1)
    assert (first.counter, second.counter) == ((3 << 64) - 5, (3 << 64) + 2)


def test_truncated_normals_stay_inside():
    numbers = philox.truncated_normal(PhiloxState(1, 2), (400_000,), np.float32)
    assert np.abs(numbers).max() < 2
    # The variance of a standard normal truncated to (-2, 2) is 0.7737.
    assert abs(numbers.astype(np.float64).var() - 0.7737) < 0.005


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: philox.uniform(s, (2,), np.int32), TypeError, "not int32"),
        (lambda s: philox.uniform(s, (2, -1), np.float32), ValueError, "negative dimension"),
        (lambda s: philox.uniform_int(s, (2,), 3, 3, np.int32), ValueError, "minval < maxval"),
        (lambda s: philox.uniform_int(s, (2,), 0, 2**40, np.int32), ValueError, "int32"),
        (lambda s: philox.stateless_uniform([1, 2, 3], (2,), np.float32), ValueError, "two int"),
        (lambda s: philox.stateless_uniform([1.0, 2.0], (2,), np.float32), ValueError, "two int"),
        (lambda s: distributions.multinomial(s, np.zeros(3), 1), ValueError, "matrix"),
        (lambda s: distributions.multinomial(s, np.zeros((3, 0)), 1), ValueError, "num_classes"),
        (lambda s: distributions.multinomial(s, np.zeros((3, 2)), -1), ValueError, "num_samples"),
        (lambda s: distributions.multinomial(s, np.eye(2), 1, "f4"), TypeError, "not float32"),
        (lambda s: distributions.random_gamma(s, (2,), np.array(3)), TypeError, "alpha"),
        (lambda s: _poisson(s, np.nan, np.float32), ValueError, "rate"),
        (lambda s: _poisson(s, 1e12, np.int32), ValueError, "int32"),
        (lambda s: _truncated(s, (), 0.0, 1.0, -1.0, 1.0), ValueError, "empty"),
        (lambda s: _truncated(s, (2,), 0.0, -1.0, -1.0, 1.0), ValueError, "Invalid parameters"),
        (lambda s: _truncated(s, (2,), 0.0, 1.0, 1.0, -1.0), ValueError, "Invalid parameters"),
        (lambda s: _truncated(s, (2,), 0.0, 1.0, -np.inf, np.inf), ValueError, "Invalid param"),
        (lambda s: _truncated(s, (2,), [0.0] * 3, 1.0, -1.0, 1.0), ValueError, "length 1 or"),
        (lambda s: _truncated(s, (2,), [[0.0]], 1.0, -1.0, 1.0), ValueError, "scalar or vector"),
        (
            lambda s: _truncated(s, (6,), 0.0, 1.0, 300.0, 400.0, np.float16),
            ValueError,
            "no number accepted",
        ),
    ],
)
def test_bad_arguments_raise(call, error, message):
    with pytest.raises(error, match=message):
        call(PhiloxState(1, 2))


def test_a_refused_call_leaves_the_state_alone():
    state = PhiloxState(1, 2)
    with pytest.raises(ValueError, match="minval < maxval"):
        philox.uniform_int(state, (2,), 4, 3, np.int64)
    assert state.get_state() == PhiloxState(1, 2).get_state()
    assert philox.uniform_int(state, (0, 2), 4, 3, np.int64).shape == (0, 2)


def test_poisson_and_gamma_beyond_their_domain():
    assert (_poisson(PhiloxState(1, 2), -1.0, np.float32) == 0).all()
    assert np.isnan(_poisson(PhiloxState(1, 2), np.inf, np.float32)).all()
    alpha = np.array([-1.0, 0.0, np.nan, np.inf])
    numbers = distributions.random_gamma(PhiloxState(1, 2), (1,), alpha)[0]
    np.testing.assert_array_equal(numbers, [np.nan, 0.0, np.nan, np.inf])


def _poisson(state, rate, dtype):
    return distributions.random_poisson_v2(state, (3,), np.array(rate), dtype)


def _truncated(state, shape, mean, stdev, low, high, dtype=np.float32):
    parameters = [np.array(p, dtype) for p in (mean, stdev, low, high)]
    return distributions.parameterized_truncated_normal(state, shape, *parameters)
