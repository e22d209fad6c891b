"""The store on disk: whole entries or none, a size limit, and no failures."""

import os
import subprocess
import sys
import time

import pytest

from headrace._src.compile.native import code_cache
from headrace._src.compile.native.code_cache import CacheDirectory


@pytest.fixture
def store(tmp_path):
    return CacheDirectory(tmp_path / "cache", 2**20)


def only_file(store, kind="objects"):
    (path,) = (store.directory / kind).iterdir()
    return path


def test_what_was_put_is_found_again(store):
    assert store.get("objects", "a") is None
    store.put("objects", "a", b"code")
    store.put("timings", "a", b"other")
    assert store.get("objects", "a") == b"code"
    again = CacheDirectory(store.directory, 2**20)
    assert again.get("objects", "a") == b"code"
    assert again.get("timings", "a") == b"other"
    assert again.usage()[0] == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:10],
        lambda content: content[:-1],
        lambda content: content + b"x",
        lambda content: content[:-1] + b"X",
        lambda content: b"\0" * len(content),
        lambda content: b"something else altogether",
    ],
)
def test_a_damaged_entry_counts_as_absent_and_is_written_anew(store, damage):
    store.put("objects", "a", b"some machine code")
    path = only_file(store)
    path.write_bytes(damage(path.read_bytes()))
    assert store.get("objects", "a") is None
    store.put("objects", "a", b"some machine code")
    assert store.get("objects", "a") == b"some machine code"


def test_an_entry_under_another_name_is_not_believed(store):
    store.put("objects", "a", b"code")
    only_file(store).rename(store.directory / "objects" / "b")
    assert store.get("objects", "b") is None


def test_a_directory_in_the_place_of_an_entry(store):
    (store.directory / "objects" / "a").mkdir()
    assert store.get("objects", "a") is None
    store.put("objects", "a", b"code")
    assert store.get("objects", "a") is None


def test_nothing_is_left_behind_when_writing_fails(store, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    store.put("objects", "a", b"code")
    assert store.get("objects", "a") is None
    assert store.usage() == (0, 0)


def test_the_least_recently_used_go_first(tmp_path):
    store = CacheDirectory(tmp_path, 1000)
    now = time.time()
    for age, name in ((30, "old"), (20, "used"), (10, "new")):
        store.put("objects", name, bytes(300))
        os.utime(tmp_path / "objects" / name, (now - age * 3600,) * 2)
    assert store.get("objects", "used")  # which marks it as used now
    store.put("objects", "one more", bytes(300))
    names = ("old", "used", "new", "one more")
    assert [n for n in names if store.get("objects", n)] == ["used", "one more"]


def test_what_dead_writers_left_is_removed_in_its_turn(tmp_path):
    store = CacheDirectory(tmp_path, 1000)
    left = tmp_path / "objects" / ".writing-1234"
    left.write_bytes(bytes(900))
    os.utime(left, (0, 0))
    store.put("objects", "a", bytes(300))
    assert not left.exists()
    assert store.get("objects", "a") is not None


def test_a_store_that_is_off_forgets():
    store = CacheDirectory(None, 1000)
    store.put("objects", "a", b"code")
    assert store.get("objects", "a") is None
    assert store.why_not == "switched off"
    assert store.usage() == (0, 0)


def test_a_file_in_the_place_of_the_directory(tmp_path):
    (tmp_path / "file").write_text("")
    store = CacheDirectory(tmp_path / "file", 1000)
    store.put("objects", "a", b"code")
    assert store.get("objects", "a") is None
    assert "file" in store.why_not


def test_a_directory_that_everyone_may_write_to_is_not_trusted(tmp_path):
    CacheDirectory(tmp_path, 1000).put("objects", "a", b"code")
    tmp_path.chmod(0o777)
    store = CacheDirectory(tmp_path, 1000)
    assert store.get("objects", "a") is None
    assert "writable by everyone" in store.why_not


def test_keys_tell_identities_apart():
    assert code_cache.key("a") == code_cache.key("a") != code_cache.key("b")


def test_processes_have_the_same_keys():
    code = f"from {code_cache.__name__} import key; print(key('a'))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == code_cache.key("a")


def test_keys_depend_on_the_sources_of_the_generator(tmp_path, monkeypatch):
    def changed(text):
        (tmp_path / "compile" / "conv.py").write_text(text)
        code_cache._circumstances.cache_clear()
        return code_cache.key("a")

    monkeypatch.setattr(code_cache, "_ROOMS", tmp_path)
    (tmp_path / "compile").mkdir()
    (tmp_path / "lowering").mkdir()
    try:
        assert changed("x = 1") == changed("x = 1") != changed("x = 2")
    finally:
        code_cache._circumstances.cache_clear()


def test_measured_answers_outlive_the_process(tmp_path, monkeypatch):
    store = CacheDirectory(tmp_path, 1000)
    monkeypatch.setattr(code_cache, "store", lambda: store)
    assert code_cache.recall("conv 3x3, 2 threads") is None
    code_cache.remember("conv 3x3, 2 threads", ["winograd", 0.25])
    assert code_cache.recall("conv 3x3, 2 threads") == ["winograd", 0.25]
    store = CacheDirectory(tmp_path, 1000)
    assert code_cache.recall("conv 3x3, 2 threads") == ["winograd", 0.25]
    assert code_cache.recall("conv 3x3, 4 threads") is None
