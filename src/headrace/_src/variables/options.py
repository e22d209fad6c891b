"""Global options of variables: kinds of replication, and reference or resource variables.

State: whether new variables are resource variables by default, for the whole process.
"""

from __future__ import annotations

import enum
from typing import Any

from headrace._src.core.export import export

__all__ = [
    "VariableAggregation",
    "VariableSynchronization",
    "disable_resource_variables",
    "enable_resource_variables",
    "resource_variables_enabled",
]


@export("VariableSynchronization")
class VariableSynchronization(enum.Enum):
    """When the copies of a variable on several devices are synchronised."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


@export("VariableAggregation")
class VariableAggregation(enum.Enum):
    """How the updates of a variable's copies are combined."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3
    ONLY_FIRST_TOWER = 3  # its older name


_use_resource = False


@export("enable_resource_variables")
def enable_resource_variables() -> None:
    """Make resource variables from now on, wherever `use_resource` isn't given."""
    global _use_resource
    _use_resource = True


@export("disable_resource_variables")
def disable_resource_variables() -> None:
    """Make reference variables from now on, wherever `use_resource` isn't given."""
    global _use_resource
    _use_resource = False


@export("resource_variables_enabled")
def resource_variables_enabled() -> bool:
    """Return whether variables are resource variables by default."""
    return _use_resource


def replication(
    synchronization: Any, aggregation: Any, trainable: bool | None
) -> tuple[VariableSynchronization, VariableAggregation, bool]:
    """Fill in the defaults: a variable synchronised only on reads is not trained by default."""
    if synchronization is None:
        synchronization = VariableSynchronization.AUTO
    if aggregation is None:
        aggregation = VariableAggregation.NONE
    if not isinstance(synchronization, VariableSynchronization):
        raise ValueError(f"Invalid variable synchronization mode: {synchronization!r}")
    if not isinstance(aggregation, VariableAggregation):
        raise ValueError(f"Invalid variable aggregation mode: {aggregation!r}")
    if trainable is None:
        trainable = synchronization is not VariableSynchronization.ON_READ
    return synchronization, aggregation, trainable
