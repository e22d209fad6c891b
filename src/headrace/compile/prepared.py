"""Anchors whose kernels come as recipes, and those that go by index. In: a group that is one node.
Out: calls in a builder's plan.

Outside of loops and branches, indices were checked by the cluster's caller before it runs: the
kernels' own status word never changes, and is there because they want one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.compile.build import Builder, Operand
from headrace.compile.compose import Composer
from headrace.compile.groups import Group
from headrace.compile.kernels import recipes
from headrace.compile.kernels.conv_geometry import layout_of
from headrace.compile.kernels.cuts import CutPiece
from headrace.compile.kernels.divisors import LookForZero
from headrace.compile.kernels.gathers import CheckIndices, GatherRows, ScatterRows, UpdateRows
from headrace.compile.kernels.random import AdvanceStream, RandomNumbers, StreamOfSeed
from headrace.compile.kernels.recipes import Recipe
from headrace.compile.kernels.rows import Rows, Stage
from headrace.compile.kernels.scans import Scan
from headrace.compile.lists import fault_word
from headrace.compile.spaces import Access
from headrace.compile.strides import collapse
from headrace.graph.dataflow import Node
from headrace.lowering.anchors import (
    Advance,
    BatchNorm,
    CrossEntropy,
    Divisor,
    LocalResponse,
    Random,
    Softmax,
)
from headrace.lowering.pointwise import Pointwise, record
from headrace.lowering.row_anchors import Cut, Gather, RowUpdate, Scatter, SegmentSum
from headrace.lowering.rules import row_major
from headrace.ops.philox import SAMPLES_PER_OUTPUT

__all__ = [
    "build_advance",
    "build_batch_norm",
    "build_cross_entropy",
    "build_cut",
    "build_divisor",
    "build_gather",
    "build_local_response",
    "build_random",
    "build_scan",
    "build_row_update",
    "build_scatter",
    "build_segment_sum",
    "build_softmax",
    "supports_local_response",
    "status_word",
    "supports_random",
]

_WIDEST = 16  # channels on each side that local response normalisation may look at


def _follow(
    builder: Builder,
    node: Node,
    recipe: Recipe,
    place: Callable[[Any], int],
    first: int = 0,
    **given: int,
) -> dict[str, int]:
    """Add a recipe's calls; `place` finds the buffer of an operand, `first` is the first output
    that the recipe makes. Returns the buffers by name.
    """
    names: dict[str, int] = dict(given)
    for number in node.geometry.operands:
        if f"in{number}" not in names:
            names[f"in{number}"] = place(node.inputs[number])
    for i, value in enumerate(node.outputs[first:], first):
        names[f"out{i}"] = builder.result(value)
    for name, (dtype, count) in recipe.temporaries.items():
        names[name] = builder.temporary(dtype, count, f"{node.name}/{name}")
    for kernel, arguments in recipe.steps:
        if isinstance(kernel, CheckIndices):
            continue
        builder.call(kernel, [names[a] for a in arguments], node.name)
    return names


def build_softmax(builder: Builder, group: Group) -> None:
    """Softmax and its logarithm."""
    g: Softmax = group.head.geometry
    _follow(builder, group.head, recipes.softmax(g), builder.whole)


def build_cross_entropy(builder: Builder, group: Group) -> None:
    """The losses of softmax with their gradient and what follows that, in one pass."""
    node, g, space = group.head, group.head.geometry, group.space
    if isinstance(g, CrossEntropy):
        recipe = recipes.cross_entropy(g)
    else:
        recipe = recipes.sparse_cross_entropy(g)
    if len(group.nodes) == 1:
        _follow(builder, node, recipe, builder.whole)
        return
    rows = recipe.steps[-1][0]
    assert isinstance(rows, Rows)
    *before, slopes, losses = rows.stages
    composer, program = Composer(), slopes.program
    named = zip(slopes.operands, program.inputs, strict=True)
    slope, share = composer.apply(program, [composer.operand(*n) for n in named])
    local = {group.result: slope}
    for follower in group.nodes[1:]:
        builder.compose_node(follower, composer, local, {}, space)
    stored = [v for v in local if builder.is_needed(v, {*group.nodes})]
    program = composer.finish([*(local[v] for v in stored), share])
    more: Any = composer.operands[len(slopes.operands) :]
    inputs = [*rows.inputs, *(Access(o.dtype, o.strides, o.offset) for o in more)]
    outputs = [Access(v.dtype.base_dtype.name, row_major(space.shape)) for v in stored]
    stage = Stage(
        program,
        (*slopes.operands, *(f"x{i}" for i in range(len(rows.inputs), len(inputs)))),
        (*(f"y{i}" for i in range(1, 1 + len(stored))), slopes.results[-1]),
    )
    kernel = replace(
        rows,
        stages=(*before, stage, losses),
        inputs=tuple(inputs),
        outputs=(rows.outputs[0], *outputs),
    )
    given = [*map(builder.whole, node.inputs[:2]), *(o.buffer for o in more)]
    made = [builder.result(v) for v in (node.outputs[0], *stored)]
    builder.call(kernel, [*given, *made], node.name)


def supports_local_response(g: LocalResponse) -> bool:
    """Whether the window is narrow enough to be read at once."""
    return 0 <= g.radius <= _WIDEST


def build_local_response(builder: Builder, group: Group) -> None:
    """Local response normalisation and its gradient."""
    g: LocalResponse = group.head.geometry
    _follow(builder, group.head, recipes.local_response(g), builder.whole)


def build_batch_norm(builder: Builder, group: Group) -> None:
    """Batch normalisation and its gradient, of plain or blocked images."""
    node = group.head
    g: BatchNorm = node.geometry
    block = builder.blocked.of(node.outputs[0])
    images = {0, 1} if g.direction == "gradient" else {0}
    given = {
        f"in{i}": builder.blocks_of(node.inputs[i]) if block else builder.whole(node.inputs[i])
        for i in images
    }
    recipe = recipes.batch_norm(g, layout_of(block) if block else None)
    if g.direction == "gradient" or len(group.nodes) == 1:
        _follow(builder, node, recipe, builder.whole, **given)
        return
    # What follows is done as the image is normalised.
    statistics = Recipe(tuple(s for s in recipe.steps if "out0" not in s[1]), recipe.temporaries)
    names = _follow(builder, node, statistics, builder.whole, first=1, **given)
    mean = names["out1"] if g.training else names["in3"]
    space = group.space
    along = (0, block, 0, 0, 1) if block else (0, 0, 0, 1)
    image = builder.operand(node.inputs[0], space)
    vectors = [Operand(b, "float32", along) for b in (mean, names["factor"], names["in2"])]
    composer = Composer()
    inputs = [composer.operand(image, g.dtype), *(composer.operand(v, "float32") for v in vectors)]
    (y,) = composer.apply(_normalised(g.dtype), inputs)
    composed = builder.compose(group, space, composer, {node.outputs[0]: y})
    operands: list[Any] = list(composer.operands)
    builder.map(space, composed.program, operands, composed.outputs, node.name)


def _normalised(dtype: str) -> Pointwise:
    return record(
        lambda e, x, mean, factor, offset: e.cast(
            (e.cast(x, "float32") - mean) * factor + offset, dtype
        ),
        [dtype, "float32", "float32", "float32"],
    )


def build_gather(builder: Builder, group: Group) -> None:
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
    builder.call(kernel, [params, indices, result, status_word(builder)], node.name)


def status_word(builder: Builder) -> int:
    """Where a kernel says that an index is none: in loops and branches it's the first to look."""
    return fault_word(builder) if builder.is_inside else builder.temporary("int64", 1, "status")


