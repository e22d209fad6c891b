"""Scattering agrees with the obvious loop, whatever the indices repeat."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace._src.ops.array.scatter_kernels import scatter, scatter_nd, truncated_divide

LOOP = {
    "Update": lambda old, new: new,
    "Add": lambda old, new: old + new,
    "Sub": lambda old, new: old - new,
    "Mul": lambda old, new: old * new,
    "Div": truncated_divide,
    "Min": np.minimum,
    "Max": np.maximum,
}


@pytest.mark.parametrize("how", LOOP)
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.float32, ml_dtypes.bfloat16])
@given(data=st.data())
def test_scatter_is_a_loop(how, dtype, data):
    rows = data.draw(st.integers(1, 4))
    indices = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=12)), np.int64)
    rng = np.random.default_rng(len(indices) * 10 + rows)
    params = rng.integers(-9, 10, (rows, 2)).astype(dtype)
    updates = rng.choice([-2, -1, 1, 2], (len(indices), 2)).astype(dtype)
    expected = params.copy()
    for i, update in zip(indices, updates, strict=True):
        expected[i] = LOOP[how](expected[i], update)
    scatter(params, indices, updates, how)
    np.testing.assert_allclose(params.astype(np.float64), expected.astype(np.float64), rtol=1e-2)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=8))
def test_scatter_nd_is_a_loop(places):
    params = np.arange(24.0).reshape(3, 2, 4)
    updates = np.arange(4.0 * len(places)).reshape(len(places), 4)
    expected = params.copy()
    for place, update in zip(places, updates, strict=True):
        expected[place] += update
    scatter_nd(params, np.array(places, np.int32).reshape(-1, 2), updates, "Add")
    np.testing.assert_array_equal(params, expected)


def test_scatter_nd_without_coordinates_takes_the_whole():
    params = np.zeros((2, 2))
    scatter_nd(params, np.zeros((3, 0), np.int32), np.ones((3, 2, 2)), "Add")
    np.testing.assert_array_equal(params, np.full((2, 2), 3.0))


@pytest.mark.parametrize(
    ("indices", "updates", "message"),
    [
        ([0, 7], [1.0, 1.0], r"indices\[1\] = 7 is not in \[0, 3\)"),
        ([[0, 1], [1, -1]], [[1.0, 1.0], [1.0, 1.0]], r"indices\[1,1\] = -1 is not in \[0, 3\)"),
        (5, 1.0, r"indices = 5 is not in \[0, 3\)"),
        ([0, 1], [1.0], r"got updates.shape \[1\], indices.shape \[2\], params.shape \[3\]"),
    ],
)
def test_bad_scatters_change_nothing(indices, updates, message):
    params = np.ones(3)
    with pytest.raises(ValueError, match=message):
        scatter(params, np.array(indices), np.array(updates), "Add")
    np.testing.assert_array_equal(params, np.ones(3))


@pytest.mark.parametrize(
    ("indices", "updates", "message"),
    [
        (
            [[0, 1], [1, 7]],
            [1.0, 1.0],
            r"indices\[1\] = \[1, 7\] does not index into shape \[2,3\]",
        ),
        ([[0, 1, 2]], [1.0], "slice_dim: 3, and batch_dim: 1"),
        ([[0, 1], [1, 1]], [1.0], "outermost dimension of updates and indices must match"),
        (1, [1.0], "rank at least one"),
    ],
)
def test_bad_nd_scatters_change_nothing(indices, updates, message):
    params = np.ones((2, 3))
    with pytest.raises(ValueError, match=message):
        scatter_nd(params, np.array(indices), np.array(updates), "Update")
    np.testing.assert_array_equal(params, np.ones((2, 3)))


def test_integers_are_not_divided_by_zero():
    with pytest.raises(ValueError, match="division by zero"):
        scatter(np.array([1, 2]), np.array([0, 1]), np.array([1, 0]), "Div")
