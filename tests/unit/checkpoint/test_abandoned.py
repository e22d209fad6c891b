"""A later save removes files of killed processes, if certainly no process uses them."""

import os
import time

import numpy as np
import pytest

from headrace._src.checkpoint.bundle import NamedTensor, merge_bundles, write_bundle
from headrace._src.core import files

HOUR = 3600.0


def make_old(path, seconds):
    when = time.time() - seconds
    os.utime(path, (when, when))


def save(directory):
    write_bundle(str(directory / "m"), [NamedTensor("v", np.ones(2))])


def drafts(directory):
    return [name for name in os.listdir(directory) if ".tempstate" in name]


def test_a_dead_processes_draft_goes(tmp_path):
    os.close(files.Draft(tmp_path / "x")._descriptor)  # all that a process's end does to it
    (left,) = drafts(tmp_path)
    save(tmp_path)
    assert drafts(tmp_path) == [left], "it's too young to be sure"
    make_old(tmp_path / left, HOUR)
    save(tmp_path)
    assert drafts(tmp_path) == []


@pytest.mark.parametrize("sealed", [False, True])
def test_a_living_processes_draft_stays(tmp_path, sealed):
    with files.draft(tmp_path / "x") as draft:
        if sealed:
            draft.seal()
        make_old(draft.temporary, HOUR)
        save(tmp_path)
        assert drafts(tmp_path) == [os.path.basename(draft.temporary)]
    assert drafts(tmp_path) == []


def test_tensorflows_drafts_stay(tmp_path):
    (tmp_path / "m.data-00000-of-00001.tempstate1234567890123456").touch()
    make_old(tmp_path / "m.data-00000-of-00001.tempstate1234567890123456", 100 * HOUR)
    save(tmp_path)
    assert len(drafts(tmp_path)) == 1


def test_parts_that_were_never_merged(tmp_path):
    old, young, other = (tmp_path / f"m_temp_{c * 32}" for c in "abc")
    for directory in (old, young, other):
        write_bundle(str(directory / "part-00000-of-00001"), [NamedTensor("v", np.ones(2))])
    (other / "notes.txt").touch()
    for directory in (old, other):
        for path in (*directory.iterdir(), directory):
            make_old(path, 30 * HOUR)
    part = tmp_path / f"m_temp_{'d' * 32}" / "part-00000-of-00001"
    write_bundle(str(part), [NamedTensor("v", np.ones(2))])
    merge_bundles([str(part)], str(tmp_path / "m"), delete_old_dirs=True)
    assert sorted(p for p in tmp_path.iterdir() if p.is_dir()) == [young, other]
