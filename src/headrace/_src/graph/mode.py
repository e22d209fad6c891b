"""The behaviour in force: always TF1's, with graphs, except in the functions of tf.py_function."""

from __future__ import annotations

from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph

__all__ = ["disable_eager_execution", "disable_v2_behavior", "executing_eagerly"]


@export("executing_eagerly")
def executing_eagerly() -> bool:
    """Return whether operations run as they are built, as in the functions of tf.py_function,
    instead of in sessions.
    """
    return get_default_graph().executes


@export("disable_eager_execution")
def disable_eager_execution() -> None:
    """Keep building graphs, which is always the case."""


@export("disable_v2_behavior")
def disable_v2_behavior() -> None:
    """Keep TF1's behaviour, which is always the case."""


@export("disable_v2_tensorshape")
def disable_v2_tensorshape() -> None:
    """Keep TensorShapes of Dimensions, which is always the case."""


@export("disable_control_flow_v2")
def disable_control_flow_v2() -> None:
    """Keep control flow as primitives of the graph, which is always the case."""
