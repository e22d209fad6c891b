"""The inner product of the convolutions: blocked pixels times a panel of the filter, in registers.

    sum over blocks b and channels c < 16 of
        A[b * a_block + pixel * 16 + c] * B[(b * 16 + c) * b_row + k]

for a few pixels and one or two vectors of filters k. The accumulators stay in registers over
the whole sum, so their number is what the processor has.
"""

from __future__ import annotations

from headrace.compile.emit import F32, Function, Operand, Reg
from headrace.compile.kernels.conv_geometry import BLOCK
from headrace.compile.target import Target

__all__ = ["PANEL", "emit_product", "most_pixels", "padded", "pixels_at_once"]

PANEL = 2 * BLOCK  # filters that are computed together

_VECTOR = F32.of(BLOCK)
_UNROLL = 16


def padded(filters: int) -> int:
    """The size of an array of panels for so many filters: the last may be half empty."""
    return -(-filters // PANEL) * PANEL


def most_pixels(target: Target) -> int:
    """How many pixels times a panel fit into the registers."""
    registers = target.registers * target.vector_bytes // (BLOCK * 4)
    vectors = PANEL // BLOCK
    return max(1, (registers - vectors - 1) // vectors)


def pixels_at_once(target: Target, run: int) -> int:
    """How many pixels are computed together: the largest divisor of `run` that registers allow."""
    return max(d for d in range(1, most_pixels(target) + 1) if run % d == 0)


def emit_product(
    f: Function,
    a: Reg,
    b: Reg,
    *,
    pixels: int,
    vectors: int,
    blocks: Operand,
    a_block: Operand,
    b_row: Operand,
    start: list[Reg] | None = None,
) -> list[Reg]:
    """The sums, vector by vector of each pixel; `start` are what they begin with, else zero."""

    def block(_: Reg, a: Reg, b: Reg, *sums: Reg) -> list[Reg]:
        total = list(sums)
        for c in range(_UNROLL):
            row = f.offset(b, f.mul(b_row, c))
            columns = [f.load(_VECTOR, row, v * BLOCK) for v in range(vectors)]
            for p in range(pixels):
                x = f.splat(f.load(F32, a, p * BLOCK + c), BLOCK)
                for v in range(vectors):
                    total[p * vectors + v] = f.fma(x, columns[v], total[p * vectors + v])
        return [f.offset(a, a_block), f.offset(b, f.mul(b_row, BLOCK)), *total]

    zeros = [f.const(0.0, _VECTOR)] * (pixels * vectors)
    return f.loop(0, blocks, block, [a, b, *(start or zeros)])[2:]
