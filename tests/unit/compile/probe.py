"""A kernel for tests: one pointwise program on whole arrays, with any number of lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import emit_pointwise, load_value, store_value
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.core.dtypes import as_dtype
from headrace._src.lowering.pointwise import Pointwise


@dataclass(frozen=True)
class Probe:
    """Apply a program to arrays of `size` elements, a multiple of the lanes."""

    program: Pointwise
    size: int
    lanes: int

    @property
    def arguments(self) -> tuple[str, ...]:
        inputs = [f"x{i}" for i in range(len(self.program.inputs))]
        return (*inputs, *(f"out:y{i}" for i in range(len(self.program.outputs))))

    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, program = team.f, self.program
        inputs, outputs = team.args[: len(program.inputs)], team.args[len(program.inputs) :]

        def body(i):
            loaded = [
                load_value(f, t, self.lanes, p, i)
                for t, p in zip(program.inputs, inputs, strict=True)
            ]
            results = emit_pointwise(f, program, loaded)
            for t, p, y in zip(program.output_dtypes, outputs, results, strict=True):
                store_value(f, t, y, p, i)

        f.loop(0, self.size, body, step=max(1, self.lanes))


def apply(program: Pointwise, *arrays: np.ndarray, lanes: int = 16) -> list[np.ndarray]:
    """Run a program on equally long vectors."""
    size = arrays[0].size
    padded = -(-size // max(1, lanes)) * max(1, lanes)
    inputs = [np.resize(a, padded) for a in arrays]
    outputs = [np.zeros(padded, as_dtype(t).as_numpy_dtype) for t in program.output_dtypes]
    run_kernel(Probe(program, padded, lanes), [*inputs, *outputs], threads=1)
    return [y[:size] for y in outputs]
