"""Build the anchors that are fragments of a plan, and those that work by index. In: a group of one
node, or of an anchor with the element-wise nodes that follow it. Out: calls in a builder's plan.

Outside of loops and branches the cluster's caller checks indices before the cluster runs. The
kernels' status word then never changes; it exists because the kernels take one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.compile.build import normalisation_fragments
from headrace._src.compile.build.compose import Composer
from headrace._src.compile.build.plan_builder import Builder, StridedOperand
from headrace._src.compile.build.strides import collapse
from headrace._src.compile.build.tensor_list_buffers import fault_word
from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.kernels.images.conv_geometry import layout_of
from headrace._src.compile.kernels.rows.cut_piece import CutPiece
from headrace._src.compile.kernels.rows.divisor_check import LookForZero
from headrace._src.compile.kernels.rows.gather_rows import GatherRows, ScatterRows, UpdateRows
from headrace._src.compile.kernels.rows.rows_kernel import Rows, Stage
from headrace._src.compile.kernels.rows.scan_kernel import ScanKernel
from headrace._src.compile.kernels.singles.random_numbers import (
    AdvanceStream,
    RandomNumbers,
    StreamOfSeed,
)
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.regions.groups import Group
from headrace._src.graph.dataflow import Node
from headrace._src.lowering.anchors import (
    Advance,
    BatchNorm,
    CrossEntropy,
    Divisor,
    LocalResponse,
    Random,
    Softmax,
)
from headrace._src.lowering.row_anchors import Cut, Gather, RowUpdate, Scatter, SegmentSum
from headrace._src.lowering.rules import row_major
from headrace._src.ops.random.philox import SAMPLES_PER_OUTPUT

__all__ = [
    "build_advance",
    "build_batch_norm",
    "build_cross_entropy",
    "build_cut",
    "build_divisor",
    "build_gather",
    "build_local_response",
    "build_random",
    "build_row_update",
    "build_scan",
    "build_scatter",
    "build_segment_sum",
    "build_softmax",
    "status_word",
    "supports_local_response",
    "supports_random",
]

_WIDEST = 16  # channels on each side that local response normalisation may look at


def _splice(builder: Builder, node: Node, fragment: Plan) -> None:
    """Add the fragment that computes a node's outputs from its operands."""
    inputs = {i: builder.whole(node.inputs[i]) for i in node.geometry.operands}
    outputs = {i: builder.result(v) for i, v in enumerate(node.outputs)}
    builder.splice(fragment, inputs, outputs, node.name)


def build_softmax(builder: Builder, group: Group) -> None:
    """Softmax and its logarithm."""
    g: Softmax = group.head.geometry
    _splice(builder, group.head, normalisation_fragments.softmax(g))


