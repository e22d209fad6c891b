"""Memory access of matrix kernels. In: arrays' types, and the programs fused into the access. Out:
vector registers of the accumulator's type, and stores of a fused epilogue's outputs.

A matrix is an array whose rows are contiguous. `MatrixSource` reads vectors along its rows, widens
them and applies a prologue; `Sink` applies the epilogue to a tile of a product and stores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace._src.compile.codegen.cache_lines import prefetch
from headrace._src.compile.codegen.emit import (
    F32,
    F64,
    I1,
    I8,
    PTR,
    Function,
    Operand,
    Reg,
    Type,
)
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.codegen.pointwise_code import load_value, store_value
from headrace._src.devices.target import SIZES

__all__ = ["MatrixSource", "Sink", "accumulator", "lane_mask"]

# Operations that are whole polynomials.
HEAVY = {
    "atan2", "cos", "erf", "exp", "expm1", "log", "log1p", "pow", "sigmoid", "sin", "tanh",
}  # fmt: skip
ACCUMULATORS = {"float32": F32, "float64": F64, "bfloat16": F32, "float16": F32}


def accumulator(dtype: str) -> Type:
    """The type in which products of matrices of a type are added up."""
    if dtype not in ACCUMULATORS:
        raise ValueError(f"matrix kernels multiply {', '.join(ACCUMULATORS)}, not {dtype}")
    return ACCUMULATORS[dtype]


def lane_mask(f: Function, count: int, lanes: int) -> Reg | None:
    """The constant mask of the first `count` lanes; None if that is all of them."""
    return None if count >= lanes else f.consts([int(i < count) for i in range(lanes)], I1)


@dataclass(frozen=True)
class MatrixSource:
    """A matrix that is read: its type, the length of its stored rows, a prologue on its elements.

    `pointers` below are the addresses of the matrix, then of the prologue's operands.
    """

    dtype: str
    stride: int
    prologue: Epilogue | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the prologue's operands."""
        operands = self.prologue.operands if self.prologue is not None else ()
        return tuple(f"{kind}{i}" for i, kind in enumerate(operands))

    def load(
        self,
        f: Function,
        pointers: Sequence[Reg],
        index: Operand,
        column: Operand,
        lanes: int,
        mask: Reg | None = None,
    ) -> Reg:
        """The vector at element `index` of the matrix, which is in column `column`."""
        value = load_value(f, self.dtype, lanes, pointers[0], index, mask=mask)
        if self.prologue is None:
            return value
        inputs = self.prologue.program.inputs

        def operand(i: int, kind: str) -> Reg:
            return load_operand(f, kind, inputs[1 + i], pointers[1 + i], index, column, lanes, mask)

        (value,) = self.prologue.apply(f, value, operand)
        return value


def load_operand(
    f: Function,
    kind: str,
    dtype: str,
    pointer: Reg,
    index: Operand,
    column: Operand,
    lanes: int,
    mask: Reg | None,
) -> Reg:
    """An operand of a fused program where the matrix's element is `index`, in column `column`."""
    if kind == "scalar":
        return load_value(f, dtype, 0, pointer)
    at = index if kind == "full" else column
    return load_value(f, dtype, lanes, pointer, at, mask=mask)


@dataclass(frozen=True)
class Sink:
    """A matrix that is written: a product's epilogue and the length of its stored rows.

    `pointers` are the addresses of the epilogue's operands, then of its outputs. `stream`: whole
    vectors of outputs bypass the caches if rows consist of such. `far`: operands and outputs aren't
    in the core's own cache, and there is time to fetch them.
    """

    epilogue: Epilogue
    stride: int
    stream: bool = False
    far: bool = True

    @property
    def parameters(self) -> list[Type]:
        return [PTR] * len(self.epilogue.arguments)

    def cost(self) -> int:
        """About how many instructions the epilogue takes per vector."""
        steps = self.epilogue.program.steps
        heavy = sum(step.opcode in HEAVY for step in steps)
        return 1 + len(steps) + 20 * heavy + len(self.epilogue.operands)

    @property
    def reads_first(self) -> bool:
        """Whether all operands of a tile are to be read before a result is written. Where rows are
        a multiple of 4 KB apart, a processor takes a read for one of what was just written in
        another row, and waits. Several results would not fit into the registers.
        """
        return "full" in self.epilogue.operands and len(self.epilogue.program.output_dtypes) == 1

    def fetch(self, f: Function, pointers: Sequence[Reg], index: Operand) -> None:
        """Prefetch the operands and outputs of element `index` into the core's cache."""
        operands = self.epilogue.operands
        program = self.epilogue.program
        dtypes = (*program.inputs[1:], *program.output_dtypes)
        for i, (pointer, dtype) in enumerate(zip(pointers, dtypes, strict=True)):
            if i >= len(operands) or operands[i] == "full":
                at = f.offset(pointer, f.mul(index, SIZES[dtype]), I8)
                prefetch(f, at, to_write=i >= len(operands))

    def store(
        self,
        f: Function,
        pointers: Sequence[Reg],
        value: Reg,
        index: Operand,
        column: Operand,
        mask: Reg | None,
        known: dict[int, Reg] | None = None,
    ) -> None:
        """Take one vector of the product to element `index`; `known` keeps operands that are the
        same for the next rows of these columns.
        """
        self.write(
            f, pointers, self.results(f, pointers, value, index, column, mask, known), index, mask
        )

    def results(
        self,
        f: Function,
        pointers: Sequence[Reg],
        value: Reg,
        index: Operand,
        column: Operand,
        mask: Reg | None,
        known: dict[int, Reg] | None = None,
    ) -> Sequence[Reg]:
        """Return the outputs for a vector of the product: the first part of `store`."""
        inputs = self.epilogue.program.inputs
        known = {} if known is None else known

        def operand(i: int, kind: str) -> Reg:
            if i in known:
                return known[i]
            found = load_operand(
                f, kind, inputs[1 + i], pointers[i], index, column, value.type.lanes, mask
            )
            if kind != "full":
                known[i] = found
            return found

        return self.epilogue.apply(f, value, operand)

    def write(
        self,
        f: Function,
        pointers: Sequence[Reg],
        outputs: Sequence[Reg],
        index: Operand,
        mask: Reg | None,
    ) -> None:
        """Store outputs at element `index`: the second part of `store`."""
        stream = self.stream and self.stride % outputs[0].type.lanes == 0
        dtypes = self.epilogue.program.output_dtypes
        results = pointers[len(self.epilogue.operands) :]
        for dtype, pointer, output in zip(dtypes, results, outputs, strict=True):
            store_value(f, dtype, output, pointer, index, mask=mask, nontemporal=stream)
