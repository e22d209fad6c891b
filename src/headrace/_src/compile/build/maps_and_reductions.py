"""Build groups without anchors: maps, copies, joins, reductions. In: a group. Out: calls
in a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from headrace._src.compile.build.compose import Composer, Ref
from headrace._src.compile.build.in_place import Home
from headrace._src.compile.build.plan_builder import Builder, StridedOperand, dtype_of
from headrace._src.compile.build.strides import split
from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.kernels.rows.reduce_kernel import ReduceKernel, follows
from headrace._src.compile.regions.groups import Group, Space, has_fixed_order
from headrace._src.graph.dataflow import Value
from headrace._src.lowering.pointwise import Pointwise
from headrace._src.lowering.rules import Join, assembly_of, reduction_of, row_major

__all__ = ["build_copy", "build_join", "build_map", "build_reduce"]


def build_map(builder: Builder, group: Group) -> None:
    composed = builder.compose(group, group.space, Composer(), {})
    label = " ".join(n.name for n in group.nodes[:4])
    builder.map(group.space, composed.program, composed.operands, composed.outputs, label)


def build_copy(builder: Builder, group: Group) -> None:
    value = group.copied
    assert value is not None
    region, space = builder.region, group.space
    if value in region.copied_reads:
        dtype = dtype_of(value)
        variable = builder.variable(region.reads[value], dtype, prod(space.shape))
        source = StridedOperand(variable, dtype, row_major(space.shape))
    else:
        view = region.copies[value].view
        assert view is not None
        space = Space(view.shape)
        source = builder.copied_source(region.copies[value], value)
    place = StridedOperand(builder.result(value), dtype_of(value), row_major(space.shape))
    builder.copy(source, place, space)


def build_join(builder: Builder, group: Group) -> None:
    node = group.head
    rule = node.definition.lower
    assert isinstance(rule, Join)
    value = node.outputs[0]
    dtype, buffer = dtype_of(value), builder.result(value)
    assembly = assembly_of(rule, node)
    assert assembly is not None
    fill = assembly.fill
    space = Space(group.space.shape, builder.blocked.of(value))
    if fill is not None:
        composer = Composer()
        program = composer.finish([composer.constant(fill, dtype)])
        builder.map(
            space, program, [], [StridedOperand(buffer, dtype, row_major(space.extents))], "fill"
        )
    for number, view in assembly.pieces:
        source = node.inputs[number]
        home = builder.homes.get(builder.region.source(source).base)
        if not prod(view.shape) or home == Home(value, view):
            continue
        piece = Space(view.shape, space.block)
        if space.block:
            _, h, w, _ = space.shape
            place = StridedOperand(buffer, dtype, row_major(space.extents), view.offset * h * w)
        else:
            place = StridedOperand(buffer, dtype, view.strides, view.offset)
        builder.copy(builder.operand(source, piece), place, piece)


@dataclass(frozen=True, slots=True)
class _Terms:
    """The values that a reduction combines: a program over a space, and the axes that go."""

    space: Space
    program: Pointwise
    operands: Sequence[StridedOperand]
    axes: tuple[int, ...]

    @property
    def dims(self) -> tuple[list[int], list[int]]:
        """The dimensions of the loops that are kept, and those that are reduced."""
        gone = [d in self.axes for d in range(len(self.space.shape))]
        flags = [gone[0], gone[3], gone[1], gone[2], gone[3]] if self.space.block else gone
        return [d for d, g in enumerate(flags) if not g], [d for d, g in enumerate(flags) if g]

    @property
    def inputs(self) -> tuple[Access, ...]:
        kept, reduced = self.dims
        return tuple(
            Access(o.dtype, tuple(o.strides[d] for d in (*kept, *reduced)), o.offset)
            for o in self.operands
        )

    @property
    def order(self) -> tuple[int, ...]:
        """The strides of a plain array of these values, along (*kept, *reduced)."""
        kept, reduced = self.dims
        strides = row_major(self.space.shape)
        return tuple(strides[d] for d in (*kept, *reduced))


def _ordered(builder: Builder, terms: _Terms, name: str) -> _Terms:
    """Return terms that a kernel can add in the order of a plain array: these, or a copy."""
    space, program = terms.space, terms.program
    reduced = tuple(space.extents[d] for d in terms.dims[1])
    if not space.block and follows(terms.order, reduced, program, terms.inputs):
        return terms
    (dtype,) = program.output_dtypes
    buffer = builder.temporary(dtype, prod(space.shape), f"{name}/terms")
    place = StridedOperand(buffer, dtype, split(row_major(space.shape), space.block))
    builder.map(space, program, terms.operands, [place], f"{name}/terms")
    copied = StridedOperand(buffer, dtype, row_major(space.shape))
    return _Terms(Space(space.shape), Pointwise((dtype,), (), (0,)), [copied], terms.axes)


def build_reduce(builder: Builder, group: Group) -> None:
    node = group.head
    reduction = reduction_of(node.definition.lower, node)  # type: ignore[arg-type]
    assert reduction is not None
    value = node.inputs[0]
    source = builder.region.source(value)
    block = builder.blocked.of(source.base) if source.view is None else 0
    space = Space(value.type.sizes or (), block)
    composer: Composer = Composer()
    local: dict[Value, Ref] = {}
    for member in group.before:
        builder.compose_node(member, composer, local, {}, space)
    element = builder.input(value, None, composer, local, {}, space)
    before = composer.finish(composer.apply(reduction.before, [element]))
    operands: Any = composer.operands
    terms = _Terms(space, before, operands, reduction.axes)
    fixed = has_fixed_order(reduction.combine, before.output_dtypes[0])
    if fixed:
        terms = _ordered(builder, terms, node.name)
    after = Composer()
    total = after.apply(reduction.after, [after.operand("total", reduction.after.inputs[0])])
    followers = builder.compose(group, group.space, after, {node.outputs[0]: total[0]})

    gone = [d in reduction.axes for d in range(len(space.shape))]
    kept, reduced = terms.dims
    keeps_rank = len(group.space.shape) == len(space.shape)

    def along_kept(o: StridedOperand) -> Access:
        """Something shaped like the result, along the loop's kept dimensions."""
        strides = iter(o.strides)
        logical = [
            (0 if g else next(strides)) if not keeps_rank else s
            for g, s in zip(gone, o.strides if keeps_rank else gone, strict=True)
        ]
        physical = split(tuple(logical), terms.space.block)
        return Access(o.dtype, tuple(physical[d] for d in kept), o.offset)

    extents = terms.space.extents
    kernel = ReduceKernel(
        kept=tuple(extents[d] for d in kept),
        reduced=tuple(extents[d] for d in reduced),
        before=terms.program,
        combines=(reduction.combine,),
        after=followers.program,
        inputs=terms.inputs,
        operands=tuple(map(along_kept, followers.operands)),
        outputs=tuple(map(along_kept, followers.outputs)),
        order=terms.order if fixed else (),
    )
    buffers = [o.buffer for o in (*terms.operands, *followers.operands, *followers.outputs)]
    builder.call(kernel, buffers, node.name)
