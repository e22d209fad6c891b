"""Every pointwise operation on every target: no library is called, and the results are NumPy's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from headrace._src.compile.ahead import Artifact, Port, build, target_for
from headrace._src.compile.codegen.emit import Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import (
    emit_pointwise,
    load_value,
    store_value,
    supports,
)
from headrace._src.compile.plan.plan import Buffer, Call, Plan
from headrace._src.devices.target import SIZES
from headrace._src.lowering.pointwise import OPCODES, Pointwise, PointwiseStep
from tests.unit.compile import ahead_runs

TARGETS = [
    ("x86_64", "x86-64-v2"),
    ("x86_64", "x86-64-v3"),
    ("aarch64", "generic"),
    ("wasm32", "generic"),
]
BINARY = {
    "add", "sub", "mul", "div", "quotient", "remainder", "max", "min", "pow", "atan2",
    "and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge",
}  # fmt: skip


@dataclass(frozen=True)
class Apply:
    """y = program(x, …) for a multiple of all vectors."""

    program: Pointwise
    size: int
    counters = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        return (*(f"x{i}" for i in range(len(self.program.inputs))), "out:y")

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, lanes = team.f, team.target.lanes()
        *sources, target = team.args

        def body(i: Reg) -> None:
            dtypes = self.program.inputs
            values = [load_value(f, d, lanes, p, i) for d, p in zip(dtypes, sources, strict=True)]
            (value,) = emit_pointwise(f, self.program, values)
            store_value(f, self.program.output_dtypes[0], value, target, i)

        f.loop(0, self.size, body, step=lanes)


def program(opcode: str, dtype: str) -> Pointwise:
    count = 2 if opcode in BINARY else 1
    result = "bool" if OPCODES[opcode][1] == "bool" else dtype
    return Pointwise(
        (dtype,) * count, (PointwiseStep(opcode, tuple(range(count)), result),), (count,)
    )


def built(programs: list[Pointwise], size: int, architecture: str, cpu: str) -> Artifact:
    """A model with an output for each program, all on the same inputs."""
    dtypes = max((p.inputs for p in programs), key=len)
    buffers = [Buffer("input", d, size * SIZES[d], i) for i, d in enumerate(dtypes)]
    calls, outputs = [], []
    for i, p in enumerate(programs):
        dtype = p.output_dtypes[0]
        calls.append(Call(Apply(p, size), (*range(len(p.inputs)), len(buffers))))
        buffers.append(Buffer("output", dtype, size * SIZES[dtype], i))
        outputs.append(Port(f"y{i}", dtype, (size,)))
    inputs = [Port(f"x{i}", d, (size,)) for i, d in enumerate(dtypes)]
    plan = Plan(tuple(buffers), tuple(calls), 0)
    return build(plan, inputs, outputs, target=target_for(architecture, cpu))


@pytest.mark.parametrize(("architecture", "cpu"), TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_operations(architecture, cpu, dtype, tmp_path):
    rng = np.random.default_rng(7)
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan] if dtype != "int32" else range(8)
    x = np.append(rng.normal(0, 3, 56), edges).astype(dtype)
    y = np.append(rng.normal(0, 2, 56), np.roll(edges, 3)).astype(dtype)
    # Of integers there are no negative powers, and none is divided by 0.
    y = np.maximum(np.abs(y), 1) if dtype == "int32" else y
    programs = [p for p in (program(o, dtype) for o in OPCODES) if supports(p)]
    assert len(programs) > (10 if dtype == "int32" else 30)
    artifact = built(programs, x.size, architecture, cpu)  # refuses calls of libraries
    if not ahead_runs.runs_here(architecture, target_for(architecture, cpu)):
        return
    results = ahead_runs.run(artifact, architecture, {"x0": x, "x1": y}, tmp_path)
    precision = 5e-7 if dtype == "float32" else 1e-14
    for p, result in zip(programs, results, strict=True):
        with np.errstate(all="ignore"):
            (expected,) = p.evaluate(*(x, y)[: len(p.inputs)])
        np.testing.assert_allclose(result, expected, precision, precision, err_msg=str(p))


@pytest.mark.parametrize(("architecture", "cpu"), TARGETS)
def test_half_precision(architecture, cpu, tmp_path):
    size = 65536
    halves = np.arange(size, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        between = np.nextafter(halves, np.float16(np.inf)).astype(np.float32)
        singles = ((halves.astype(np.float32) + between) / 2).astype(np.float32)  # ties
    widen = Pointwise(("float16", "float32"), (PointwiseStep("cast", (0,), "float32"),), (2,))
    narrow = Pointwise(("float16", "float32"), (PointwiseStep("cast", (1,), "float16"),), (2,))
    artifact = built([widen, narrow], size, architecture, cpu)
    if not ahead_runs.runs_here(architecture, target_for(architecture, cpu)):
        return
    given = {"x0": halves, "x1": singles}
    wide, tight = ahead_runs.run(artifact, architecture, given, tmp_path)
    np.testing.assert_array_equal(wide, halves.astype(np.float32))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(tight, singles.astype(np.float16))
