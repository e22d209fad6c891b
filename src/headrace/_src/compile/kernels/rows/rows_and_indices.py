"""Anchors that work by index, and running sums and products. In: a group of one node. Out: calls in
a builder's plan.

Outside of loops and branches the cluster's caller checks indices before the cluster runs. The
kernels' status word then never changes; it exists because the kernels take one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.compile.build.plan_builder import Builder
from headrace._src.compile.build.strides import collapse
from headrace._src.compile.build.tensor_list_buffers import fault_word
from headrace._src.compile.kernels.anchor_kind import AnchorKind, Arrays, Family, wide
from headrace._src.compile.kernels.rows.cut_piece import CutPiece
from headrace._src.compile.kernels.rows.divisor_check import LookForZero
from headrace._src.compile.kernels.rows.gather_points import GatherPointsKernel
from headrace._src.compile.kernels.rows.gather_rows import GatherRows, ScatterRows, UpdateRows
from headrace._src.compile.kernels.rows.largest import LargestKernel
from headrace._src.compile.kernels.rows.scan_kernel import ScanKernel
from headrace._src.compile.regions.groups import Group
from headrace._src.lowering.anchors import Divisor, Largest, Scan
from headrace._src.lowering.row_anchors import (
    Cut,
    Gather,
    GatherPoints,
    RowUpdate,
    Scatter,
    SegmentSum,
)

__all__ = ["KINDS"]


def _build_gather(builder: Builder, group: Group) -> None:
    """Rows of an array, or of a variable, by index."""
    node = group.head
    g: Gather = node.geometry
    if g.variable:
        count = g.batch * g.outer * g.size * g.inner
        params = builder.variable(builder.region.variable(node.inputs[0]), g.dtype, count)
    else:
        params = builder.whole(node.inputs[0])
    kernel = GatherRows(g.batch, g.outer, g.size, g.count, g.inner, g.dtype, g.index_dtype)
    indices, result = builder.whole(node.inputs[1]), builder.result(node.outputs[0])
    builder.call(kernel, [params, indices, result, _status_word(builder)], node.name)


def _status_word(builder: Builder) -> int:
    """Return the word that a kernel sets when an index is out of range. In loops and branches no
    check comes before the kernel's, so it is the plan's fault word.
    """
    return fault_word(builder) if builder.is_inside else builder.temporary("int64", 1, "status")


def _build_cut(builder: Builder, group: Group) -> None:
    """A slice of an array at computed positions."""
    node = group.head
    g: Cut = node.geometry
    extents, (strides,) = collapse(g.view.shape, [g.view.strides])
    kernel = CutPiece(
        extents, strides, g.view.offset, g.moves, g.wraps, g.into, g.dtype, g.index_dtype
    )
    given = builder.whole(node.inputs[g.source])
    buffers = [given, builder.whole(node.inputs[1]), builder.result(node.outputs[0])]
    builder.call(kernel, [*buffers, _status_word(builder)], node.name)


def _build_divisor(builder: Builder, group: Group) -> None:
    """The check that no divisor of integers is zero."""
    node = group.head
    g: Divisor = node.geometry
    buffers = [builder.whole(node.inputs[0]), builder.result(node.outputs[0])]
    builder.call(LookForZero(g.count, g.dtype), [*buffers, _status_word(builder)], node.name)


def _build_segment_sum(builder: Builder, group: Group) -> None:
    """Sums of rows by the number of their segment."""
    node = group.head
    g: SegmentSum = node.geometry
    kernel = ScatterRows("Add", g.segments, g.inner, g.count, False, True, g.dtype, g.index_dtype)
    data, ids = (builder.whole(v) for v in node.inputs[:2])
    status = builder.temporary("int64", 1, "status")
    builder.call(kernel, [data, ids, builder.result(node.outputs[0]), status], node.name)


def _build_scatter(builder: Builder, group: Group) -> None:
    """Changes of a variable's rows by index."""
    node = group.head
    g: Scatter = node.geometry
    kernel = ScatterRows(g.how, g.rows, g.inner, g.count, g.scalar, False, g.dtype, g.index_dtype)
    number = builder.region.variable(node.inputs[0])
    variable = builder.variable(number, g.dtype, g.rows * g.inner)
    indices, updates = (builder.whole(v) for v in node.inputs[1:3])
    builder.call(kernel, [updates, indices, variable, _status_word(builder)], node.name)


def _build_row_update(builder: Builder, group: Group) -> None:
    """An optimizer's step on rows of a variable and its slots."""
    node = group.head
    g: RowUpdate = node.geometry
    taken = [i for i in g.operands if i not in (g.indices, g.length)]
    kernel = UpdateRows(
        g.program,
        g.variables,
        taken.index(g.gradient) - g.variables,
        g.length is not None,
        g.rows,
        g.inner,
        g.count,
        g.dtype,
        g.index_dtype,
    )
    numbers = [builder.region.variable(v) for v in node.inputs[: g.variables]]
    targets = [builder.variable(n, g.dtype, g.rows * g.inner) for n in numbers]
    last = [g.indices] if g.length is None else [g.indices, g.length]
    operands = [builder.whole(node.inputs[i]) for i in (*taken[g.variables :], *last)]
    builder.call(kernel, [*targets, *operands, _status_word(builder)], node.name)


