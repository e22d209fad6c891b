"""Epilogues: pointwise programs that are fused into an anchor and run on its result before it is
stored.

The program's input 0 is the anchor's result, the others are operands; each is read at the result's
position: "full" (an array of the result's shape and layout), "channel" (a vector along the result's
last logical dimension: a bias) or "scalar" (one element). Each of the program's outputs is stored
as an array of the result's shape and layout. An output may be the same memory as a "full" operand:
that is how a weight gradient's epilogue updates the weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace._src.compile.codegen.emit import Function, Reg
from headrace._src.compile.codegen.pointwise_code import emit_pointwise
from headrace._src.lowering.pointwise import Pointwise

__all__ = ["NOTHING", "Epilogue"]


@dataclass(frozen=True)
class Epilogue:
    """A pointwise program on an anchor's result and where its operands come from."""

    program: Pointwise
    operands: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the kernel's arguments for operands and outputs, in this order."""
        operands = [f"{kind}{i}" for i, kind in enumerate(self.operands)]
        outputs = [f"out:result{i}" for i in range(len(self.program.outputs))]
        return (*operands, *outputs)

    def apply(self, f: Function, result: Reg, load: Callable[[int, str], Reg]) -> list[Reg]:
        """Emit the program on `result`; `load(i, kind)` gives operand i's vector here."""
        operands = [load(i, kind) for i, kind in enumerate(self.operands)]
        return emit_pointwise(f, self.program, [result, *operands])


# Store the result as it is.
NOTHING = Epilogue(Pointwise(("float32",), (), (0,)))
