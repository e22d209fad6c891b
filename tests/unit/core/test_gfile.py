"""tf.gfile and tf.io.gfile: what they do and say is what TensorFlow 1.15.5 did there."""

import os
from pathlib import Path

import pytest

import headrace as tf
from headrace._src.core import errors


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, content, mode="w"):
    with tf.gfile.GFile(name, mode) as file:
        file.write(content)


def fails(error, message, call, *args, **kwargs):
    with pytest.raises(error) as caught:
        call(*args, **kwargs)
    assert caught.value.message == message


def test_text_is_utf8_and_lines_have_no_carriage_returns():
    write("a", "héllo\nworld\r\nx")
    assert tf.gfile.GFile("a").read() == "héllo\nworld\r\nx"
    assert tf.gfile.FastGFile("a", "rb").read() == "héllo\nworld\r\nx".encode()
    assert list(tf.gfile.Open("a")) == ["héllo\n", "world\n", "x"]
    assert tf.gfile.GFile("a", "rb").readlines()[1] == b"world\n"
    assert tf.gfile.GFile("a").read(3) == "hé"


def test_a_file_is_opened_when_it_is_used():
    file = tf.gfile.GFile("missing")
    assert (file.name, file.mode) == ("missing", "r")
    fails(errors.NotFoundError, "missing; No such file or directory", file.read)
    with tf.gfile.GFile("untouched", "w"):
        pass
    assert not os.path.exists("untouched")


def test_a_closed_file_opens_again():
    write("a", "one")
    file = tf.gfile.GFile("a")
    assert file.read(1) == "o"
    file.close()
    assert file.read() == "one"


def test_both_ways_truncate_at_the_first_write():
    write("a", "abc")
    with tf.gfile.GFile("a", "r+") as file:
        assert file.read(2) == "ab"
        file.write("Z")
    assert Path("a").read_text() == "Z"
    write("a", "+", "a")
    assert Path("a").read_text() == "Z+"


def test_modes_are_kept():
    fails(
        errors.InvalidArgumentError,
        "mode is not 'r' or 'w' or 'a' or 'r+' or 'w+' or 'a+'",
        tf.gfile.GFile,
        "a",
        "x",
    )
    fails(
        errors.PermissionDeniedError, "File isn't open for reading", tf.gfile.GFile("a", "w").read
    )
    fails(
        errors.PermissionDeniedError,
        "File isn't open for writing",
        tf.gfile.GFile("a").write,
        "x",
    )
    with pytest.raises(TypeError, match="Expected binary or unicode string, got 5"):
        tf.gfile.GFile("a", "w").write(5)


def test_places():
    write("a", b"0123456789", "wb")
    file = tf.gfile.GFile("a", "rb")
    file.seek(3)
    assert (file.read(2), file.tell(), file.size()) == (b"34", 5, 10)
    file.seek(-1, 2)
    assert file.read() == b"9"
    file.seek(position=1)
    file.seek(2, 1)
    assert file.read(1) == b"3"
    fails(errors.OutOfRangeError, "reached end of file", file.seek, 11)
    fails(errors.InvalidArgumentError, "Seeking to a negative position: -1", file.seek, -1)
    with pytest.raises(TypeError, match="offset argument required"):
        file.seek()
    with tf.gfile.GFile("a", "a") as appended:
        appended.write("x")
        assert appended.tell() == 11


