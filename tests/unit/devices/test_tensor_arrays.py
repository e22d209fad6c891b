"""Rows of a tensor array: what is copied, what is cleared."""

import numpy as np
import pytest

from headrace._src.core import dtypes, errors
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.tensor_arrays import TensorArrayState

UNKNOWN = TensorShape(None)


def array(size, **options):
    return TensorArrayState("a", dtypes.float32, size, UNKNOWN, **options)


def test_a_block_leaves_as_it_came():
    block = np.arange(6, dtype=np.float32).reshape(3, 2)
    rows = array(3, clears=False)
    rows.scatter(np.arange(3), block, dtypes.float32)
    assert rows.gather(np.arange(3), dtypes.float32, UNKNOWN) is block
    assert np.shares_memory(rows.read(1, dtypes.float32), block)


def test_a_block_is_none_once_a_row_is_gone():
    rows = array(3)
    rows.scatter(np.arange(3), np.ones((3, 2), np.float32), dtypes.float32)
    rows.read(0, dtypes.float32)
    with pytest.raises(errors.InvalidArgumentError, match="Could not read index 0 twice"):
        rows.gather(np.arange(3), dtypes.float32, UNKNOWN)


def test_a_block_is_cleared_at_once():
    rows = array(2)
    rows.scatter(np.arange(2), np.ones(2, np.float32), dtypes.float32)
    rows.gather(np.arange(2), dtypes.float32, UNKNOWN)
    with pytest.raises(errors.InvalidArgumentError, match="cleared after a previous read"):
        rows.read(1, dtypes.float32)


def test_adding_writes_no_array_that_others_hold():
    forward = array(1)
    twin = forward.gradient("g")
    first = np.ones(2, np.float32)
    twin.write(0, first, dtypes.float32)
    twin.write(0, first, dtypes.float32)
    assert first.tolist() == [1, 1]
    assert twin.read(0, dtypes.float32).tolist() == [2, 2]


def test_a_gradient_knows_the_shapes_of_rows_that_are_gone():
    forward = array(2)
    forward.write(0, np.ones(3, np.float32), dtypes.float32)
    forward.read(0, dtypes.float32)
    assert forward.gradient("g").read(0, dtypes.float32).tolist() == [0, 0, 0]
    assert forward.gradient("g", (7,)) is forward.gradient("g")
    assert forward.gradient("h", (2,)).read(0, dtypes.float32).shape == (2, 3)


def test_an_array_with_a_gradient_grows_no_more():
    forward = array(0, grows=True)
    forward.write(1, np.float32(3), dtypes.float32)
    assert forward.gradient("g").size == forward.size == 2
    with pytest.raises(errors.InvalidArgumentError, match="not resizeable and size is: 2"):
        forward.write(2, np.float32(3), dtypes.float32)
