"""Names that a module lacks. In: a module and a table of names. Out: its `__getattr__`, which finds
them when they are used, and gives a notice if the program itself uses one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from headrace._src.compat.notices import notice
from headrace._src.core import source

__all__ = ["lend"]


def lend(module: ModuleType, names: Mapping[str, Callable[[], Any]], sentence: str) -> None:
    """Let a module have further names, each made by a function. `sentence`: the notice, in which
    `{}` is the first name used.
    """
    before = vars(module).get("__getattr__")

    def get(name: str) -> Any:
        if name in names:
            value = names[name]()
            if source.is_own_file(sys._getframe(1).f_code.co_filename):
                notice(f"{module.__name__}: {sentence}", sentence.format(name))
                vars(module)[name] = value  # the next use doesn't come here
            return value
        if before is not None:
            return before(name)
        message = f"module {module.__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=module)

    vars(module)["__getattr__"] = get
