"""Matrix products: a group around a contraction becomes a call of a GEMM kernel with the
group's element-wise nodes as its epilogue.

Batched products read their matrices in place: a transposed view of an array (attention's heads)
needs no copy if the elements of a row are contiguous. The two gradients of a fully connected layer
with few rows are one call, which reads the weights once (`Group.twin`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from headrace._src.compile.build.group_epilogues import epilogue_of, map_epilogue
from headrace._src.compile.build.known_values import constant, known_array
from headrace._src.compile.build.plan_builder import Builder
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.anchor_kind import (
    AnchorKind,
    Arrays,
    Family,
    numpy_dtype,
    wide,
)
from headrace._src.compile.kernels.gemm.batched_gemm import BatchStrides, batched_gemm
from headrace._src.compile.kernels.gemm.fully_connected import small_batch_backward
from headrace._src.compile.kernels.gemm.gemm import gemm, nothing, rounding
from headrace._src.compile.kernels.gemm.gemm_choice import candidates, packed_gemm
from headrace._src.compile.kernels.gemm.gemm_onednn import Product
from headrace._src.compile.kernels.onednn_calls import can, multiplies
from headrace._src.compile.regions.groups import Group
from headrace._src.compile.run.choose import fastest, trial_plan
from headrace._src.devices.target import SIZES, host
from headrace._src.graph.dataflow import Node, Value
from headrace._src.lowering.anchors import Contraction, contraction_of
from headrace._src.lowering.rules import row_major

__all__ = ["KINDS", "pack_matrix"]

_TIMED = 2e6  # the number of operations from which on kernels are timed
_FEW_ROWS, _MANY = 64, 4  # this many products of few rows share a packed matrix
_MORE_ROWS, _LARGE = 256, 1 << 20  # the rows that count as few for a matrix of this many bytes
_CANDIDATES = 2  # how many of the likeliest candidates are timed
_CONVERTED = "converted"
# Of a matrix that is read in place ahead of time: packing it would take longer than it saves.
_READ_IN_PLACE = 32


def _supports(geometry: Contraction) -> bool:
    """Whether there is a kernel for it."""
    return geometry.dtype in ("float32", "float64") and min(geometry.m, geometry.n, geometry.k) > 0


def _build(builder: Builder, group: Group) -> None:
    """Add the calls of a contraction's group."""
    g: Contraction = group.head.geometry
    if group.twin is not None:
        _build_twins(builder, group, group.twin)
    elif g.batch:
        _build_batch(builder, group, g)
    else:
        _build_one(builder, group, g)


# -- One product -----------------------------------------------------------------------------------


def _build_one(builder: Builder, group: Group, g: Contraction) -> None:
    node = group.head
    if _serves_many(builder, node, g):
        _build_packed(builder, group, g)
        return
    x, y = (builder.whole(v) for v in node.inputs[:2])
    way = _fastest(builder, g)
    if way == _CONVERTED:
        raw = map_epilogue(builder, group)
        builder.call(_converted(g), [x, y, raw.buffer], node.name)
        raw.finish()
        return
    epilogue, operands, outputs = epilogue_of(builder, group)
    found = _candidates(builder, g, epilogue)
    builder.call(found[int(way)], [x, y, *operands, *outputs], node.name)


def _serves_many(builder: Builder, node: Node, g: Contraction) -> bool:
    """Return whether many products of few rows share this one's matrix, as the iterations of a
    recurrent network do, in a loop or unrolled: the matrix is then packed once.
    """
    few = _MORE_ROWS if g.n * g.k * SIZES[g.dtype] > _LARGE else _FEW_ROWS
    if g.m > few or g.transpose_x or g.dtype != "float32" or g.rounds_x or g.rounds_y:
        return False
    if builder.target != host():
        return False
    source = builder.region.source(node.inputs[1])
    if (source, g) in builder.packed or builder.is_invariant(source):
        return True
    users = [
        n
        for n in builder.region.consumers[source.base]
        if contraction_of(n) == g and builder.region.source(n.inputs[1]) == source
    ]
    return len(users) >= _MANY


def _build_packed(builder: Builder, group: Group, g: Contraction) -> None:
    node = group.head
    epilogue, operands, outputs = epilogue_of(builder, group)
    pack, kernel = packed_gemm(g.m, g.n, g.k, False, g.transpose_y, g.dtype, epilogue)
    key = (builder.region.source(node.inputs[1]), g)
    if key not in builder.packed:
        builder.packed[key] = builder.temporary("uint8", pack.packed_bytes, f"{node.name}/packed")
        y = builder.whole(node.inputs[1])
        buffers, label = [y, builder.packed[key]], f"{node.name}/packed"
        if not builder.early(pack, buffers, y, label):
            builder.call(pack, buffers, label)
    x = builder.whole(node.inputs[0])
    builder.call(kernel, [x, builder.packed[key], *operands, *outputs], node.name)


def _converted(g: Contraction) -> Product:
    """oneDNN's product of operands that it converts to bfloat16 first."""
    shapes = (
        (g.k, g.m) if g.transpose_x else (g.m, g.k),
        (g.n, g.k) if g.transpose_y else (g.k, g.n),
    )
    return Product(g.dtype, *shapes, g.transpose_x, g.transpose_y, precision=g.precision)


def _candidates(builder: Builder, g: Contraction, epilogue: Epilogue) -> list:
    target = None if builder.target == host() else builder.target
    found = candidates(
        g.m,
        g.n,
        g.k,
        g.transpose_x,
        g.transpose_y,
        g.dtype,
        epilogue,
        rounds_a=g.precision if g.rounds_x else "",
        rounds_b=g.precision if g.rounds_y else "",
        threads=builder.threads,
        target=target,
    )
    return [f for f in found if not hasattr(f, "bind")]


