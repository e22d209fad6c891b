"""Generate the code of pointwise programs. In: a program and its inputs in registers. Out: its
outputs in registers.

The form of a value of each type in memory and in a register:

    bool                 memory: one byte, 0 or 1     register: i1
    integers             the same; signedness is in the instruction, not in the type
    float16, bfloat16    memory: two bytes            register: float32, already widened
    float32, float64     the same

Arithmetic on the two narrow floating types is float32's. It's rounded to the narrow type, ties to
even, where a value is stored or cast, not after every step: a fused program is a little more exact
than the same ops one by one. Everything else equals NumPy: integers wrap around, max and min
propagate NaNs, float32 and float64 arithmetic is rounded once per step.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from headrace._src.compile.codegen import vector_angles, vector_math
from headrace._src.compile.codegen.emit import (
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    Function,
    Operand,
    Reg,
    Type,
)
from headrace._src.core.dtypes import as_dtype
from headrace._src.lowering.pointwise import Pointwise, PointwiseStep

__all__ = [
    "compute_type", "emit_pointwise", "emit_steps", "load_value", "memory_type", "narrow",
    "store_value", "supports", "to_vector", "widen",
]  # fmt: skip

_MEMORY = {
    "bool": I8, "int8": I8, "uint8": I8, "int16": I16, "uint16": I16, "int32": I32, "uint32": I32,
    "int64": I64, "uint64": I64, "float16": F16, "bfloat16": I16, "float32": F32, "float64": F64,
}  # fmt: skip
_COMPUTE = {**_MEMORY, "bool": I1, "float16": F32, "bfloat16": F32}
_LITTLE = 2.0**-40  # a share of a float32 that is far below half of its last digit
_FLOATING = ("float16", "bfloat16", "float32", "float64")
# Opcodes of many instructions, and how many uses in a program are too many to write out.
_LONG = ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "sin", "cos", "pow", "atan2")
_OFTEN = 6


def memory_type(dtype: str) -> Type:
    """The scalar type of an element in memory."""
    return _MEMORY[dtype]


def compute_type(dtype: str, lanes: int = 0) -> Type:
    """The type of a value in a register."""
    return _COMPUTE[dtype].of(lanes)


def supports(program: Pointwise) -> bool:
    """Whether a program's types and operations have code here."""
    dtypes = {*program.inputs, *(s.dtype for s in program.steps)}
    if not dtypes <= _MEMORY.keys():
        return False
    return all(_has_code(program, s) for s in program.steps)


# -- Memory -------------------------------------------------------------------------------------


def load_value(
    f: Function,
    dtype: str,
    lanes: int,
    pointer: Reg,
    index: Operand = 0,
    *,
    mask: Reg | None = None,
) -> Reg:
    """Load `lanes` neighbours (0: a scalar) from element `index`; unmasked lanes give zeros."""
    type = _MEMORY[dtype].of(lanes)
    if mask is None:
        return widen(f, dtype, f.load(type, pointer, index))
    return widen(f, dtype, f.masked_load(type, pointer, mask, f.const(0, type), index))


def store_value(
    f: Function,
    dtype: str,
    value: Reg,
    pointer: Reg,
    index: Operand = 0,
    *,
    mask: Reg | None = None,
    nontemporal: bool = False,
) -> None:
    """Store a value of `dtype` to neighbours from element `index` on."""
    narrowed = narrow(f, dtype, value)
    if mask is None:
        f.store(narrowed, pointer, index, nontemporal=nontemporal)
    else:
        f.masked_store(narrowed, pointer, mask, index)


def widen(f: Function, dtype: str, stored: Reg) -> Reg:
    """What was loaded from memory, as a register's value."""
    if dtype == "bool":
        return f.icmp("ne", stored, 0)
    if dtype == "bfloat16":
        bits = f.shl(f.convert("zext", stored, I32), 16)
        return f.convert("bitcast", bits, F32.of(stored.type.lanes))
    if dtype == "float16":
        return f.convert("fpext", stored, F32)
    return stored


