"""An epilogue where a kernel stores its results: operands read and outputs written by position.

The kernel's argument table holds the epilogue's operands and outputs from `first` on. Operands that
don't depend on the position (a bias, a scalar) are read once, when this object is made.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace._src.compile.codegen.cache_lines import prefetch_row
from headrace._src.compile.codegen.emit import I8, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.codegen.pointwise_code import load_value, store_value, to_vector
from headrace._src.devices.target import SIZES

__all__ = ["Fused"]


class Fused:
    """An epilogue within one function, for one block of channels."""

    def __init__(
        self,
        f: Function,
        table: Reg,
        first: int,
        epilogue: Epilogue,
        channel: Operand,
        lanes: int,
        *,
        nontemporal: bool = False,
    ) -> None:
        """`channel`: the number of the block's first channel, of which there are `lanes`.
        `nontemporal`: store past the caches (outputs must be aligned to their vectors).
        """
        self.f, self.epilogue, self._nontemporal = f, epilogue, nontemporal
        self._lanes = lanes
        operands = len(epilogue.operands)
        self._dtypes = epilogue.program.inputs[1:]
        self._operands = [f.load(PTR, table, first + i) for i in range(operands)]
        self.outputs = [
            f.load(PTR, table, first + operands + i) for i in range(len(epilogue.program.outputs))
        ]
        self._values: dict[int, Reg] = {}
        for i, (kind, dtype) in enumerate(zip(epilogue.operands, self._dtypes, strict=True)):
            if kind == "channel":
                self._values[i] = load_value(f, dtype, lanes, self._operands[i], channel)
            elif kind == "scalar":
                self._values[i] = load_value(f, dtype, 0, self._operands[i])
            elif kind != "full":
                raise ValueError(f"an epilogue's operand is full, channel or scalar, not {kind}")

    def prefetch(self, at: Operand, count: int) -> None:
        """Bring nearer what is read and written for `count` elements from offset `at` on."""
        kinds = zip(self.epilogue.operands, self._dtypes, self._operands, strict=True)
        read = [(pointer, dtype) for kind, dtype, pointer in kinds if kind == "full"]
        written = zip(self.outputs, self.epilogue.program.output_dtypes, strict=True)
        for to_write, arrays in ((False, read), (True, written)):
            for pointer, dtype in arrays:
                size = SIZES[dtype]
                row = self.f.offset(pointer, self.f.mul(at, size), I8)
                prefetch_row(self.f, row, count * size, I8, to_write=to_write)

    def apply(self, result: Reg, at: Operand) -> list[Reg]:
        """The program's outputs for a vector of the result that belongs at offset `at`."""

        def operand(i: int, kind: str) -> Reg:
            if kind == "full":
                return load_value(self.f, self._dtypes[i], self._lanes, self._operands[i], at)
            return self._values[i]

        values = self.epilogue.apply(self.f, result, operand)
        return [to_vector(self.f, v, self._lanes) for v in values]

    def store(self, result: Reg, at: Operand) -> None:
        """Apply the program and store its outputs at offset `at`."""
        self.store_outputs(self.apply(result, at), at)

    def store_outputs(self, values: Sequence[Reg], at: Operand) -> None:
        dtypes = self.epilogue.program.output_dtypes
        for dtype, value, output in zip(dtypes, values, self.outputs, strict=True):
            past = self._nontemporal and dtype == "float32"
            store_value(self.f, dtype, value, output, at, nontemporal=past)
