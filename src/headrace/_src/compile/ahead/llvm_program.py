"""The function that runs a plan. In: a Plan and its Interface. Out: LLVM modules and the weights.

    int NAME(inputs…, outputs…, workspace)     checks its pointers, then runs the calls in order
    size_t NAME_workspace_size(void)

The workspace holds the plan's arena, then the scratch memory of the running kernel, its counters,
and the status word that kernels set when an index is out of range. Constants are one read-only
block, `NAME_weights`. The modules only reserve space for it: `objects` writes the bytes
(`LlvmProgram.weights`) into the object file, since text would be many times larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from hashlib import sha256

import numpy as np

from headrace._src.compile.ahead.interface import ALIGNMENT, Interface, Port
from headrace._src.compile.codegen.emit import I8, I32, I64, PTR, VOID, Function, Module, Reg
from headrace._src.compile.codegen.kernel_spec import COUNTER_STRIDE, generate
from headrace._src.compile.kernels.onednn_calls import is_foreign
from headrace._src.compile.plan.plan import Buffer, Call, Jump, Plan
from headrace._src.devices.target import Target

__all__ = ["LlvmProgram", "make_program"]

# Code addresses the weights relative to itself, with 32 bits.
_LARGEST = 2**31 - 2**24
_STATUS = "inout:status"  # the name of the argument for the status word (kernels.gathers)


@dataclass(frozen=True)
class LlvmProgram:
    """A plan as LLVM's text: the entry's module first, then one per distinct kernel."""

    interface: Interface
    modules: tuple[str, ...]
    kernels: tuple[str, ...]  # symbols, which are internal to the object
    weights: bytes

    @property
    def weights_symbol(self) -> str:
        return f"{self.interface.name}_weights"

    @property
    def exports(self) -> tuple[str, str]:
        return self.interface.name, f"{self.interface.name}_workspace_size"


def make_program(
    plan: Plan, name: str, inputs: Sequence[Port], outputs: Sequence[Port], target: Target
) -> LlvmProgram:
    """Generate a plan's kernels and the function that calls them."""
    _check(plan, inputs, outputs)
    layout = _Layout(plan)
    interface = Interface(name, tuple(inputs), tuple(outputs), layout.workspace)
    kernels = {repr(c.kernel): c.kernel for c in plan.calls if not isinstance(c.kernel, Jump)}
    symbols = {key: f"{name}_kernel_{i}" for i, key in enumerate(kernels)}
    modules = [_entry_module(plan, layout, interface, symbols, target)]
    modules += [generate(kernels[key], s, target, serial=True) for key, s in symbols.items()]
    return LlvmProgram(interface, tuple(modules), tuple(symbols.values()), bytes(layout.weights))


