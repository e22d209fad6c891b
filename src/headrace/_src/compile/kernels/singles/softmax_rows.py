"""Softmax along rows: a fragment of a cluster's plan, and a kernel for rows of any sizes, which
runs interpreted operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace._src.compile.codegen import vector_math
from headrace._src.compile.codegen.combine import state_dtype
from headrace._src.compile.codegen.emit import F32, F64, I64, Operand, Reg
from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.anchor_kind import AnchorKind, Arrays, Family, splice, wide
from headrace._src.compile.kernels.rows.row_fragments import input_of, output_of, stage
from headrace._src.compile.kernels.rows.rows_kernel import Rows, Stage
from headrace._src.compile.native.array_runners import team_runner
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.plan.plan_writer import PlanWriter
from headrace._src.devices.buffers import empty_aligned
from headrace._src.devices.target import host
from headrace._src.lowering.anchors import Softmax

if TYPE_CHECKING:
    from headrace._src.compile.build.plan_builder import Builder
    from headrace._src.compile.regions.groups import Group

__all__ = ["KINDS", "SoftmaxOfAny", "exponentials", "less_maximum", "softmax", "routine"]

_UNROLLED = 4  # vectors: as many sums as hide the latency of an addition
_NEAR = 64  # blocks of vectors that are added up before their sum joins that of the row


@dataclass(frozen=True)
class SoftmaxOfAny:
    """y = exp(x - max(x)) / sum(exp(x - max(x))) of every row. `sizes` are the rows and their
    columns, at least a vector's, as int64. A row with a NaN or an infinity becomes all NaN, but for
    minus infinities beside numbers. Threads share the rows.
    """

    dtype: str

    arguments = ("sizes", "x", "out:y")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, x, y = team.args
        rows, columns = f.load(I64, sizes), f.load(I64, sizes, 1)
        element = {"float32": F32, "float64": F64}[self.dtype]
        lanes = team.target.lanes(self.dtype)
        vector, block = element.of(lanes), lanes * _UNROLLED
        blocks = f.mul(f.div(columns, block), block)
        whole = f.mul(f.div(columns, lanes), lanes)
        last = f.sub(columns, lanes)  # where the vector begins that ends with the row
        # Lanes of that one that no whole vector has: the sum must count the others once.
        numbers = f.load(I64.of(lanes), f.module.data(f"{f.name}_lanes", range(lanes), I64))
        rest = f.icmp("sge", numbers, f.splat(f.sub(whole, last), lanes))
        zero, least = f.const(0.0, vector), f.const(-float("inf"), vector)

        def greater(a: Reg, b: Reg) -> Reg:
            return f.select(f.fcmp("ogt", a, b), a, b)  # a NaN may be lost: the sum has it

        def row(r: Reg) -> None:
            start = f.mul(r, columns)
            source, target = f.offset(x, start, element), f.offset(y, start, element)

            def over(
                first: Operand, end: Operand, step: Callable[[Reg, Reg], Reg], none: Reg
            ) -> list[Reg]:
                """What `step` makes of places and of what it made before, in whole blocks."""

                def several(c: Reg, *values: Reg) -> list[Reg]:
                    return [step(f.add(c, i * lanes), v) for i, v in enumerate(values)]

                return f.loop(first, end, several, [none] * _UNROLLED, step=block)

            def load(at: Operand) -> Reg:
                return f.load(vector, source, at)

            def larger(at: Reg, found: Reg) -> Reg:
                return greater(load(at), found)

            found = [load(last), *over(0, blocks, larger, least)]
            (largest,) = f.loop(blocks, whole, larger, [_tree(found, greater)], step=lanes)
            peak = f.splat(f.reduce("fmaximum", largest), lanes)

            def exponential(at: Operand) -> Reg:
                return vector_math.exp(f, f.fsub(load(at), peak))

            def store_and_add(at: Reg, total: Reg) -> Reg:
                value = exponential(at)
                f.store(value, target, at)
                return f.fadd(total, value)

            def stretch(c: Reg, total: Reg) -> Reg:
                end = f.minimum(f.add(c, _NEAR * block), blocks)
                return f.fadd(total, _tree(over(c, end, store_and_add, zero), f.fadd))

            (total,) = f.loop(0, blocks, stretch, [zero], step=_NEAR * block)
            (total,) = f.loop(blocks, whole, store_and_add, [total], step=lanes)
            tail = exponential(last)
            total = f.reduce("fadd", f.fadd(total, f.select(rest, tail, zero)))
            factor = f.splat(f.fdiv(1.0, total), lanes)

            def scale(at: Reg) -> None:
                f.store(f.fmul(f.load(vector, target, at), factor), target, at)

            f.loop(0, whole, scale, step=lanes)
            f.store(f.fmul(tail, factor), target, last)

        f.loop(*team.share(rows), row)


def _tree(values: Sequence[Reg], combine: Callable[[Reg, Reg], Reg]) -> Reg:
    """All values combined, in pairs."""
    while len(values) > 1:
        pairs = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = [*pairs, *values[len(pairs) * 2 :]]
    return values[0]


# -- In a cluster ----------------------------------------------------------------------------------


def exponentials(dtype: str, wide: str) -> list[Stage]:
    """The row's maximum in s0, e^(x - max) in row0 and its sum in s1."""

    def shifted(e: Any, x: Any, top: Any) -> tuple[Any, Any]:
        power = e.exp(e.cast(x, wide) - top)
        return power, power

    return [
        stage(lambda e, x: e.cast(x, wide), {"x0": dtype}, "max s0"),
        stage(shifted, {"x0": dtype, "s0": wide}, "row0", "sum s1"),
    ]


