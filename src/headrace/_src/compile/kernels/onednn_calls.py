"""Calls of foreign native code from a plan. In: a spec. Out: a bound C function.

A foreign spec takes the place of a kernel's spec in a plan. It has `arguments` and
`scratch(threads)` as kernels do, and `bind(threads)`, which gives an instance `i64 function(void*
user, void** args)` and its user data. One thread calls it, while the team is idle; it may use
threads of its own. args are the addresses of the arguments, then scratch. It returns 0, or a
negative number if it failed.

A `Chain` calls primitives of oneDNN: its products are in `gemm.gemm_onednn`, its convolutions in
`conv.conv_onednn`. `check` raises `Unsupported` if oneDNN has no such primitive, or isn't there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headrace._src.compile.codegen.emit import I8, I32, I64, PTR, VOID, Function, Module, Reg
from headrace._src.compile.native import machine_code
from headrace._src.devices.buffers import address
from headrace._src.devices.onednn import library
from headrace._src.devices.onednn.primitive_chains import PrimitiveChain
from headrace._src.devices.target import Target, host

__all__ = ["Bound", "Chain", "Foreign", "can", "is_foreign", "multiplies", "negative"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A foreign call that is ready to run: addresses, and what must live as long as they do."""

    function: int
    user: int
    keep: Any = None


class Foreign(Protocol):
    """The interface of a foreign spec (see above)."""

    @property
    def arguments(self) -> tuple[str, ...]: ...

    def scratch(self, threads: int) -> int: ...

    def bind(self, threads: int) -> Bound: ...


def multiplies(target: Target, precision: str) -> bool:
    """Whether oneDNN multiplies a narrow type faster than float32 on a processor."""
    return precision == "bfloat16" and target.bfloat16


def can(spec: Any) -> bool:
    """Return whether oneDNN is available and has the primitive."""
    try:
        spec.check()
    except library.Unsupported:
        return False
    return True


def is_foreign(spec: Any) -> bool:
    """Whether a call's spec is foreign: a kernel's isn't bound, but emitted."""
    return hasattr(spec, "bind")


class Chain:
    """A spec whose work is one of devices.onednn's plans."""

    def plan(self) -> PrimitiveChain:
        """The chain of primitives; Unsupported if there is none."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise Unsupported if this can't be run here."""
        self.plan()

    def scratch(self, threads: int) -> int:
        return self.plan().arena_bytes

    def bind(self, threads: int) -> Bound:
        plan = self.plan()
        lib = library.library()
        frame = plan.frame()
        words = [
            len(frame.arrays),
            len(frame.scratch),
            len(frame.calls),
            frame.stream,
            1 if plan.serial else lib.num_threads,
            lib.num_threads,
            *frame.arrays,
            *(word for row in frame.scratch for word in row),
            *(word for row in frame.calls for word in row),
        ]
        for name in _CALLED:
            machine_code.define(name, lib.functions[name])
        (function,) = machine_code.link({"foreign chain": _chain_text})
        user = np.array(words, np.uint64)
        return Bound(function, address(user), (user, frame, plan))


_CALLED = ("dnnl_memory_set_data_handle", "dnnl_primitive_execute", "omp_set_num_threads")


def _chain_text(symbol: str) -> str:
    """Execute a chain of primitives, given by words: see Chain.bind."""
    module = Module(host())
    f = module.function(symbol, [PTR, PTR], I64, internal=False, noalias=False)
    user, args = f.parameters
    arrays, pieces, calls = (f.load(I64, user, i) for i in range(3))
    stream, threads, all_threads = (f.load(t, user, i) for t, i in ((PTR, 3), (I64, 4), (I64, 5)))
    memories = f.offset(user, 6, I64)
    scratch = f.offset(memories, arrays, I64)
    steps = f.offset(scratch, f.mul(pieces, 2), I64)
    base = f.load(PTR, args, arrays)

    def place(memory: Reg, at: Reg) -> None:
        f.call("dnnl_memory_set_data_handle", I32, memory, at)

    def use_threads(count: Reg) -> None:
        f.call("omp_set_num_threads", VOID, f.convert("trunc", count, I32))

    def place_piece(i: Reg) -> None:
        row = f.offset(scratch, f.mul(i, 2), I64)
        place(f.load(PTR, row), f.offset(base, f.load(I64, row, 1), I8))

    def execute(i: Reg, status: Reg) -> Reg:
        row = f.offset(steps, f.mul(i, 3), I64)
        primitive, count = f.load(PTR, row), f.convert("trunc", f.load(I64, row, 1), I32)
        listed = f.load(PTR, row, 2)
        return f.or_(
            status, f.call("dnnl_primitive_execute", I32, primitive, stream, count, listed)
        )

    f.loop(0, arrays, lambda i: place(f.load(PTR, memories, i), f.load(PTR, args, i)))
    f.loop(0, pieces, place_piece)
    use_threads(threads)
    (status,) = f.loop(0, calls, execute, [f.reg(0, I32)])
    use_threads(all_threads)
    f.finish(negative(f, status))
    return str(module)


def negative(f: Function, status: Reg) -> Reg:
    """oneDNN's status as the driver wants it."""
    return f.sub(0, f.convert("sext", status, I64))
