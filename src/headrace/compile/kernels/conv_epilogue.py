"""An epilogue where a kernel stores its results: operands read and outputs written by position.

The kernel's argument table holds the epilogue's operands and outputs from `first` on. Operands that
don't depend on the position (a bias, a scalar) are read once, when this object is made.
"""

from __future__ import annotations

from headrace.compile.emit import F32, PTR, Function, Operand, Reg
from headrace.compile.epilogue import Epilogue
from headrace.compile.kernels.conv_geometry import BLOCK

__all__ = ["Fused", "named"]


def named(prefix: str, epilogue: Epilogue) -> tuple[str, ...]:
    """The epilogue's arguments, told from those of a kernel's other epilogue by a prefix."""
    return tuple(
        f"out:{prefix}_{name[4:]}" if name.startswith("out:") else f"{prefix}_{name}"
        for name in epilogue.arguments
    )


class Fused:
    """An epilogue within one function, for one block of 16 channels."""

    def __init__(
        self,
        f: Function,
        table: Reg,
        first: int,
        epilogue: Epilogue,
        channel: Operand,
        *,
        nontemporal: bool = False,
    ) -> None:
        """`channel`: the number of the block's first channel. `nontemporal`: store past the caches
        (outputs must be aligned to their vectors).
        """
        self.f, self.epilogue, self._nontemporal = f, epilogue, nontemporal
        count = len(epilogue.operands)
        others = {*epilogue.program.inputs, *epilogue.program.output_dtypes}
        if others != {"float32"}:
            raise ValueError(f"a convolution's epilogue works on float32, not {sorted(others)}")
        self._operands = [f.load(PTR, table, first + i) for i in range(count)]
        self.outputs = [
            f.load(PTR, table, first + count + i) for i in range(len(epilogue.program.outputs))
        ]
        self._values: dict[int, Reg] = {}
        for i, kind in enumerate(epilogue.operands):
            if kind == "channel":
                self._values[i] = f.load(F32.of(BLOCK), self._operands[i], channel)
            elif kind == "scalar":
                self._values[i] = f.splat(f.load(F32, self._operands[i]), BLOCK)
            elif kind != "full":
                raise ValueError(f"an epilogue's operand is full, channel or scalar, not {kind}")

    def apply(self, result: Reg, at: Operand) -> list[Reg]:
        """The program's outputs for a vector of the result that belongs at offset `at`."""

        def operand(i: int, kind: str) -> Reg:
            if kind == "full":
                return self.f.load(F32.of(BLOCK), self._operands[i], at)
            return self._values[i]

        return self.epilogue.apply(self.f, result, operand)

    def store(self, result: Reg, at: Operand) -> None:
        """Apply the program and store its outputs at offset `at`."""
        for value, output in zip(self.apply(result, at), self.outputs, strict=True):
            self.f.store(value, output, at, nontemporal=self._nontemporal)
