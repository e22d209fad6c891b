"""The default graph's scopes and collections as functions, such as `tf.device(...)`.

Each calls the method of the same name on the current default graph.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph import default
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation, Tensor

__all__ = [
    "add_to_collection",
    "add_to_collections",
    "colocate_with",
    "container",
    "control_dependencies",
    "device",
    "get_collection",
    "get_collection_ref",
    "get_default_graph",
    "get_default_session",
    "init_scope",
    "op_scope",
    "reset_default_graph",
]


@export("get_default_graph")
def get_default_graph() -> Graph:
    """Return the graph that new operations join in this thread."""
    return default.get_default_graph()


@export("reset_default_graph")
def reset_default_graph() -> None:
    """Start a new default graph; not within a graph's or a session's with-block."""
    default.reset()


@export("get_default_session")
def get_default_session() -> Any | None:
    """Return the innermost session that is the default in this thread, or None."""
    return default.default_session()


@export("device")
def device(device_name_or_function: Any) -> AbstractContextManager[None]:
    """Request a device for the operations made inside the with-block."""
    return default.get_default_graph().device(device_name_or_function)


@export("container")
def container(container_name: str) -> AbstractContextManager[str]:
    """Keep the state of the operations made inside the with-block in a named container."""
    return default.get_default_graph().container(container_name)


@export("control_dependencies")
def control_dependencies(control_inputs: Sequence[Any] | None) -> AbstractContextManager[None]:
    """Make the operations made inside the with-block wait for `control_inputs`."""
    return default.get_default_graph().control_dependencies(control_inputs)


@export("init_scope")
def init_scope() -> AbstractContextManager[None]:
    """Lift the operations made inside the with-block out of the current loops, branches and control
    dependencies.
    """
    return default.get_default_graph().control_dependencies(None)


@export("colocate_with")
def colocate_with(op: Any, ignore_existing: bool = False) -> AbstractContextManager[None]:
    """Colocate the operations made inside the with-block with `op`; deprecated in TensorFlow."""
    return default.get_default_graph().colocate_with(op, ignore_existing)


@export("add_to_collection")
def add_to_collection(name: Any, value: Any) -> None:
    """Append a value to a collection of the default graph."""
    default.get_default_graph().add_to_collection(name, value)


@export("add_to_collections")
def add_to_collections(names: Any, value: Any) -> None:
    """Append a value to several collections of the default graph."""
    default.get_default_graph().add_to_collections(names, value)


@export("get_collection")
def get_collection(key: Any, scope: str | None = None) -> list[Any]:
    """Return a copy of a collection; with `scope`, only items whose name matches it."""
    return default.get_default_graph().get_collection(key, scope)


@export("get_collection_ref")
def get_collection_ref(key: Any) -> list[Any]:
    """Return a collection itself: changes to the list change the graph."""
    return default.get_default_graph().get_collection_ref(key)


@export("op_scope")
@contextmanager
def op_scope(values: Any, name: str | None, default_name: str | None = None) -> Iterator[str]:
    """As tf.name_scope(name, default_name, values), which replaced it."""
    warnings.warn(
        "tf.op_scope(values, name, default_name) is deprecated, "
        "use tf.name_scope(name, default_name, values)",
        DeprecationWarning,
        stacklevel=3,
    )
    chosen = default_name if name is None else name
    if chosen is None:
        raise ValueError(
            f"At least one of name ({name}) and default_name ({default_name}) must be provided."
        )
    graphs = {v.graph: None for v in values if isinstance(v, Tensor | Operation)}
    if len(graphs) > 1:
        raise ValueError("all values of an op_scope must be from the same graph")
    graph = next(iter(graphs), default.get_default_graph())
    with graph.as_default(), graph.name_scope(chosen) as scope:
        yield scope
