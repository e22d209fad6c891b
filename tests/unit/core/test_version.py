"""The versions that programs read: TensorFlow's, by which they choose interfaces, and ours."""

import tomllib
from pathlib import Path

import headrace as tf


def test_versions():
    assert tf.__version__ == tf.VERSION == tf.version.VERSION == "1.15.5"
    assert tf.__git_version__ == tf.GIT_VERSION == tf.version.GIT_VERSION
    assert tf.__compiler_version__ == tf.COMPILER_VERSION
    assert tf.sysconfig.CXX11_ABI_FLAG == tf.__cxx11_abi_flag__ == 0
    assert tf.version.GRAPH_DEF_VERSION == 134


def test_our_version_is_the_projects():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["version"] == tf.HEADRACE_VERSION
