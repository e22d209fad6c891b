"""Local response normalisation, and its gradient, as maps over rows of channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from headrace._src.compile.build.plan_builder import Builder
from headrace._src.compile.codegen.combine import state_dtype
from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.kernels.anchor_kind import AnchorKind, Arrays, Family, splice, wide
from headrace._src.compile.kernels.rows.map_kernel import Map
from headrace._src.compile.kernels.rows.row_fragments import input_of, output_of
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.plan.plan_writer import PlanWriter
from headrace._src.compile.regions.groups import Group
from headrace._src.lowering.anchors import LocalResponse
from headrace._src.lowering.pointwise import record

__all__ = ["KINDS", "local_response"]

_WIDEST = 16  # channels on each side that local response normalisation may look at


@dataclass(frozen=True)
class _Near:
    """Rows with as many zeros before and after them as a window of channels extends over the ends:
    the window's sum at every channel is then a sum of neighbours without a special case.
    """

    g: LocalResponse
    wide: str

    @property
    def reach(self) -> int:
        return min(self.g.radius, self.g.channels - 1)

    @property
    def _stride(self) -> int:
        return self.g.channels + 2 * self.reach

    @property
    def size(self) -> int:
        return self.g.rows * self._stride

    def at(self, offset: int) -> Access:
        """All channels' neighbours, `offset` away."""
        return Access(self.wide, (self._stride, 1), self.reach + offset)

    @property
    def window(self) -> tuple[Access, ...]:
        return tuple(self.at(d) for d in range(-self.reach, self.reach + 1))

    def temporary(self, plan: PlanWriter, name: str) -> int:
        """Add such rows to a plan and write their zeros."""
        rows = plan.temporary(self.wide, self.size, name)
        if self.reach:
            zero = record(lambda e: (e.const(0, self.wide),) * 2, [])
            ends = (self.at(-self.reach), self.at(self.g.channels))
            plan.call(Map((self.g.rows, self.reach), zero, (), ends), [rows, rows])
        return rows


def _inverse_power(e: Any, x: Any, exponent: float) -> Any:
    """x ** -exponent; the usual exponents are roots, which cost a tenth."""
    if exponent == 0.5:
        return e.rsqrt(x)
    if exponent == 0.75:
        root = e.rsqrt(x)
        return root * e.sqrt(root)
    return e.pow(x, -exponent)


def local_response(g: LocalResponse) -> Plan:
    """Normalisation by the squares of near channels, or its gradient."""
    wide = state_dtype(g.dtype)
    near = _Near(g, wide)
    extents, rows = (g.rows, g.channels), Access(g.dtype, (g.channels, 1))
    taps = len(near.window)

    def square(e: Any, x: Any) -> Any:
        return e.cast(x, wide) * e.cast(x, wide)

    def scale(terms: Sequence[Any]) -> Any:
        return reduce(add, terms) * g.alpha + g.bias

    def forward(e: Any, x: Any, *squares: Any) -> Any:
        return e.cast(e.cast(x, wide) * _inverse_power(e, scale(squares), g.beta), g.dtype)

    def first(e: Any, dy: Any, y: Any, *squares: Any) -> tuple[Any, Any]:
        dy, total = e.cast(dy, wide), scale(squares)
        return dy * _inverse_power(e, total, g.beta), dy * e.cast(y, wide) / total

    def last(e: Any, x: Any, direct: Any, *ratios: Any) -> Any:
        factor = 2 * g.alpha * g.beta
        return e.cast(direct - e.cast(x, wide) * reduce(add, ratios) * factor, g.dtype)

    def over(function: Callable[..., Any], *given: Access, out: tuple[Access, ...]) -> Map:
        program = record(function, [a.dtype for a in given])
        return Map(extents, program, given, out)

    plan, size = PlanWriter(), g.rows * g.channels
    if g.direction == "forward":
        x = input_of(plan, 0, g.dtype, size)
    else:
        dy, x, y = (input_of(plan, i, g.dtype, size) for i in range(3))
    result = output_of(plan, 0, g.dtype, size)
    squares = near.temporary(plan, "squares")
    plan.call(over(square, rows, out=(near.at(0),)), [x, squares])
    if g.direction == "forward":
        plan.call(over(forward, rows, *near.window, out=(rows,)), [x, *[squares] * taps, result])
        return plan.finish()
    plain = Access(wide, (g.channels, 1))
    ratios, direct = near.temporary(plan, "ratios"), plan.temporary(wide, size, "direct")
    kernel = over(first, rows, rows, *near.window, out=(plain, near.at(0)))
    plan.call(kernel, [dy, y, *[squares] * taps, direct, ratios])
    kernel = over(last, rows, plain, *near.window, out=(rows,))
    plan.call(kernel, [x, direct, *[ratios] * taps, result])
    return plan.finish()


def _supports(g: LocalResponse) -> bool:
    """Whether the window is narrow enough to be read at once."""
    return 0 <= g.radius <= _WIDEST


def _build(builder: Builder, group: Group) -> None:
    """Local response normalisation and its gradient."""
    g: LocalResponse = group.head.geometry
    splice(builder, group, local_response(g))


def _meaning(g: LocalResponse, *operands: np.ndarray) -> Arrays:
    shape = operands[0].shape
    rows = [wide(x).reshape(g.rows, g.channels) for x in operands]
    near = np.arange(g.channels)
    band = (np.abs(near[:, None] - near) <= g.radius).astype(rows[0].dtype)
    x = rows[0] if g.direction == "forward" else rows[1]
    scale = g.bias + g.alpha * ((x * x) @ band)
    if g.direction == "forward":
        return [(x * scale**-g.beta).reshape(shape)]
    dy, _, y = rows
    dx = dy * scale**-g.beta - 2 * g.alpha * g.beta * x * ((dy * y / scale) @ band)
    return [dx.reshape(shape)]


KINDS = (
    AnchorKind("local_response", Family(_build, _supports), meanings={LocalResponse: _meaning}),
)
