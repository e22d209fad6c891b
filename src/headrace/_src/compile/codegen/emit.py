"""Write LLVM's assembly language. In: calls of builder methods. Out: a module's text.

The text is written directly, instruction by instruction: that is an order of magnitude faster than
building objects and printing them, and cold starts consist of this. Python ints are constants
wherever an operand is asked for, and arithmetic on them alone is done here, so that index
computations on known shapes leave no instructions.

Conventions: indices are i64 and count elements; loads and stores are aligned to their element
unless told otherwise; floating-point arithmetic is exact to the operation (no reassociation) except
`fma`, which rounds once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace._src.compile.codegen.control_flow_code import Control
from headrace._src.compile.codegen.registers import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    PTR,
    VOID,
    Operand,
    Reg,
    Type,
    constant,
    constants,
    only_lane,
    spell,
)  # fmt: skip
from headrace._src.devices.target import Target

__all__ = [
    "BF16", "F16", "F32", "F64", "I1", "I8", "I16", "I32", "I64", "PTR", "VOID",
    "Function", "Module", "Operand", "Reg", "Type",
]  # fmt: skip


class Module:
    """A unit of code: functions and the externals that they call."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._functions: list[str] = []
        self.functions: dict[str, Function] = {}  # begun, by name
        self._declarations: dict[str, str] = {}
        self._globals: dict[str, str] = {}

    def function(
        self,
        name: str,
        parameters: Sequence[Type],
        result: Type = VOID,
        *,
        internal: bool = True,
        noalias: bool = True,
    ) -> Function:
        """Begin a function; `finish()` it before the module is printed."""
        if name in self.functions:
            raise ValueError(f"two functions are called {name}")
        self.functions[name] = Function(self, name, parameters, result, internal, noalias)
        return self.functions[name]

    def has(self, name: str) -> bool:
        """Whether a function of that name was begun."""
        return name in self.functions

    def declare(self, name: str, result: Type, parameters: Sequence[Type]) -> str:
        """Declare an external function (or intrinsic), once; returns its name."""
        if name not in self._declarations:
            shown = ", ".join(map(str, parameters))
            self._declarations[name] = f"declare {result} @{name}({shown})"
        return name

    def data(self, name: str, values: Sequence[float | int], type: Type) -> Reg:
        """A constant table in the module; returns its address."""
        items = ", ".join(f"{type} {spell(v, type)}" for v in values)
        self._globals[name] = (
            f"@{name} = private unnamed_addr constant [{len(values)} x {type}] [{items}], align 64"
        )
        return Reg(f"@{name}", PTR)

    def __str__(self) -> str:
        parts = [f'target triple = "{self.target.triple}"']
        parts += self._globals.values()
        parts += self._functions
        parts += self._declarations.values()
        parts += ["!0 = !{i32 1}", ""]
        return "\n".join(parts)


