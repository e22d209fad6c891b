"""Element-wise kernels for any number of elements: what interpreted operations are run with."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.compile.emit import I64, Operand, Reg
from headrace.compile.kernel import Team
from headrace.compile.kernels.maps import unroll_of
from headrace.compile.pointwise import emit_pointwise, load_value, store_value
from headrace.compile.spaces import lanes_for
from headrace.devices.target import Target
from headrace.graph.pointwise import Pointwise

__all__ = ["Span"]


@dataclass(frozen=True)
class Span:
    """outputs = program(inputs), element by element of contiguous arrays; `single` says which
    inputs are one element for all. The number of elements is data, so that arrays of all sizes
    share one piece of code; there are at least `least`.

    Elements are done in blocks, of which the last one begins where it ends with the arrays: some
    elements are computed twice, and no code is needed for a part of a block. So an output must not
    be the memory of an input.
    """

    program: Pointwise
    single: tuple[bool, ...]

    counters = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        inputs = [f"x{i}" for i in range(len(self.program.inputs))]
        return ("count", *inputs, *(f"out:y{i}" for i in range(len(self.program.outputs))))

    def scratch(self, threads: int) -> int:
        return 0

    def least(self, target: Target) -> int:
        """The number of elements of a block."""
        return lanes_for(target, [self.program]) * unroll_of(self.program)

    def emit(self, team: Team) -> None:
        f, program = team.f, self.program
        lanes = lanes_for(team.target, [program])
        block = self.least(team.target)
        total = f.load(I64, team.args[0])
        pointers = team.args[1:]
        inputs, outputs = pointers[: len(program.inputs)], pointers[len(program.inputs) :]
        known = {
            i: load_value(f, dtype, 0, pointer)
            for i, (dtype, pointer) in enumerate(zip(program.inputs, inputs, strict=True))
            if self.single[i]
        }
        last = f.sub(total, block)

        def vector(at: Operand) -> None:
            values = [
                known[i] if i in known else load_value(f, dtype, lanes, pointer, at)
                for i, (dtype, pointer) in enumerate(zip(program.inputs, inputs, strict=True))
            ]
            results = emit_pointwise(f, program, values)
            for dtype, value, place in zip(program.output_dtypes, results, outputs, strict=True):
                store_value(f, dtype, value, place, at)

        def elements(b: Reg) -> None:
            start = f.minimum(f.mul(b, block), last)
            for step in range(0, block, lanes):
                vector(f.add(start, step))

        f.loop(*team.share(f.div(f.add(total, block - 1), block)), elements)
