"""File names and contents, read and written in a step."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.export import export
from headrace._src.core.file_errors import file_errors
from headrace._src.core.gfile import local_path, matching_paths
from headrace._src.core.tensor_shape import show_shape
from headrace._src.graph.definition import Effect, Sample
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.strings.string_arrays import of_strings, string_array

__all__ = ["matching_files", "read_file", "write_file"]


def _matching_kernel(pattern):
    found = [path for text in np.ravel(pattern).tolist() for path in matching_paths(text)]
    return of_strings(map(os.fsencode, sorted(found)), (len(found),))


def _matching_infer(c: Any, pattern: Any) -> Any:
    if pattern.sizes is not None and len(pattern.sizes) > 1:
        raise ValueError(f"Shape must be at most rank 1 but is rank {len(pattern.sizes)}")
    return (None,)


@export("matching_files", "io.matching_files")
@define(
    "MatchingFiles",
    "pattern: string -> filenames: string",
    infer=_matching_infer,
    kernel=_matching_kernel,
    effect=Effect.READS,
    samples=[Sample(b"/no-such-name-*"), Sample([b"/no-such-name-*", b"/no-such-name"])],
)
def matching_files(pattern, name=None):
    """Return the sorted names of the files that match one of the patterns. `*` and `?` match within
    one component of a path.
    """


def _scalar(value: Any, what: str) -> bytes:
    found = string_array(value)
    if found.ndim:
        raise InvalidArgumentError(
            None, None, f"{what} tensor must be scalar, but had shape: {show_shape(found.shape)}"
        )
    return found.item()


def _read_kernel(filename):
    path = local_path(_scalar(filename, "Input filename"))
    with file_errors(path), open(path, "rb") as file:
        return of_strings([file.read()], ())


@export("read_file", "io.read_file")
@define(
    "ReadFile",
    "filename: string -> contents: string",
    infer=lambda c, filename: infer.with_rank(filename, 0),
    kernel=_read_kernel,
    effect=Effect.READS,
    samples=[Sample(b"/dev/null")],
)
def read_file(filename, name=None):
    """Return the contents of a file."""


def _write_kernel(filename, contents):
    path = local_path(_scalar(filename, "Input filename"))
    data = _scalar(contents, "Contents")
    with file_errors(path):
        if directory := os.path.dirname(path):
            os.makedirs(directory, exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def _write_infer(c: Any, filename: Any, contents: Any) -> None:
    infer.with_rank(filename, 0)
    infer.with_rank(contents, 0)


@export("write_file", "io.write_file")
@define(
    "WriteFile",
    "filename: string, contents: string ->",
    infer=_write_infer,
    kernel=_write_kernel,
    effect=Effect.WRITES,
    samples=[Sample(b"/dev/null", b"contents")],
)
def write_file(filename, contents, name=None):
    """Replace a file's contents, creating its directories if needed."""