class Function(Control):
    """A function being written. Methods append instructions at the end."""

    def __init__(
        self,
        module: Module,
        name: str,
        parameters: Sequence[Type],
        result: Type,
        internal: bool,
        noalias: bool,
    ) -> None:
        super().__init__()
        self.module = module
        self.target = module.target
        self.name = name
        self.result = result
        self.parameters = [Reg(f"%a{i}", t) for i, t in enumerate(parameters)]
        shown = ", ".join(
            f"ptr noalias {p.text}" if noalias and p.type is PTR else str(p)
            for p in self.parameters
        )
        linkage = "internal " if internal else ""
        self._head = f"define {linkage}{result} @{name}({shown}) nounwind"
        self._entry: list[str] = []

    # -- Writing ---------------------------------------------------------------------------------

    def finish(self, result: Reg | None = None) -> Function:
        """Return from the function and add it to the module."""
        self._lines.append(f"  ret {result}" if result is not None else "  ret void")
        body = "\n".join(["entry:", *self._entry, *self._lines])
        self.module._functions.append(f"{self._head} {{\n{body}\n}}")
        return self

    # -- Constants and conversion of operands ----------------------------------------------------

    def const(self, value: float | int | bool, type: Type) -> Reg:
        """A constant; the same in every lane of a vector type."""
        return constant(value, type)

    def consts(self, values: Sequence[float | int], type: Type) -> Reg:
        """A vector constant, lane by lane; `type` is the element's."""
        return constants(values, type)

    def reg(self, value: Operand, type: Type = I64) -> Reg:
        """`value` as a register: Python numbers become constants of `type`."""
        return value if isinstance(value, Reg) else constant(value, type)

    def _pair(self, x: Operand, y: Operand) -> tuple[Reg, Reg]:
        if isinstance(x, Reg):
            return x, self.reg(y, x.type)
        if isinstance(y, Reg):
            return self.reg(x, y.type), y
        return self.reg(x), self.reg(y)

    def _binary(self, opcode: str, x: Operand, y: Operand) -> Reg:
        a, b = self._pair(x, y)
        if a.type != b.type:
            raise TypeError(f"{opcode} of {a} and {b} in {self.name}")
        return self._new(f"{opcode} {a.type} {a.text}, {b.text}", a.type)

    # -- Integer arithmetic; on Python ints it is done at once -----------------------------------

    def add(self, x: Operand, y: Operand) -> Any:
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        if isinstance(y, int) and y == 0:
            return x
        if isinstance(x, int) and x == 0:
            return y
        return self._binary("add nsw", x, y)

    def sub(self, x: Operand, y: Operand) -> Any:
        if isinstance(x, int) and isinstance(y, int):
            return x - y
        if isinstance(y, int) and y == 0:
            return x
        return self._binary("sub nsw", x, y)

    def mul(self, x: Operand, y: Operand) -> Any:
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        for a, b in ((x, y), (y, x)):
            if isinstance(a, int) and a == 1:
                return b
            if isinstance(a, int) and a == 0 and isinstance(b, Reg) and not b.type.lanes:
                return 0
        return self._binary("mul nsw", x, y)

    def wrapping(self, opcode: str, x: Operand, y: Operand) -> Reg:
        """Integer arithmetic that wraps around, as NumPy's does: add, sub, mul, shl."""
        return self._binary(opcode, x, y)

    def div(self, x: Operand, y: Operand) -> Any:
        """Division of non-negative integers."""
        if isinstance(x, int) and isinstance(y, int):
            return x // y
        if isinstance(y, int) and y == 1:
            return x
        return self._binary("udiv", x, y)

    def rem(self, x: Operand, y: Operand) -> Any:
        """Remainder of non-negative integers."""
        if isinstance(x, int) and isinstance(y, int):
            return x % y
        if isinstance(y, int) and y == 1:
            return 0
        return self._binary("urem", x, y)

    def minimum(self, x: Operand, y: Operand) -> Any:
        """The smaller of two signed integers."""
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y)
        return self.select(self.icmp("slt", x, y), x, y)

    def and_(self, x: Operand, y: Operand) -> Reg:
        return self._binary("and", x, y)

    def or_(self, x: Operand, y: Operand) -> Reg:
        return self._binary("or", x, y)

    def xor(self, x: Operand, y: Operand) -> Reg:
        return self._binary("xor", x, y)

    def shl(self, x: Operand, y: Operand) -> Reg:
        return self._binary("shl", x, y)

    def lshr(self, x: Operand, y: Operand) -> Reg:
        return self._binary("lshr", x, y)

    def ashr(self, x: Operand, y: Operand) -> Reg:
        return self._binary("ashr", x, y)

    def icmp(self, predicate: str, x: Operand, y: Operand) -> Reg:
        """Compare integers: eq, ne, slt, sle, sgt, sge, ult, ule, ugt, uge."""
        a, b = self._pair(x, y)
        return self._new(f"icmp {predicate} {a.type} {a.text}, {b.text}", I1.of(a.type.lanes))

    # -- Floating-point arithmetic ---------------------------------------------------------------

    def fadd(self, x: Operand, y: Operand) -> Reg:
        return self._binary("fadd", x, y)

    def fsub(self, x: Operand, y: Operand) -> Reg:
        return self._binary("fsub", x, y)

    def fmul(self, x: Operand, y: Operand) -> Reg:
        return self._binary("fmul", x, y)

    def fdiv(self, x: Operand, y: Operand) -> Reg:
        return self._binary("fdiv", x, y)

    def fneg(self, x: Reg) -> Reg:
        return self._new(f"fneg {x}", x.type)

    def fcmp(self, predicate: str, x: Operand, y: Operand) -> Reg:
        """Compare: oeq, ogt, oge, olt, ole, one (ordered), ueq… (true for NaNs), uno, ord."""
        a, b = self._pair(x, y)
        return self._new(f"fcmp {predicate} {a.type} {a.text}, {b.text}", I1.of(a.type.lanes))

    def fma(self, x: Operand, y: Operand, z: Operand) -> Reg:
        """x * y + z, rounded once where the processor can."""
        type = next(v.type for v in (x, y, z) if isinstance(v, Reg))
        return self.intrinsic("fmuladd", type, *(self.reg(v, type) for v in (x, y, z)))

    def intrinsic(self, name: str, type: Type, *operands: Reg) -> Reg:
        """Call llvm.<name>.<type>, whose operands and result are all of `type`."""
        return self.call(f"llvm.{name}.{type.suffix}", type, *operands)

    # -- Conversions and vectors -----------------------------------------------------------------

    def convert(self, opcode: str, x: Reg, type: Type) -> Reg:
        """sext, zext, trunc, sitofp, uitofp, fptosi, fptoui, fpext, fptrunc, bitcast, ptrtoint."""
        type = type.of(x.type.lanes) if opcode != "bitcast" else type
        return self._new(f"{opcode} {x} to {type}", type)

    def select(self, condition: Reg, x: Operand, y: Operand) -> Reg:
        a, b = self._pair(x, y)
        return self._new(f"select {condition}, {a}, {b}", a.type)

    def splat(self, x: Reg, lanes: int) -> Reg:
        """A vector with `x` in each lane; `x` itself for 0 lanes."""
        if not lanes:
            return x
        vector = x.type.of(lanes)
        if not x.text.startswith("%"):
            return Reg(f"splat ({x})", vector)
        first = self._new(f"insertelement {vector} poison, {x}, i32 0", vector)
        return self._new(
            f"shufflevector {vector} {first.text}, {vector} poison, "
            f"<{lanes} x i32> zeroinitializer",
            vector,
        )

    def shuffle(self, x: Reg, y: Reg | None, order: Sequence[int]) -> Reg:
        """Pick lanes: numbers below the lane count from x, the others from y."""
        mask = ", ".join(f"i32 {i}" for i in order)
        other = y.text if y is not None else "poison"
        return self._new(
            f"shufflevector {x}, {x.type} {other}, <{len(order)} x i32> <{mask}>",
            x.type.of(len(order)),
        )

    def extract(self, x: Reg, lane: Operand) -> Reg:
        return self._new(f"extractelement {x}, {self.reg(lane)}", x.type.scalar)

    def insert(self, x: Reg, element: Reg, lane: Operand) -> Reg:
        return self._new(f"insertelement {x}, {element}, {self.reg(lane)}", x.type)

    def reduce(self, how: str, x: Reg, start: Reg | None = None) -> Reg:
        """Combine the lanes: fadd and fmul (as a tree: any order), fmaximum, fminimum, add, mul,
        smax, smin, umax, umin, and, or.
        """
        if how in ("fadd", "fmul"):
            zero = start or self.const(0.0 if how == "fadd" else 1.0, x.type.scalar)
            name = f"llvm.vector.reduce.{how}.{x.type.suffix}"
            self.module.declare(name, x.type.scalar, [x.type.scalar, x.type])
            return self._new(f"call reassoc {x.type.scalar} @{name}({zero}, {x})", x.type.scalar)
        return self.call(f"llvm.vector.reduce.{how}.{x.type.suffix}", x.type.scalar, x)

    # -- Memory ----------------------------------------------------------------------------------

    def offset(self, pointer: Reg, index: Operand, element: Type = F32) -> Reg:
        """The address of element `index` behind `pointer`."""
        if isinstance(index, int) and index == 0:
            return pointer
        index = self.reg(index)
        return self._new(
            f"getelementptr {element.scalar}, ptr {pointer.text}, i64 {index.text}", PTR
        )

    def load(
        self,
        type: Type,
        pointer: Reg,
        index: Operand = 0,
        *,
        align: int | None = None,
        in_place: bool = False,
    ) -> Reg:
        """Load a scalar or vector of `type` from element `index` behind `pointer`.

        in_place: exactly here. LLVM moves loads from neighbouring addresses together, and a loop
        that fills all registers with sums would then have to store one of these.
        """
        at = self.offset(pointer, index, type)
        align = align or max(1, type.bits // 8)
        kind = "load volatile" if in_place else "load"
        return self._new(f"{kind} {type}, ptr {at.text}, align {align}", type)

    def store(
        self,
        value: Reg,
        pointer: Reg,
        index: Operand = 0,
        *,
        align: int | None = None,
        nontemporal: bool = False,
    ) -> None:
        """Store to element `index` behind `pointer`. Non-temporal stores need full alignment."""
        at = self.offset(pointer, index, value.type)
        size = max(1, value.type.bits // 8)
        hint = ", !nontemporal !0" if nontemporal else ""
        if nontemporal:
            align = size * max(1, value.type.lanes)
        self._lines.append(f"  store {value}, ptr {at.text}, align {align or size}{hint}")

    def masked_load(
        self, type: Type, pointer: Reg, mask: Reg, otherwise: Reg, index: Operand = 0
    ) -> Reg:
        """Load the lanes where `mask` holds; the others get `otherwise`'s and aren't touched."""
        at = self.offset(pointer, index, type)
        name = f"llvm.masked.load.{type.suffix}.p0"
        self.module.declare(name, type, [PTR, I32, mask.type, type])
        size = type.bits // 8
        return self._new(
            f"call {type} @{name}(ptr {at.text}, i32 {size}, {mask}, {otherwise})", type
        )

    def masked_store(self, value: Reg, pointer: Reg, mask: Reg, index: Operand = 0) -> None:
        """Store the lanes where `mask` holds."""
        lane = only_lane(mask)
        if lane is not None:
            # LLVM 20 would store the lane as it was before it was truncated, if it was.
            self.store(self.extract(value, lane), pointer, self.add(index, lane))
            return
        at = self.offset(pointer, index, value.type)
        name = f"llvm.masked.store.{value.type.suffix}.p0"
        self.module.declare(name, VOID, [value.type, PTR, I32, mask.type])
        size = value.type.bits // 8
        self._lines.append(f"  call void @{name}({value}, ptr {at.text}, i32 {size}, {mask})")

    def gather(self, type: Type, pointer: Reg, indices: Reg, mask: Reg) -> Reg:
        """Load element indices[lane] behind `pointer` into each lane where `mask` holds; the other
        lanes get zeros.
        """
        at = self._pointers(type, pointer, indices)
        name = f"llvm.masked.gather.{type.suffix}.v{type.lanes}p0"
        self.module.declare(name, type, [at.type, I32, mask.type, type])
        otherwise = self.const(0, type)
        size = type.bits // 8
        return self._new(f"call {type} @{name}({at}, i32 {size}, {mask}, {otherwise})", type)

    def scatter(self, value: Reg, pointer: Reg, indices: Reg, mask: Reg) -> None:
        """Store each lane where `mask` holds to element indices[lane] behind `pointer`."""
        at = self._pointers(value.type, pointer, indices)
        name = f"llvm.masked.scatter.{value.type.suffix}.v{value.type.lanes}p0"
        self.module.declare(name, VOID, [value.type, at.type, I32, mask.type])
        size = value.type.bits // 8
        self._lines.append(f"  call void @{name}({value}, {at}, i32 {size}, {mask})")

    def _pointers(self, type: Type, pointer: Reg, indices: Reg) -> Reg:
        return self._new(
            f"getelementptr {type.scalar}, ptr {pointer.text}, {indices}", PTR.of(type.lanes)
        )

    def first_lanes(self, count: Operand, lanes: int) -> Reg:
        """The mask of the first `count` lanes."""
        if isinstance(count, int):
            return self.consts([int(i < count) for i in range(lanes)], I1)
        steps = self.consts(range(lanes), I64)
        return self.icmp("slt", steps, self.splat(self.reg(count), lanes))

    def local(self, type: Type, count: int, align: int = 64) -> Reg:
        """Room for `count` elements on the stack, reserved once per call of the function."""
        self._count += 1
        name = f"%s{self._count}"
        self._entry.append(f"  {name} = alloca {type}, i64 {count}, align {align}")
        return Reg(name, PTR)

    # -- Words that several threads use: i64 -----------------------------------------------------

    def atomic_add(
        self, pointer: Reg, value: Operand, index: Operand = 0, order: str = "monotonic"
    ) -> Reg:
        """Add to a word; returns what was there before."""
        at = self.offset(pointer, index, I64)
        return self._new(f"atomicrmw add ptr {at.text}, {self.reg(value)} {order}, align 8", I64)

    def atomic_load(self, pointer: Reg, index: Operand = 0, order: str = "acquire") -> Reg:
        at = self.offset(pointer, index, I64)
        return self._new(f"load atomic i64, ptr {at.text} {order}, align 8", I64)

    def atomic_store(
        self, value: Operand, pointer: Reg, index: Operand = 0, order: str = "release"
    ) -> None:
        at = self.offset(pointer, index, I64)
        self._lines.append(f"  store atomic {self.reg(value)}, ptr {at.text} {order}, align 8")

    def compare_exchange(
        self, pointer: Reg, old: Reg, new: Reg, index: Operand = 0, order: str = "monotonic"
    ) -> Reg:
        """Write `new` to a word that is `old`; returns whether it was."""
        at = self.offset(pointer, index, I64)
        text = f"cmpxchg ptr {at.text}, {old}, {new} {order} monotonic, align 8"
        return self._new(f"extractvalue {{ i64, i1 }} {self._new(text, I64).text}, 1", I1)

    def fence(self) -> None:
        """Let all stores so far, also those past the caches, be seen before any later one."""
        self._lines.append("  fence seq_cst")

    def relax(self) -> None:
        """Tell the processor that this thread spins."""
        if self.target.triple.startswith("x86"):
            self.call("llvm.x86.sse2.pause", VOID)
        elif self.target.triple.startswith("aarch64"):
            self.call("llvm.aarch64.hint", VOID, self.const(1, I32))

    # -- Calls -----------------------------------------------------------------------------------

    def call(self, name: str, result: Type, *operands: Reg) -> Reg:
        """Call an external function or intrinsic; it's declared by this."""
        self.module.declare(name, result, [o.type for o in operands])
        return self._call(f"@{name}", result, operands)

    def call_function(self, function: Function, *operands: Operand) -> Reg:
        """Call a function of this module."""
        regs = [self.reg(o, p.type) for o, p in zip(operands, function.parameters, strict=True)]
        return self._call(f"@{function.name}", function.result, regs)

    def call_pointer(self, pointer: Reg, result: Type, *operands: Reg) -> Reg:
        """Call the function at an address."""
        return self._call(pointer.text, result, operands)

    def _call(self, callee: str, result: Type, operands: Sequence[Reg]) -> Reg:
        shown = ", ".join(map(str, operands))
        if result is VOID:
            self._lines.append(f"  call void {callee}({shown})")
            return Reg("", VOID)
        return self._new(f"call {result} {callee}({shown})", result)
