"""Softmax along rows of any sizes: interpreted operations are run by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace._src.compile.codegen import vector_math
from headrace._src.compile.codegen.emit import F32, F64, I64, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team

__all__ = ["SoftmaxOfAny"]

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
