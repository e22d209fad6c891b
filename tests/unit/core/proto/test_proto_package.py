"""The proto package: lazy, complete, and apart from TensorFlow's own messages."""

import subprocess
import sys

import pytest

from headrace._src.core import proto


def run(code: str) -> str:
    """Run `code` in a fresh interpreter where warnings are errors; return what it printed."""
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_import_does_not_load_protobuf():
    code = "import sys, headrace._src.core.proto; print('google.protobuf' in sys.modules)"
    assert run(code) == "False"


def test_one_message_loads_only_what_it_needs():
    code = """
import sys
from headrace._src.core.proto import TensorProto
print(sorted(m.rpartition('.')[2] for m in sys.modules if m.startswith('headrace') and 'pb2' in m))
"""
    assert run(code) == "['tensor_pb2', 'types_pb2']"


def test_star_import_gives_every_name():
    assert run(
        "from headrace._src.core.proto import *; print(GraphDef().node, DataType.DT_FLOAT)"
    ) == ("[] 1")


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'NoSuchProto'"):
        getattr(proto, "NoSuchProto")  # noqa: B009
    assert "GraphDef" in dir(proto)


@pytest.mark.parametrize("name", proto.__all__)
def test_names_do_not_collide_with_tensorflow(name):
    descriptor = getattr(proto, name).DESCRIPTOR
    assert descriptor.file.name.startswith("headrace/_src/core/proto/")
    package = "headrace.error" if name == "Code" else "headrace"
    assert descriptor.full_name == f"{package}.{name}"
