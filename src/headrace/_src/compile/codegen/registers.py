"""Types and values of LLVM's assembly language, and how constants are spelled."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "BF16", "F16", "F32", "F64", "I1", "I8", "I16", "I32", "I64", "PTR", "VOID",
    "Operand", "Reg", "Type", "constant", "constants", "only_lane", "spell",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Type:
    """An LLVM type: a scalar (lanes = 0) or a vector of `lanes` elements."""

    element: str
    lanes: int = 0

    def of(self, lanes: int) -> Type:
        """The vector of `lanes` such elements; 0 for the scalar."""
        return Type(self.element, lanes)

    @property
    def scalar(self) -> Type:
        return Type(self.element)

    @property
    def is_float(self) -> bool:
        return self.element in _FLOATS

    @property
    def bits(self) -> int:
        return _BITS[self.element]

    @property
    def suffix(self) -> str:
        """The suffix of intrinsics of this type: v16f32."""
        name = _SUFFIX[self.element]
        return f"v{self.lanes}{name}" if self.lanes else name

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.element}>" if self.lanes else self.element


_FLOATS = {"half", "bfloat", "float", "double"}
_BITS = {
    "i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128,
    "half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64,
}  # fmt: skip
_SUFFIX = {
    "i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "i128": "i128",
    "half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0",
}  # fmt: skip

I1, I8, I16, I32, I64, I128 = (Type(f"i{n}") for n in (1, 8, 16, 32, 64, 128))
F16, BF16, F32, F64 = Type("half"), Type("bfloat"), Type("float"), Type("double")
PTR, VOID = Type("ptr"), Type("void")


@dataclass(frozen=True, slots=True, eq=False)
class Reg:
    """A value of the program: a register's name, or a constant's spelling."""

    text: str
    type: Type

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


Operand = Reg | int | float


def constant(value: float | int | bool, type: Type) -> Reg:
    """A constant of a scalar or vector type (the same in every lane)."""
    text = spell(value, type.scalar)
    if type.lanes:
        text = f"splat ({type.element} {text})"
    return Reg(text, type)


def constants(values: Sequence[float | int], type: Type) -> Reg:
    """A vector constant, lane by lane."""
    lanes = ", ".join(f"{type.element} {spell(v, type.scalar)}" for v in values)
    return Reg(f"<{lanes}>", type.of(len(values)))


def only_lane(mask: Reg) -> int | None:
    """Return the only lane where a constant mask holds; None if there are several or none."""
    held = [lane.split()[-1] for lane in mask.text.strip("<>").split(",")]
    return held.index("1") if mask.text.startswith("<") and held.count("1") == 1 else None


def spell(value: float | int | bool, type: Type) -> str:
    if type.element == "ptr":
        return "null"
    if not type.is_float:
        return str(int(value))
    if type.element in ("float", "half", "bfloat"):
        # All are written as the double of equal value; half and bfloat are made by a conversion.
        if type.element == "half":
            return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
        single = struct.pack("<f", _within_float(value))
        if type.element == "bfloat":
            bits = struct.unpack("<I", single)[0]
            bits = bits + 0x7FFF + ((bits >> 16) & 1) if value == value else bits | 0x400000
            return f"0xR{(bits >> 16) & 0xFFFF:04X}"
        value = struct.unpack("<f", single)[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _within_float(value: float) -> float:
    """Overflow to infinity, which struct.pack refuses to do."""
    limit = 3.4028235677973366e38
    if value >= limit:
        return float("inf")
    return float("-inf") if value <= -limit else value
