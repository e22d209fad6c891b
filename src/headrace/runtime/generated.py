"""Large element-wise operations by generated code. In: an operation and its NumPy kernel. Out: a
kernel that hands large arrays to code generated for this operation alone (devices.generated).

Whether it does depends on the arrays' sizes and nothing else: equal steps give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from headrace.devices import generated
from headrace.graph.dataflow import Node
from headrace.graph.lowering import Elementwise, flat_program
from headrace.graph.operation import Operation

__all__ = ["with_generated"]

Kernel = Callable[..., Any]


def with_generated(op: Operation | Node, plain: Kernel) -> Kernel:
    """The kernel of an operation, by generated code where its arrays are large."""
    rule = op.definition.lower
    if not isinstance(rule, Elementwise) or _is_small(op):
        return plain
    if rule.views is not None and not isinstance(op, Node):
        return plain  # nobody has seen whether the shapes are right
    known: dict[tuple[bool, ...], Kernel | None] = {}

    def run(*values: Any) -> Any:
        single = _singles(values)
        if single is None:
            return plain(*values)
        if single not in known:
            known[single] = _kernel(op, values, single)
        kernel = known[single]
        return plain(*values) if kernel is None else kernel(*values)

    return run


def _is_small(op: Operation | Node) -> bool:
    """Whether all shapes are known, and too small."""
    if not isinstance(op, Node):
        return False
    sizes = [t.sizes for t in op.types]
    return all(s is not None and prod(s) < generated.LEAST for s in sizes)


def _singles(values: tuple[Any, ...]) -> tuple[bool, ...] | None:
    """Which of the arrays are one element for all of the others; None where they aren't large
    arrays of one shape beside such.
    """
    shape: tuple[int, ...] | None = None
    for v in values:
        if not isinstance(v, np.ndarray | np.generic):
            return None
        if v.size >= generated.LEAST:
            if shape not in (None, v.shape) or not v.flags.c_contiguous or not v.flags.aligned:
                return None
            shape = v.shape
        elif v.size != 1 or not v.flags.aligned:
            return None
    if shape is None or any(v.ndim > len(shape) for v in values):
        return None
    return tuple(v.size == 1 for v in values)


def _kernel(op: Operation | Node, values: tuple[Any, ...], single: tuple[bool, ...]) -> Any:
    """The generated kernel for arrays like these; None if there is none."""
    rule = op.definition.lower
    if rule.views is not None and any(single):
        return None
    program = flat_program(rule, [v.dtype.name for v in values], op._attrs)
    wanted = tuple(t.dtype.base_dtype.name for t in op._outputs)
    if program is None or program.output_dtypes != wanted:
        return None
    found = generated.elementwise(program, single)
    if found is None:
        return None
    several = len(wanted) > 1

    def run(*values: Any) -> Any:
        results = found(*map(np.asarray, values))  # scalars come as they are
        return results if several else results[0]

    return run
