"""Plans made by hand, compiled ahead of time for every target and run where that is possible."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

import numpy as np
import pytest

from headrace._src.compile.ahead import ARCHITECTURES, Artifact, Port, build, target_for
from headrace._src.compile.ahead.elf import Elf
from headrace._src.compile.ahead.wasm import WasmObject
from headrace._src.compile.codegen.emit import F32, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.gemm.gemm_onednn import OneDnnGemm
from headrace._src.compile.kernels.rows.gather_rows import GatherRows
from headrace._src.compile.plan.plan import Buffer, Call, Plan
from tests.unit.compile import ahead_runs

SIZE = 19  # a multiple of no vector
TARGETS = [
    *((a, None) for a in ARCHITECTURES),
    ("x86_64", "x86-64-v2"),
    ("x86_64", "x86-64-v4"),
    ("aarch64", "cortex-a53"),
]


@dataclass(frozen=True)
class ScaledRelu:
    """y = max(2 x + b, 0), through scratch memory, a task counter and a helper."""

    size: int
    arguments = ("x", "b", "out:y")
    counters = 2

    def scratch(self, threads: int) -> int:
        return 4 * self.size * threads

    def emit(self, team: Team) -> None:
        f = team.f
        x, b, y = team.args
        lanes = team.target.lanes()
        vector = F32.of(lanes)
        relu = team.helper("relu", [vector], vector)
        relu.finish(relu.intrinsic("maximum", vector, relu.parameters[0], relu.const(0, vector)))

        def whole(i: Reg) -> None:
            at = f.mul(i, lanes)
            f.store(f.fma(f.load(vector, x, at), 2.0, f.load(vector, b, at)), team.scratch, at)
            f.store(f.call_function(relu, f.load(vector, team.scratch, at)), y, at)

        def single(i: Reg) -> None:
            value = f.fma(f.load(F32, x, i), 2.0, f.load(F32, b, i))
            f.store(f.extract(f.call_function(relu, f.splat(value, lanes)), 0), y, i)

        team.claim(1, self.size // lanes, whole)
        f.loop(self.size // lanes * lanes, self.size, single)


def values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)


BIASES = [values(1), values(2), values(1)]


def plan() -> Plan:
    """Three calls of one kernel; two of the constants are equal."""
    size = 4 * SIZE
    buffers = [Buffer("input", "float32", size, 0), Buffer("output", "float32", size, 0)]
    buffers += [Buffer("constant", "float32", size, value=b) for b in BIASES]
    buffers += [Buffer("arena", "float32", size, offset=128 * i) for i in range(2)]
    calls = [(0, 2, 5), (5, 3, 6), (6, 4, 1)]
    kernel = ScaledRelu(SIZE)
    return Plan(tuple(buffers), tuple(Call(kernel, c) for c in calls), 128 + size)


def built(architecture: str, cpu: str | None = None) -> Artifact:
    port = "float32", (SIZE,)
    return build(
        plan(), [Port("x", *port)], [Port("out/y", *port)], target=target_for(architecture, cpu)
    )


def expected(x: np.ndarray) -> np.ndarray:
    for bias in BIASES:
        x = np.maximum(2 * x + bias, 0)
    return x


@pytest.mark.parametrize(("architecture", "cpu"), TARGETS)
def test_a_compiled_plan_computes_and_needs_nothing(architecture, cpu, tmp_path):
    artifact = built(architecture, cpu)
    if architecture == "wasm32":
        assert WasmObject.parse(artifact.object).undefined == set()
    else:
        elf = Elf(artifact.object)
        assert elf.machine == architecture
        assert elf.undefined == set()
        assert elf.exported == {"model", "model_workspace_size"}
    assert artifact.object.count(BIASES[0].tobytes()) == 1
    if ahead_runs.runs_here(architecture, target_for(architecture, cpu)):
        x = values(3)
        (y,) = ahead_runs.run(artifact, architecture, {"x": x}, tmp_path)
        np.testing.assert_allclose(y, expected(x), rtol=1e-6, atol=1e-6)


def test_one_kernel_is_compiled_once():
    elf = Elf(built("x86_64").object)
    assert [s.name for s in elf.symbols if "kernel" in s.name] == [
        "model_kernel_0",
        "model_kernel_0_relu",
    ]


def test_the_workspace_holds_arena_scratch_and_counters():
    interface = built("x86_64").interface
    arena, scratch, counters, status = 256, 128, 128, 64
    assert interface.workspace == arena + scratch + counters + status


def test_the_header_is_cxx_too(tmp_path):
    header = built("x86_64").header
    assert "int model(\n    const float* x,\n    float* out_y,\n    void* workspace);" in header
    assert "#define MODEL_OUT_Y_SHAPE {19}" in header
    (tmp_path / "model.hpp").write_text(header)
    for language in ("c", "c++") if ahead_runs.runs_here("x86_64", target_for("x86_64")) else ():
        command = ["cc", "-x", language, "-Wall", "-Werror", "-fsyntax-only"]
        subprocess.run([*command, str(tmp_path / "model.hpp")], check=True)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("index", "status"), [(4, 0), (5, 3), (-1, 3)])
def test_an_index_outside_of_its_range(architecture, index, status, tmp_path):
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    buffers = (
        Buffer("constant", "float32", 40, value=rows),
        Buffer("input", "int32", 12, 0),
        Buffer("output", "float32", 24, 0),
        Buffer("arena", "int64", 8, offset=0),
    )
    kernel = GatherRows(1, 1, 5, 3, 2, "float32", "int32")
    artifact = build(
        Plan(buffers, (Call(kernel, (0, 1, 2, 3)),), 8),
        [Port("i", "int32", (3,))],
        [Port("y", "float32", (3, 2))],
        target=target_for(architecture),
    )
    assert "3 if an index" in artifact.header
    if ahead_runs.runs_here(architecture, target_for(architecture)):
        given = {"i": np.array([0, index, 2], np.int32)}
        assert ahead_runs.status(artifact, architecture, given, tmp_path) == status
        if status == 0:
            (y,) = ahead_runs.run(artifact, architecture, given, tmp_path)
            np.testing.assert_array_equal(y, rows[given["i"]])


def test_libraries_are_not_called():
    foreign = Call(OneDnnGemm(1, 1, 1), (0, 0, 0), "product")
    with pytest.raises(ValueError, match="product would call a library"):
        build(Plan((), (foreign,), 0), [], [], target=target_for("x86_64"))


def test_a_variable_must_be_frozen():
    buffers = (Buffer("variable", "float32", 4, 0, label="w"), *plan().buffers[:2])
    with pytest.raises(ValueError, match=r"reads a variable \(w\): freeze it first"):
        build(Plan(buffers, (), 0), [], [], target=target_for("x86_64"))


def test_ports_must_be_the_plans():
    short = Port("x", "float32", (SIZE - 1,))
    with pytest.raises(ValueError, match=r"port x float32\[18\] doesn't fit"):
        build(plan(), [short], [short], target=target_for("x86_64"))


def test_unknown_targets():
    with pytest.raises(ValueError, match="no target 'sparc'; there are x86_64, aarch64, wasm32"):
        target_for("sparc")
    with pytest.raises(ValueError, match="no processor 'x86-64' of x86_64; there are x86-64-v3"):
        target_for("x86_64", "x86-64")


def test_calls_must_fit_their_kernels():
    short = Plan(plan().buffers, (Call(ScaledRelu(SIZE), (0, 1)),), 0)
    port = Port("x", "float32", (SIZE,))
    with pytest.raises(ValueError, match="called with 2 buffers for x, b, out:y"):
        build(short, [port], [port], target=target_for("x86_64"))
