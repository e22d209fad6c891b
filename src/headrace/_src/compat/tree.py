"""Mend the syntax tree of a program's file. In: a tree. Out: the same tree, changed in place; the
changed parts use the names of `helpers`, which are added to Python's built-in names.

- Methods that have gone (`d.iteritems()`, `a.tostring()`) are called through `calls.method`.
- In files that import NumPy, `a * b` keeps the type of the array, as NumPy 1 did.
- In files for Python 2, `/` divides integers as it did there, and `d.keys()` is a list.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headrace._src.compat import calls
from headrace._src.compat.python2 import Translation
from headrace._src.compat.python2.builtins import CHANGED, NAMES

__all__ = ["helpers", "mend"]

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
}
_PREFIX = "_headrace_"


def helpers() -> dict[str, Any]:
    """Return the names that mended files use."""
    functions = {name: getattr(calls, name) for name in calls.__all__ if name.islower()}
    names = {f"python2_{name}": value for name, value in {**NAMES, **CHANGED}.items()}
    return {_PREFIX + name: value for name, value in {**functions, **names}.items()}


def mend(module: ast.Module, found: Translation, chooses: bool, folder: Path | None = None) -> None:
    """Mend a module. `chooses`: whether the file itself distinguishes Python 2 and 3. `folder`:
    that of the package which it belongs to, if any.
    """
    bound, loaded = set(_bound(module)), set(_loaded(module))
    missing = {name for name in loaded & NAMES.keys() if name not in bound}
    missing = {name for name in missing if not hasattr(builtins, name)}
    python2 = found.is_python2 or (bool(missing) and not chooses)
    if missing and not found.is_python2 and not chooses:
        found.kinds.add("names of Python 2: " + ", ".join(sorted(missing)))
    if python2:
        missing |= CHANGED.keys() & loaded - bound
    _Mender(found, python2, python2 and not _has_future(module, "division"), missing).visit(module)
    if python2 and folder is not None:
        _siblings(module, folder)


def _siblings(module: ast.Module, folder: Path) -> None:
    """Let `import utils` find a module beside this one, in a package: Python 2's rule."""

    def is_there(name: str) -> bool:
        beside = folder / name
        return beside.with_name(f"{name}.py").is_file() or (beside / "__init__.py").is_file()

    for node in ast.walk(module):
        for field, block in ast.iter_fields(node):
            if field in ("body", "orelse", "finalbody") and isinstance(block, list):
                block[:] = [part for child in block for part in _relative(child, is_there)]


def _relative(node: ast.stmt, is_there: Callable[[str], bool]) -> list[ast.stmt]:
    if isinstance(node, ast.ImportFrom) and not node.level and node.module:
        if is_there(node.module.partition(".")[0]):
            node.level = 1
    elif isinstance(node, ast.Import):
        near = [a for a in node.names if "." not in a.name and is_there(a.name)]
        node.names = [a for a in node.names if a not in near]
        added = [ast.copy_location(ast.ImportFrom(None, near, 1), node)] if near else []
        return [*added, *([node] if node.names else [])]
    return [node]


def _bound(module: ast.Module) -> Iterator[str]:
    """Every name that a module binds, in any of its scopes."""
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def _loaded(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id


def _has_future(module: ast.Module, feature: str) -> bool:
    futures = (n for n in module.body if isinstance(n, ast.ImportFrom) and n.module == "__future__")
    return any(alias.name == feature for node in futures for alias in node.names)


def _numpy_names(module: ast.Module) -> set[str]:
    """The names under which a module knows NumPy."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {a.asname or a.name for a in node.names if a.name == "numpy"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numpy":
            found.add("numpy")
    return found


class _Mender(ast.NodeTransformer):
    """State: what the file is; the names of Python 2 that it uses."""

    def __init__(self, found: Translation, python2: bool, divides: bool, names: set[str]) -> None:
        self.found = found
        self.python2 = python2
        self.divides = divides
        self.numpy: set[str] = set()
        self.names = names

    def visit_Module(self, node: ast.Module) -> ast.AST:
        self.numpy = _numpy_names(node)
        return self.generic_visit(node)

    def _call(self, at: ast.AST, helper: str, *args: ast.expr) -> ast.Call:
        name = ast.copy_location(ast.Name(_PREFIX + helper, ast.Load()), at)
        return ast.copy_location(ast.Call(name, list(args), []), at)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.names and isinstance(node.ctx, ast.Load):
            node.id = f"{_PREFIX}python2_{node.id}"
        return node

    # -- Operators ---------------------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Div) and self.divides and not _is_float(node.left, node.right):
            return self._call(node, "divide_python2", node.left, node.right)
        helper = _OPERATORS.get(type(node.op))
        if helper is None or not self.numpy:
            return node
        if any(isinstance(side, _PLAIN) for side in (node.left, node.right)):
            return node
        return self._call(node, helper, node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not (self.divides and isinstance(node.op, ast.Div)) or _is_float(node.value):
            return node
        read: Any = ast.parse(ast.unparse(node.target), mode="eval").body
        ast.copy_location(read, node.target)
        for inner in ast.walk(read):
            ast.copy_location(inner, node.target)
        value = self._call(node, "divide_in_place", read, node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)

    # -- Calls -------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        if not isinstance(function, ast.Attribute):
            return node
        owner = function.value
        if isinstance(owner, ast.Name) and owner.id in self.numpy:
            if function.attr not in calls.NUMPY:
                return node
            call = self._call(node, f"numpy_{function.attr}", *node.args)
            call.keywords = node.keywords
            return call
        if function.attr in calls.METHODS or (
            self.python2 and function.attr in calls.PYTHON2_METHODS
        ):
            name = ast.copy_location(ast.Constant(function.attr), node)
            call = self._call(node, "method", owner, name, *node.args)
            call.keywords = node.keywords
            return call
        return node

    # -- Tuples as parameters ----------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        first = 1 if ast.get_docstring(node, clean=False) is not None else 0
        for arg in node.args.args:
            if arg.arg in self.found.unpacked:
                text = f"{self.found.unpacked[arg.arg]} = {arg.arg}"
                (statement,) = ast.parse(text).body
                for inner in ast.walk(statement):
                    ast.copy_location(inner, arg)
                node.body.insert(first, statement)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self.generic_visit(node)
        for arg in node.args.args:
            if arg.arg in self.found.unpacked:
                inside = self.found.unpacked[arg.arg].strip()[1:-1].rstrip(", ")
                text = f"(lambda {inside}: 0)(*{arg.arg})"
                call: Any = ast.parse(text, mode="eval").body
                for inner in ast.walk(call):
                    ast.copy_location(inner, arg)
                call.func.body = node.body
                node.body = call
        return node


_PLAIN = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.ListComp)


def _is_float(*nodes: ast.expr) -> bool:
    return any(isinstance(n, ast.Constant) and isinstance(n.value, float) for n in nodes)