def narrow(f: Function, dtype: str, value: Reg) -> Reg:
    """A register's value as it's stored in memory."""
    if dtype == "bool":
        return f.convert("zext", value, I8)
    if dtype == "bfloat16":
        bits = f.convert("bitcast", _rounded(f, value, dtype), I32.of(value.type.lanes))
        return f.convert("trunc", f.lshr(bits, 16), I16)
    if dtype == "float16":
        return f.convert("fptrunc", value, F16)
    return value


def to_vector(f: Function, value: Reg, lanes: int) -> Reg:
    """The value in each of `lanes` lanes; a vector is already one."""
    return value if value.type.lanes or not lanes else f.splat(value, lanes)


# -- Programs -----------------------------------------------------------------------------------


def emit_pointwise(
    f: Function, program: Pointwise, inputs: Sequence[Reg], indices: Sequence[Reg] = ()
) -> list[Reg]:
    """Write a program's steps.

    `inputs` are values as in registers (see above): scalars and vectors of one lane count, which
    mix: steps on scalars alone are done once. `indices` are the positions along the dimensions
    that "index" steps name, i64, scalar or vector. Outputs are vectors if anything is.
    """
    values = dict(enumerate(inputs))
    emit_steps(f, program, values, range(len(program.steps)), indices)
    lanes = max((v.type.lanes for v in (*inputs, *indices)), default=0)
    return [to_vector(f, values[v], lanes) for v in program.outputs]


def emit_steps(
    f: Function,
    program: Pointwise,
    values: dict[int, Reg],
    steps: Sequence[int],
    indices: Sequence[Reg] = (),
) -> None:
    """Write some of the steps, in order; read their operands from `values` and add their
    results.
    """
    first = len(program.inputs)
    often = _used_often(program)
    chains = _chains(program, steps) if often else {}
    left = iter(steps)
    for number in left:
        step = program.steps[number]
        operands = [values[i] for i in step.operands]
        lanes = max((o.type.lanes for o in operands), default=0)
        operands = [to_vector(f, o, lanes) for o in operands]
        if number in chains:
            code, last = _CODE["float"][step.opcode], chains[number]
            (result,) = f.loop(number, last + 1, lambda _, x, code=code: code(f, x), operands)
            values[first + last] = result
            deque(islice(left, last - number), 0)
        elif step.opcode in often:
            values[first + number] = _call(f, step.opcode, operands)
        else:
            values[first + number] = _emit(f, program, step, operands, indices)


def _used_often(program: Pointwise) -> set[str]:
    """Return the long opcodes to call as functions: inlining every use would be slow to compile."""
    counts: dict[str, int] = {}
    for step in program.steps:
        if step.opcode in _LONG and step.dtype in _FLOATING:
            counts[step.opcode] = counts.get(step.opcode, 0) + 1
    return {opcode for opcode, count in counts.items() if count >= _OFTEN}


def _chains(program: Pointwise, steps: Sequence[int]) -> dict[int, int]:
    """Return the chains of a long opcode, in which each step is the only reader of the one before,
    that are long enough for a loop: the numbers of their first and last steps.
    """
    reads = Counter(i for s in program.steps for i in s.operands)
    reads.update(program.outputs)
    found: dict[int, int] = {}
    start = previous = -1
    for number in steps:
        step, value = program.steps[number], len(program.inputs) + previous
        same = previous >= 0 and number == previous + 1 and step.operands == (value,)
        if not (same and reads[value] == 1 and step.opcode == program.steps[previous].opcode):
            start = number
        if step.opcode in _LONG and step.dtype in _FLOATING and number - start >= _OFTEN - 1:
            found[start] = number
        previous = number
    return found


def _call(f: Function, opcode: str, operands: list[Reg]) -> Reg:
    """Call the module's function for an opcode on registers of this type."""
    name = f"{opcode}_{operands[0].type.suffix}"
    if name not in f.module.functions:
        g = f.module.function(name, [o.type for o in operands], operands[0].type)
        g.finish(_CODE["float"][opcode](g, *g.parameters))
    return f.call_function(f.module.functions[name], *operands)


