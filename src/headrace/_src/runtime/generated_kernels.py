"""Large element-wise operations by generated code. In: an operation and its NumPy kernel. Out: a
kernel that hands large arrays to code generated for this operation alone (lowering.generated).

Whether it does depends on the arrays' sizes and nothing else: equal steps give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from headrace._src.graph.dataflow import Node
from headrace._src.graph.operation import Operation
from headrace._src.lowering import generated
from headrace._src.lowering.rules import Elementwise, flat_program

__all__ = ["with_generated"]

Kernel = Callable[..., Any]


def with_generated(op: Operation | Node, plain: Kernel, specialised: bool = False) -> Kernel:
    """The kernel of an operation, by generated code where its arrays are large; `specialised`:
    whether they will have the shapes that the node's types say.
    """
    rule = op.definition.lower
    if not isinstance(rule, Elementwise):
        return plain
    if specialised and isinstance(op, Node):
        if _is_small(op):
            return plain
    elif rule.views is not None:
        return plain  # nobody has seen whether the shapes are right
    known: dict[tuple[str, ...], Kernel | None] = {}

    def run(*values: Any) -> Any:
        kinds = _kinds(values)
        if kinds is None:
            return plain(*values)
        if kinds not in known:
            known[kinds] = _kernel(op, rule, values, kinds)
        kernel = known[kinds]
        result = None if kernel is None else kernel(*values)
        return plain(*values) if result is None else result

    return run


def _is_small(node: Node) -> bool:
    """Whether all shapes are known, and too small."""
    sizes = [t.sizes for t in node.types]
    return all(s is not None and prod(s) < generated.LEAST for s in sizes)


def _kinds(values: tuple[Any, ...]) -> tuple[str, ...] | None:
    """How each array lies over the others (see lowering.generated); None where there is no large
    one or they broadcast in other ways.
    """
    shape: tuple[int, ...] = ()
    for v in values:
        if not isinstance(v, np.ndarray | np.generic):
            return None
        if v.size >= generated.LEAST and v.ndim >= len(shape):
            shape = v.shape
    if not shape:
        return None
    found = [_kind(v, shape) for v in values]
    rows = {v.shape for v, kind in zip(values, found, strict=True) if kind == "row"}
    return None if None in found or len(rows) > 1 else tuple(found)  # type: ignore[arg-type]


def _kind(value: Any, shape: tuple[int, ...]) -> str | None:
    if value.ndim > len(shape) or not (value.flags.c_contiguous and value.flags.aligned):
        return None
    if value.shape == shape:
        return "full"
    if value.size == 1:
        return "single"
    return "row" if value.ndim and value.shape == shape[-value.ndim :] else None


def _kernel(
    op: Operation | Node, rule: Elementwise, values: tuple[Any, ...], kinds: tuple[str, ...]
) -> Kernel | None:
    """The generated kernel for arrays like these; None if there is none."""
    if rule.views is not None and set(kinds) != {"full"}:
        return None
    program = flat_program(rule, [v.dtype.name for v in values], op._attrs)
    wanted = tuple(t.dtype.base_dtype.name for t in op._outputs)
    if program is None or program.output_dtypes != wanted:
        return None
    found = generated.elementwise(program, kinds)
    if found is None:
        return None
    several = len(wanted) > 1

    def run(*values: Any) -> Any:
        results = found(*map(np.asarray, values))  # scalars come as they are
        return results if several or results is None else results[0]

    return run
