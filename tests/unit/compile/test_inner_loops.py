"""The innermost loops of products in machine code for AVX2: all sums stay in registers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from headrace._src.compile.ahead.objects import all_targets
from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.codegen.kernel_spec import generate
from headrace._src.compile.kernels.conv.conv_1x1 import Conv1x1
from headrace._src.compile.kernels.gemm.gemm import gemm
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.devices.target import for_level
from headrace._src.lowering.pointwise import record

AVX2 = for_level("x86-64-v3", "x86_64-unknown-linux-gnu")
RESIDUAL = Epilogue(record(lambda e, y, b: e.max(y + b, 0), ["float32"] * 2), ("full",))
SPILL = re.compile(r"vmov\w+\s.*[xy]mm.*\(%rsp\)|vmov\w+\s.*\(%rsp\).*[xy]mm")


def assembly(spec) -> str:
    llvm = all_targets()
    module = llvm.parse_assembly(generate(spec, "kernel", AVX2), llvm.create_context())
    triple = llvm.Target.from_triple(AVX2.triple)
    return triple.create_target_machine(AVX2.cpu, AVX2.features, opt=3).emit_assembly(module)


def inner_loops(text: str) -> Iterator[list[str]]:
    """The instructions from a label to the next jump back to it."""
    lines = text.splitlines()
    labels = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\.LBB\w+:", line)}
    for end, line in enumerate(lines):
        jump = re.fullmatch(r"\s+j\w+\s+(\.LBB\w+)", line)
        start = labels.get(jump[1], end) if jump else end
        if start < end and not any(start < at < end for at in labels.values()):
            yield lines[start:end]


@pytest.mark.parametrize("epilogue", [NOTHING, RESIDUAL], ids=["plain", "residual"])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_of_1x1(epilogue, transposed):
    geometry = Geometry.of(16, 14, 14, 256, 1024, (1, 1), block=8)
    text = assembly(Conv1x1(geometry, epilogue, transposed))
    products = [loop for loop in inner_loops(text) if sum("vfmadd" in line for line in loop) >= 12]
    assert products
    assert [line for loop in products for line in loop if SPILL.search(line)] == []


@pytest.mark.parametrize("rows", [4, 20, 700])
def test_products_with_a_packed_matrix(rows):
    """Whose tiles may use all registers."""
    spec = gemm(
        rows, 2600, 650, False, False, epilogue=RESIDUAL, a="direct", b="packed", target=AVX2
    )
    assert (spec.rows, spec.columns) == (4, 24)
    products = [
        loop for loop in inner_loops(assembly(spec)) if sum("vfmadd" in line for line in loop) >= 12
    ]
    assert products
    assert [line for loop in products for line in loop if SPILL.search(line)] == []
