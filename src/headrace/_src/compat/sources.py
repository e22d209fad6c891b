"""The program's own source files. In: the bytes of a file. Out: code, translated and mended, with
the file's own line numbers.

Only files that the user wrote are changed: not the standard library, installed packages, or
Headrace. Nothing is written: mended code isn't cached either.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import runpy
import sys
import sysconfig  # noqa: F401 (which `source` imports late: not while a module is being found)
import tokenize
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from headrace._src.compat import tree
from headrace._src.compat.notices import notice
from headrace._src.compat.python2 import Translation, translate
from headrace._src.core import source

__all__ = ["compiled", "install", "parsed", "text_of"]

# Files that choose between Python 2 and 3 themselves keep Python 3's meaning.
_CHOOSES = re.compile(r"\bversion_info\b|\bsix\b|\bPY[23]\b|\bexcept NameError\b|python_version")


def text_of(data: bytes) -> str:
    """Decode a source file as Python does; a file with no declared encoding may be Latin-1."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        text = data.decode("latin-1")
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def parsed(text: str, path: str) -> tuple[ast.Module, Translation]:
    """Parse a source of Python 3 or 2. Raise Python 3's error if it is neither."""
    try:
        return ast.parse(text, path), Translation(text)
    except SyntaxError as error:
        found = translate(text)
        try:
            return ast.parse(found.text, path), found
        except SyntaxError:
            raise error.with_traceback(None) from None


def compiled(data: bytes, path: str, in_package: bool = False) -> CodeType:
    """Compile a source file."""
    text = text_of(data)
    module, found = parsed(text, path)
    chooses = _CHOOSES.search(text) is not None
    tree.mend(module, found, chooses, Path(path).parent if in_package else None)
    if found.kinds:
        where = source.short_path(path)
        kinds = ", ".join(sorted(found.kinds))
        notice("Python 2", f"{where}: translated in memory ({kinds})", located=False)
        _forget_columns(module, text, found.text)
    return compile(module, path, "exec", dont_inherit=True)


def _forget_columns(module: ast.Module, before: str, after: str) -> None:
    """Let tracebacks not underline parts of lines that were translated: the whole line is meant."""
    pairs = enumerate(zip(before.split("\n"), after.split("\n"), strict=True), 1)
    changed = {number: old.encode() for number, (old, new) in pairs if old != new}
    for node in ast.walk(module):
        located: Any = node
        line = changed.get(getattr(node, "lineno", 0))
        if line is not None:
            located.end_lineno = located.lineno
            located.col_offset = len(line) - len(line.lstrip())
            located.end_col_offset = len(line.rstrip())


class MendedFile(SourceFileLoader):
    """Loads a file of the user's."""

    def get_code(self, fullname: str) -> CodeType:
        in_package = "." in fullname or self.is_package(fullname)
        return compiled(self.get_data(self.path), self.path, in_package)


class UserFiles(MetaPathFinder):
    """Finds the user's modules on sys.path, and has them mended."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or spec.origin is None:
            return None
        if not source.is_own_file(spec.origin):
            return None
        spec.loader = MendedFile(fullname, spec.origin)
        spec.cached = None
        return spec


def install() -> None:
    """Mend the user's modules when they are imported."""
    if any(isinstance(finder, UserFiles) for finder in sys.meta_path):
        return
    for name, helper in tree.helpers().items():
        setattr(builtins, name, helper)
    place = next((i for i, f in enumerate(sys.meta_path) if f is PathFinder), len(sys.meta_path))
    sys.meta_path.insert(place, UserFiles())
    _mend_spawned()


def _mend_spawned() -> None:
    """Mend the main program of processes that multiprocessing spawns: runpy loads it there."""
    before: Any = getattr(runpy, "_get_code_from_file", None)
    if before is None:
        return

    def get(*args: Any) -> Any:
        path = args[-1]  # the name of the module comes first in Python 3.11
        if not source.is_own_file(path) or not path.endswith(".py"):
            return before(*args)
        code = compiled(Path(path).read_bytes(), path)
        return (code, path) if len(args) == 2 else code

    runpy._get_code_from_file = get  # type: ignore
