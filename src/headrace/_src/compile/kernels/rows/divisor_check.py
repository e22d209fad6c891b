"""Check the divisors of integers: a zero among them sets the word "fault"."""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I64, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import memory_type

__all__ = ["LookForZero"]

_SMALL = 1024  # elements: up to this many, one thread is faster


@dataclass(frozen=True)
class LookForZero:
    """Copy `count` integers, and set the fault word if one of them is 0."""

    count: int
    dtype: str

    arguments = ("given", "out:result", "inout:fault")
    counters = 0

    @property
    def small(self) -> bool:
        return self.count <= _SMALL

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        given, result, fault = team.args
        type = memory_type(self.dtype)

        def element(i: Reg, found: Reg) -> Reg:
            number = f.load(type, given, i)
            f.store(number, result, i)
            return f.or_(found, f.icmp("eq", number, 0))

        (bad,) = f.loop(*team.share(self.count), element, [f.icmp("ne", f.reg(0), 0)])
        f.when(bad, lambda: f.store(f.const(1, I64), fault))
