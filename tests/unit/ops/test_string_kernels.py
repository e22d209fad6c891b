"""String kernels against what TensorFlow 1.15 answered (recorded by scripts/record_strings.py)."""

import hashlib
import json
import pathlib

import ml_dtypes
import numpy as np
import pytest

from headrace._src.ops.io import decode_text
from headrace._src.ops.strings import (
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
    if dtype.kind == "O":
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
            with pytest.raises(ValueError) as found:
                pytest.fail(f"{run(case)} instead of an error for {case}")
            if case["error"].startswith("Invalid pattern"):
                assert case["error"] == str(found.value)
            continue
        outputs = run(case)
        assert len(outputs) == len(case["outputs"])
        for actual, expected in zip(outputs, map(decode, case["outputs"]), strict=True):
            assert_same(actual, expected, case)


def test_every_kernel_has_a_recorded_case():
    seen = {case["op"] for family in families() for case in cases(family)}
    assert seen == set(KERNELS)


def test_scalars_and_lists_of_bytes_are_string_tensors():
    assert string_kernels.string_upper(b"ab").item() == b"AB"
    assert string_kernels.string_join([b"a", b"b"], b"c").tolist() == [b"ac", b"bc"]


def test_text_is_not_taken_for_bytes():
    with pytest.raises(TypeError, match="not str"):
        string_kernels.string_length("text")


def test_dtype_objects_serve_as_type_attributes():
    class Dtype:
        as_numpy_dtype = np.int64

    assert decode_text.string_to_number(b"7", out_type=Dtype()).dtype == np.int64


def test_a_negative_nan_shows_its_sign():
    assert printf.as_string(np.float32(-np.nan), width=6).item() == b"  -nan"


# What TensorFlow 1.15 answers here by crashing or by reading foreign memory.


def test_fingerprint_of_an_empty_batch():
    assert fingerprints.fingerprint(np.zeros((0, 3)), b"farmhash64").shape == (0, 8)


def test_rows_of_padded_raw_bytes_do_not_overlap():
    rows = decode_text.decode_padded_raw([b"\0\1", b"\2"], 2, out_type=np.int16)
    assert rows.tolist() == [[256], [2]]


def test_padding_surrounds_an_empty_row_of_n_grams():
    grams, splits = string_kernels.string_n_grams(
        [b"a"],
        [0, 0, 1],
        separator="-",
        ngram_widths=[2],
        left_pad="L",
        right_pad="R",
        pad_width=1,
        preserve_short_sequences=False,
    )
    assert grams.tolist() == [b"L-R", b"L-a", b"a-R"]
    assert splits.tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    "call",
    [
        lambda: string_kernels.substr([b"ab", b"cd"], [0, 1], 1),
        lambda: string_kernels.string_length(b"a", unit="WORD"),
        lambda: string_kernels.unsorted_segment_join([b"a"], [0], -1),
        lambda: fingerprints.string_to_hash_bucket_fast(b"a", num_buckets=0),
        lambda: unicode_kernels.unicode_encode([97], [0, 2], output_encoding="UTF-8"),
        lambda: unicode_kernels.unicode_encode([97], [0, 1], output_encoding="latin1"),
        lambda: unicode_kernels.unicode_decode(b"a", input_encoding="rot13"),
        lambda: printf.as_string(np.array([b"a"], dtype=object)),
    ],
)
def test_bad_arguments_are_value_errors(call):
    with pytest.raises(ValueError):
        call()
