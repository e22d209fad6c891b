"""Transpose a square of registers. In: n vectors of n lanes. Out: n vectors, lane i of register j
exchanged with lane j of register i.

First the squares in the registers' parts of 128 bits are transposed, each in rounds of interleaving
two registers, which is one instruction within such parts. Then the square of these parts is, in
rounds that separate even parts from odd ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace._src.compile.codegen.emit import Function, Reg

__all__ = ["transpose"]


def transpose(f: Function, rows: Sequence[Reg]) -> list[Reg]:
    """The transposed square; the number of rows and of lanes is one power of two."""
    lanes = len(rows)
    if lanes & (lanes - 1) or any(r.type.lanes != lanes for r in rows):
        raise ValueError(f"{lanes} registers of {rows[0].type} aren't a square that can be halved")
    part = min(lanes, 128 // rows[0].type.bits)
    low = [p + i // 2 + lanes * (i % 2) for p in range(0, lanes, part) for i in range(part)]
    high = [i + part // 2 for i in low]
    squares = []
    for p in range(0, lanes, part):
        square = list(rows[p : p + part])
        for _ in range(part.bit_length() - 1):
            square = [
                f.shuffle(square[i // 2], square[i // 2 + part // 2], high if i % 2 else low)
                for i in range(part)
            ]
        squares.append(square)
    columns = [_parts_transposed(f, list(parts), part) for parts in zip(*squares, strict=True)]
    return [column[i] for i in range(lanes // part) for column in columns]


def _parts_transposed(f: Function, rows: list[Reg], part: int) -> list[Reg]:
    """The columns of a square whose elements are parts of vectors, of so many lanes each."""
    if len(rows) == 1:
        return rows
    lanes = rows[0].type.lanes
    even = [i for i in range(2 * lanes) if not i // part % 2]
    odd = [i + part for i in even]
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    halves = [
        _parts_transposed(f, [f.shuffle(a, b, mask) for a, b in pairs], part)
        for mask in (even, odd)
    ]
    return [column for both in zip(*halves, strict=True) for column in both]
