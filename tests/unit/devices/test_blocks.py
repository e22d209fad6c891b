"""Blocks of working memory: aligned, as large as asked for, or a MemoryError."""

import os

import numpy as np
import pytest

from headrace._src.core.config import Settings
from headrace._src.devices import blocks
from headrace._src.devices.buffers import address


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


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("size", [64, 2**21])
def test_a_forked_child_writes_to_its_own(size):
    found = blocks.block(size)
    found[:] = 1
    if not (child := os.fork()):
        found[:] = 2
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (found == 1).all()


@pytest.mark.parametrize("size", [2**60, 2**70])
def test_more_than_there_is(size):
    with pytest.raises(MemoryError, match=f"{size:,} bytes"):
        blocks.block(size)


def test_what_the_system_refuses(monkeypatch):
    def refuse(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(blocks.mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match="Cannot allocate memory"):
        blocks.block(2**20)


def test_working_memory_is_what_is_asked_for_or_all_there_is(monkeypatch):
    monkeypatch.setattr(blocks, "settings", lambda: Settings(memory_mb=3))
    assert blocks.working_memory() == 3 << 20
    monkeypatch.setattr(blocks, "settings", lambda: Settings())
    assert blocks.working_memory() == blocks.memory_limit()
