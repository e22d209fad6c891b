"""SequenceExamples that generated code reads give what the general reader gives, whatever is in
them: arrays, or an error with the same text.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace._src.core import proto
from headrace._src.lowering import generated
from headrace._src.ops.io import sequence_examples, sequence_records
from tests.unit.compile.test_example_records import features

USUAL = {"x": "float_list", "w": "bytes_list", "n": "int64_list"}


@pytest.fixture(autouse=True, scope="module")
def _small_records_are_large():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequence_records, "_LEAST", 0)
        yield


@st.composite
def records(draw):
    record = proto.SequenceExample()
    for key in draw(st.lists(st.sampled_from(["n", "w", "é"]), max_size=2)):
        record.context.feature[key].CopyFrom(draw(features()))
    for key in draw(st.lists(st.sampled_from(["x", "w", "n", "other", "é"]), max_size=3)):
        usual = draw(st.integers(0, 9)) and key in USUAL
        kinds = (USUAL[key],) if usual else ("bytes_list", "float_list", "int64_list")
        found = draw(st.lists(features(kinds), max_size=4))
        record.feature_lists.feature_list[key].feature.extend(found)
    return record.SerializeToString(deterministic=True)


@st.composite
def damaged(draw):
    """A record with bytes changed, inserted or left out, or two of them, one behind the other."""
    data = bytearray(draw(records()))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["change", "insert", "delete", "cut", "join"]))
        byte = draw(st.one_of(st.integers(0, 255), st.sampled_from([8, 10, 13, 18, 26, 127, 128])))
        if how == "change" and at < len(data):
            data[at] = byte
        elif how == "insert":
            data.insert(at, byte)
        elif how == "delete":
            del data[at : at + 1]
        elif how == "cut":
            del data[at:]
        else:
            data += draw(records())
    return bytes(data)


FLOATS, INTEGERS, STRINGS = map(np.dtype, ("float32", "int64", "object"))
CALLS = {
    "pairs": lambda r: r.dense_list("x", FLOATS, (2,), True),
    "single numbers": lambda r: r.dense_list("n", INTEGERS, (), False),
    "nothing": lambda r: r.dense_list("n", INTEGERS, (0,), False),
    "words": lambda r: r.dense_list("w", STRINGS, (1,), True),
    "any floats": lambda r: r.sparse_list("x", FLOATS),
    "any numbers": lambda r: r.sparse_list("n", INTEGERS),
    "any words": lambda r: r.sparse_list("w", STRINGS),
    "another key": lambda r: r.sparse_list("é", STRINGS),
    "no key": lambda r: r.dense_list("none", STRINGS, (), True),
    "context": lambda r: r.sparse("n", INTEGERS),
}


def outcomes(record):
    """What comes out without and with generated code."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for answer in (False, True):
            patch.setattr(generated, "worthwhile", lambda elements, answer=answer: answer)
            results = {}
            for name, call in CALLS.items():
                try:
                    arrays = call(sequence_examples.Record(record, "a name"))
                    arrays = arrays if isinstance(arrays, tuple) else (arrays,)
                    results[name] = [
                        (a.shape, a.dtype, a.tolist() if a.dtype == object else a.tobytes())
                        for a in arrays
                    ]
                except ValueError as error:
                    results[name] = str(error)
            found.append(results)
    return found


@settings(max_examples=80, deadline=None)
@given(records())
def test_whole_records(record):
    expected, found = outcomes(record)
    assert found == expected


@settings(max_examples=120, deadline=None)
@given(damaged())
def test_damaged_records(record):
    expected, found = outcomes(record)
    assert found == expected


def test_a_usual_record_is_read_by_generated_code(monkeypatch):
    monkeypatch.setattr(generated, "worthwhile", lambda elements: True)
    record = sequence_examples.Record(sequence_examples.sample_record(3), "")
    monkeypatch.setattr(sequence_examples.Record, "_parsed", None)
    np.testing.assert_array_equal(
        record.dense_list("x", FLOATS, (2,), False), [[0, 2], [1, 2], [2, 2]]
    )
    indices, values, shape = record.sparse_list("y", INTEGERS)
    assert (indices.tolist(), values.tolist(), shape.tolist()) == (
        [[1, 0], [2, 0], [2, 1]],
        [0, 0, 1],
        [3, 2],
    )
