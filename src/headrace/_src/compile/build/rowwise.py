"""Build groups over rows. In: element-wise nodes and reductions along the last dimension. Out: one
Rows kernel, which computes all of them while a row is in cache.

Values of a row have levels: a value that needs no reduction of the group is at level 0; a value
that needs the result of a reduction at level n is at level n + 1. Each level is a stage of the
kernel. Between two levels, another stage computes the values that exist once per row. Values of
earlier levels that a later one needs are kept in the row's scratch memory.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from headrace._src.compile.build.compose import Composer, Ref
from headrace._src.compile.build.plan_builder import Builder, StridedOperand
from headrace._src.compile.build.strides import collapse
from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.kernels.rows.rows_kernel import Rows, Stage
from headrace._src.compile.regions.groups import Group, Space, program_of
from headrace._src.compile.regions.region import operands_of
from headrace._src.graph.dataflow import Node, Value
from headrace._src.lowering.rules import Elementwise, Reduce, operand_views, reduction_of, row_major

__all__ = ["build_rows"]


def build_rows(builder: Builder, group: Group) -> None:
    """Add the call of a group over rows."""
    _RowBuilder(builder, group).build()


@dataclass
class _Level:
    """The nodes of one level: those along the row, its reductions, and those once per row."""

    along: list[Node] = field(default_factory=list)
    reductions: list[Node] = field(default_factory=list)
    totals: list[Node] = field(default_factory=list)
    once: list[Node] = field(default_factory=list)


class _RowBuilder:
    def __init__(self, builder: Builder, group: Group) -> None:
        self.builder = builder
        self.group = group
        self.space = group.space
        self.members = set(group.nodes)
        self.rows = prod(self.space.shape[:-1])
        self.level: dict[Value, int] = {}  # of values along the row; of those per row, the next
        self.along: set[Value] = set()
        self.inputs: list[StridedOperand] = []
        self.outputs: list[StridedOperand] = []
        self.kept: dict[Value, str] = {}
        self.scalars: dict[Value, str] = {}
        self.stages: list[Stage] = []

    def build(self) -> None:
        levels = self._levels()
        wanted = self._wanted_later(levels)
        for number in range(max(levels) + 1):
            level = levels[number]
            totals = self._stage_along(level, wanted)
            self._stage_once(level, totals)
        outer, inner = self.space.shape[:-1], self.space.shape[-1]
        arrays = [*self.inputs, *self.outputs]
        extents, strides = collapse(outer, [o.strides[:-1] for o in arrays])
        accesses = [
            Access(o.dtype, (*s, o.strides[-1]), o.offset)
            for o, s in zip(arrays, strides, strict=True)
        ]
        count = len(self.inputs)
        kernel = Rows(
            extents, inner, tuple(self.stages), tuple(accesses[:count]), tuple(accesses[count:])
        )
        label = " ".join(n.name for n in self.group.nodes[:3])
        self.builder.call(kernel, [o.buffer for o in arrays], label)

    # -- Levels ----------------------------------------------------------------------------------

    def _base(self, value: Value) -> Value:
        return self.builder.region.source(value).base

    def _levels(self) -> dict[int, _Level]:
        levels: dict[int, _Level] = defaultdict(_Level)
        for node in self.group.nodes:
            known = [self.level.get(self._base(v), 0) for v in operands_of(node)]
            at = max(known, default=0)
            result = node.outputs[0]
            if isinstance(node.definition.lower, Reduce):
                if _is_total(node):
                    levels[at].totals.append(node)
                else:
                    levels[at].reductions.append(node)
                    self.level[result] = at + 1
            elif result.type.sizes == self.space.shape:
                levels[at].along.append(node)
                self.along.add(result)
                self.level[result] = at
            else:
                levels[max(at - 1, 0)].once.append(node)
                self.level[result] = max(at, 1)
        return levels

    def _wanted_later(self, levels: dict[int, _Level]) -> set[Value]:
        """The values along the row that a later level reads."""
        wanted = set()
        for number, level in levels.items():
            for node in (*level.along, *level.reductions, *level.totals):
                for value in operands_of(node):
                    base = self._base(value)
                    if base in self.along and self.level[base] < number:
                        wanted.add(base)
        return wanted

    # -- Stages ----------------------------------------------------------------------------------

    def _stage_along(self, level: _Level, wanted: set[Value]) -> list[tuple[Node, str]]:
        """The level's pass over the row; returns its reductions with their scalars' names."""
        composer, local = Composer(), {}
        for node in level.along:
            rule = node.definition.lower
            assert isinstance(rule, Elementwise)
            views = operand_views(rule, node) or ()
            inputs = [
                self._operand(v, composer, local, self.space, view)
                for v, view in zip(operands_of(node), views, strict=True)
            ]
            local.update(zip(node.outputs, composer.apply(program_of(node), inputs), strict=True))
        refs: list[Ref] = []
        results: list[str] = []
        for node in level.along:
            for value in node.outputs:
                if self.builder.is_needed(value, self.members):
                    refs.append(local[value])
                    results.append(self._store(value, row_major(self.space.shape)))
                if value in wanted:
                    self.kept[value] = f"row{len(self.kept)}"
                    refs.append(local[value])
                    results.append(self.kept[value])
        found = []
        for node in (*level.reductions, *level.totals):
            reduction = reduction_of(node.definition.lower, node)  # type: ignore[arg-type]
            assert reduction is not None
            element = self._operand(node.inputs[0], composer, local, self.space, None)
            refs += composer.apply(reduction.before, [element])
            if node in level.totals:
                strides = (0,) * (len(self.space.shape) - 1) + (1,)
                results.append(f"total {self._store(node.outputs[0], strides)}")
                continue
            name = self._scalar()
            found.append((node, name))
            results.append(f"{reduction.combine} {name}")
        self._add(composer, refs, results, scalar=False)
        return found

    def _stage_once(self, level: _Level, totals: list[tuple[Node, str]]) -> None:
        """Return the stage of the values that are computed once per row after a level."""
        composer, local = Composer(), {}
        for node, name in totals:
            reduction = reduction_of(node.definition.lower, node)  # type: ignore[arg-type]
            assert reduction is not None
            raw = composer.operand(name, reduction.after.inputs[0])
            (local[node.outputs[0]],) = composer.apply(reduction.after, [raw])
        for node in level.once:
            space = Space(node.output_shapes[0])
            inputs = [self._operand(v, composer, local, space, None) for v in operands_of(node)]
            local.update(zip(node.outputs, composer.apply(program_of(node), inputs), strict=True))
        refs: list[Ref] = []
        results: list[str] = []
        for value, ref in local.items():
            if self.builder.is_needed(value, self.members):
                strides = (*row_major(self.space.shape[:-1]), 0)
                refs.append(ref)
                results.append(self._store(value, strides))
            self.scalars[value] = self._scalar()
            refs.append(ref)
            results.append(self.scalars[value])
        self._add(composer, refs, results, scalar=True)

    def _add(self, composer: Composer, refs: list[Ref], results: list[str], scalar: bool) -> None:
        if not refs:
            return
        program = composer.finish(refs)
        operands: Any = composer.operands
        self.stages.append(Stage(program, tuple(operands), tuple(results), scalar))

    def _operand(
        self, value: Value, composer: Composer, local: dict[Value, Ref], space: Space, view: Any
    ) -> Ref:
        base = self._base(value)
        if base in local:
            return local[base]
        dtype = value.dtype.base_dtype.name
        if base in self.kept:
            return composer.operand(self.kept[base], dtype)
        if base in self.scalars:
            return composer.operand(self.scalars[base], dtype)
        constant = self.builder.scalar_constant(value)
        if constant is not None:
            return composer.constant(constant, dtype)
        operand = self.builder.operand(value, space, view)
        if len(space.shape) < len(self.space.shape):  # of a node that has no dimension for the row
            operand = replace(operand, strides=(*operand.strides, 0))
        if operand not in self.inputs:
            self.inputs.append(operand)
        return composer.operand(f"x{self.inputs.index(operand)}", dtype)

    def _store(self, value: Value, strides: tuple[int, ...]) -> str:
        dtype = value.dtype.base_dtype.name
        self.outputs.append(StridedOperand(self.builder.result(value), dtype, strides))
        return f"y{len(self.outputs) - 1}"

    def _scalar(self) -> str:
        self._scalars = getattr(self, "_scalars", -1) + 1
        return f"s{self._scalars}"


def _is_total(node: Node) -> bool:
    """Whether a reduction is over all rows."""
    reduction = reduction_of(node.definition.lower, node)  # type: ignore[arg-type]
    rank = len(node.input_shapes[0])
    return reduction is not None and reduction.axes == tuple(range(rank - 1))
