"""tf.resource_loader: files beside a program's source. tf.load_op_library: always an error here."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from headrace._src.core.errors import NotFoundError, UnimplementedError
from headrace._src.core.export import export
from headrace._src.core.gfile import local_path

__all__ = ["get_data_files_path", "get_path_to_datafile", "load_op_library"]


def _directory_of_caller() -> str:
    return os.path.dirname(sys._getframe(2).f_code.co_filename)


@export("resource_loader.get_data_files_path")
def get_data_files_path() -> str:
    """Return the directory of the file that calls this."""
    return _directory_of_caller()


@export("resource_loader.get_path_to_datafile")
def get_path_to_datafile(path: str) -> str:
    """Return a path relative to the directory of the file that calls this."""
    return os.path.join(_directory_of_caller(), path)


@export("resource_loader.get_root_dir_with_all_resources")
def get_root_dir_with_all_resources() -> str:
    """Return the directory of the file that calls this: resources are beside it."""
    return _directory_of_caller()


@export("resource_loader.load_resource")
def load_resource(path: str) -> bytes:
    """Return the contents of a file, relative to the directory of the file that calls this."""
    with open(os.path.join(_directory_of_caller(), path), "rb") as file:
        return file.read()


@export("resource_loader.readahead_file_path")
def readahead_file_path(path: str, readahead: str = "128M") -> str:
    """Return the path unchanged: readahead is left to the operating system."""
    return path


@export("load_library")
def load_library(library_location: str | os.PathLike[str]) -> NoReturn:
    """Raise the error of load_op_library."""
    load_op_library(library_location)


@export("load_op_library", "load_file_system_library")
def load_op_library(library_filename: str | os.PathLike[str]) -> NoReturn:
    """Raise UnimplementedError, or NotFoundError if there is no such file: compiled libraries of
    ops and file systems need TensorFlow's runtime.
    """
    path = local_path(library_filename)
    if not os.path.exists(path):
        raise NotFoundError(
            None, None, f"{path}: cannot open shared object file: No such file or directory"
        )
    raise UnimplementedError(
        None,
        None,
        f"{path}: Headrace can't load ops that were compiled for TensorFlow",
        hint="write the op in Python: tf.py_function has gradients, tf.py_func takes NumPy code, "
        "and tf.custom_gradient or tf.RegisterGradient says what its gradient is",
    )
