"""Records that generated code reads give what the general reader gives, whatever is in them:
columns, or an error with the same text.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace._src.core import proto
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.lowering import generated
from headrace._src.ops.io import example_kernels

KEYS = ["a", "number", "word", "ids", "ragged", "é", ""]
VALUES = {
    "bytes_list": st.binary(max_size=6),
    "float_list": st.floats(width=32),
    "int64_list": st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1)),
}


@st.composite
def features(draw, kinds=tuple(VALUES)):
    """A feature of the given kinds; sometimes of none."""
    found = proto.Feature()
    kind = draw(st.sampled_from([*kinds, None] if len(kinds) > 1 else kinds))
    if kind is not None:
        values = draw(st.lists(VALUES[kind], max_size=5))
        getattr(found, kind).value.extend(values)
        getattr(found, kind).SetInParent()
    return found


USUAL = {"number": "float_list", "word": "bytes_list", "ids": "int64_list", "ragged": "int64_list"}


@st.composite
def records(draw):
    example = proto.Example()
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=6)):
        usual = draw(st.integers(0, 9)) and key in USUAL
        found = draw(features((USUAL[key],) if usual else tuple(VALUES)))
        example.features.feature[key].CopyFrom(found)
    return example.SerializeToString(deterministic=True)


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


def strings(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


EMPTY = {"f": np.zeros(0, np.float32), "q": np.zeros(0, np.int64), "O": strings()}
DENSE = st.lists(
    st.sampled_from(
        [
            (b"number", EMPTY["f"], [2]),
            (b"number", np.array([1, 2], np.float32), [2]),
            (b"a", np.array([7], np.int64), [None]),
            (b"word", strings(b"none"), []),
            (b"word", EMPTY["O"], []),
            (b"ids", EMPTY["q"], [0]),
            (b"ids", np.array([1, 2, 3], np.int64), [2]),
            (b"ragged", np.array([5], np.int64), [None, 2]),
            (b"ragged", np.array([5], np.int64), [None]),
            ("é".encode(), np.array([5], np.int64), [1]),
            (b"", strings(b"nothing"), [1]),
        ]
    ),
    max_size=4,
)


def outcomes(serialized, sparse, dense):
    """What comes out without and with generated code."""
    keys, defaults, shapes = ([d[i] for d in dense] for i in range(3))
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example_kernels, "_LEAST", 0)
        for answer in (False, True):
            patch.setattr(generated, "worthwhile", lambda elements, answer=answer: answer)
            try:
                arrays = example_kernels.parse_example(
                    strings(*serialized),
                    strings(),
                    [key for key, _ in sparse],
                    keys,
                    defaults,
                    sparse_types=[dtype for _, dtype in sparse],
                    dense_shapes=list(map(TensorShape, shapes)),
                )
                found.append([(a.shape, a.dtype, a.tobytes() if a.dtype != object else a.tolist())
                              for a in arrays])  # fmt: skip
            except ValueError as error:
                found.append(str(error))
    return found


SPARSE = st.lists(
    st.sampled_from(
        [(b"ids", np.int64), (b"word", object), (b"number", np.float32), (b"a", np.int64)]
    ),
    max_size=3,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(records(), max_size=4), SPARSE, DENSE)
def test_whole_records(serialized, sparse, dense):
    expected, found = outcomes(serialized, sparse, dense)
    assert found == expected


@settings(max_examples=300, deadline=None)
@given(st.lists(damaged(), min_size=1, max_size=3), SPARSE, DENSE)
def test_damaged_records(serialized, sparse, dense):
    expected, found = outcomes(serialized, sparse, dense)
    assert found == expected


def field(number, body):
    return bytes([8 * number + 2, len(body)]) + body


def read(values, kind, number):
    """The counts and values of a feature whose list is given."""
    texts = strings(field(1, field(1, field(1, b"a") + field(2, field(number, values)))))
    spans = generated.routine("text_spans")(texts)
    return generated.routine("features")(*spans, [b"a"], [kind])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (b"", []),
        (b"\x0a\x00", []),
        (b"\x08\x05\x08\x06", [5, 6]),
        (b"\x0a\x02\x01\x02\x08\x03\x0a\x01\x04", [1, 2, 3, 4]),
        (b"\x0a\x0a" + b"\xff" * 9 + b"\x01", [-1]),
        (b"\x0a\x03\x81\x80\x00", [1]),
    ],
)
def test_numbers_are_packed_or_not(values, expected):
    ((counts, found),) = read(values, "int64", 3)
    assert counts.tolist() == [len(expected)]
    assert found.tolist() == expected


@pytest.mark.parametrize(
    "values", [b"\x0d\0\0\x80\x3f", b"\x0a\x04\0\0\x80\x3f", b"\x0a\x00\x0d\0\0\x80\x3f"]
)
def test_floats_are_packed_or_not(values):
    ((counts, found),) = read(values, "float", 2)
    assert counts.tolist() == [1]
    assert found.tolist() == [1.0]


@pytest.mark.parametrize(
    "values",
    [b"\x08", b"\x08\x80", b"\x0a\x01\x80", b"\x0a\x05\x01", b"\x0a\x0b" + b"\x80" * 10 + b"\1",
     b"\x0a\x0a" + b"\xff" * 9 + b"\x02", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
     b"\x10\1"],
)  # fmt: skip
def test_numbers_that_are_cut_off_are_declined(values):
    assert read(values, "int64", 3) is None
