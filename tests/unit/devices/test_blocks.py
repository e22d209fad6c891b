"""Blocks of working memory: aligned, as large as asked for, or a MemoryError."""

import numpy as np
import pytest

from headrace.devices import blocks
from headrace.devices.buffers import address


@pytest.mark.parametrize("size", [1, 64, 1000, 2**20 - 1])
def test_small_blocks_start_at_a_cache_line(size):
    found = blocks.block(size)
    assert found.dtype == np.uint8 and found.shape == (size,)
    assert address(found) % 64 == 0
    found[:] = 7


@pytest.mark.parametrize("size", [2**20, 2**21 + 1, 5 * 2**21])
def test_large_blocks_start_at_a_huge_page(size):
    found = blocks.block(size)
    assert found.shape == (size,)
    assert address(found) % 2**21 == 0
    found[[0, -1]] = 7
    assert found[-1] == 7


@pytest.mark.parametrize("size", [2**60, 2**70])
def test_more_than_there_is(size):
    with pytest.raises(MemoryError, match=f"{size:,} bytes"):
        blocks.block(size)


def test_what_the_system_refuses(monkeypatch):
    def refuse(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(blocks.mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match="Cannot allocate memory"):
        blocks.block(2**20)
