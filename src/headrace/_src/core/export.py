"""Public names. `export("nn.relu")` records that an object is known to users as `tf.nn.relu`.

The public modules (`headrace.nn`) are generated from this record by scripts/generate_api; a test
fails when they are stale. They import a name when it's first used (`on_first_use`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

__all__ = ["EXPORTS", "export", "export_value", "lacking", "on_first_use"]

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
    """Publish `module.attribute` (a constant, an alias, a lazily made object), or the module itself
    if `attribute` is empty, under each of `names`.
    """
    for name in names:
        taken = EXPORTS.setdefault(name, (module, attribute))
        if taken != (module, attribute):
            raise ValueError(f"tf.{name} is {'.'.join(taken)} and {module}.{attribute}")


def lacking(module: str, name: str, owner: object) -> AttributeError:
    """Return the error for a name that `module` lacks. For a name that TensorFlow 1.15 has, it says
    that the name is missing and suggests no other: the nearest name may mean the opposite.
    """
    if not name.startswith("_"):
        from headrace._src.core.missing import explain  # for the message alone

        public = re.sub(r"^headrace(\._src\.api)?\b", "tf", module)
        if (message := explain(public, name)) is not None:
            return AttributeError(message, name=name)
    # With name and obj, Python adds "Did you mean: ...?".
    return AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=owner)


def on_first_use(
    module: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` (PEP 562) of a module whose names are imported when they
    are first used: each from its home, "package.module:attribute", or "package.module" if it is a
    module itself.

    Several threads may ask for a name at once: Python's import system lets one of them load it.
    """
    namespace = vars(sys.modules[module])

    def get(name: str) -> Any:
        if name not in homes:
            raise lacking(module, name, sys.modules[module])
        home, _, attribute = homes[name].partition(":")
        value = import_module(home)
        if attribute:
            value = getattr(value, attribute)
        namespace[name] = value  # the next access bypasses this function
        return value

    return get, lambda: list(homes)