def _emit(
    f: Function,
    program: Pointwise,
    step: PointwiseStep,
    operands: list[Reg],
    indices: Sequence[Reg],
) -> Reg:
    if step.opcode == "const":
        return _constant(f, step)
    if step.opcode == "index":
        return indices[int(step.immediate or 0)]
    if step.opcode == "cast":
        return _cast(f, operands[0], program.dtype_of(step.operands[0]), step.dtype)
    if step.opcode == "select":
        return f.select(*operands)
    kind = _kind(program.dtype_of(step.operands[0]))
    return _CODE[kind][step.opcode](f, *operands)


def _constant(f: Function, step: PointwiseStep) -> Reg:
    value = np.asarray(step.immediate).astype(as_dtype(step.dtype).as_numpy_dtype)
    type = _COMPUTE[step.dtype]
    if type.is_float:
        return f.const(float(value), type)
    # LLVM's integers have no sign: all are spelled as signed ones.
    number = int(value)
    if type is not I1 and number >= 1 << (type.bits - 1):
        number -= 1 << type.bits
    return f.const(number, type)


def _kind(dtype: str) -> str:
    if dtype == "bool":
        return "bool"
    if dtype.startswith("uint"):
        return "unsigned"
    return "signed" if dtype.startswith("int") else "float"


def _has_code(program: Pointwise, step: PointwiseStep) -> bool:
    if step.opcode in ("const", "index", "cast", "select"):
        return True
    return step.opcode in _CODE[_kind(program.dtype_of(step.operands[0]))]


# -- Casts --------------------------------------------------------------------------------------


def _cast(f: Function, x: Reg, source: str, target: str) -> Reg:
    """As astype: truncation towards zero, integers wrap, NaN is True."""
    if source == target:
        return x
    to, kind = _COMPUTE[target], _kind(source)
    if target == "bool":
        return f.fcmp("une", x, 0.0) if kind == "float" else f.icmp("ne", x, 0)
    if kind == "float":
        return _cast_float(f, x, source, target)
    if to.is_float:
        made = f.convert("sitofp" if kind == "signed" else "uitofp", x, to)
        return _rounded(f, made, target)
    if x.type.bits == to.bits:
        return x
    if x.type.bits > to.bits:
        return f.convert("trunc", x, to)
    return f.convert("sext" if kind == "signed" else "zext", x, to)


def _cast_float(f: Function, x: Reg, source: str, target: str) -> Reg:
    to = _COMPUTE[target]
    if not to.is_float:
        return _to_integer(f, x, target)
    if x.type.scalar != to:
        if source == "float64" and target == "float16":
            x = _sticky(f, x)
        x = f.convert("fpext" if to is F64 else "fptrunc", x, to)
    return _rounded(f, x, target) if target != source else x


def _sticky(f: Function, x: Reg) -> Reg:
    """Return a float64 cut to the bits of a float32, the last of which tells whether any set bit
    was lost ("sticky"): rounding that to a narrower type equals rounding once.
    """
    bits = f.convert("bitcast", x, I64.of(x.type.lanes))
    rest = f.and_(bits, (1 << 29) - 1)
    lost = f.convert("zext", f.icmp("ne", rest, 0), I64)
    bits = f.or_(f.xor(bits, rest), f.shl(lost, 29))
    return f.convert("bitcast", bits, x.type)


def _rounded(f: Function, x: Reg, dtype: str) -> Reg:
    """A float32 rounded to a narrower type, still a float32."""
    if dtype == "bfloat16":
        bits = f.convert("bitcast", x, I32.of(x.type.lanes))
        odd = f.and_(f.lshr(bits, 16), 1)
        nearest = f.and_(f.wrapping("add", bits, f.wrapping("add", odd, 0x7FFF)), -65536)
        # Rounding up could turn a NaN's payload into infinity or a number. Adding a little of x
        # makes it NaN again, in one instruction, and changes nothing else.
        return f.fma(x, _LITTLE, f.convert("bitcast", nearest, x.type))
    if dtype == "float16":
        return widen(f, dtype, narrow(f, dtype, x))
    return x


