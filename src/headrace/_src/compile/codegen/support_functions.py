"""Functions that LLVM calls where a processor has no instruction. Out: a module's text, or None.

x86-64-v2 and WebAssembly have no instructions to convert float16, for which a compiler's runtime
library has functions. Compiled models need no library, so they contain these two functions, under
the names that LLVM expects. Everything else that kernels use has instructions everywhere, which
tests check.
"""

from __future__ import annotations

from headrace._src.compile.codegen.emit import F16, F32, I16, I32, Function, Module, Reg
from headrace._src.devices.target import Target

__all__ = ["SUPPORT", "support_module"]

WIDEN, NARROW = "__extendhfsf2", "__truncsfhf2"
SUPPORT = (WIDEN, NARROW)
_REBIAS = (127 - 15) << 23  # between the two types' exponents, in float32's place
_INFINITY, _SIGN = 0x7F800000, 0x8000


def support_module(target: Target) -> str | None:
    """Return the module of functions that the target needs; None if it has all instructions."""
    if target.has("f16c") or target.triple.startswith("aarch64"):
        return None
    module = Module(target)
    f = module.function(WIDEN, [F16], F32, internal=False)
    f.finish(_widened(f, f.parameters[0]))
    f = module.function(NARROW, [F32], F16, internal=False)
    f.finish(_narrowed(f, f.parameters[0]))
    return str(module)


def _widened(f: Function, x: Reg) -> Reg:
    bits = f.convert("zext", f.convert("bitcast", x, I16), I32)
    magnitude = f.shl(f.and_(bits, 0x7FFF), 13)
    # With the bits in float32's place, the value is too small by a power of two; multiplying
    # normalises subnormal numbers as well.
    scale = f.const(2.0**112, F32)
    number = f.convert("bitcast", f.fmul(f.convert("bitcast", magnitude, F32), scale), I32)
    special = f.icmp("uge", magnitude, 0x7C00 << 13)
    number = f.select(special, f.or_(magnitude, _INFINITY), number)
    sign = f.shl(f.and_(bits, _SIGN), 16)
    return f.convert("bitcast", f.or_(number, sign), F32)


def _narrowed(f: Function, x: Reg) -> Reg:
    bits = f.convert("bitcast", x, I32)
    magnitude = f.and_(bits, 0x7FFFFFFF)
    # Ties to even: half of the last place that stays, less one if that place is even.
    odd = f.and_(f.lshr(magnitude, 13), 1)
    rounded = f.wrapping("add", magnitude, f.wrapping("add", odd, 0xFFF - _REBIAS))
    normal = f.lshr(rounded, 13)
    # Below 2**-14 the last place is 2**-24: that of float32 numbers in [0.5, 1).
    shifted = f.fadd(f.convert("bitcast", magnitude, F32), f.const(0.5, F32))
    small = f.sub(f.convert("bitcast", shifted, I32), 0x3F000000)
    result = f.select(f.icmp("ult", magnitude, 0x38800000), small, normal)
    result = f.select(f.icmp("uge", magnitude, 0x47800000), f.const(0x7C00, I32), result)
    not_a_number = f.or_(f.and_(f.lshr(magnitude, 13), 0x3FF), 0x7E00)
    result = f.select(f.icmp("ugt", magnitude, _INFINITY), not_a_number, result)
    sign = f.and_(f.lshr(bits, 16), _SIGN)
    return f.convert("bitcast", f.convert("trunc", f.or_(result, sign), I16), F16)
