"""Memory in files: what loops with swap_memory save for their gradients."""

import errno
import gc
import mmap
import os
import tempfile

import numpy as np
import pytest

from headrace._src.core.config import settings
from headrace._src.devices import swap_files
from headrace._src.devices.allocator import Allocator
from headrace._src.devices.buffers import address
from headrace._src.devices.swap_files import SWAPPED_FROM, SwappedValues, file_block, swaps

LARGE = 100_000


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_SWAP_DIR", str(tmp_path))
    settings.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    settings.cache_clear()


def test_nothing_is_swapped_without_a_folder():
    assert not swaps()


def test_a_block_has_no_name_in_its_folder(folder):
    assert swaps()
    memory = file_block(LARGE)
    assert memory.shape == (LARGE,) and not memory.any()
    assert address(memory) % mmap.PAGESIZE == 0
    memory[:] = 7
    assert memory.sum() == 7 * LARGE
    assert os.listdir(folder) == []


@pytest.mark.parametrize("function", ["fallocate", "write"])
def test_all_of_a_file_is_on_the_disk_before_it_is_used(folder, monkeypatch, function):
    if function == "write":  # systems that can't reserve
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    with tempfile.TemporaryFile(buffering=0, dir=folder) as file:
        swap_files._reserve(file, 3_000_000)
        assert os.fstat(file.fileno()).st_size == 3_000_000
        assert os.fstat(file.fileno()).st_blocks * 512 >= 3_000_000
    assert not file_block(LARGE).any()


def test_a_missing_folder_is_a_memory_error(folder):
    folder.rmdir()
    with pytest.raises(MemoryError, match=r"100,000 bytes .* HEADRACE_SWAP_DIR=.*No such file"):
        file_block(LARGE)


def test_a_full_disk_is_a_memory_error(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(MemoryError, match="No space left on device"):
        file_block(LARGE)
    assert os.listdir(folder) == []


def test_blocks_are_counted_apart_from_memory_and_have_no_limit(folder):
    allocator = Allocator(limit=1000)
    with pytest.raises(MemoryError):
        allocator.block(LARGE)
    memory = allocator.swapped_block(LARGE)
    view = memory[5:10]
    del memory
    found = allocator.statistics()
    assert (found.in_use, found.swapped, found.swapped_peak) == (0, LARGE, LARGE)
    del view
    found = allocator.statistics()
    assert (found.swapped, found.swapped_peak) == (0, LARGE)


def test_values_lie_one_after_the_other_until_all_are_gone(folder):
    allocator = Allocator()
    values = [np.arange(n, dtype=np.float32).reshape(-1, 2) for n in (1000, 2000, 3000)]
    saved = [allocator.swapped(v) for v in values]
    for value, copy in zip(values, saved, strict=True):
        np.testing.assert_array_equal(copy, value)
        assert not np.shares_memory(copy, value) and address(copy) % 64 == 0
    assert [address(s) - address(saved[0]) for s in saved] == [0, 4032, 12032]
    one_file = allocator.statistics().swapped
    assert one_file >= sum(v.nbytes for v in values)
    del saved[0], saved[1]
    assert allocator.statistics().swapped == one_file
    saved.clear()
    del copy
    gc.collect()
    assert allocator.statistics().swapped == 0


def test_there_are_few_files_however_many_values_there_are(folder, monkeypatch):
    monkeypatch.setattr(swap_files, "_SMALLEST_FILE", 1 << 16)
    allocator, sizes = Allocator(), []
    saved = []
    for _ in range(1000):
        saved.append(allocator.swapped(np.zeros(2500)))
        sizes.append(allocator.statistics().swapped)
    assert len(set(sizes)) < 30
    assert sizes[-1] < 2 * sum(s.nbytes for s in saved)


def test_a_value_larger_than_a_file_gets_one_of_its_own(folder, monkeypatch):
    monkeypatch.setattr(swap_files, "_SMALLEST_FILE", 1 << 12)
    allocator = Allocator()
    value = np.arange(LARGE)
    np.testing.assert_array_equal(allocator.swapped(value), value)


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(SWAPPED_FROM - 1, np.uint8),
        np.float32(3),
        np.array([b"a" * 5000] * 3, object),
        None,
    ],
)
def test_small_values_and_objects_stay_where_they_are(folder, value):
    assert Allocator().swapped(value) is value


def test_strided_values_are_copied_in_order(folder):
    value = np.arange(2000.0).reshape(40, 50).T
    saved = Allocator().swapped(value)
    assert saved.flags.c_contiguous
    np.testing.assert_array_equal(saved, value)


def test_another_process_gets_a_file_of_its_own(folder, monkeypatch):
    values = SwappedValues(file_block)
    first = values.copy(np.zeros(1000), 0)
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as if forked
    second = values.copy(np.ones(1000), 0)
    assert first.base is not second.base and not first.any() and second.all()
