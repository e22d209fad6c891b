"""Identity, lookup and array types of DType: what the recorded facts do not cover."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from headrace._src.core import dtypes

ALL = [dtypes.DType(n + ref) for n in range(1, 24) for ref in (0, 100)]


@pytest.mark.parametrize("dtype", ALL, ids=lambda t: t.name)
def test_identity_survives_every_way_of_copying(dtype):
    assert copy.copy(dtype) is dtype
    assert copy.deepcopy([dtype])[0] is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert dtypes.as_dtype(dtype.name) is dtype
    assert dtypes.as_dtype(int(dtype)) is dtype
    assert getattr(dtypes, dtype.name) is dtype


@pytest.mark.parametrize("dtype", [t for t in ALL if t.enum < 100], ids=lambda t: t.name)
def test_array_of_a_type_has_that_type(dtype):
    found = dtypes.of_array(np.zeros(2, dtype.numpy))
    assert found is (dtypes.string if dtype.as_numpy_dtype is object else dtype)


@pytest.mark.parametrize("values", [[b"a"], ["a", "bcd"], np.array([b"a", None], object)])
def test_arrays_of_text_and_objects_are_strings(values):
    assert dtypes.of_array(np.array(values)) is dtypes.string


@pytest.mark.parametrize("order", "<>=")
def test_byte_order_does_not_matter(order):
    assert dtypes.of_array(np.zeros(2, order + "i4")) is dtypes.int32


def test_array_without_a_type_is_refused():
    with pytest.raises(TypeError, match=r"M8\[s\]"):
        dtypes.of_array(np.zeros(2, "M8[s]"))


def test_bfloat16_is_ml_dtypes():
    assert dtypes.as_dtype(ml_dtypes.bfloat16) is dtypes.bfloat16
    assert dtypes.bfloat16.as_numpy_dtype is ml_dtypes.bfloat16
    assert float(dtypes.bfloat16.max) == 3.3895313892515355e38
    assert float(dtypes.bfloat16.min) == -3.3895313892515355e38
    assert dtypes.bfloat16.limits == (0, 1)


def test_types_are_frozen_and_usable_as_keys():
    with pytest.raises(AttributeError, match="float32"):
        dtypes.float32.name = "other"
    assert {dtypes.float32: 1}[dtypes.as_dtype("float32")] == 1
    assert len(set(ALL)) == len(ALL)


@pytest.mark.parametrize("value", ["float32", 1.0, 0, 24, 124])
def test_constructor_wants_the_number_of_a_type(value):
    with pytest.raises(TypeError, match="not the number of a data type"):
        dtypes.DType(value)
