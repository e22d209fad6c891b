"""Winograd's minimal filtering: the matrices, and vector code that multiplies by them.

A one-dimensional correlation of m outputs with r taps costs a = m + r - 1 products instead of m r:
    y = A^T [(G w) * (B^T x)],        in two dimensions    Y = A^T [(G W G^T) * (B^T X B)] A.
The matrices come from interpolation (Toom-Cook) at a - 1 points and infinity. Points near zero lose
least precision; small integers and their halves make cheap code. The filter's gradient is the same
algorithm read backwards: dW = G^T [(A dY A^T) * (B^T X B)] G.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from headrace._src.compile.codegen.emit import F32, F64, Function, Reg
from headrace._src.compile.kernels.conv.conv_product import registers_of

__all__ = ["LinearMap", "Matrices", "Tile", "matrices", "sides", "two_sided"]

# The results of a tile: the side of a square, or rows and columns.
Tile = int | tuple[int, int]

# From a search over multiples of 1/32: the errors of F(3, 3), F(4, 3) and F(2, 5), as root mean
# square and of the worst result, are close to the least.
_HALF, _NEAR, _FAR = Fraction(1, 2), Fraction(21, 32), Fraction(3, 2)
_CLOSE, _MIDDLE = Fraction(13, 32), Fraction(5, 4)
_POINTS: dict[tuple[int, bool], tuple[Fraction | int, ...]] = {
    (3, False): (0, 1, -1),
    (3, True): (0, 1, -1),
    (4, True): (_CLOSE, -_CLOSE, _MIDDLE, -_MIDDLE),
    (5, False): (0, 1, -1, 2, -2),
    (5, True): (0, _NEAR, -_NEAR, _FAR, -_FAR),
    (7, False): (0, 1, -1, 2, -2, _HALF, -_HALF),
    (7, True): (0, 1, -1, 2, -2, _HALF, -_HALF),
}


@dataclass(frozen=True)
class Matrices:
    """The transforms of F(m, r): of the input (B^T), the filter (G) and the output (A^T)."""

    input: LinearMap
    filter: LinearMap
    output: LinearMap


def sides(m: Tile) -> tuple[int, int]:
    """The rows and columns of a tile."""
    return (m, m) if isinstance(m, int) else m


@cache
def matrices(m: int, r: int, accurate: bool = False) -> Matrices:
    """The transforms for m outputs and r taps; `accurate` prefers precision to cheap code."""
    points = _POINTS.get((m + r - 2, accurate))
    if points is None:
        raise ValueError(f"no interpolation points for F({m}, {r})")
    a = m + r - 1
    output = [[Fraction(x) ** i for x in points] + [Fraction(i == m - 1)] for i in range(m)]
    filter_, input_ = [], []
    for j, x in enumerate(points):
        others = [Fraction(y) for i, y in enumerate(points) if i != j]
        row = [*_polynomial(others), Fraction(0)]
        scale = _power_of_two(row)
        weight = scale / math.prod(x - y for y in others)
        input_.append([c / scale for c in row])
        filter_.append([weight * Fraction(x) ** k for k in range(r)])
    whole = _polynomial([Fraction(x) for x in points])
    scale = _power_of_two(whole)
    input_.append([c / scale for c in whole])
    filter_.append([scale * (k == r - 1) for k in range(r)])
    assert len(input_) == a
    return Matrices(LinearMap(input_), LinearMap(filter_), LinearMap(output))


def _polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the product of (x - root), lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [-root * c for c in coefficients] + [Fraction(0)]
        coefficients = [s + t for s, t in zip(shifted, scaled, strict=True)]
    return coefficients


def _power_of_two(row: Sequence[Fraction]) -> Fraction:
    """What a row is divided by so that its smallest coefficient is near 1: scaling by it is exact
    and spares multiplications.
    """
    smallest = min(abs(c) for c in row if c)
    return Fraction(2) ** round(np.log2(float(smallest)))


class LinearMap:
    """A matrix of constants that is applied to vectors in registers."""

    def __init__(self, rows: Sequence[Sequence[Fraction]]) -> None:
        self.rows = tuple(tuple(Fraction(c) for c in row) for row in rows)
        self.outputs, self.inputs = len(self.rows), len(self.rows[0])
        # Code is shared between mirrored columns in wide matrices, mirrored rows in the others.
        wide = self.outputs < self.inputs
        self._columns = _pairs(list(zip(*self.rows, strict=True))) if wide else []
        self._twins = {i: (k, sign) for i, k, sign in ([] if wide else _pairs(self.rows))}

    @property
    def transposed(self) -> LinearMap:
        return LinearMap(list(zip(*self.rows, strict=True)))

    def array(self) -> np.ndarray:
        """The matrix in float64."""
        return np.array(self.rows, np.float64)

    def groups(self, most: int) -> list[list[int]]:
        """The rows in groups of at most `most` (but at least 2); mirrored rows stay together."""
        groups: list[list[int]] = [[]]
        seconds = {k for k, _ in self._twins.values()}
        for i in range(self.outputs):
            if i in seconds:
                continue
            unit = [i, self._twins[i][0]] if i in self._twins else [i]
            if groups[-1] and len(groups[-1]) + len(unit) > max(most, 2):
                groups.append([])
            groups[-1] += unit
        return groups

    def needed(self, rows: Sequence[int]) -> list[int]:
        """Which inputs the given rows read."""
        return [j for j in range(self.inputs) if any(self.rows[i][j] for i in rows)]

    def apply(
        self, f: Function, xs: Sequence[Reg], rows: Sequence[int] | None = None
    ) -> dict[int, Reg]:
        """The chosen rows of the matrix times xs, by row; twins are chosen together."""
        rows = range(self.outputs) if rows is None else rows
        if self._columns:
            return self._by_columns(f, xs, rows)
        results: dict[int, Reg] = {}
        for i in rows:
            if i in self._twins:
                twin, sign = self._twins[i]
                results[i], results[twin] = self._mirrored_rows(f, xs, i, sign)
            elif i not in results:
                results[i] = _combination(f, list(zip(self.rows[i], xs, strict=True)))
        return results

    def _mirrored_rows(self, f: Function, xs: Sequence[Reg], i: int, sign: int) -> tuple[Reg, Reg]:
        """Row i and its twin: the even part plus the odd part, and minus it."""
        terms = list(zip(self.rows[i], xs, strict=True))
        odd = [t for t in terms[1::2] if t[0]]
        factor = odd[-1][0]
        e = _combination(f, terms[0::2])
        o = _combination(f, [(c / factor, x) for c, x in odd])
        plus, minus = _add_scaled(f, e, factor, o), _add_scaled(f, e, -factor, o)
        return plus, minus if sign > 0 else f.fneg(minus)

    def _by_columns(self, f: Function, xs: Sequence[Reg], rows: Sequence[int]) -> dict[int, Reg]:
        """Rows in which the inputs of mirrored columns occur only as a sum or a difference."""
        paired = {j for left, right, _ in self._columns for j in (left, right)}
        sums: dict[tuple[int, int], Reg] = {}
        results = {}
        for i in rows:
            row = self.rows[i]
            terms = [(row[j], xs[j]) for j in range(self.inputs) if j not in paired]
            for left, right, sign in self._columns:
                key = (left, sign * (-1) ** i)
                if row[left] and key not in sums:
                    sums[key] = (f.fadd if key[1] > 0 else f.fsub)(xs[left], xs[right])
                terms += [(row[left], sums[key])] if row[left] else []
            results[i] = _combination(f, terms)
        return results


def _pairs(rows: Sequence[Sequence[Fraction]]) -> list[tuple[int, int, int]]:
    """Rows (i, k, sign) where row k is `sign` times row i with every second sign changed."""
    pairs, used = [], set()
    for i, row in enumerate(rows):
        for k in range(i + 1, len(rows)):
            sign = _mirrored(row, rows[k])
            if sign and not {i, k} & used:
                pairs.append((i, k, sign))
                used |= {i, k}
    return pairs


def _mirrored(x: Sequence[Fraction], y: Sequence[Fraction]) -> int:
    """1 or -1 if y[j] = (that) (-1)^j x[j] for all j and there is something to share, else 0."""
    if sum(1 for c in x if c) < 2:
        return 0
    for sign in (1, -1):
        if all(b == sign * (-1) ** j * a for j, (a, b) in enumerate(zip(x, y, strict=True))):
            return sign
    return 0


def _combination(f: Function, given: Sequence[tuple[Fraction, Reg]]) -> Reg:
    """The sum of coefficient times vector, those with coefficient 1 first (they're free)."""
    terms = sorted((t for t in given if t[0]), key=lambda t: (t[0] != 1, abs(t[0]) != 1))
    if not terms:
        return f.const(0.0, given[0][1].type)
    factor, x = terms[0]
    total = x if factor == 1 else f.fmul(float(factor), x)
    for factor, x in terms[1:]:
        total = _add_scaled(f, total, factor, x)
    return total


def _add_scaled(f: Function, total: Reg, factor: Fraction, x: Reg) -> Reg:
    """total + factor x."""
    if factor == 1:
        return f.fadd(total, x)
    if factor == -1:
        return f.fsub(total, x)
    return f.fma(float(factor), x, total)


def two_sided(
    f: Function,
    left: LinearMap,
    right: LinearMap,
    load: Callable[[int, int], Reg],
    emit: Callable[[int, list[Reg]], None],
    lanes: int,
    pairs: bool = False,
    precise: bool = False,
) -> None:
    """L X R^T for a tile X of vectors: calls emit(i, row) for each row of the result. As many rows
    as registers hold are worked on together; with `pairs`, an even number. With `precise`, in
    float64: every element of the result is rounded once, which suits what is transformed rarely.
    """
    type = (F64 if precise else F32).of(lanes)
    # Vectors that are there between the two sides; in float64 each takes two registers.
    live = 3 * registers_of(f.target, lanes) // (8 if precise else 4)
    most = max(1, live // right.inputs)
    most = 2 * max(1, most // 2) if pairs else most

    def element(i: int, j: int) -> Reg:
        return f.convert("fpext", load(i, j), F64) if precise else load(i, j)

    for rows in left.groups(most):
        needed = left.needed(rows)
        halves: list[dict[int, Reg]] = []
        for j in range(right.inputs):
            zero = f.const(0.0, type)
            column = [element(i, j) if i in needed else zero for i in range(left.inputs)]
            halves.append(left.apply(f, column, rows))
        for i in rows:
            found = right.apply(f, [half[i] for half in halves])
            row = [found[k] for k in range(right.outputs)]
            emit(i, [f.convert("fptrunc", x, F32) for x in row] if precise else row)
