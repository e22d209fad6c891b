"""Ahead of time: a plan becomes files that run without Python. In: a Plan, its ports, a target.

Out: an Artifact: an object file or WebAssembly module, its C header, and JavaScript for the latter.

    targets     which processors
    model       a frozen graph's inputs and outputs
    planning    its Dataflow to a Plan (simplify: rewrites; anchors: kernels)
    interface   ports, C names, the header
    program     the function that calls the plan's kernels, and the weights
    objects     LLVM modules to one object file (elf: reads it; support: functions that LLVM calls)
    wasm        an object file to a module
    javascript  the code that loads and runs a module
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace._src.compile.ahead.interface import Interface, Port, c_header, c_identifier
from headrace._src.compile.ahead.javascript import javascript_glue
from headrace._src.compile.ahead.llvm_program import make_program
from headrace._src.compile.ahead.objects import emit_object
from headrace._src.compile.ahead.targets import ARCHITECTURES, target_for
from headrace._src.compile.ahead.wasm import link_module
from headrace._src.compile.plan.plan import Plan
from headrace._src.devices.target import Target

__all__ = [
    "ARCHITECTURES", "Artifact", "Interface", "Port", "build", "c_identifier", "target_for",
]  # fmt: skip


@dataclass(frozen=True)
class Artifact:
    """The contents of a compiled model's files. Only WebAssembly has `module` and `glue`."""

    interface: Interface
    object: bytes
    header: str
    module: bytes | None = None
    glue: str | None = None


def build(
    plan: Plan,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    *,
    target: Target,
    name: str = "model",
    stem: str | None = None,
    origin: str = "A model",
) -> Artifact:
    """Compile a plan. `name`: the function's; `stem`: the files'; `origin`: where it came from."""
    program = make_program(plan, name, inputs, outputs, target)
    data = emit_object(program, target)
    header = c_header(program.interface, target, origin)
    if "wasm32" not in target.triple:
        return Artifact(program.interface, data, header)
    module = link_module(data, program.exports)
    glue = javascript_glue(program.interface, stem or name, origin)
    return Artifact(program.interface, data, header, module, glue)
