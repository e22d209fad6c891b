"""Compile an LlvmProgram to an object file. In: LLVM modules and weights. Out: the file's bytes.

LLVM's linker joins the modules, renaming symbols that collide, and one object is compiled that
needs no other. The weights are then written into the space that the object reserves for them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from headrace._src.compile.ahead.elf import Elf
from headrace._src.compile.ahead.llvm_program import LlvmProgram
from headrace._src.compile.ahead.wasm import WasmObject
from headrace._src.compile.codegen.support_functions import SUPPORT, support_module
from headrace._src.compile.native import machine_code
from headrace._src.devices.target import Target

__all__ = ["all_targets", "emit_object"]

# Every C environment has these, freestanding ones too: compilers assume them.
_ALWAYS_THERE = {"memcpy", "memmove", "memset"}


def emit_object(program: LlvmProgram, target: Target) -> bytes:
    """A relocatable object file: ELF, or WebAssembly's."""
    data = bytearray(_compiled(program, target))
    obj = WasmObject.parse(data) if "wasm32" in target.triple else Elf(data)
    missing = obj.undefined - _ALWAYS_THERE
    if missing:
        raise RuntimeError(
            f"generated code calls {', '.join(sorted(missing))}: a fault of Headrace"
        )
    if program.weights:
        at = obj.position(program.weights_symbol)
        data[at : at + len(program.weights)] = program.weights
    return bytes(data)


@cache
def all_targets() -> Any:
    """The LLVM library with code generators for all targets."""
    llvm = machine_code._llvm()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


def _compiled(program: LlvmProgram, target: Target) -> bytes:
    llvm = all_targets()
    context = llvm.create_context()
    texts = [*program.modules]
    support = support_module(target) if any("half" in text for text in texts) else None
    if support is not None:
        texts.append(support)
    entry, *others = (llvm.parse_assembly(text, context) for text in texts)
    for module in others:
        module.verify()
        entry.link_in(module)
    for symbol in (*program.kernels, *(SUPPORT if support is not None else ())):
        entry.get_function(symbol).linkage = "internal"
    entry.verify()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=3,
        reloc="static" if "wasm32" in target.triple else "pic",
        codemodel="default",
    )
    return machine.emit_object(entry)
