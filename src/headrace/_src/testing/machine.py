"""Questions of tests about the machine, and how tests are run."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from typing import Any

from absl.testing import absltest

from headrace._src.core.export import export
from headrace._src.core.once import once

__all__ = ["get_temp_dir", "is_gpu_available", "main"]


@export("test.main")
def main(argv: list[str] | None = None) -> Any:
    """Run the tests of the program, and exit; with `--benchmarks=REGEX`, its benchmarks."""
    given = sys.argv if argv is None else argv
    patterns = [a.partition("=")[2] for a in given[1:] if re.match("--benchmarks?(_filter)?=", a)]
    if patterns:
        from headrace._src.testing.benchmark import run_benchmarks  # only for benchmarks

        return run_benchmarks(patterns[-1])
    return absltest.main(argv=argv)


@export("test.get_temp_dir")
@once
def get_temp_dir() -> str:
    """Return a directory for this process's test files, which is removed at exit."""
    parent = absltest.get_default_test_tmpdir()
    os.makedirs(parent, exist_ok=True)
    made = tempfile.mkdtemp(dir=parent)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@export("test.test_src_dir_path")
def test_src_dir_path(relative_path: str) -> str:
    """Return a path below the directory of the test's sources, which TEST_SRCDIR names."""
    root = absltest.get_default_test_srcdir()
    if not root:
        raise KeyError("TEST_SRCDIR")
    return os.path.join(root, "org_tensorflow", "tensorflow", relative_path)


@export("test.is_gpu_available")
def is_gpu_available(
    cuda_only: bool = False, min_cuda_compute_capability: tuple[int, int] | None = None
) -> bool:
    """Return whether there is a GPU with these properties: always False, since Headrace uses
    none.
    """
    return False


@export("test.gpu_device_name")
def gpu_device_name() -> str:
    """Return the name of a GPU; empty, since there is none."""
    return ""


@export("test.is_built_with_cuda", "test.is_built_with_rocm", "test.is_built_with_gpu_support")
def is_built_with_gpu_support() -> bool:
    """Return whether operations can run on a GPU: always False in Headrace."""
    return False
