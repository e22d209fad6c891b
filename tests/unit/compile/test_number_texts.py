"""Numbers as text by generated code: what Python's operator % writes, for any bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace._src.lowering import generated
from headrace._src.ops.strings.printf import as_string


def both(array, **attributes):
    """The texts without and with generated code."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for answer in (False, True):
            patch.setattr(generated, "worthwhile", lambda elements, answer=answer: answer)
            texts = as_string(array, **attributes)
            assert texts.shape == array.shape
            found.append(texts.tolist())
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_integers(values):
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        expected, found = both(np.array(values, np.int64).astype(dtype))
        assert found == expected


HALVES = st.integers(-(2**50), 2**50).map(lambda n: (n + 0.5) / 2**20)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.one_of(st.floats(), st.floats(-10, 10), st.floats(width=32), HALVES), max_size=5),
    st.integers(-1, 17),
)
def test_floats(values, precision):
    for dtype in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            array = np.array(values).astype(dtype)
        expected, found = both(array, precision=precision)
        assert found == expected


def test_halves_are_rounded_as_they_are_and_not_as_a_product_is():
    near = [0.5, 1.5, 2.5, 0.125, 0.375, 1.005, 2.675, 0.0000005, 0.0000015, -0.0, -1e-9, 1e-300]
    values = np.array([*near, *np.nextafter(near, 2), *np.nextafter(near, -2)])
    for precision in range(16):
        expected, found = both(values, precision=precision)
        assert found == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_many(dtype):
    random = np.random.RandomState(0)
    bits = random.randint(0, 2**16, 20000 * np.dtype(dtype).itemsize // 2).astype(np.uint16)
    for precision in (-1, 0, 3):
        expected, found = both(bits.view(dtype).reshape(-1, 8), precision=precision)
        assert found == expected


def test_shapes_and_strides():
    numbers = np.arange(12).reshape(3, 4)
    for array in (numbers, numbers.T[::2], numbers[:0], numbers[1, 1], numbers.astype(np.float32)):
        array = np.asarray(array)
        expected, found = both(array)
        assert found == expected