def build_cross_entropy(builder: Builder, group: Group) -> None:
    """The losses of softmax with their gradient and its followers, in one pass."""
    node, g, space = group.head, group.head.geometry, group.space
    if isinstance(g, CrossEntropy):
        fragment = normalisation_fragments.cross_entropy(g)
    else:
        fragment = normalisation_fragments.sparse_cross_entropy(g)
    if len(group.nodes) == 1:
        _splice(builder, node, fragment)
        return
    rows: Rows = fragment.calls[-1].kernel
    *before, gradients, losses = rows.stages
    composer, program = Composer(), gradients.program
    named = zip(gradients.operands, program.inputs, strict=True)
    gradient, share = composer.apply(program, [composer.operand(*n) for n in named])
    local = {group.result: gradient}
    for follower in group.nodes[1:]:
        builder.compose_node(follower, composer, local, {}, space)
    stored = [v for v in local if builder.is_needed(v, {*group.nodes})]
    program = composer.finish([*(local[v] for v in stored), share])
    more: Any = composer.operands[len(gradients.operands) :]
    inputs = [*rows.inputs, *(Access(o.dtype, o.strides, o.offset) for o in more)]
    outputs = [Access(v.dtype.base_dtype.name, row_major(space.shape)) for v in stored]
    stage = Stage(
        program,
        (*gradients.operands, *(f"x{i}" for i in range(len(rows.inputs), len(inputs)))),
        (*(f"y{i}" for i in range(1, 1 + len(stored))), gradients.results[-1]),
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
    _splice(builder, group.head, normalisation_fragments.local_response(g))


def build_batch_norm(builder: Builder, group: Group) -> None:
    """Batch normalisation and its gradient, of plain or blocked images."""
    node = group.head
    g: BatchNorm = node.geometry
    block = builder.blocked.of(node.outputs[0])
    layout = layout_of(block) if block else None
    images = (0, 1) if g.direction == "gradient" else (0,)
    read = builder.blocks_of if block else builder.whole
    inputs = {i: read(node.inputs[i]) for i in images}
    inputs |= {i: builder.whole(node.inputs[i]) for i in g.operands if i not in images}
    if g.direction == "gradient" or len(group.nodes) == 1:
        outputs = {i: builder.result(v) for i, v in enumerate(node.outputs)}
        builder.splice(normalisation_fragments.batch_norm(g, layout), inputs, outputs, node.name)
        return
    # The followers are computed as the image is normalised, so a map takes the place of the image.
    outputs = {i: builder.result(v) for i, v in enumerate(node.outputs) if i}
    factor = outputs[0] = builder.temporary("float32", g.c, f"{node.name}/factor")
    builder.splice(
        normalisation_fragments.batch_norm_statistics(g, layout), inputs, outputs, node.name
    )
    mean = outputs[1] if g.training else inputs[3]
    space = group.space
    along = (0, block, 0, 0, 1) if block else (0, 0, 0, 1)
    image = builder.operand(node.inputs[0], space)
    vectors = [StridedOperand(b, "float32", along) for b in (mean, factor, inputs[2])]
    composer = Composer()
    given = [composer.operand(image, g.dtype), *(composer.operand(v, "float32") for v in vectors)]
    (y,) = composer.apply(normalisation_fragments.normalise(g.dtype), given)
    composed = builder.compose(group, space, composer, {node.outputs[0]: y})
    operands: list[Any] = list(composer.operands)
    builder.map(space, composed.program, operands, composed.outputs, node.name)


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
    """Return the word that a kernel sets when an index is out of range. In loops and branches no
    check comes before the kernel's, so it is the plan's fault word.
    """
    return fault_word(builder) if builder.is_inside else builder.temporary("int64", 1, "status")


def build_cut(builder: Builder, group: Group) -> None:
    """A slice of an array at computed positions."""
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
    """The check that no divisor of integers is zero."""
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
    kernel = ScanKernel(g.combine, g.outer, g.length, g.inner, g.exclusive, g.reverse, g.dtype)
    x = builder.whole(node.inputs[0])
    builder.call(kernel, [x, builder.result(node.outputs[0])], node.name)


def supports_random(g: Random) -> bool:
    """Return whether kernels draw exactly the op's numbers from operands alone. Generators are
    advanced outside (rewrites), and normal float64 numbers are left to the op, because there is no
    wider type to round their logarithms and angles from.
    """
    return g.source != "own" and (g.dtype != "float64" or g.distribution == "uniform")


def build_random(builder: Builder, group: Group) -> None:
    """Random numbers of a stream, or of the stream that seeds determine."""
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
    """Advance a random generator, which is a variable of three words."""
    node = group.head
    g: Advance = node.geometry
    generator = builder.variable(builder.region.variable(node.inputs[0]), "uint64", 3)
    step = np.array([g.count * SAMPLES_PER_OUTPUT])
    samples = builder.add("constant", "int64", 1, f"{node.name}/samples", value=step)
    buffers = [generator, samples, builder.result(node.outputs[0])]
    builder.call(AdvanceStream(), buffers, node.name)
