"""Routines that move few rows by index, and find equal keys, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from headrace._src.compile.run import single_ops
from headrace._src.lowering import generated
from headrace._src.ops.array.partitioning import dynamic_partition, dynamic_stitch
from headrace._src.ops.nn import candidate_kernels
from headrace._src.ops.random.philox import PhiloxState

RNG = np.random.default_rng(0)

# Rows of one element and of several, shorter and longer than a piece, and of no bytes at all.
ROWS = [("float32", ()), ("int64", ()), ("float64", (1,)), ("uint8", ()), ("float32", (2,)),
        ("float32", (8,)), ("int16", (17,)), ("float32", (128,)), ("float32", (3, 5)),
        ("float32", (0,))]  # fmt: skip


def rows_of(count, dtype, rest):
    return RNG.integers(-99, 99, (count, *rest)).astype(dtype)


def width_of(dtype, rest):
    size = np.dtype(dtype).itemsize
    return size if np.prod(rest, dtype=int) == 1 and size in (4, 8) else 0


@pytest.mark.parametrize(("dtype", "rest"), ROWS)
@pytest.mark.parametrize("count", [0, 1, 500])
def test_rows_are_divided_by_key_and_stay_in_order(count, dtype, rest):
    rows, keys = rows_of(count, dtype, rest), RNG.integers(0, 3, count).astype(np.int32)
    divide = single_ops.routine("divide_rows", width_of(dtype, rest))
    found = divide(rows, keys, 4)
    assert len(found) == 4
    for part, each in enumerate(found):
        np.testing.assert_array_equal(each, rows[keys == part])


@pytest.mark.parametrize("wrong", [-1, 2, 2**31 - 1, -(2**31)])
def test_keys_out_of_range_are_declined(wrong):
    keys = np.array([0, 1, 0, wrong, 1], np.int32)
    assert single_ops.routine("divide_rows", 8)(np.arange(5), keys, 2) is None


@pytest.mark.parametrize(("dtype", "rest"), ROWS)
def test_rows_are_merged_by_index(dtype, rest):
    rows, keys = rows_of(300, dtype, rest), RNG.integers(0, 3, 300)
    places = [np.flatnonzero(keys == k).astype(np.int32) for k in range(3)]
    merge = single_ops.routine("merge_rows", width_of(dtype, rest))
    made = []
    found = merge(places, [rows[p] for p in places], rest, made.append)
    np.testing.assert_array_equal(found, rows)
    assert made == [300]


@pytest.mark.parametrize(("dtype", "rest"), ROWS)
def test_merged_rows_without_an_index_are_zero_and_the_last_one_wins(dtype, rest):
    first, second = rows_of(3, dtype, rest), rows_of(4, dtype, rest)
    places = [np.array([7, 1, 4], np.int32), np.array([2, 4, 9, 4], np.int32)]
    merge = single_ops.routine("merge_rows", width_of(dtype, rest))
    expected = np.zeros((10, *rest), dtype)
    expected[places[0]] = first
    for place, row in zip(places[1], second, strict=True):
        expected[place] = row
    np.testing.assert_array_equal(merge(places, [first, second], rest, lambda _: None), expected)


def test_negative_indices_are_declined_and_the_size_is_checked_first():
    merge = single_ops.routine("merge_rows", 8)
    assert merge([np.array([1, -1], np.int32)], [np.arange(2)], (), lambda _: None) is None
    empty = merge([np.zeros(0, np.int32)], [np.arange(0)], (), lambda _: None)
    assert empty.shape == (0,)

    def refuse(count):
        raise MemoryError(count)

    with pytest.raises(MemoryError, match="2147483648"):
        merge([np.array([2**31 - 1], np.int32)], [np.arange(1)], (), refuse)


@pytest.mark.parametrize(("dtype", "rest"), ROWS)
@pytest.mark.parametrize("count", [0, 1, 300])
def test_divided_rows_are_put_back(count, dtype, rest):
    rows, keys = rows_of(count, dtype, rest), RNG.integers(0, 3, count).astype(np.int32)
    parts = [rows[keys == k] for k in range(4)]
    undivide = single_ops.routine("undivide_rows", width_of(dtype, rest))
    np.testing.assert_array_equal(undivide(keys, parts), rows)


@pytest.mark.parametrize(
    "keys", [[0, 2, 0], [0, -1, 1], [0, 0, 0], [1, 1, 0], [0, 0], [2**31 - 1] * 3]
)
def test_keys_that_do_not_fit_the_parts_are_declined(keys):
    undivide = single_ops.routine("undivide_rows", 8)
    parts = [np.arange(2), np.arange(1)]
    assert undivide(np.array(keys, np.int32), parts) is None


# Keys that are multiples of a power of two fall into few slots of a table unless they are mixed.
@pytest.mark.parametrize("step", [1, 1 << 40, -3])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_first_places_of_keys(count, step):
    keys = RNG.integers(0, 400, count) * step
    expected = np.sort(np.unique(keys, return_index=True)[1])
    find = single_ops.routine("first_places")
    for limit in (0, 1, 100, 10_000):
        np.testing.assert_array_equal(find(keys, limit), expected[:limit])


@pytest.mark.parametrize("step", [1, 1 << 40, -3])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_last_places_of_keys(count, step):
    keys, asked = RNG.integers(0, 400, count) * step, RNG.integers(-5, 500, 300) * step
    places = {key: place for place, key in enumerate(keys.tolist())}
    expected = [places.get(key, -1) for key in asked.tolist()]
    np.testing.assert_array_equal(single_ops.routine("last_places")(keys, asked), expected)


# -- Ops with generated code and without -----------------------------------------------------------


@pytest.fixture(params=["generated", "NumPy"])
def _both(request, monkeypatch):
    wanted = request.param == "generated"
    monkeypatch.setattr(generated, "worthwhile", lambda elements: wanted)


@pytest.mark.usefixtures("_both")
class TestOps:
    def test_partition_names_the_first_key_out_of_range(self):
        kernel = dynamic_partition.definition.kernel
        with pytest.raises(ValueError, match=r"partitions\[2\] = 3 is not in \[0, 2\)"):
            kernel(np.arange(4.0), np.array([0, 1, 3, 5], np.int32), num_partitions=2)

    def test_partition_of_arrays_that_generated_code_cannot_read(self):
        kernel = dynamic_partition.definition.kernel
        keys = np.array([1, 0, 1], np.int32)
        for data in (np.arange(6.0)[::2], np.array([b"a", b"b", b"c"], object)):
            low, high = kernel(data, keys, num_partitions=2)
            np.testing.assert_array_equal(low, data[1:2])
            np.testing.assert_array_equal(high, data[[0, 2]])

    def test_stitch_names_a_negative_index_and_sizes_that_do_not_fit(self):
        kernel = dynamic_stitch.definition.kernel
        with pytest.raises(ValueError, match=r"indices\[1\] is out of range: -7"):
            kernel([np.array([0, -7], np.int32)], [np.arange(2.0)])
        with pytest.raises(MemoryError, match="the largest of indices"):
            kernel([np.array([2**31 - 1], np.int32)], [np.zeros((1, 1 << 20), np.float64)])

    def test_draws_are_those_of_numpy(self):
        """The expected numbers are those of both ways; test_oracle compares with TensorFlow."""
        drawn, tries = candidate_kernels.draw(
            PhiloxState(7, 9), candidate_kernels.log_uniform(100), 12, unique=True
        )
        assert len(set(drawn.tolist())) == 12
        raw = candidate_kernels.log_uniform(100).pick(PhiloxState(7, 9).reserve(0), 24)
        assert list(dict.fromkeys(raw.tolist()))[:12] == drawn.tolist()
        assert len(set(raw[:tries].tolist())) == 12
        assert len(set(raw[: tries - 1].tolist())) == 11
