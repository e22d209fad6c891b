"""Transpose a square of registers. In: n vectors of n lanes. Out: n vectors, lane i of register j
exchanged with lane j of register i.

log2(n) rounds: round k exchanges bit k of the register's number with bit k of the lane's number,
each time by shuffles of two registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace._src.compile.codegen.emit import Function, Reg

__all__ = ["transpose"]


def transpose(f: Function, rows: Sequence[Reg]) -> list[Reg]:
    """The transposed square; the number of rows and of lanes is one power of two."""
    count = len(rows)
    if count & (count - 1) or any(r.type.lanes != count for r in rows):
        raise ValueError(f"{count} registers of {rows[0].type} aren't a square that can be halved")
    result = list(rows)
    bit = 1
    while bit < count:
        low = [lane if not lane & bit else count + lane - bit for lane in range(count)]
        high = [lane + bit if not lane & bit else count + lane for lane in range(count)]
        for a in range(count):
            if not a & bit:
                x, y = result[a], result[a | bit]
                result[a], result[a | bit] = f.shuffle(x, y, low), f.shuffle(x, y, high)
        bit *= 2
    return result
