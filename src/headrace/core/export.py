"""Public names. `export("nn.relu")` records that an object is known to users as `tf.nn.relu`.

The modules of `headrace.api` are generated from this record by scripts/generate_api; a test fails
when they are stale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["EXPORTS", "export", "export_value"]

# Public dotted name -> (module, attribute) where the object lives.
EXPORTS: dict[str, tuple[str, str]] = {}

Exported = TypeVar("Exported")


def export(*names: str) -> Callable[[Exported], Exported]:
    """Publish the decorated function or class under each of the dotted `names`."""

    def publish(target: Exported) -> Exported:
        described: Any = target
        export_value(described.__module__, described.__name__, *names)
        return target

    return publish


def export_value(module: str, attribute: str, *names: str) -> None:
    """Publish `module.attribute` (a constant, an alias, a lazily made object) under each of
    `names`.
    """
    for name in names:
        taken = EXPORTS.setdefault(name, (module, attribute))
        if taken != (module, attribute):
            raise ValueError(f"tf.{name} is {'.'.join(taken)} and {module}.{attribute}")
