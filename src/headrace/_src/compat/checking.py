"""Find the symbols of TensorFlow that a program uses and Headrace lacks. In: source files. Out: a
`MissingSymbol` for each symbol that is missing, with its lines and what to do instead.

Nothing of the program is run. Names are followed from imports through assignments of one name to
another (`slim = tf.contrib.slim`), in the order of the file. Symbols are looked up in the modules
that `headrace run` would give to the program, so old spellings count as there.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace._src.compat import mirror
from headrace._src.compat.sources import parsed, text_of
from headrace._src.ops.base.dispatch import is_dispatched

__all__ = ["Checked", "MissingSymbol", "check", "python_files"]

_ROOT = "tensorflow"
_ROOTS = (_ROOT, "tensorflow_core", "tensorflow_estimator")


@dataclass
class MissingSymbol:
    """A symbol that is missing: its name as `tf.…`, the lines that use it, and a message."""

    symbol: str
    message: str
    lines: list[int] = field(default_factory=list)


@dataclass
class Checked:
    """A file that was checked. used: the symbols of TensorFlow that it uses."""

    path: Path
    used: set[str] = field(default_factory=set)
    missing: dict[str, MissingSymbol] = field(default_factory=dict)

    def add(self, symbol: str, message: str, line: int) -> None:
        """Record that a line uses a missing symbol."""
        finding = self.missing.setdefault(symbol, MissingSymbol(symbol, message))
        if line not in finding.lines:
            finding.lines.append(line)


def python_files(path: Path) -> Iterator[Path]:
    """Yield a script, or the Python files below a directory, in order."""
    if path.is_dir():
        hidden = (".", "__pycache__")
        for file in sorted(path.rglob("*.py")):
            if not any(part.startswith(hidden) for part in file.relative_to(path).parts):
                yield file
    else:
        yield path


def check(path: Path) -> Checked:
    """Check a file. Raise SyntaxError if it is neither Python 3 nor 2."""
    mirror.install()
    module, _ = parsed(text_of(path.read_bytes()), str(path))
    visitor = _Visitor(Checked(path))
    visitor.visit(module)
    return visitor.found


class _Visitor(ast.NodeVisitor):
    """State: what is found; the path of TensorFlow's that each name of the file stands for."""

    def __init__(self, found: Checked) -> None:
        self.found = found
        self.names: dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.partition(".")[0] in _ROOTS:
                self._use(alias.name, node.lineno)
                bound = alias.asname or alias.name.partition(".")[0]
                self.names[bound] = alias.name if alias.asname else bound

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or (node.module or "").partition(".")[0] not in _ROOTS:
            return
        for alias in node.names:
            if alias.name == "*":
                self._use(str(node.module), node.lineno)
                continue
            path = f"{node.module}.{alias.name}"
            self._use(path, node.lineno)
            self.names[alias.asname or alias.name] = path

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        path = self._path(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.names.pop(target.id, None)
                if path is not None:
                    self.names[target.id] = path

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self._path(node)
        if path is None:
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load):
            self._use(path, node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        path = self._path(node.func)
        if path is None:
            return
        accepted = _arguments(path)
        for keyword in node.keywords:
            if accepted is not None and keyword.arg is not None and keyword.arg not in accepted:
                symbol = f"{_public(path)}({keyword.arg}=)"
                message = f"{_public(path)} has no argument {keyword.arg!r} in Headrace"
                self.found.add(symbol, message, node.lineno)

    def _path(self, node: ast.AST) -> str | None:
        """The path of TensorFlow's that an expression names."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._path(node.value)
            return None if owner is None else f"{owner}.{node.attr}"
        return None

    def _use(self, path: str, line: int) -> None:
        symbol, message = _look_up(path)
        self.found.used.add(symbol)
        if message is not None:
            self.found.add(symbol, message, line)


def _public(path: str) -> str:
    return "tf" + path.removeprefix(_ROOT) if path.startswith(_ROOT) else path


@cache
def _find(path: str) -> tuple[str, Any, str | None]:
    """Follow a path. Return the part of it that is a symbol, its value, and a message if it is
    missing. What follows a value that is neither a module nor a class is not a symbol.
    """
    parts = path.split(".")
    value: Any = import_module(parts[0])
    done = parts[0]
    for name in parts[1:]:
        if not isinstance(value, ModuleType | type):
            break
        done = f"{done}.{name}"
        try:
            value = getattr(value, name)
        except AttributeError as error:
            if isinstance(value, type):
                return _public(done), None, _message(_public(done), error, error)
            try:
                value = import_module(done)  # which only an import makes an attribute
            except ImportError as lacking:
                return _public(done), None, _message(_public(done), error, lacking)
            except Exception:
                return _public(done), None, _message(_public(done), error, error)
    return _public(done), value, None


def _message(symbol: str, error: Exception, lacking: Exception) -> str:
    for text in (str(error), str(lacking)):
        if "not in Headrace" in text:
            return text
    return f"{symbol} is not a name of TensorFlow 1.15, nor an old one that Headrace knows"


def _look_up(path: str) -> tuple[str, str | None]:
    symbol, _, message = _find(path)
    return symbol, message


@cache
def _arguments(path: str) -> frozenset[str] | None:
    """The arguments that a function or class takes by name; None if it takes any."""
    symbol, value, message = _find(path)
    if message is not None or not callable(value) or symbol != _public(path):
        return None
    if not str(getattr(value, "__module__", "")).startswith("headrace."):
        return None
    try:
        direct = value.__wrapped__ if is_dispatched(value) else value
        parameters = inspect.signature(direct, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters)