@pytest.fixture
def tree():
    tf.gfile.MakeDirs("p/q/r")
    for name in ("p/1.txt", "p/q/2.txt", "p/.hidden", "p/q/r/3"):
        write(name, "x")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("p/*", ["p/.hidden", "p/1.txt", "p/q"]),
        ("p/*.txt", ["p/1.txt"]),
        ("p/**", ["p/.hidden", "p/1.txt", "p/q"]),
        ("p/*/*", ["p/q/2.txt", "p/q/r"]),
        ("p/[!2].txt", ["p/1.txt"]),
        ("p/[^2].txt", ["p/1.txt"]),
        ("p/[1-9].txt", ["p/1.txt"]),
        ("p/\\1.txt", ["p/1.txt"]),
        ("p/1.txt", ["p/1.txt"]),
        ("p/{1,2}.txt", []),
        ("p/", []),
        ("p//*.txt", []),
        ("", []),
        ("p/q/../*.txt", ["p/q/../1.txt"]),
        ("?", ["./p"]),
        (["p/*.txt", "p/q/*"], ["p/1.txt", "p/q/2.txt", "p/q/r"]),
    ],
)
def test_glob(tree, pattern, found):
    assert tf.gfile.Glob(pattern) == found
    assert tf.io.gfile.glob(pattern) == found


def test_glob_needs_the_directory_of_the_first_wildcard(tree):
    fails(errors.NotFoundError, "none; No such file or directory", tf.gfile.Glob, "none/*")
    assert tf.gfile.Glob("*/none/*") == []


def test_directories(tree):
    assert tf.gfile.ListDirectory("p") == [".hidden", "1.txt", "q"]
    walked = [("p", ["q"], [".hidden", "1.txt"]), ("p/q", ["r"], ["2.txt"]), ("p/q/r", [], ["3"])]
    assert list(tf.gfile.Walk("p")) == walked
    assert list(tf.io.gfile.walk("p", topdown=False)) == walked[::-1]
    assert list(tf.gfile.Walk("none")) == []
    told = []
    assert list(tf.io.gfile.walk("none", onerror=told.append)) == []
    assert told[0].message == "Could not find directory none"
    assert tf.gfile.IsDirectory("p") and not tf.gfile.IsDirectory("p/1.txt")
    assert tf.gfile.Exists("p/1.txt") and not tf.gfile.Exists("p/2.txt")
    tf.gfile.MkDir("p")  # it's there
    fails(errors.NotFoundError, "x/y; No such file or directory", tf.gfile.MkDir, "x/y")
    fails(
        errors.FailedPreconditionError, "p/1.txt/z; Not a directory", tf.gfile.MakeDirs, "p/1.txt/z"
    )
    tf.gfile.DeleteRecursively("p")
    assert not os.path.exists("p")
    fails(errors.NotFoundError, "p not found", tf.gfile.DeleteRecursively, "p")


def test_stat(tree):
    found = tf.gfile.Stat("p/1.txt")
    assert (found.length, found.is_directory) == (1, False)
    assert found.mtime_nsec == os.stat("p/1.txt").st_mtime_ns
    assert tf.io.gfile.stat("p").is_directory
    fails(errors.NotFoundError, "zz; No such file or directory", tf.gfile.Stat, "zz")


def test_copy_and_rename():
    write("a", "1")
    tf.gfile.Copy("a", "b")
    fails(errors.AlreadyExistsError, "file already exists", tf.gfile.Copy, "a", "b")
    write("a", "2")
    tf.gfile.Copy("a", "b", overwrite=True)
    assert Path("b").read_text() == "2"
    fails(errors.AlreadyExistsError, "file already exists", tf.gfile.Rename, "a", "b")
    tf.io.gfile.rename("a", "b", overwrite=True)
    assert tf.gfile.ListDirectory(".") == ["b"]
    fails(errors.NotFoundError, "a; No such file or directory", tf.gfile.Copy, "a", "c")
    fails(errors.NotFoundError, "a; No such file or directory", tf.gfile.Remove, "a")
    tf.gfile.Remove("b")
    assert tf.gfile.ListDirectory(".") == []


def test_schemes(directory):
    write("a", "1")
    assert tf.gfile.GFile(f"file://{directory}/a").read() == "1"
    assert tf.gfile.Glob(f"file://{directory}/*") == [f"file://{directory}/a"]
    with pytest.raises(errors.UnimplementedError, match="scheme 'gs' not implemented"):
        tf.gfile.Exists("gs://bucket/a")
