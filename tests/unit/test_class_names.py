"""Names of classes: what a reader finds by name is one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import headrace


def test_no_two_public_classes_share_a_name():
    root = Path(headrace.__file__).parent
    homes = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(f"{path.relative_to(root)}:{node.lineno}")
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
