"""String kernels against what TensorFlow 1.15 answered (tests/fixtures/strings, record_strings.py)."""

import hashlib
import json
import pathlib

import ml_dtypes
import numpy as np
import pytest

from headrace.ops import (
    decode_text,
    fingerprints,
    printf,
    regex,
    string_kernels,
    unicode_kernels,
    unicode_scripts,
)

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "strings"
MODULES = (
    decode_text,
    fingerprints,
    printf,
    regex,
    string_kernels,
    unicode_kernels,
    unicode_scripts,
)
KERNELS = {name: kernel for module in MODULES for name, kernel in module.KERNELS.items()}
KERNELS["Print"] = printf.print_message
DTYPES = {"string": object, "bfloat16": ml_dtypes.bfloat16}


def noise(length):
    return hashlib.shake_128(b"headrace %d" % length).digest(length)


def decode(record):
    """Return the array that record_strings.py wrote."""
    dtype = np.dtype(DTYPES.get(record["dtype"], record["dtype"]))
    data = record["data"]
    if dtype == object:
        items = [noise(d) if isinstance(d, int) else d.encode("latin-1") for d in data]
        array = np.empty(len(items), dtype=object)
        array[:] = items
    elif dtype.kind == "c":
        array = np.array(data, dtype=f"f{dtype.itemsize // 2}").view(dtype)
    else:
        array = np.array(data, dtype=dtype)
    return array.reshape(record["shape"])


def families():
    return sorted(path.stem for path in FIXTURES.glob("*.jsonl"))


def cases(family):
    return [json.loads(line) for line in (FIXTURES / f"{family}.jsonl").read_text().splitlines()]


def run(case):
    result = KERNELS[case["op"]](*map(decode, case["inputs"]), **case["attrs"])
    return result if isinstance(result, tuple) else (result,)


def assert_same(actual, expected, case):
    assert actual.dtype == expected.dtype, case
    np.testing.assert_array_equal(actual, expected, err_msg=str(case))
    if expected.dtype.kind == "f":
        signs = np.signbit(actual) == np.signbit(expected)
        assert np.all(signs | np.isnan(expected)), case


@pytest.mark.parametrize("family", families())
def test_kernels_answer_as_tensorflow_does(family):
    for case in cases(family):
        if "error" in case:
            with pytest.raises(ValueError):
                pytest.fail(f"{run(case)} instead of an error for {case}")
            continue
        outputs = run(case)
        assert len(outputs) == len(case["outputs"])
        for actual, expected in zip(outputs, map(decode, case["outputs"]), strict=True):
            assert_same(actual, expected, case)


def test_every_kernel_has_a_recorded_case():
    seen = {case["op"] for family in families() for case in cases(family)}
    assert seen == set(KERNELS)
