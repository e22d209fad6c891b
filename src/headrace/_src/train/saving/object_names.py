"""The description of objects in an object-based checkpoint (tf.train.Checkpoint). In: a
checkpoint's prefix. Out: the message that it holds, and the keys of variables by their names.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import proto
from headrace._src.train.saving.checkpoint_reader import CheckpointReader

__all__ = ["OBJECT_GRAPH", "keys_by_name", "object_graph"]

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the key of the message


def object_graph(reader: CheckpointReader) -> Any:
    """Return the message that describes a checkpoint's objects, None if it has none."""
    if not reader.has_tensor(OBJECT_GRAPH):
        return None
    return proto.TrackableObjectGraph.FromString(reader.get_tensor(OBJECT_GRAPH))


def keys_by_name(prefix: str) -> dict[str, str]:
    """Return the keys in a checkpoint by the variables' names in the saved graph; empty if it isn't
    object-based.
    """
    message = object_graph(CheckpointReader(prefix))
    nodes = () if message is None else message.nodes
    return {a.full_name: a.checkpoint_key for node in nodes for a in node.attributes if a.full_name}