def _build_scan(builder: Builder, group: Group) -> None:
    """Running sums and products."""
    node = group.head
    g = node.geometry
    kernel = ScanKernel(g.combine, g.outer, g.length, g.inner, g.exclusive, g.reverse, g.dtype)
    x = builder.whole(node.inputs[0])
    builder.call(kernel, [x, builder.result(node.outputs[0])], node.name)


def _build_largest(builder: Builder, group: Group) -> None:
    g: Largest = group.head.geometry
    node = group.head
    results = [builder.result(v) for v in node.outputs]
    kernel = LargestKernel(g.rows, g.length, g.k, g.dtype)
    builder.call(kernel, [builder.whole(node.inputs[0]), *results], node.name)


def _build_points(builder: Builder, group: Group) -> None:
    g: GatherPoints = group.head.geometry
    node = group.head
    kernel = GatherPointsKernel(g.count, g.sizes, g.inner, g.dtype, g.index_dtype)
    params, indices = (builder.whole(v) for v in node.inputs)
    result = builder.result(node.outputs[0])
    builder.call(kernel, [params, indices, result, _status_word(builder)], node.name)


# -- Meanings --------------------------------------------------------------------------------------


def _largest(g: Largest, x: np.ndarray) -> Arrays:
    rows = x.reshape(g.rows, g.length)
    unordered = rows != rows if rows.dtype.kind not in "iu" else np.zeros(rows.shape, bool)
    keys = np.where(unordered, 0, rows)
    places = np.stack(
        [np.lexsort((np.arange(g.length), -_signed(k), ~u)) for k, u in zip(keys, unordered)]
    )[:, : g.k]
    return [np.take_along_axis(rows, places, 1), places.astype(np.int32)]


def _signed(x: np.ndarray) -> np.ndarray:
    """Numbers of a type in which they can be negated."""
    return x.astype(np.int64) if x.dtype.kind in "iu" else x.astype(np.float64)


def _gather(g: Gather, params: np.ndarray, indices: np.ndarray) -> Arrays:
    tables = params.reshape(g.batch, g.outer, g.size, g.inner)
    chosen = indices.reshape(g.batch, g.count)
    return [np.stack([t[:, i] for t, i in zip(tables, chosen, strict=True)])]


def _gather_points(g: GatherPoints, params: np.ndarray, indices: np.ndarray) -> Arrays:
    points = indices.reshape(g.count, len(g.sizes))
    return [params.reshape(*g.sizes, g.inner)[tuple(points.T)]]


def _segment_sum(g: SegmentSum, data: np.ndarray, ids: np.ndarray) -> Arrays:
    result = np.zeros((g.segments, g.inner), wide(data).dtype)
    for row, segment in zip(data.reshape(g.count, g.inner), ids.reshape(-1), strict=True):
        if segment >= 0:
            result[segment] += row
    return [result]


_CHANGES: dict[str, Callable[..., Any]] = {
    "Update": lambda old, new: new,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
}


def _scatter(g: Scatter, old: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> Arrays:
    result = old.reshape(g.rows, g.inner).copy()
    whole = np.broadcast_to(updates, (g.count, g.inner)) if g.scalar else updates
    for i, row in zip(indices.reshape(-1), whole.reshape(g.count, g.inner), strict=True):
        result[i] = _CHANGES[g.how](result[i], row)
    return [result]


def _row_update(g: RowUpdate, *inputs: np.ndarray) -> Arrays:
    variables = [x.reshape(g.rows, g.inner).copy() for x in inputs[: g.variables]]
    gradient = inputs[g.gradient].reshape(g.count, g.inner)
    number = g.count if g.length is None else int(inputs[g.length])
    taken = [i for i in g.operands[g.variables :] if i not in (g.indices, g.length)]
    for k, row in enumerate(inputs[g.indices][:number]):
        given = [gradient[k] if i == g.gradient else inputs[i] for i in taken]
        made = g.program.evaluate(*(v[row] for v in variables), *given)
        for variable, new in zip(variables, made, strict=True):
            variable[row] = new
    return list(variables)


def _scan(g: Scan, x: np.ndarray) -> Arrays:
    lines = wide(x).reshape(g.outer, g.length, g.inner)
    lines = lines[:, ::-1] if g.reverse else lines
    accumulate, first = {"sum": (np.cumsum, 0), "prod": (np.cumprod, 1)}[g.combine]
    if g.exclusive:
        start = np.full((g.outer, 1, g.inner), first, lines.dtype)
        lines = np.concatenate([start, lines[:, :-1]], 1)
    result = accumulate(lines, 1, lines.dtype)
    return [result[:, ::-1] if g.reverse else result]


KINDS = (
    AnchorKind("gather", Family(_build_gather), meanings={Gather: _gather}),
    AnchorKind("gather_points", None, Family(_build_points), {GatherPoints: _gather_points}),
    AnchorKind("cut", Family(_build_cut)),
    AnchorKind("divisor", Family(_build_divisor)),
    AnchorKind("segment_sum", Family(_build_segment_sum), meanings={SegmentSum: _segment_sum}),
    AnchorKind("scatter", Family(_build_scatter), meanings={Scatter: _scatter}),
    AnchorKind("row_update", Family(_build_row_update), meanings={RowUpdate: _row_update}),
    AnchorKind("scan", Family(_build_scan), meanings={Scan: _scan}),
    AnchorKind("largest", None, Family(_build_largest), {Largest: _largest}),
)