def build_cut(builder: Builder, group: Group) -> None:
    """A piece of an array, where computed numbers say."""
    node = group.head
    g: Cut = node.geometry
    extents, (strides,) = collapse(g.view.shape, [g.view.strides])
    kernel = CutPiece(
        extents, strides, g.view.offset, g.moves, g.wraps, g.into, g.dtype, g.index_dtype
    )
    given = builder.whole(node.inputs[g.source])
    buffers = [given, builder.whole(node.inputs[1]), builder.result(node.outputs[0])]
    builder.call(kernel, [*buffers, status_word(builder)], node.name)


def build_divisor(builder: Builder, group: Group) -> None:
    """What integers are divided by."""
    node = group.head
    g: Divisor = node.geometry
    buffers = [builder.whole(node.inputs[0]), builder.result(node.outputs[0])]
    builder.call(LookForZero(g.count, g.dtype), [*buffers, status_word(builder)], node.name)


def build_segment_sum(builder: Builder, group: Group) -> None:
    """Sums of rows by the number of their segment."""
    node = group.head
    g: SegmentSum = node.geometry
    kernel = ScatterRows("Add", g.segments, g.inner, g.count, False, True, g.dtype, g.index_dtype)
    data, ids = (builder.whole(v) for v in node.inputs[:2])
    status = builder.temporary("int64", 1, "status")
    builder.call(kernel, [data, ids, builder.result(node.outputs[0]), status], node.name)


