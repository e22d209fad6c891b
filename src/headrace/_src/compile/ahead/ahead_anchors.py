"""The families of anchors in models that are compiled ahead of time.

In: a group whose head is an anchor. Out: calls in a builder's plan. All kernels are portable: plain
layouts, vectors of any width, no library. Products and windows have families of their own here: a
model's weights are known, so they are stored in the order in which kernels read them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.compile.ahead.transposed import AS_IT_IS, build_transposed, supports_transposed
from headrace._src.compile.build import families, matrix_products
from headrace._src.compile.build.families import Family
from headrace._src.compile.build.group_epilogues import epilogue_of
from headrace._src.compile.build.plan_builder import Builder
from headrace._src.compile.build.rows_and_indices import status_word
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.conv.direct_conv import direct_conv, pack_filters
from headrace._src.compile.kernels.conv.direct_windows import DirectDepthwise, DirectPool
from headrace._src.compile.kernels.gemm.gemm import gemm
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.kernels.rows.gather_points import GatherPointsKernel
from headrace._src.compile.kernels.rows.largest import LargestKernel
from headrace._src.compile.regions.groups import Group
from headrace._src.compile.regions.region import constant_of, is_constant
from headrace._src.core.windows import Window
from headrace._src.graph.dataflow import Value
from headrace._src.lowering import anchors as geometries
from headrace._src.lowering import row_anchors
from headrace._src.lowering.anchors import Contraction
from headrace._src.lowering.window_anchors import Convolution, Pooling, Pooling3D

__all__ = ["FAMILIES", "pack_matrix"]

_FEW_ROWS = 32  # of a matrix that is read in place: packing it would take longer than it saves


def _geometry_of(g: Convolution | Pooling) -> Geometry:
    return Geometry(g.n, g.c, g.k if isinstance(g, Convolution) else g.c, g.h, g.w)


def _known(builder: Builder, value: Value) -> np.ndarray | None:
    """A whole value that is known at compile time."""
    source = builder.region.source(value)
    whole = source.view is None and is_constant(source.base)
    return constant_of(source.base) if whole else None


def _constant(builder: Builder, array: np.ndarray, label: str) -> int:
    """A buffer with known contents."""
    return builder.add("constant", array.dtype.name, array.size, label, value=array)


def pack_matrix(matrix: np.ndarray, columns: int) -> np.ndarray:
    """A [k, n] matrix in the panels that a `Gemm` with b="packed" reads; the last is filled up."""
    k, n = matrix.shape
    padded = np.pad(matrix, ((0, 0), (0, -n % columns)))
    return np.ascontiguousarray(padded.reshape(k, -1, columns).swapaxes(0, 1))


# -- Families --------------------------------------------------------------------------------------


def _build_contraction(builder: Builder, group: Group, g: Contraction) -> None:
    x, y = group.head.inputs[:2]
    matrix = _known(builder, y)
    if matrix is None or g.batch:
        matrix_products.build(builder, group)
        return
    epilogue, operands, outputs = epilogue_of(builder, group)
    kernel = gemm(
        g.m, g.n, g.k, g.transpose_x, False, g.dtype, epilogue,
        a="direct" if g.m <= _FEW_ROWS else "pack", b="packed", target=builder.target,
    )  # fmt: skip
    packed = pack_matrix(matrix.T if g.transpose_y else matrix, kernel.columns)
    weights = _constant(builder, packed, y.name)
    builder.call(kernel, [builder.whole(x), weights, *operands, *outputs], group.head.name)


def _convolves(g: Convolution) -> bool:
    if (g.data_format, g.dtype) != ("NHWC", "float32"):
        return False
    transposed = g.direction == "input" and not g.depthwise and supports_transposed(g)
    return g.direction == "forward" or transposed


def _build_convolution(builder: Builder, group: Group, g: Convolution) -> None:
    if g.direction == "input":
        build_transposed(builder, group, g, _known(builder, group.head.inputs[1]))
        return
    x, filters = group.head.inputs
    epilogue, operands, outputs = epilogue_of(builder, group)
    kernel = direct_conv(_geometry_of(g), epilogue, builder.target)
    known = _known(builder, filters)
    if known is None:
        weights = builder.whole(filters)
    else:
        weights = _constant(builder, pack_filters(known, kernel), filters.name)
        kernel = replace(kernel, packed=True)
    builder.call(kernel, [builder.whole(x), weights, *operands, *outputs], group.head.name)


def _build_depthwise(builder: Builder, group: Group, g: Convolution) -> None:
    inputs = [builder.whole(v) for v in group.head.inputs]
    epilogue, operands, outputs = epilogue_of(builder, group)
    kernel = DirectDepthwise(_geometry_of(g), epilogue)
    builder.call(kernel, [*inputs, *operands, *outputs], group.head.name)


def _pools(g: Pooling) -> bool:
    return (g.direction, g.data_format, g.dtype) == ("forward", "NHWC", "float32")


def _build_pooling(builder: Builder, group: Group, g: Pooling) -> None:
    x = builder.whole(group.head.inputs[0])
    epilogue, operands, outputs = epilogue_of(builder, group)
    builder.call(_pool(g, epilogue), [x, *operands, *outputs], group.head.name)


def _build_pooling_3d(builder: Builder, group: Group, g: Pooling3D) -> None:
    """Pool the planes first, then along the depth: a 3-D window is a product of windows."""
    planes = Pooling(g.kind, "forward", g.n * g.d.size, g.c, g.h, g.w, "NHWC", g.dtype)
    inner = g.h.out * g.w.out
    apart = Window(inner, 1, 1, 1, 0, 0, inner)
    depth = Pooling(g.kind, "forward", g.n, g.c, g.d, apart, "NHWC", g.dtype)
    name = group.head.name
    pooled = builder.temporary("float32", g.n * g.d.size * inner * g.c, f"{name}/planes")
    x = builder.whole(group.head.inputs[0])
    builder.call(_pool(planes, AS_IT_IS), [x, pooled], f"{name}/planes")
    epilogue, operands, outputs = epilogue_of(builder, group)
    builder.call(_pool(depth, epilogue), [pooled, *operands, *outputs], name)


def _pool(g: Pooling, epilogue: Epilogue) -> DirectPool:
    return DirectPool(_geometry_of(g), "max" if g.kind == "max" else "average", epilogue)


def _build_largest(builder: Builder, group: Group, g: geometries.Largest) -> None:
    node = group.head
    results = [builder.result(v) for v in node.outputs]
    kernel = LargestKernel(g.rows, g.length, g.k, g.dtype)
    builder.call(kernel, [builder.whole(node.inputs[0]), *results], node.name)


def _build_points(builder: Builder, group: Group, g: row_anchors.GatherPoints) -> None:
    node = group.head
    kernel = GatherPointsKernel(g.count, g.sizes, g.inner, g.dtype, g.index_dtype)
    params, indices = (builder.whole(v) for v in node.inputs)
    result = builder.result(node.outputs[0])
    builder.call(kernel, [params, indices, result, status_word(builder)], node.name)


def _described(build: Callable[[Builder, Group, Any], None]) -> Callable[[Builder, Group], None]:
    """`build` with the geometry of the group's head."""

    def described(builder: Builder, group: Group) -> None:
        build(builder, group, group.head.geometry)

    return described


FAMILIES: dict[str, Family] = {
    **families.FAMILIES,
    "contraction": Family(matrix_products.supports, _described(_build_contraction)),
    "convolution": Family(_convolves, _described(_build_convolution)),
    "depthwise": Family(_convolves, _described(_build_depthwise)),
    "pooling": Family(_pools, _described(_build_pooling)),
    "pooling_3d": Family(lambda g: g.dtype == "float32", _described(_build_pooling_3d)),
    "gather_points": Family(lambda g: True, _described(_build_points)),
    "largest": Family(lambda g: True, _described(_build_largest)),
}
