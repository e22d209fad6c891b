"""String kernels with generated code answer as they do without it: results, or the same error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace._src.lowering import generated
from headrace._src.ops.io import decode_text
from headrace._src.ops.strings import string_kernels

ODD = st.one_of(st.binary(max_size=6), st.text("é€a \0\n", max_size=5).map(str.encode))
WORDS = st.text("ab ,;\t", max_size=8).map(str.encode)
TEXTS = st.lists(st.one_of(WORDS, ODD), max_size=6)


def strings(values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def shown(result):
    arrays = result if isinstance(result, tuple) else (result,)
    return [(a.shape, a.dtype, a.tolist()) for a in arrays]


def both(kernel, *inputs, **attributes):
    """What comes out without and with generated code."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for answer in (False, True):
            patch.setattr(generated, "worthwhile", lambda elements, answer=answer: answer)
            try:
                found.append(shown(kernel(*inputs, **attributes)))
            except ValueError as error:
                found.append(str(error))
    return found


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.one_of(st.just(b""), st.text(" ,;ab", max_size=3).map(str.encode)), st.booleans())
def test_string_split(texts, marks, skip):
    expected, found = both(string_kernels.string_split, strings(texts), marks, skip_empty=skip)
    assert found == expected


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from([b"", b" ", b",", b"a", b"ab", b"\0", b"\xff"]), st.integers(-1, 2))
def test_string_split_v2(texts, mark, most):
    expected, found = both(string_kernels.string_split_v2, strings(texts), mark, maxsplit=most)
    assert found == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=8).map(str.encode), WORDS, ODD), max_size=6))
def test_case_and_whitespace(texts):
    for kernel in (
        string_kernels.string_lower,
        string_kernels.string_upper,
        string_kernels.string_strip,
    ):
        expected, found = both(kernel, strings(texts))
        assert found == expected


def test_every_byte():
    texts = strings([bytes([i]) for i in range(256)] + [bytes(range(256)), b" \t\v\f a\0 \r\n"])
    for kernel in (
        string_kernels.string_lower,
        string_kernels.string_upper,
        string_kernels.string_strip,
    ):
        for array in (texts, texts.reshape(2, -1).T, np.array(b" Aa ", object)):
            expected, found = both(kernel, array)
            assert found == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(WORDS, ODD), min_size=4, max_size=4), st.sampled_from(["", "-", "<é>"]))
def test_string_join(texts, separator):
    matrix = strings(texts).reshape(2, 2)
    scalar = np.array(texts[0], object)
    for inputs in ([matrix], [matrix, scalar, matrix.T], [scalar, scalar], [matrix[:0], scalar]):
        expected, found = both(string_kernels.string_join, *inputs, separator=separator)
        assert found == expected


SMALL = st.integers(-4, 9)
ENDS = st.one_of(SMALL, st.sampled_from([-(2**31), 2**31 - 1]))


@settings(max_examples=300, deadline=None)
@given(TEXTS, SMALL, ENDS, st.sampled_from([np.int32, np.int64]), st.booleans())
def test_substr(texts, pos, length, dtype, each):
    at, count = np.array(pos, dtype), np.array(length, dtype)
    if each:
        at, count = np.full(len(texts), at), np.full(len(texts), count)
    expected, found = both(string_kernels.substr, strings(texts), at, count)
    assert found == expected


@pytest.mark.parametrize("shape", [(), (1,), (2, 1), (1, 3), (2, 3), (4, 2, 3)])
def test_substr_broadcasts(shape):
    texts = strings([b"hello", b"", b"world", b"abc", b"x", b"longer text"]).reshape(2, 3)
    for lengths in (np.full(shape, 2), np.full(shape, -1)):
        expected, found = both(string_kernels.substr, texts, np.zeros(shape, int), lengths)
        assert found == expected


FIELDS = st.one_of(
    st.sampled_from([b"", b"1", b"-2", b"1.5", b"x y", b"NA", b"1e3", b" 7", b"9" * 11, b"nan"]),
    st.sampled_from([b'"a,b"', b'"a""b"', b'a"b', b"a\nb", b'"', b"\0", "é".encode()]),
)
RECORDS = st.lists(st.lists(FIELDS, min_size=2, max_size=3).map(b",".join), max_size=5)
PLAIN = st.lists(
    st.tuples(st.integers(-5, 10**6), st.sampled_from([b"", b"a", b"long word"])).map(
        lambda t: b"%d,%s" % t
    ),
    max_size=5,
)
DEFAULTS = st.sampled_from(
    [np.zeros(1, "f"), np.zeros(0, "d"), np.zeros(1, "i"), np.zeros(0, "q"), strings([b"none"]),
     strings([])]
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(
    st.one_of(RECORDS, PLAIN),
    st.lists(DEFAULTS, min_size=1, max_size=3),
    st.sampled_from([b",", b" ", b'"', b"\n", b";"]),
    st.sampled_from([b"", b"NA", b"-2"]),
    st.booleans(),
)
def test_decode_csv(records, defaults, delimiter, missing, quotes):
    expected, found = both(
        decode_text.decode_csv,
        strings(records),
        *defaults,
        field_delim=delimiter,
        na_value=missing,
        use_quote_delim=quotes,
    )
    assert repr(found) == repr(expected)  # NaNs are equal