def _to_integer(f: Function, x: Reg, target: str) -> Reg:
    """Truncate. Narrow types are cut from int32 and uint32 from int64, so that they wrap."""
    to = _COMPUTE[target]
    if target == "uint64":
        # Numbers from 2^63 on are converted without their top bit.
        large = f.fcmp("oge", x, 2.0**63)
        low = f.convert("fptosi", f.select(large, f.fsub(x, 2.0**63), x), I64)
        return f.select(large, f.xor(low, -(1 << 63)), low)
    if target in ("int32", "int64"):
        return f.convert("fptosi", x, to)
    return f.convert("trunc", f.convert("fptosi", x, I64 if target == "uint32" else I32), to)


# -- Opcodes, per kind of type ------------------------------------------------------------------

Code = Callable[..., Reg]


def _wraps(opcode: str) -> Code:
    return lambda f, x, y: f.wrapping(opcode, x, y)


def _compares(predicate: str) -> Code:
    return lambda f, x, y: f.icmp(predicate, x, y)


def _compares_float(predicate: str) -> Code:
    return lambda f, x, y: f.fcmp(predicate, x, y)


def _always(value: bool) -> Code:
    return lambda f, x: f.const(value, I1.of(x.type.lanes))


def _same(f: Function, x: Reg) -> Reg:
    return x


def _rounds(name: str) -> Code:
    return lambda f, x: f.intrinsic(name, x.type, x)


def _is_number(x: Reg) -> bool:
    """Return whether an operand is a constant that isn't NaN."""
    return not x.text.startswith("%") and "0x7FF8" not in x.text


def _max_float(f: Function, x: Reg, y: Reg) -> Reg:
    # Against a constant the NaN can only be in the other operand, and one instruction is enough.
    for constant, other in ((x, y), (y, x)):
        if _is_number(constant):
            return f.select(f.fcmp("ogt", constant, other), constant, other)
    return vector_math.maximum(f, x, y)


def _min_float(f: Function, x: Reg, y: Reg) -> Reg:
    for constant, other in ((x, y), (y, x)):
        if _is_number(constant):
            return f.select(f.fcmp("olt", constant, other), constant, other)
    return vector_math.minimum(f, x, y)


def _sign_float(f: Function, x: Reg) -> Reg:
    # Zeros of either sign and NaNs give 0.
    below = f.select(f.fcmp("olt", x, 0.0), -1.0, f.const(0.0, x.type))
    return f.select(f.fcmp("ogt", x, 0.0), 1.0, below)


def _sign_signed(f: Function, x: Reg) -> Reg:
    return f.select(f.icmp("sgt", x, 0), 1, f.ashr(x, x.type.bits - 1))


def _abs_signed(f: Function, x: Reg) -> Reg:
    return f.select(f.icmp("slt", x, 0), f.wrapping("sub", f.const(0, x.type), x), x)


def _magnitude(f: Function, x: Reg) -> Reg:
    return f.intrinsic("fabs", x.type, x)


def _power_integer(f: Function, x: Reg, y: Reg) -> Reg:
    """x^y by squaring, wrapping around; as if y were unsigned."""

    def more(_power: Reg, _base: Reg, exponent: Reg) -> Reg:
        left = f.icmp("ne", exponent, 0)
        return f.reduce("or", left) if left.type.lanes else left

    def square(result: Reg, base: Reg, exponent: Reg) -> list[Reg]:
        odd = f.icmp("ne", f.and_(exponent, 1), 0)
        result = f.select(odd, f.wrapping("mul", result, base), result)
        return [result, f.wrapping("mul", base, base), f.lshr(exponent, 1)]

    return f.repeat(more, square, [f.const(1, x.type), x, y])[0]


def _floored(f: Function, x: Reg, y: Reg) -> tuple[Reg, Reg]:
    """Return x / y rounded down, and the remainder."""
    quotient, left = f.wrapping("sdiv", x, y), f.wrapping("srem", x, y)
    below = f.and_(f.icmp("ne", left, 0), f.icmp("slt", f.xor(left, y), 0))
    one_less = f.wrapping("sub", quotient, f.const(1, x.type))
    return f.select(below, one_less, quotient), f.select(below, f.wrapping("add", left, y), left)


