"""Drafts of files: the bytes on the disk are correct for every way of writing them."""

import mmap
from itertools import pairwise

import numpy as np
import pytest

from headrace._src.core import files

MEGABYTE = 1 << 20


def pieces(sizes, shift):
    """Arrays one after the other in memory, the first one `shift` bytes into a page."""
    memory = np.frombuffer(mmap.mmap(-1, shift + sum(sizes)), np.uint8)
    memory[:] = np.random.default_rng(0).integers(0, 256, memory.size, np.uint8)
    ends = np.cumsum([shift, *sizes])
    return [memory[start:end] for start, end in pairwise(ends)]


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("shift", [0, 1])
def test_all_bytes_in_order(tmp_path, monkeypatch, shift, direct):
    if not direct:
        monkeypatch.setattr(files, "_bypass_cache", lambda *unused: False)
    monkeypatch.setattr(files, "GATHERED", 1 << 16)
    given = pieces([7, 2 * MEGABYTE + 5, 0, 100_000, MEGABYTE, 3, 4096, MEGABYTE + 1], shift)
    with files.draft(tmp_path / "x") as draft:
        for piece in given:
            draft.write(piece)
        draft.seal()
        draft.publish()
    assert (tmp_path / "x").read_bytes() == b"".join(map(bytes, given))


def test_a_file_system_that_refuses_whole_pages(tmp_path, monkeypatch):
    """It takes the flag, and then no write."""
    real, refused = files.os.write, []

    def write(descriptor, data):
        if files.fcntl.fcntl(descriptor, files.fcntl.F_GETFL) & files.os.O_DIRECT:
            refused.append(len(data))
            raise OSError(files.errno.EINVAL, "no")
        return real(descriptor, data)

    monkeypatch.setattr(files.os, "write", write)
    (given,) = pieces([3 * MEGABYTE], 0)
    with files.draft(tmp_path / "x") as draft:
        draft.write(given)
        draft.seal()
        draft.publish()
    assert (tmp_path / "x").read_bytes() == bytes(given) and refused
