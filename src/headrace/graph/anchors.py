"""Anchors: the geometry of ops that have kernels of their own in the compiler.

In: a `Site`. Out: a frozen, hashable description with everything that a kernel needs to know but
its data, or None where this use is better left to the op's own kernel. Arrays are row-major and in
the order that the op's schema has them; sizes are ints.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.graph.lowering import Site

__all__ = ["Contraction", "contraction"]

FLOATS = ("float32", "float64", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Contraction:
    """product[b] = op(x[b]) op(y[b]): matrices [m, k] and [k, n], stored transposed as [k, m] and
    [n, k] if said so. `batch` is the product's; x and y are broadcast to it from their own batch
    shapes. Narrow floats are summed in float32 and rounded once.
    """

    x_batch: tuple[int, ...]
    y_batch: tuple[int, ...]
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    transpose_x: bool
    transpose_y: bool
    dtype: str


def contraction(site: Site) -> Contraction | None:
    """MatMul, BatchMatMul, BatchMatMulV2."""
    x, y = site.input_shapes
    if site.output_dtypes[0] not in FLOATS:
        return None
    attrs = site.attrs
    transpose_x = attrs["transpose_a"] if "transpose_a" in attrs else attrs["adj_x"]
    transpose_y = attrs["transpose_b"] if "transpose_b" in attrs else attrs["adj_y"]
    *batch, m, n = site.output_shapes[0]
    k = x[-2] if transpose_x else x[-1]
    return Contraction(
        x[:-2], y[:-2], tuple(batch), m, n, k, transpose_x, transpose_y, site.output_dtypes[0]
    )