def _check(plan: Plan, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    """Check that the plan has only ports and constants, and that the ports are the plan's."""
    for buffer in plan.buffers:
        if buffer.kind == "variable":
            raise ValueError(
                f"the model reads a variable ({buffer.label or buffer.index}): freeze it first, "
                "with graph_util.convert_variables_to_constants"
            )
        if buffer.kind == "list":
            raise ValueError(f"the length of the list {buffer.label!r} is not known before it runs")
        if buffer.kind in ("input", "output"):
            port = (inputs if buffer.kind == "input" else outputs)[buffer.index]
            if (port.dtype, port.size) != (buffer.dtype, buffer.size):
                raise ValueError(f"port {port} doesn't fit the plan's buffer: {buffer}")
    for call in plan.calls:
        if is_foreign(call.kernel):
            raise ValueError(f"{call.label or call.kernel} would call a library")
        if len(call.buffers) != len(call.kernel.arguments):
            raise ValueError(
                f"{call.kernel} is called with {len(call.buffers)} buffers for "
                f"{', '.join(call.kernel.arguments)}"
            )


class _Layout:
    """The layout of memory: `weights` with each constant's offset, and the workspace."""

    def __init__(self, plan: Plan) -> None:
        self.weights = bytearray()
        self.offsets: dict[int, int] = {}  # constant buffer -> offset in the weights
        seen: dict[bytes, int] = {}  # equal constants are kept once
        for number, buffer in enumerate(plan.buffers):
            if buffer.kind == "constant":
                self.offsets[number] = self._place(buffer, seen)
        if len(self.weights) > _LARGEST:
            raise ValueError(f"{len(self.weights)} bytes of weights: at most 2 GB can be compiled")
        self.scratch = _rounded(plan.arena + plan.swapped)
        scratch = max((c.kernel.scratch(1) for c in plan.calls), default=0)
        self.counters = self.scratch + _rounded(scratch)
        counters = max((c.kernel.counters for c in plan.calls), default=0)
        self.status = self.counters + counters * COUNTER_STRIDE * 8
        self.workspace = self.status + ALIGNMENT

    def _place(self, buffer: Buffer, seen: dict[bytes, int]) -> int:
        if buffer.value is None:
            raise ValueError(f"the plan's constant has no value: {buffer}")
        data = np.ascontiguousarray(buffer.value).tobytes()
        if len(data) != buffer.size:
            raise ValueError(f"the plan's constant has {len(data)} bytes: {buffer}")
        key = sha256(data).digest()
        if key not in seen:
            self.weights.extend(bytes(-len(self.weights) % ALIGNMENT))
            seen[key] = len(self.weights)
            self.weights.extend(data)
        return seen[key]


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _entry_module(
    plan: Plan, layout: _Layout, interface: Interface, symbols: dict[str, str], target: Target
) -> str:
    module = Module(target)
    name = interface.name
    run = _write_calls(module, plan, layout, interface, symbols)
    entry = module.function(name, [p.type for p in run.parameters], I32, internal=False)
    status = _status_of(entry)
    (status,) = entry.when(
        entry.icmp("eq", status, 0),
        lambda: entry.call_function(run, *entry.parameters),
        lambda: status,
    )
    entry.finish(status)
    size_type = I32 if "wasm32" in target.triple else I64
    size = module.function(f"{name}_workspace_size", [], size_type, internal=False)
    size.finish(size.const(interface.workspace, size_type))
    weights = (
        f"@{name}_weights = internal constant [{len(layout.weights)} x i8] zeroinitializer, "
        f'section ".rodata.{name}_weights", align {ALIGNMENT}\n'
    )
    return str(module) + (weights if layout.weights else "")


def _status_of(f: Function) -> Reg:
    """0; 1 if a pointer is null, 2 if the last one isn't aligned."""
    low = f.and_(f.convert("ptrtoint", f.parameters[-1], I64), ALIGNMENT - 1)
    status = f.select(f.icmp("ne", low, 0), f.const(2, I32), f.const(0, I32))
    for pointer in f.parameters:
        status = f.select(f.icmp("eq", pointer, 0), f.const(1, I32), status)
    return status


def _write_calls(
    module: Module, plan: Plan, layout: _Layout, interface: Interface, symbols: dict[str, str]
) -> Function:
    """Write the function that runs the plan's kernels on valid pointers; it returns 3 if an index
    is out of range, which ends a loop.
    """
    f = module.function(f"{interface.name}_run", [PTR] * (len(interface.ports) + 1), I32)
    workspace = f.parameters[-1]
    status = f.offset(workspace, layout.status, I8)
    f.store(f.const(0, I64), status)
    longest = max((len(c.buffers) for c in plan.calls), default=0)
    table = f.local(PTR, longest + 2)  # the arguments, scratch, counters

    def address(number: int) -> Reg:
        buffer = plan.buffers[number]
        if buffer.kind == "input":
            return f.parameters[buffer.index]
        if buffer.kind == "output":
            return f.parameters[len(interface.inputs) + buffer.index]
        if buffer.kind == "constant":
            weights = Reg(f"@{interface.name}_weights", PTR)
            return f.offset(weights, layout.offsets[number], I8)
        return f.offset(workspace, buffer.offset, I8)

    def run(call: Call) -> None:
        scratch = f.offset(workspace, layout.scratch, I8)
        counters = f.offset(workspace, layout.counters, I8)
        for i in range(call.kernel.counters):
            f.store(f.const(0, I64), counters, i * COUNTER_STRIDE)
        pointers = [
            status if name == _STATUS else address(number)
            for name, number in zip(call.kernel.arguments, call.buffers, strict=True)
        ]
        for i, pointer in enumerate([*pointers, scratch, counters]):
            f.store(pointer, table, i)
        f.call(symbols[repr(call.kernel)], VOID, table, f.const(0, I64), f.const(1, I64))

    def step(number: int, call: Call) -> tuple[Reg | None, int] | None:
        if not isinstance(call.kernel, Jump):
            return run(call)
        if call.kernel.conditional:
            return f.icmp("ne", f.load(I8, address(*call.buffers)), 0), call.kernel.target
        ends_loop = plan.fault is not None and call.kernel.target <= number
        return is_faulty() if ends_loop else None, call.kernel.target

    def is_faulty() -> Reg:
        words = [status] if plan.fault is None else [status, address(plan.fault)]
        return f.icmp("ne", reduce(f.or_, [f.load(I64, word) for word in words]), 0)

    f.sequence([partial(step, number, call) for number, call in enumerate(plan.calls)])
    return f.finish(f.select(is_faulty(), f.const(3, I32), f.const(0, I32)))
