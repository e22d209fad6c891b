"""What code is generated for: a processor's triple, features and vector registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

__all__ = ["Target", "host"]

SIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """A processor to generate code for. `vector_bytes` is the width of its vector registers,
    `registers` how many there are.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int

    def lanes(self, dtype: str = "float32") -> int:
        """How many elements of a type one vector register holds."""
        return max(1, self.vector_bytes // SIZES[dtype])


@cache
def host() -> Target:
    """This machine."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    has = {name for name, present in features.items() if present}
    if "avx512f" in has and "avx512vl" in has and "avx512dq" in has:
        width, registers = 64, 32
    elif "avx2" in has and "fma" in has:
        width, registers = 32, 16
    else:
        width, registers = 16, 32 if "neon" in has else 16
    return Target(
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        _without_narrow_preference(features.flatten()),
        width,
        registers,
    )


def _without_narrow_preference(features: str) -> str:
    """LLVM prefers 256-bit vectors on some AVX-512 processors; our code says what it wants."""
    return f"{features},-prefer-256-bit" if "+avx512f" in features else features
