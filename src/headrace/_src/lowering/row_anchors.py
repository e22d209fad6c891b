"""Anchors (see `lowering.anchors`) that read or change rows, or pieces, at computed positions.

In: a `Site`. Out: a frozen, hashable description, or None.

The step must report indices out of range: a kernel checks them before it writes anything, and
refuses; then the op's own kernel runs and raises the error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from headrace._src.lowering.anchor_geometry import AnchorGeometry
from headrace._src.lowering.pointwise import FLOATS, Pointwise
from headrace._src.lowering.rules import COMPILED, Site, View, recorded

__all__ = ["Cut", "Gather", "GatherPoints", "RowUpdate", "Scatter", "SegmentSum"]


@dataclass(frozen=True, slots=True)
class Gather(AnchorGeometry):
    """out[b, o, i] = params[b, o, indices[b, i]], vectors of `inner` elements each: params are
    [batch, outer, size, inner], indices [batch, count]. Indices are checked to be in [0, size).

    If `variable`, input 0 refers to the variable whose value params are.
    """

    batch: int
    outer: int
    size: int
    count: int
    inner: int
    dtype: str
    index_dtype: str
    variable: bool

    operands: ClassVar[tuple[int, ...]] = (0, 1)

    @property
    def limits(self) -> tuple[tuple[int, int], ...]:
        return ((1, self.size),)


@dataclass(frozen=True, slots=True)
class GatherPoints(AnchorGeometry):
    """out[i] = params[indices[i, 0], indices[i, 1], ...], vectors of `inner` elements: params are
    [*sizes, inner], indices [count, len(sizes)]. Indices are checked to be in range.
    """

    count: int
    sizes: tuple[int, ...]
    inner: int
    dtype: str
    index_dtype: str

    operands: ClassVar[tuple[int, ...]] = (0, 1)


@dataclass(frozen=True, slots=True)
class Cut(AnchorGeometry):
    """A piece of an array at the position given by the numbers in input 1: read from the input
    `source`, or, if `into` is the size of an array of zeros, that input written there.

    `view`: the piece if all numbers are 0; `moves`: (entry of input 1, number of positions, stride)
    for each entry that moves it. If it `wraps`, -1 is the last position.
    """

    view: View
    moves: tuple[tuple[int, int, int], ...]
    dtype: str
    index_dtype: str
    source: int = 0
    into: int = 0
    wraps: bool = False

    @property
    def operands(self) -> tuple[int, ...]:
        return (self.source, 1)


def gather(site: Site) -> Gather | None:
    """GatherV2."""
    axis = site.constant_input(2)
    if axis is None:
        return None
    params = site.input_shapes[0]
    return _gather(site, params, int(axis) % len(params), site.attrs["batch_dims"])


def gather_points(site: Site) -> GatherPoints | None:
    """GatherNd."""
    params, (*places, depth) = site.input_shapes[:2]
    dtype = site.output_dtypes[0]
    if not depth or dtype not in COMPILED or not prod(site.output_shapes[0]):
        return None
    sizes, inner = params[:depth], prod(params[depth:])
    return GatherPoints(prod(places), sizes, inner, dtype, site.input_dtypes[1])


def gather_rows(site: Site) -> Gather | None:
    """Gather."""
    return _gather(site, site.input_shapes[0], 0, 0)


def gather_variable(site: Site) -> Gather | None:
    """ResourceGather."""
    found, batch = site.variable_type(0), site.attrs["batch_dims"]
    return None if found is None else _gather(site, found[1], batch, batch, variable=True)


def _gather(
    site: Site, params: tuple[int, ...], axis: int, batch_dims: int, variable: bool = False
) -> Gather | None:
    indices = site.input_shapes[1]
    front = batch_dims % len(indices) if batch_dims < 0 else batch_dims
    dtype = site.output_dtypes[0]
    if dtype not in COMPILED or not prod(site.output_shapes[0]):
        return None
    return Gather(
        prod(params[:front]),
        prod(params[front:axis]),
        params[axis],
        prod(indices[front:]),
        prod(params[axis + 1 :]),
        dtype,
        site.input_dtypes[1],
        variable,
    )


@dataclass(frozen=True, slots=True)
class SegmentSum(AnchorGeometry):
    """out[s] = sum of the rows of data [count, inner] whose id is s; out has `segments` rows. A
    negative id belongs to no segment; an id of `segments` or more is refused.
    """

    count: int
    inner: int
    segments: int
    dtype: str
    index_dtype: str

    operands: ClassVar[tuple[int, ...]] = (0, 1)

    @property
    def limits(self) -> tuple[tuple[int, int], ...]:
        return ((1, self.segments),)


def segment_sum(site: Site) -> SegmentSum | None:
    """UnsortedSegmentSum."""
    data, ids, _ = site.input_shapes
    dtype = site.output_dtypes[0]
    if dtype not in COMPILED or not prod(data):
        return None
    inner, segments = prod(data[len(ids) :]), site.output_shapes[0][0]
    return SegmentSum(prod(ids), inner, segments, dtype, site.input_dtypes[1])


@dataclass(frozen=True, slots=True)
class Scatter(AnchorGeometry):
    """Change rows of the variable [rows, inner] that input 0 refers to: for each i in order, row
    indices[i] becomes how(row, updates[i]); how: "Update" (replace), "Add", "Sub", "Mul", "Min",
    "Max". Updates are [count, inner], or one scalar for all. Indices are checked before anything is
    written. 16-bit floats are rounded after each change.
    """

    how: str
    rows: int
    inner: int
    count: int
    scalar: bool
    dtype: str
    index_dtype: str

    operands: ClassVar[tuple[int, ...]] = (0, 1, 2)

    @property
    def limits(self) -> tuple[tuple[int, int], ...]:
        return ((1, self.rows),)


def scatter(site: Site, how: str) -> Scatter | None:
    """ScatterAdd and the other scatter ops, on references and on handles."""
    found = site.variable_type(0)
    if found is None or found[0] not in COMPILED or not found[1]:
        return None
    dtype, (rows, *inner) = found
    _, indices, updates = site.input_shapes
    if not prod(indices) or not prod(inner):
        return None
    sizes = rows, prod(inner), prod(indices)
    return Scatter(how, *sizes, not updates, dtype, site.input_dtypes[1])


@dataclass(frozen=True, slots=True)
class RowUpdate(AnchorGeometry):
    """Change rows of the variables [rows, inner] that the first `variables` inputs refer to: for
    each i in order, their rows indices[i] become the results of `program` on them and the operands:
    row i of the gradient [count, inner], and scalars. `gradient` and `indices` are numbers of
    inputs; `length`, if any, is the number of a scalar input: how many of the indices are used.
    They are checked before anything is written.
    """

    program: Pointwise
    variables: int
    gradient: int
    indices: int
    length: int | None
    rows: int
    inner: int
    count: int
    dtype: str
    index_dtype: str

    @property
    def limits(self) -> tuple[tuple[int, int], ...]:
        return ((self.indices, self.rows),)

    @property
    def operands(self) -> tuple[int, ...]:
        return tuple(range(len(self.program.inputs) + 1 + (self.length is not None)))


def row_update(
    site: Site,
    function: Callable[..., Any],
    variables: int,
    gradient: int,
    indices: int,
    length: int | None = None,
) -> RowUpdate | None:
    """SparseApplyAdagrad and similar ops: function(e, *old rows, *operands) -> new rows."""
    found = [site.variable_type(i) for i in range(variables)]
    if found[0] is None or any(v != found[0] for v in found):
        return None
    dtype, shape = found[0]
    count = prod(site.input_shapes[indices])
    if dtype not in FLOATS or not shape or not prod(shape) or not count:
        return None
    if site.input_shapes[gradient] != (count, *shape[1:]):
        return None
    taken = [i for i in range(variables, len(site.input_dtypes)) if i not in (indices, length)]
    if any(site.input_shapes[i] for i in taken if i != gradient):
        return None
    types = [dtype] * variables + [site.input_dtypes[i] for i in taken]
    program = recorded(function, types, site)
    if program is None or not COMPILED.issuperset(types):
        return None
    sizes = shape[0], prod(shape[1:]), count
    index_dtype = site.input_dtypes[indices]
    return RowUpdate(program, variables, gradient, indices, length, *sizes, dtype, index_dtype)
