"""Graphs in files. In: a graph or message and a path. Out: a file, binary or text; and back.

A file appears whole or not at all: it is written beside its final path and then moved there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.core.file_errors import file_errors
from headrace._src.core.files import replace_file
from headrace._src.graph.graph import Graph

__all__ = ["read_message", "write_graph", "write_message"]

Message = TypeVar("Message")


@export("io.write_graph", "train.write_graph")
def write_graph(
    graph_or_graph_def: Any, logdir: str | os.PathLike[str], name: str, as_text: bool = True
) -> str:
    """Write a graph or GraphDef to `logdir`/`name`, creating the directory, and return that
    path.
    """
    is_graph = isinstance(graph_or_graph_def, Graph)
    message = graph_or_graph_def.as_graph_def() if is_graph else graph_or_graph_def
    if not hasattr(message, "SerializeToString"):
        raise TypeError(f"write_graph needs a Graph or a GraphDef, not {type(message).__name__}")
    with file_errors(logdir):
        os.makedirs(logdir, exist_ok=True)
    path = os.path.join(logdir, name)
    write_message(path, message, as_text)
    return path


def write_message(path: str | os.PathLike[str], message: Any, as_text: bool) -> None:
    """Write a protocol buffer message to `path`."""
    if as_text:
        data = proto.text_format.MessageToString(message).encode()
    else:
        data = message.SerializeToString(deterministic=True)
    replace_file(path, [data])


def read_message(path: str | os.PathLike[str], message_type: type[Message]) -> Message:
    """Read a message from a binary or text file; OSError if it holds none."""
    if not os.path.isfile(path):
        raise OSError(f"File {os.fspath(path)} does not exist.")
    data = Path(path).read_bytes()
    message: Any = message_type()
    try:
        message.ParseFromString(data)
        return message
    except proto.DecodeError:
        pass  # It may be text.
    try:
        return proto.text_format.Parse(data.decode(), message_type())  # type: ignore[type-var]
    except (proto.text_format.ParseError, UnicodeDecodeError) as error:
        raise OSError(f"Cannot parse file {os.fspath(path)}: {error}.") from None