def _fastest(builder: Builder, g: Contraction) -> str:
    """Return the number of the fastest candidate without an epilogue, or _CONVERTED."""
    if 2 * g.m * g.n * g.k < _TIMED or builder.target != host():
        return "0"
    found = _candidates(builder, g, nothing(g.dtype))[:_CANDIDATES]
    size = SIZES[g.dtype]
    sizes = {"x": g.m * g.k * size, "y": g.k * g.n * size, "z": g.m * g.n * size}
    named: dict[str, Any] = {str(i): spec for i, spec in enumerate(found)}
    if multiplies(builder.target, g.precision) and can(_converted(g)):
        named[_CONVERTED] = _converted(g)
    ways = {n: partial(trial_plan, [(s, ("x", "y", "z"))], sizes) for n, s in named.items()}
    return fastest(f"contraction {g}", ways, builder.threads)


# -- Batches ---------------------------------------------------------------------------------------


def _build_batch(builder: Builder, group: Group, g: Contraction) -> None:
    node = group.head
    epilogue, operands, outputs = epilogue_of(builder, group)
    x, at_x = _matrices(builder, node.inputs[0], g)
    y, at_y = _matrices(builder, node.inputs[1], g)
    kernel = batched_gemm(
        g.batch,
        g.m,
        g.n,
        g.k,
        g.transpose_x,
        g.transpose_y,
        g.dtype,
        epilogue,
        at_a=at_x,
        at_b=at_y,
        target=builder.target,
    )
    builder.call(kernel, [x, y, *operands, *outputs], node.name)


def _matrices(builder: Builder, value: Value, g: Contraction) -> tuple[int, BatchStrides]:
    """Return a buffer and the strides of a batch's matrices in it."""
    shape = value.type.sizes or ()
    source = builder.region.source(value)
    view = source.view
    if view is not None and view.shape == shape and view.strides[-1] == 1:
        buffer, strides, offset = builder.plain(source.base), view.strides, view.offset
    else:
        buffer, strides, offset = builder.whole(value), row_major(shape), 0
    front = len(g.batch) - (len(shape) - 2)
    batch = [0 if n == 1 else s for n, s in zip(shape[:-2], strides[:-2], strict=True)]
    return buffer, BatchStrides(strides[-2], (0,) * front + tuple(batch), offset)


# -- Both gradients of a layer ---------------------------------------------------------------------


def _build_twins(builder: Builder, group: Group, twin: Group) -> None:
    """`group` computes dY W^T, `twin` updates W by X^T dY."""
    g: Contraction = group.head.geometry
    data, data_operands, data_outputs = epilogue_of(builder, group)
    update, update_operands, update_outputs = epilogue_of(builder, twin)
    dy, w = (builder.whole(v) for v in group.head.inputs[:2])
    x = builder.whole(twin.head.inputs[0])
    rounds = g.precision if g.rounds_y else ""
    kernel = small_batch_backward(
        g.m, g.k, g.n, g.dtype, update, data, rounds=rounds, target=builder.target
    )
    buffers = [x, dy, w, *update_operands, *update_outputs, *data_operands, *data_outputs]
    builder.call(kernel, buffers, f"{group.head.name} {twin.head.name}")


# -- Ahead of time ---------------------------------------------------------------------------------


def _build_ahead(builder: Builder, group: Group) -> None:
    g: Contraction = group.head.geometry
    x, y = group.head.inputs[:2]
    matrix = known_array(builder, y)
    if matrix is None or g.batch:
        _build(builder, group)
        return
    epilogue, operands, outputs = epilogue_of(builder, group)
    kernel = gemm(
        g.m, g.n, g.k, g.transpose_x, False, g.dtype, epilogue,
        a="direct" if g.m <= _READ_IN_PLACE and not g.rounds_x else "pack", b="packed",
        prologue_a=rounding(g.precision if g.rounds_x else ""), target=builder.target,
    )  # fmt: skip
    packed = pack_matrix(matrix.T if g.transpose_y else matrix, kernel.columns)
    weights = constant(builder, packed, y.name)
    builder.call(kernel, [builder.whole(x), weights, *operands, *outputs], group.head.name)


def pack_matrix(matrix: np.ndarray, columns: int) -> np.ndarray:
    """A [k, n] matrix in the panels that a `Gemm` with b="packed" reads; the last is filled up."""
    k, n = matrix.shape
    padded = np.pad(matrix, ((0, 0), (0, -n % columns)))
    return np.ascontiguousarray(padded.reshape(k, -1, columns).swapaxes(0, 1))


# -- Its meaning -----------------------------------------------------------------------------------


def _meaning(g: Contraction, x: np.ndarray, y: np.ndarray) -> Arrays:
    x = np.broadcast_to(wide(x), (*g.batch, *x.shape[-2:]))
    y = np.broadcast_to(wide(y), (*g.batch, *y.shape[-2:]))
    x = np.swapaxes(x, -1, -2) if g.transpose_x else x
    y = np.swapaxes(y, -1, -2) if g.transpose_y else y
    assert x.shape == (*g.batch, g.m, g.k) and y.shape == (*g.batch, g.k, g.n)
    x = x.astype(numpy_dtype(g.precision)).astype(x.dtype) if g.rounds_x else x
    y = y.astype(numpy_dtype(g.precision)).astype(y.dtype) if g.rounds_y else y
    return [np.matmul(x, y)]


KINDS = (
    AnchorKind(
        "contraction",
        Family(_build, _supports),
        Family(_build_ahead, _supports),
        {Contraction: _meaning},
    ),
)
