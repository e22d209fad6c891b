"""The ops on files. Messages are TensorFlow 1.15.5's."""

import pytest

import headrace as tf
from headrace._src.core import errors


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def test_what_is_written_is_read(session):
    data = b"\x00\xff\n"
    session.run(tf.write_file("new/place/a", data))
    assert session.run(tf.read_file("new/place/a")) == data
    session.run(tf.io.write_file("new/place/a", "shorter"))
    assert session.run(tf.io.read_file("new/place/a")) == b"shorter"


def test_a_file_is_read_in_each_step(session):
    write, read = tf.write_file("a", name := tf.placeholder(tf.string)), tf.read_file("a")
    for text in (b"one", b"two"):
        session.run(write, {name: text})
        assert session.run(read) == text


def test_errors_name_the_file(session):
    with pytest.raises(errors.NotFoundError, match="nope; No such file or directory"):
        session.run(tf.read_file("nope"))
    with pytest.raises(errors.FailedPreconditionError, match="; Is a directory"):
        session.run(tf.read_file("."))
    many = tf.placeholder(tf.string)
    message = r"Input filename tensor must be scalar, but had shape: \[2\]"
    for op in (tf.read_file(many), tf.write_file(many, "")):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            session.run(op, {many: ["a", "b"]})
    with pytest.raises(ValueError, match="Shape must be rank 0 but is rank 1"):
        tf.write_file("a", ["b"])


def test_matching_files_are_those_of_glob(session):
    for name in ("b", "a", ".c"):
        session.run(tf.write_file(name, ""))
    assert session.run(tf.matching_files(["*", "./a"])).tolist() == [
        b"./.c",
        b"./a",
        b"./a",
        b"./b",
    ]
    with pytest.raises(errors.NotFoundError, match="none; No such file or directory"):
        session.run(tf.matching_files("none/*"))
