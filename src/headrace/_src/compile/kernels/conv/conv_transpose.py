"""Transpose squares of elements in registers: how filters exchange their channels."""

from __future__ import annotations

from headrace._src.compile.codegen.emit import F32, I64, PTR, Function, Reg
from headrace._src.compile.codegen.kernel_spec import Team

__all__ = ["transpose_function"]


def transpose_function(team: Team, pitch: int, size: int) -> Function:
    """(source, target, apart): transpose size x size elements. Rows are `pitch` apart, and those of
    the result `apart`.
    """
    f = team.helper("transpose", [PTR, PTR, I64])
    source, target, apart = f.parameters
    rows = [f.load(F32.of(size), source, i * pitch) for i in range(size)]
    distance = 1
    while distance < size:
        rows = _exchange(f, rows, distance)
        distance *= 2
    for i, row in enumerate(rows):
        f.store(row, target, f.mul(apart, i))
    return f.finish()


def _exchange(f: Function, rows: list[Reg], d: int) -> list[Reg]:
    """Exchange the off-diagonal d x d squares of every 2d x 2d square."""
    size = len(rows)
    low = [k if not k & d else k - d + size for k in range(size)]
    high = [k + d if not k & d else k + size for k in range(size)]
    result = list(rows)
    for i in range(size):
        if not i & d:
            result[i] = f.shuffle(rows[i], rows[i | d], low)
            result[i | d] = f.shuffle(rows[i], rows[i | d], high)
    return result
