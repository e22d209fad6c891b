"""Imports of modules that have gone, and patches of modules after their import. In: the tables of
the other files. Out: two finders.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from headrace._src.compat.mends.moved import MADE, MOVED
from headrace._src.compat.notices import notice

__all__ = ["install"]

_FILES = ("downloads", "figures", "gyms", "libraries", "numpy_1", "scipy_1", "standard_library")


def _patches() -> dict[str, Callable[[ModuleType], None]]:
    """Module -> its patch."""
    found: dict[str, Callable[[ModuleType], None]] = {}
    for name in _FILES:
        found |= importlib.import_module(f"headrace._src.compat.mends.{name}").PATCHES
    return found


class Patched(MetaPathFinder):
    """Finds modules that are to be patched, by the finders that follow."""

    def __init__(self, patches: dict[str, Callable[[ModuleType], None]]) -> None:
        self.patches = patches
        self.busy: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patch = self.patches.get(fullname)
        if patch is None or fullname in self.busy:
            return None
        self.busy.add(fullname)
        try:
            for finder in sys.meta_path:
                spec = None if finder is self else finder.find_spec(fullname, path, target)
                if spec is not None:
                    break
            else:
                return None
        finally:
            self.busy.discard(fullname)
        loader: Any = spec.loader
        if isinstance(loader, type | Gone):
            return spec  # built in, and patched already; or made by us
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            patch(module)

        loader.exec_module = exec_module
        return spec


class Gone(MetaPathFinder, Loader):
    """Finds modules that have gone, after every other finder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MOVED and fullname not in MADE:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # the usual one, which exec_module replaces

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        if name in MOVED:
            new = MOVED[name]
            found = importlib.import_module(new)
            notice(
                "moved modules", f"module {name} is {new} now; other moved modules are found too"
            )
        else:
            home, _, attribute = MADE[name].partition(":")
            found = getattr(importlib.import_module(home), attribute)()
        sys.modules[name] = found


def install() -> None:
    """Mend imports from now on, and patch the modules that are there already."""
    if any(isinstance(finder, Patched) for finder in sys.meta_path):
        return
    patches = _patches()
    sys.meta_path.insert(0, Patched(patches))
    sys.meta_path.append(Gone())
    for name, patch in patches.items():
        module = sys.modules.get(name)
        if module is None and name in sys.builtin_module_names:
            module = importlib.import_module(name)
        if module is not None:
            patch(module)
