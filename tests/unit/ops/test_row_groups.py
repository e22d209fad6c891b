"""Rows with equal keys, brought together: against NumPy's one-by-one ways."""

import numpy as np
import pytest

from headrace._src.ops.array.group_by_key import reduce_rows, row_groups, stable_order, update_rows

RANDOM = np.random.RandomState(0)
# Every key once, a few often, one very often, none.
KEYS = [
    RANDOM.randint(0, 9, 40),
    RANDOM.permutation(300),
    RANDOM.randint(0, 20, 500),
    np.zeros(2000, int),
    np.zeros(0, int),
    np.repeat(np.arange(40), np.arange(40)),
]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
@pytest.mark.parametrize("low", [0, -50, 1 << 33])
def test_order_is_the_stable_one(dtype, low):
    keys = (low + RANDOM.randint(0, 100, 1000)).astype(dtype)
    np.testing.assert_array_equal(stable_order(keys), np.argsort(keys, kind="stable"))


@pytest.mark.parametrize("keys", KEYS, ids=len)
def test_groups_name_every_row_once_and_in_order(keys):
    seen = []
    for found, places in row_groups(keys, 1000):
        assert (keys[places] == found).all()
        assert (np.diff(places, axis=0) > 0).all()
        seen += places.ravel().tolist()
    assert sorted(seen) == list(range(len(keys)))


@pytest.mark.parametrize("ufunc", [np.add, np.subtract, np.multiply, np.maximum])
@pytest.mark.parametrize("tail", [(), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("keys", KEYS, ids=len)
def test_update_is_ufunc_at(keys, tail, ufunc):
    rows = RANDOM.randint(1, 9, (len(keys), *tail))
    target, expected = np.ones((2, 300, *tail), int)
    ufunc.at(expected, keys, rows)
    update_rows(ufunc, target, keys, rows)
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("tail", [(), (3,)])
@pytest.mark.parametrize("keys", KEYS, ids=len)
def test_reduce_leaves_keys_without_rows(keys, tail):
    rows = RANDOM.rand(len(keys), *tail).astype("f")
    target = np.full((301, *tail), -1, "f")
    reduce_rows(np.add, rows, keys, target)
    for key in range(301):
        expected = rows[keys == key].sum(0, dtype="d") if key in keys else np.full(tail, -1)
        np.testing.assert_allclose(target[key], expected, rtol=1e-6)
