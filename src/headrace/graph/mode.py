"""Which of TensorFlow's behaviours is in force: always graphs, and always TF1's."""

from __future__ import annotations

from headrace.core.export import export

__all__ = ["disable_eager_execution", "disable_v2_behavior", "executing_eagerly"]


@export("executing_eagerly")
def executing_eagerly() -> bool:
    """Return False: operations are added to a graph, and run by sessions."""
    return False


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
