"""Reduce the buffers of several processes in one pass. In: how. Out: the address of a function.

The function reads an element of every source, combines them in the order of the sources, and writes
the result to every destination. So each byte is read once and written once, and all processes see
the same bits, whichever of them did the work.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from headrace._src.compile.codegen.emit import F16, F32, F64, I32, I64, PTR, Function, Module, Reg
from headrace._src.compile.native import machine_code
from headrace._src.devices.target import Target, host

__all__ = [
    "MERGES",
    "MOST_SOURCES",
    "TYPES",
    "BufferReduction",
    "divided",
    "reduce_by_numpy",
    "reduction",
]

TYPES = {"float16": F16, "float32": F32, "float64": F64, "int32": I32, "int64": I64}
MOST_SOURCES = 16
_BYTES = 64  # of each source and destination at once


@dataclass(frozen=True, slots=True)
class BufferReduction:
    """What the function does.

    dtype: of the elements. merge: "Add", "Mul", "Min" or "Max". divisor: by which the result is
    divided, 1 for none. past_caches: the destinations are too large to stay in the caches.
    """

    dtype: str
    merge: str
    sources: int
    destinations: int
    divisor: int = 1
    past_caches: bool = False


@cache
def reduction(spec: BufferReduction) -> Any:
    """Return the native function, None if no code can be generated here. Its arguments are the
    address of a table and the number of pieces in it. A piece is the number of its elements, the
    addresses of the sources and those of the destinations, which are aligned to 64 bytes.
    """
    if machine_code.why_not() is not None:
        return None
    (address,) = machine_code.link(
        {repr(spec): lambda symbol: reduction_text(spec, symbol, host())}
    )
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address)


def reduction_text(spec: BufferReduction, symbol: str, target: Target) -> str:
    """Write the function."""
    module = Module(target)
    f = module.function(symbol, [PTR, I64], internal=False, noalias=False)
    table, pieces = f.parameters
    element = TYPES[spec.dtype]
    # Vectors of the widest registers: a buffer is read and written by whole cache lines.
    lanes = min(target.vector_bytes, _BYTES) // (element.bits // 8)

    def piece(number: Reg) -> None:
        row = f.mul(number, 1 + spec.sources + spec.destinations)
        count = f.load(I64, table, row)
        sources = [f.load(PTR, table, f.add(row, 1 + i)) for i in range(spec.sources)]
        after = 1 + spec.sources
        made = [f.load(PTR, table, f.add(row, after + i)) for i in range(spec.destinations)]

        def elements(index: Reg, lanes: int, stream: bool) -> None:
            form = element.of(lanes)
            total = f.load(form, sources[0], index)
            for source in sources[1:]:
                total = _merged(f, spec.merge, total, f.load(form, source, index))
            if spec.divisor != 1:
                total = _divided(f, total, spec.divisor)
            for destination in made:
                f.store(total, destination, index, nontemporal=stream)

        whole = f.sub(count, f.rem(count, lanes))
        f.loop(0, whole, lambda i: elements(i, lanes, spec.past_caches), step=lanes)
        f.loop(whole, count, lambda i: elements(i, 0, False))

    f.loop(0, pieces, piece)
    f.fence()  # the word that tells others that the results are there must not overtake them
    f.finish()
    return str(module)


def _merged(f: Function, merge: str, x: Reg, y: Reg) -> Reg:
    if merge == "Add":
        return f.fadd(x, y) if x.type.is_float else f.wrapping("add", x, y)
    if merge == "Mul":
        return f.fmul(x, y) if x.type.is_float else f.wrapping("mul", x, y)
    smaller = merge == "Min"
    if not x.type.is_float:
        return f.select(f.icmp("slt" if smaller else "sgt", x, y), x, y)
    # As NumPy does: a NaN on either side is the result.
    chosen = f.select(f.fcmp("olt" if smaller else "ogt", x, y), x, y)
    return f.select(f.fcmp("uno", x, x), x, chosen)


def _divided(f: Function, x: Reg, divisor: int) -> Reg:
    if not x.type.is_float:
        return f.wrapping("sdiv", x, f.const(divisor, x.type))
    if divisor & (divisor - 1) == 0:  # the same bits, in a fraction of the time
        return f.fmul(x, f.const(1.0 / divisor, x.type))
    return f.fdiv(x, f.const(float(divisor), x.type))


MERGES = {"Add": np.add, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}


def reduce_by_numpy(
    spec: BufferReduction, sources: list[np.ndarray], destinations: list[np.ndarray]
) -> None:
    """Do the same with NumPy."""
    with np.errstate(all="ignore"):
        total = sources[0]
        for source in sources[1:]:
            total = MERGES[spec.merge](total, source)
        total = divided(total, spec.divisor)
    for destination in destinations:
        np.copyto(destination, total)


def divided(total: np.ndarray, divisor: int) -> np.ndarray:
    """Return the quotient, in the same type: of integers as C has it, towards zero."""
    if divisor == 1:
        return total
    if total.dtype.kind not in "iu":
        return total / total.dtype.type(divisor)
    quotient = np.abs(total) // divisor
    return np.where(total < 0, -quotient, quotient).astype(total.dtype)
