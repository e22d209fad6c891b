"""tf.sysconfig, and tf.errors.raise_exception_on_not_ok_status."""

from pathlib import Path

import pytest

import headrace as tf


def test_directories_and_flags():
    assert Path(tf.sysconfig.get_lib()) == Path(tf.__file__).parent
    assert Path(tf.sysconfig.get_include()).parent == Path(tf.sysconfig.get_lib())
    include = "-I" + tf.sysconfig.get_include()
    assert tf.sysconfig.get_compile_flags() == [include, "-D_GLIBCXX_USE_CXX11_ABI=0"]
    assert tf.sysconfig.get_link_flags() == ["-L" + tf.sysconfig.get_lib()]


def test_a_status_becomes_an_error():
    with tf.errors.raise_exception_on_not_ok_status():
        pass
    with (
        pytest.raises(tf.errors.NotFoundError, match="no such thing") as caught,
        tf.errors.raise_exception_on_not_ok_status() as status,
    ):
        status.code, status.message = tf.errors.NOT_FOUND, "no such thing"
    assert caught.value.error_code == tf.errors.NOT_FOUND


def test_an_exception_of_the_block_goes_first():
    with (
        pytest.raises(KeyError, match="mine"),
        tf.errors.raise_exception_on_not_ok_status() as status,
    ):
        status.code = tf.errors.INTERNAL
        raise KeyError("mine")
