"""What the benchmarks import from Headrace is there: most of them are run by hand, long after a
name has moved.
"""

import ast
import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent.parent / "bench"


def imports(path):
    """Yield the names that a file imports from Headrace: module, name, line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "headrace":
            for alias in node.names:
                yield node.module, alias.name, node.lineno


def exists(module, name):
    if hasattr(importlib.import_module(module), name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ImportError:
        return False
    return True


@pytest.mark.needs_llvm
@pytest.mark.needs_jax
def test_benchmarks_import_what_there_is():
    found = [(path, *found) for path in sorted(BENCH.rglob("*.py")) for found in imports(path)]
    missing = [
        f"{path.name}:{line}: {module}.{name}"
        for path, module, name, line in found
        if not exists(module, name)
    ]
    assert len(found) > 50 and not missing
