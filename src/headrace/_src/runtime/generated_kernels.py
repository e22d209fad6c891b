"""Run large element-wise operations with generated code. In: an operation and its NumPy kernel.
Out: a kernel that passes large arrays to code generated for this operation (lowering.generated).

The choice depends on the sizes of the arrays and nothing else, so that equal steps give equal bits.
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
    """Wrap the kernel of an operation so that it uses generated code for large arrays.

    `specialised` means that the arrays will have the shapes of the node's types.
    """
    rule = op.definition.lower
    if not isinstance(rule, Elementwise):
        return plain
    if specialised and isinstance(op, Node):
        if _is_small(op):
            return plain
    elif rule.views is not None:
        return plain  # the shapes have not been checked
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
    """Return whether all output shapes are known and too small for generated code."""
    sizes = [t.sizes for t in node.types]
    return all(s is not None and prod(s) < generated.LEAST for s in sizes)


def _kinds(values: tuple[Any, ...]) -> tuple[str, ...] | None:
    """Return how each array broadcasts (see lowering.generated).

    Returns None if no array is large, or if one of them broadcasts in another way.
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
    """Return the generated kernel for arrays like these, or None if there is none."""
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
        results = found(*map(np.asarray, values))  # scalars may be NumPy scalars
        return results if several or results is None else results[0]

    return run
