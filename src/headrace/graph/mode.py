"""Which of TensorFlow's behaviours is in force: always TF1's, and graphs, but for the functions of
tf.py_function.
"""

from __future__ import annotations

from headrace.core.export import export
from headrace.graph.default import get_default_graph

__all__ = ["disable_eager_execution", "disable_v2_behavior", "executing_eagerly"]


@export("executing_eagerly")
def executing_eagerly() -> bool:
    """Return whether operations run as they are made, as in the functions of tf.py_function; else
    sessions run them.
    """
    return get_default_graph().executes


@export("disable_eager_execution")
def disable_eager_execution() -> None:
    """Keep building graphs, as is done anyway."""


@export("disable_v2_behavior")
def disable_v2_behavior() -> None:
    """Keep TF1's behaviour, as is done anyway."""


@export("disable_v2_tensorshape")
def disable_v2_tensorshape() -> None:
    """Keep TensorShapes that give Dimensions, as is done anyway."""


@export("disable_control_flow_v2")
def disable_control_flow_v2() -> None:
    """Keep control flow as primitives of the graph, as is done anyway."""