def build_scatter(builder: Builder, group: Group) -> None:
    """Changes of a variable's rows by index."""
    node = group.head
    g: Scatter = node.geometry
    kernel = ScatterRows(g.how, g.rows, g.inner, g.count, g.scalar, False, g.dtype, g.index_dtype)
    number = builder.region.variable(node.inputs[0])
    variable = builder.variable(number, g.dtype, g.rows * g.inner)
    indices, updates = (builder.whole(v) for v in node.inputs[1:3])
    builder.call(kernel, [updates, indices, variable, status_word(builder)], node.name)


def build_row_update(builder: Builder, group: Group) -> None:
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
    builder.call(kernel, [*targets, *operands, status_word(builder)], node.name)


def build_scan(builder: Builder, group: Group) -> None:
    """Running sums and products."""
    node = group.head
    g = node.geometry
    kernel = Scan(g.combine, g.outer, g.length, g.inner, g.exclusive, g.reverse, g.dtype)
    x = builder.whole(node.inputs[0])
    builder.call(kernel, [x, builder.result(node.outputs[0])], node.name)


def supports_random(g: Random) -> bool:
    """Whether kernels give the very numbers that the op would, from operands alone: generators are
    moved outside (rewrites), and float64's logarithms and angles have no further bits to round.
    """
    return g.source != "own" and (g.dtype != "float64" or g.distribution == "uniform")


def build_random(builder: Builder, group: Group) -> None:
    """Random numbers of a stream, or of the stream that seeds lead to."""
    node = group.head
    g: Random = node.geometry
    (operand,) = g.operands
    stream = builder.whole(node.inputs[operand])
    if g.source == "seed":
        seed, stream = stream, builder.temporary("uint64", 3, f"{node.name}/stream")
        builder.call(StreamOfSeed(node.input_dtypes[operand]), [seed, stream], node.name)
    numbers = np.array([g.count, *(g.bounds or ())])
    limits = builder.add("constant", "int64", numbers.size, f"{node.name}/limits", value=numbers)
    kernel = RandomNumbers(g.distribution, g.dtype)
    builder.call(kernel, [stream, limits, builder.result(node.outputs[0])], node.name)


def build_advance(builder: Builder, group: Group) -> None:
    """Move a random generator, which is a variable of three words."""
    node = group.head
    g: Advance = node.geometry
    generator = builder.variable(builder.region.variable(node.inputs[0]), "uint64", 3)
    step = np.array([g.count * SAMPLES_PER_OUTPUT])
    samples = builder.add("constant", "int64", 1, f"{node.name}/samples", value=step)
    buffers = [generator, samples, builder.result(node.outputs[0])]
    builder.call(AdvanceStream(), buffers, node.name)
