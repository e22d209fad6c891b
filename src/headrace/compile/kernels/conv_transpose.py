"""Transpose squares of 16 x 16 elements in registers: how filters exchange their channels."""

from __future__ import annotations

from headrace.compile.emit import F32, I64, PTR, Function, Reg
from headrace.compile.kernel import Team
from headrace.compile.kernels.conv_geometry import BLOCK

__all__ = ["transpose_function"]

_VECTOR = F32.of(BLOCK)


def transpose_function(team: Team, pitch: int) -> Function:
    """(source, target, apart): transpose 16 x 16 elements. Rows are `pitch` apart, and those of the
    result `apart`.
    """
    f = team.helper("transpose", [PTR, PTR, I64])
    source, target, apart = f.parameters
    rows = [f.load(_VECTOR, source, i * pitch) for i in range(BLOCK)]
    distance = 1
    while distance < BLOCK:
        rows = _exchange(f, rows, distance)
        distance *= 2
    for i, row in enumerate(rows):
        f.store(row, target, f.mul(apart, i))
    return f.finish()


def _exchange(f: Function, rows: list[Reg], d: int) -> list[Reg]:
    """Exchange the off-diagonal d x d squares of every 2d x 2d square."""
    low = [k if not k & d else k - d + BLOCK for k in range(BLOCK)]
    high = [k + d if not k & d else k + BLOCK for k in range(BLOCK)]
    result = list(rows)
    for i in range(BLOCK):
        if not i & d:
            result[i] = f.shuffle(rows[i], rows[i | d], low)
            result[i | d] = f.shuffle(rows[i], rows[i | d], high)
    return result