_INTEGER: dict[str, Code] = {
    "add": _wraps("add"), "sub": _wraps("sub"), "mul": _wraps("mul"), "pow": _power_integer,
    "and": _wraps("and"), "or": _wraps("or"), "xor": _wraps("xor"),
    "neg": lambda f, x: f.wrapping("sub", f.const(0, x.type), x),
    "not": lambda f, x: f.xor(x, f.const(-1, x.type)),
    "floor": _same, "ceil": _same, "rint": _same, "trunc": _same,
    "eq": _compares("eq"), "ne": _compares("ne"),
    "isnan": _always(False), "isinf": _always(False), "isfinite": _always(True),
}  # fmt: skip

_CODE: dict[str, dict[str, Code]] = {
    "signed": {
        **_INTEGER,
        "max": lambda f, x, y: f.select(f.icmp("sgt", x, y), x, y),
        "min": lambda f, x, y: f.select(f.icmp("slt", x, y), x, y),
        "abs": _abs_signed,
        "sign": _sign_signed,
        "quotient": lambda f, x, y: _floored(f, x, y)[0],
        "remainder": lambda f, x, y: _floored(f, x, y)[1],
        "lt": _compares("slt"), "le": _compares("sle"),
        "gt": _compares("sgt"), "ge": _compares("sge"),
    },
    "unsigned": {
        **_INTEGER,
        "max": lambda f, x, y: f.select(f.icmp("ugt", x, y), x, y),
        "min": lambda f, x, y: f.select(f.icmp("ult", x, y), x, y),
        "abs": _same,
        "sign": lambda f, x: f.convert("zext", f.icmp("ne", x, 0), x.type),
        "quotient": _wraps("udiv"), "remainder": _wraps("urem"),
        "lt": _compares("ult"), "le": _compares("ule"),
        "gt": _compares("ugt"), "ge": _compares("uge"),
    },
    "bool": {
        "add": _wraps("or"), "mul": _wraps("and"), "max": _wraps("or"), "min": _wraps("and"),
        "and": _wraps("and"), "or": _wraps("or"), "xor": _wraps("xor"), "abs": _same,
        "not": lambda f, x: f.xor(x, f.const(1, x.type)),
        "eq": _compares("eq"), "ne": _compares("ne"),
        "lt": _compares("ult"), "le": _compares("ule"),
        "gt": _compares("ugt"), "ge": _compares("uge"),
        "isnan": _always(False), "isinf": _always(False), "isfinite": _always(True),
    },
    "float": {
        "add": Function.fadd, "sub": Function.fsub, "mul": Function.fmul, "div": Function.fdiv,
        "max": _max_float, "min": _min_float,
        "pow": vector_math.power, "atan2": vector_angles.atan2,
        "neg": Function.fneg, "abs": _magnitude, "sign": _sign_float,
        "sqrt": vector_math.sqrt, "rsqrt": vector_math.rsqrt,
        "exp": vector_math.exp, "expm1": vector_math.expm1,
        "log": vector_math.log, "log1p": vector_math.log1p,
        "tanh": vector_math.tanh, "sigmoid": vector_math.sigmoid, "erf": vector_math.erf,
        "sin": vector_angles.sin, "cos": vector_angles.cos,
        "floor": _rounds("floor"), "ceil": _rounds("ceil"), "trunc": _rounds("trunc"),
        "rint": _rounds("rint"),
        "eq": _compares_float("oeq"), "ne": _compares_float("une"),
        "lt": _compares_float("olt"), "le": _compares_float("ole"),
        "gt": _compares_float("ogt"), "ge": _compares_float("oge"),
        "isnan": lambda f, x: f.fcmp("uno", x, x),
        "isinf": lambda f, x: f.fcmp("oeq", _magnitude(f, x), float("inf")),
        "isfinite": lambda f, x: f.fcmp("one", _magnitude(f, x), float("inf")),
    },
}  # fmt: skip
