"""Aligned buffers."""

import numpy as np
import pytest

from headrace._src.devices.buffers import (
    ALIGNMENT,
    ReusedMemory,
    address,
    allocating,
    empty_aligned,
)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4), (1000, 1001)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex128, bool])
def test_arrays_are_aligned_contiguous_and_writable(shape, dtype):
    array = empty_aligned(shape, dtype)
    assert array.shape == shape and array.dtype == dtype
    assert array.ctypes.data % 64 == 0
    assert array.flags.c_contiguous and array.flags.writeable
    array[...] = 1
    assert (array == 1).all()


def test_live_arrays_do_not_overlap():
    arrays = [empty_aligned((7,), np.float32) for _ in range(100)]
    for i, array in enumerate(arrays):
        array[:] = i
    assert [array[0] for array in arrays] == [array[-1] for array in arrays] == list(range(100))


def test_address_is_that_of_the_first_element():
    array = np.arange(12.0).reshape(3, 4)
    for view in (array, array[1:, 2:], array[::-1], array.T):
        assert address(view) == view.ctypes.data


def test_refuses_python_objects_and_absurd_sizes():
    with pytest.raises(TypeError, match="Python objects"):
        empty_aligned((2,), object)
    with pytest.raises((MemoryError, ValueError)):
        empty_aligned((2**40, 2**40), np.float32)


def test_memory_is_used_again_once_its_array_is_gone():
    allocate = ReusedMemory()
    first, second = allocate((4, 3), np.float32), allocate((4, 3), np.float32)
    assert not np.shares_memory(first, second)
    place = address(first)
    assert place % ALIGNMENT == 0 and type(first) is np.ndarray and first.flags.writeable
    del first
    third = allocate((4, 3), np.float32)
    assert address(third) == place
    assert not np.shares_memory(third, second)


def test_large_arrays_may_come_from_other_memory():
    given = []

    def allocate(size):
        if size > 1000:
            raise MemoryError
        given.append(np.zeros(size, np.uint8))
        return given[-1]

    def make(count):
        return empty_aligned((count,), np.float32)

    within = allocating(make, allocate, 100)
    assert not given and make(50).shape == (50,) and not given
    assert within(10).shape == (10,) and not given  # small
    lasting = allocating(ReusedMemory(), allocate, 100)((10,), np.float32)
    assert np.shares_memory(lasting, given.pop())
    found = within(50)
    assert np.shares_memory(found, given[0])
    assert within(1000).shape == (1000,) and len(given) == 1  # there is no such memory left
    make(50)
    assert len(given) == 1
