"""The modules of TensorFlow 1.15 below `tensorflow.python` and their names. In: the file that
scripts/record_python_modules writes. Out: one `ModuleSection` for each module.

The file has a header line for each module, then its words:

    [ops.math_ops] ops.gen_math_ops     the module, and modules that it has the names of as well
    abs matvec=linalg.matvec            tf.abs, tf.linalg.matvec
    mat_mul=raw_ops.MatMul(a,b,name)    the op, by a function of these parameters
    name=@framework.ops:name            a name of another module
    name=@framework.ops                 another module
    - argmax_v2                         names that have no public name
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["ModuleSection", "children", "module_names", "section"]

_PATH = Path(__file__).with_name("tensorflow_modules.txt")


@dataclass(frozen=True)
class ModuleSection:
    """A module of TensorFlow: names with their targets ("" where there is none), and the modules
    whose names it has too.
    """

    targets: dict[str, str]
    bases: tuple[str, ...]


@cache
def _blocks() -> dict[str, str]:
    """The text of each module's section, not parsed yet: programs use few of them."""
    blocks = _PATH.read_text(encoding="utf-8").split("\n[")[1:]
    return {name: text for name, _, text in (block.partition("]") for block in blocks)}


@cache
def section(module: str) -> ModuleSection | None:
    """The section of a module, None if TensorFlow hasn't such a module."""
    text = _blocks().get(module)
    if text is None:
        return None
    bases, *lines = text.split("\n")
    targets: dict[str, str] = {}
    for line in lines:
        if line.startswith("- "):
            targets.update(dict.fromkeys(line[2:].split(), ""))
            continue
        for word in line.split():
            name, _, target = word.partition("=")
            targets[name] = target or name
    return ModuleSection(targets, tuple(bases.split()))


def module_names() -> tuple[str, ...]:
    """Every module, as "ops.math_ops"; the package `tensorflow.python` itself is ""."""
    return tuple(_blocks())


@cache
def children(module: str) -> frozenset[str]:
    """The last names of the modules right below a package."""
    parts = (name.rpartition(".") for name in _blocks() if name)
    return frozenset(last for parent, _, last in parts if parent == module)
