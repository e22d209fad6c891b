"""Checkpoints that are read, or saved again, while another process saves to the same prefix."""

import threading

import numpy as np
import pytest

from headrace._src.checkpoint.bundle import Bundle, NamedTensor, write_bundle
from headrace._src.checkpoint.open_checkpoint import read_checkpoint
from headrace._src.core import files
from headrace._src.core.errors import DataLossError


def save(prefix, number):
    write_bundle(prefix, [NamedTensor(name, np.full(9, number)) for name in ("a", "b")])


def numbers(checkpoint):
    return {checkpoint.read(name)[0] for name in ("a", "b")}


def test_a_reader_of_what_was_replaced_says_so(tmp_path):
    prefix = str(tmp_path / "m")
    save(prefix, 1)
    with Bundle(prefix) as opened:
        assert not opened.has_moved()
        save(prefix, 2)
        assert opened.has_moved()
        with pytest.raises(DataLossError, match=r"open it again"):
            opened.read("a")
    with Bundle(prefix) as opened:
        assert numbers(opened) == {2}


def test_reading_begins_again_until_it_is_all_of_one(tmp_path):
    prefix = str(tmp_path / "m")
    save(prefix, 1)
    news = [2, 3]

    def read(checkpoint):
        first = checkpoint.read("a")[0]
        if news:
            save(prefix, news.pop(0))
        return first, checkpoint.read("b")[0]

    assert read_checkpoint(prefix, read) == (3, 3)


def test_damage_is_still_told(tmp_path):
    prefix = str(tmp_path / "m")
    save(prefix, 1)
    data = tmp_path / "m.data-00000-of-00001"
    data.write_bytes(b"x" * data.stat().st_size)
    with pytest.raises(DataLossError, match="Checksum"):
        read_checkpoint(prefix, numbers)


def test_two_who_save_at_once_move_their_files_one_after_the_other(tmp_path, monkeypatch):
    prefix = str(tmp_path / "m")
    save(prefix, 0)
    movers, waits = [], threading.Event()
    second = threading.Thread(target=save, args=(prefix, 2))
    move, flock = files.move, files.fcntl.flock

    def lock(descriptor, operation):
        if second.ident == threading.get_ident() and operation == files.fcntl.LOCK_EX:
            waits.set()
        flock(descriptor, operation)

    def record(source, place):
        if not movers:
            second.start()
            assert waits.wait(60)
        movers.append(threading.get_ident())
        move(source, place)

    monkeypatch.setattr(files, "move", record)
    monkeypatch.setattr(files.fcntl, "flock", lock)
    save(prefix, 1)
    second.join()
    first = threading.get_ident()
    half = len(movers) // 2
    assert movers == [first] * half + [second.ident] * half
    with Bundle(prefix) as opened:
        assert numbers(opened) == {2}
