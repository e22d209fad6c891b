"""Gathering by coordinates."""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I1, I64, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import memory_type
from headrace._src.compile.kernels.rows.gather_rows import copy_row, load_index

__all__ = ["GatherPointsKernel"]


@dataclass(frozen=True)
class GatherPointsKernel:
    """out[i] = params[indices[i, 0], indices[i, 1], ...], vectors of `inner` elements: params are
    [*sizes, inner], indices [count, len(sizes)]. An index outside of its range sets the status,
    and nothing is written then.
    """

    count: int
    sizes: tuple[int, ...]
    inner: int
    dtype: str
    index_dtype: str

    arguments = ("params", "indices", "out:result", "inout:status")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        params, indices, result, status = team.args
        type = memory_type(self.dtype)

        def coordinates(i: Reg) -> list[Reg]:
            at = f.mul(i, len(self.sizes))
            return [
                load_index(f, self.index_dtype, indices, f.add(at, d))
                for d in range(len(self.sizes))
            ]

        def wrong(i: Reg, found: Reg) -> list[Reg]:
            for index, size in zip(coordinates(i), self.sizes, strict=True):
                found = f.or_(found, f.icmp("uge", index, size))  # as a negative one is, unsigned
            return [found]

        def point(i: Reg) -> None:
            row: Operand = 0
            for index, size in zip(coordinates(i), self.sizes, strict=True):
                row = f.add(f.mul(row, size), index)
            target = f.offset(result, f.mul(i, self.inner), type)
            copy_row(f, type, target, f.offset(params, f.mul(row, self.inner), type), self.inner)

        (bad,) = f.loop(0, self.count, wrong, [f.const(0, I1)])
        f.when(
            bad,
            lambda: f.store(f.const(1, I64), status),
            lambda: f.loop(*team.share(self.count), point),
        )
