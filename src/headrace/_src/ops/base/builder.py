"""The builder `b`: every op and every composed function of the family files, by name.

Gradients and composed functions need ops of other families, which would be circular imports. Here
a family is imported when one of its functions is first asked for. `builder.pyi`, which
`scripts/generate_api` writes, tells type checkers and editors which functions there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["OpBuilder", "expect"]

_HOMES: dict[str, str] = {}


class OpBuilder:
    """Every builder and composed function, by its Python name."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _HOMES:
            raise AttributeError(f"no op family defines {name!r}")
        import_module(_HOMES[name])
        return vars(self)[name]


def expect(homes: Mapping[str, str]) -> None:
    """Say which modules define functions of `b`: each is imported when one is first asked for."""
    _HOMES.update(homes)
