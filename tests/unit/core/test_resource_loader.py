"""Files beside the source, and libraries that can't be loaded."""

from pathlib import Path

import pytest

import headrace as tf


def test_files_beside_the_source():
    here = Path(__file__)
    assert tf.resource_loader.get_data_files_path() == str(here.parent)
    assert tf.resource_loader.get_path_to_datafile("x/y") == str(here.parent / "x" / "y")
    assert tf.resource_loader.readahead_file_path("x") == "x"


def test_libraries_of_ops_say_what_to_do():
    with pytest.raises(tf.errors.NotFoundError, match=r"/no/such\.so: cannot open shared object"):
        tf.load_op_library("/no/such.so")
    with pytest.raises(tf.errors.UnimplementedError, match=r"tf\.py_function has gradients"):
        tf.load_op_library(__file__)
