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


@pytest.mark.parametrize(
    ("lines", "files", "limits"),
    [
        (
            "0::/a/b\n",
            {"a/b/memory.max": "max\n", "a/memory.max": "4096\n", "memory.max": "8192\n"},
            [4096, 8192],
        ),
        (
            "4:memory:/job\n2:cpu,cpuacct:/other\n0::/\n",
            {
                "memory/job/memory.limit_in_bytes": "1024\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "memory/other/memory.limit_in_bytes": "1\n",
            },
            [1024, 9223372036854771712],
        ),
        ("0::/gone/inside\n", {"memory.max": "512"}, [512]),
        (None, {"memory.max": "512"}, []),
    ],
    ids=["version 2", "version 1", "in a container", "no cgroups"],
)
def test_limits_of_cgroups_and_their_parents(tmp_path, lines, files, limits):
    if lines is not None:
        (tmp_path / "cgroup").write_text(lines)
    for name, text in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(blocks._cgroup_limits(tmp_path / "fs", tmp_path / "cgroup")) == limits


def test_the_least_limit_counts(monkeypatch):
    monkeypatch.setattr(blocks, "_cgroup_limits", lambda: [5 << 20, 7 << 20])
    blocks._machine_memory.cache_clear()
    try:
        assert blocks.memory_limit() == 5 << 20
        with pytest.raises(MemoryError, match="more than the possible 5,242,880"):
            blocks.block(6 << 20)
    finally:
        blocks._machine_memory.cache_clear()


def test_zeros_on_demand_are_zeros_that_own_their_memory(monkeypatch):
    monkeypatch.setattr(blocks, "_RARELY_FULL", 2**16)
    for size in (10, 2**20):
        found = blocks.zeros_on_demand((size,), np.dtype(np.float32))
        assert found.flags.owndata and not found.any()
        found[:] = 1


def test_a_sparse_copy_equals_its_source(monkeypatch):
    monkeypatch.setattr(blocks, "_RARELY_FULL", 2**16)
    monkeypatch.setattr(blocks, "_CHUNK", 100)
    value = np.zeros((300, 200), np.float32)
    value[7, 3], value[8, 0], value[299, 199] = 5.0, -0.0, 1.0
    copy = blocks.sparse_copy(value)
    assert copy is not None and not np.shares_memory(copy, value)
    np.testing.assert_array_equal(copy.view(np.uint32), value.view(np.uint32))
    assert blocks.sparse_copy(value[:10]) is None  # small
    assert blocks.sparse_copy(value.T) is None