def softmax(g: Softmax) -> Plan:
    """Softmax or its logarithm: x -> y."""
    wide = state_dtype(g.dtype)
    stages = exponentials(g.dtype, wide)
    if g.log:

        def result(e: Any, x: Any, top: Any, log: Any) -> Any:
            return e.cast(e.cast(x, wide) - top - log, g.dtype)

        operands = {"x0": g.dtype, "s0": wide, "s2": wide}
        stages.append(stage(lambda e, total: e.log(total), {"s1": wide}, "s2", scalar=True))
        stages.append(stage(result, operands, "y0"))
    else:
        stages.append(stage(lambda e, total: e.div(1.0, total), {"s1": wide}, "s2", scalar=True))
        operands = {"row0": wide, "s2": wide}
        stages.append(stage(lambda e, p, r: e.cast(p * r, g.dtype), operands, "y0"))
    rows = Access(g.dtype, (g.classes, 1))
    kernel = Rows((g.rows,), g.classes, tuple(stages), (rows,), (rows,))
    plan, size = PlanWriter(), g.rows * g.classes
    plan.call(kernel, [input_of(plan, 0, g.dtype, size), output_of(plan, 0, g.dtype, size)])
    return plan.finish()


def _build(builder: Builder, group: Group) -> None:
    """Softmax and its logarithm."""
    g: Softmax = group.head.geometry
    splice(builder, group, softmax(g))


# -- Interpreted, and its meaning ------------------------------------------------------------------


def routine(dtype: str) -> Callable[..., Any]:
    """The function of a contiguous array that gives its softmax along the last axis; None where the
    rows are too short for it.
    """
    run = team_runner(SoftmaxOfAny(dtype))
    least = host().lanes(dtype)

    def call(x: np.ndarray) -> np.ndarray | None:
        columns = x.shape[-1]
        if columns < least:
            return None
        y = empty_aligned(x.shape, x.dtype)
        run(x.size, np.array([x.size // columns, columns]), x, y)
        return y

    return call


def less_maximum(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows less their maximum, and the sums of the exponentials of that."""
    shifted = wide(x) - wide(x).max(-1, keepdims=True)
    return shifted, np.exp(shifted).sum(-1, keepdims=True)


def _meaning(g: Softmax, x: np.ndarray) -> Arrays:
    shifted, total = less_maximum(x.reshape(g.rows, g.classes))
    result = shifted - np.log(total) if g.log else np.exp(shifted) / total
    return [result.reshape(x.shape)]


KINDS = (AnchorKind("softmax", Family(_build), meanings={Softmax: _meaning}),)
