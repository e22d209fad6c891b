"""Numbers of strings by generated code: those of Python and of NumPy's kernels."""

import gc
import threading

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.run import single_ops
from headrace._src.lowering import generated
from headrace._src.ops.strings import fingerprints, string_arrays
from tests.unit.ops import test_string_kernels as kernels


def strings(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def numbers(function, array, *settings):
    return single_ops.routine("string_numbers", function)(array, *settings)


TEXTS = [np.random.RandomState(n).bytes(n) for n in [*range(200), 1000, 4096, 5000]]


@pytest.mark.parametrize(
    ("function", "hash"),
    [
        ("farm", fingerprints.fingerprint64),
        ("murmur", fingerprints.hash64),
        ("sip", lambda texts: fingerprints.siphash(texts, (5, -3))),
    ],
)
def test_hashes(function, hash):
    found = numbers(function, strings(*TEXTS), 0, (5, -3))
    np.testing.assert_array_equal(found.view(np.uint64), hash(TEXTS))
    for buckets in (1, 7, 2**62):
        found = numbers(function, strings(*TEXTS), buckets, (5, -3))
        np.testing.assert_array_equal(found, (hash(TEXTS) % np.uint64(buckets)).astype(np.int64))


def test_sizes_and_characters():
    assert numbers("size", strings(*TEXTS)).tolist() == list(map(len, TEXTS))
    words = ["", "word", "caf\u00e9", "\u20ac\U0001f600"]
    found = numbers("characters", strings(*(w.encode() for w in words)))
    assert found.tolist() == list(map(len, words))


def test_shapes_and_strides():
    array = strings(*TEXTS[:12]).reshape(3, 4)
    np.testing.assert_array_equal(numbers("size", array), np.arange(12).reshape(3, 4))
    np.testing.assert_array_equal(numbers("size", array.T[::2]), np.arange(12).reshape(3, 4).T[::2])
    assert numbers("size", array[:0]).shape == (0, 4)
    assert numbers("size", np.array(b"abc", object)) == 3


class Text(bytes):
    pass


@pytest.mark.parametrize("other", ["text", None, 3, Text(b"text"), np.bytes_(b"text")])
def test_other_objects_are_declined(other):
    assert numbers("size", strings(b"a", other, b"b")) is None
    assert numbers("farm", strings(other)) is None


@pytest.mark.parametrize(
    "text", [b"0", b"-1", b"007", b"123456789012345678", b"-123456789012345678"]
)
def test_integers(text):
    assert numbers("integer", strings(text)) == int(text)


@pytest.mark.parametrize(
    "text", [b"0", b"-0", b"1.5", b"-7.", b".25", b"0.1", b"16777216", b"3.14159"]
)
def test_simple_decimals_are_rounded_once(text):
    assert numbers("float64", strings(text)).tobytes() == np.float64(text).tobytes()
    assert numbers("float32", strings(text)).tobytes() == np.float32(text.decode()).tobytes()


@pytest.mark.parametrize(
    "text", [b"", b"-", b"+1", b" 1", b"1 ", b"1e3", b"1.2.3", b".", b"-.", b"x", b"0x1", b"1" * 19]
)
def test_other_numbers_are_declined(text):
    for function in ("integer", "float32", "float64"):
        assert numbers(function, strings(b"1", text)) is None
    assert numbers("float32", strings(b"16777217")) is None
    assert numbers("float64", strings(b"9007199254740993")) is None


@pytest.mark.parametrize("family", kernels.families())
def test_kernels_with_it_answer_as_tensorflow_does(family, monkeypatch):
    monkeypatch.setattr(generated, "worthwhile", lambda elements: True)
    kernels.test_kernels_answer_as_tensorflow_does(family)


def test_feeds_are_checked(monkeypatch):
    monkeypatch.setattr(generated, "worthwhile", lambda elements: True)
    place = tf.placeholder(tf.string, [None])
    with tf.Session() as session:
        fetch = tf.string_to_hash_bucket_fast(place, 10)
        fed = session.run(fetch, {place: strings(b"a", "a", np.bytes_(b"a"))})
        assert len(set(fed.tolist())) == 1
        with pytest.raises((TypeError, ValueError), match="string"):
            session.run(fetch, {place: strings(b"a", 3)})


def test_small_work_does_not_load_the_compiler(monkeypatch):
    monkeypatch.setattr(generated, "_worked_on", 0)
    generated._generator.cache_clear()
    assert string_arrays.numbers_of("size", strings(b"a")) is None
    assert not generated.worthwhile(generated._MANY - 10)
    assert generated.worthwhile(100)


def test_strings_live_while_they_are_read():
    """Other threads change what they own; the array that is read belongs to this one."""
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            [b"%d" % i for i in range(1000)]
            gc.collect(0)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        array = strings(*(b"word%d" % i for i in range(5000)))
        expected = fingerprints.fingerprint64(array.tolist())
        for _ in range(10):
            np.testing.assert_array_equal(numbers("farm", array).view(np.uint64), expected)
    finally:
        stop.set()
        thread.join()
