"""Python 2's built-in names. In: the names that a module uses and does not define. Out: values for
them.

`NAMES` are those that Python 3 lacks. `CHANGED` are those that it has with another meaning; only
modules that Python 3 could not run get them.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import io
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["CHANGED", "NAMES"]


def _cmp(a: Any, b: Any) -> int:
    return (a > b) - (a < b)


def _apply(function: Callable[..., Any], args: Any = (), kwargs: Any = None) -> Any:
    return function(*args, **(kwargs or {}))


def _execfile(path: str, names: dict[str, Any] | None = None, inner: Any = None) -> None:
    from headrace._src.compat.sources import compiled

    names = sys._getframe(1).f_globals if names is None else names
    exec(compiled(Path(path).read_bytes(), path), names, inner)


def _reload(module: ModuleType) -> ModuleType:
    # `reload(sys)` was for sys.setdefaultencoding, which text no longer needs.
    return module if module is sys else importlib.reload(module)


class _Bytes(io.BufferedWriter):
    """A file opened for bytes, which takes text too."""

    def write(self, data: Any) -> int:
        return super().write(data.encode("utf-8") if isinstance(data, str) else data)


def _open(name: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
    """Open a file. Text that is not UTF-8 passes through unchanged."""
    mode = mode.replace("U", "")
    if "b" not in mode:
        kwargs.setdefault("errors", "surrogateescape")
        kwargs.setdefault("encoding", "utf-8")
        return open(name, mode or "r", buffering, *args, **kwargs)
    if mode in ("wb", "ab", "bw"):
        return _Bytes(io.FileIO(name, mode.replace("b", "")))
    return open(name, mode, buffering, *args, **kwargs)


def _sorted(
    values: Iterable[Any], cmp: Any = None, key: Any = None, reverse: bool = False
) -> list[Any]:
    return sorted(values, key=key if cmp is None else _key(cmp, key), reverse=reverse)


def _key(cmp: Callable[[Any, Any], int], key: Callable[[Any], Any] | None) -> Any:
    ordered = functools.cmp_to_key(cmp)
    return ordered if key is None else lambda value: ordered(key(value))


def _round(number: Any, ndigits: int = 0) -> float:
    if not isinstance(number, int | float):
        return round(number, ndigits)
    scaled = abs(number) * 10.0**ndigits
    return math.copysign(math.floor(scaled + 0.5) / 10.0**ndigits, number)


def _map(function: Callable[..., Any] | None, *values: Iterable[Any]) -> list[Any]:
    if function is None:
        return list(values[0]) if len(values) == 1 else list(zip(*values, strict=False))
    return list(map(function, *values))


def _filter(function: Callable[[Any], Any] | None, values: Any) -> Any:
    kept = list(filter(function, values))
    if isinstance(values, str):
        return "".join(kept)
    return tuple(kept) if isinstance(values, tuple) else kept


def _input(prompt: str = "") -> Any:
    return eval(input(prompt), sys._getframe(1).f_globals)


NAMES: dict[str, Any] = {
    "StandardError": Exception,
    "apply": _apply,
    "basestring": str,
    "buffer": memoryview,
    "cmp": _cmp,
    "execfile": _execfile,
    "file": _open,
    "intern": sys.intern,
    "long": int,
    "raw_input": input,
    "reduce": functools.reduce,
    "reload": _reload,
    "unichr": chr,
    "unicode": str,
    "xrange": range,
}
CHANGED: dict[str, Any] = {
    "filter": _filter,
    "input": _input,
    "map": _map,
    "open": _open,
    "range": lambda *bounds: list(builtins.range(*bounds)),
    "round": _round,
    "sorted": _sorted,
    "zip": lambda *values: list(builtins.zip(*values, strict=False)),
}
