"""Build a plan. In: a region and its groups in order. Out: buffers and calls of kernels.

The builder gives a value its buffer when it builds the group that computes the value. The buffer
has the value's layout; the first reader that needs another layout adds a conversion, which later
readers share. Scalars that are known at compile time become part of the programs, other constants
become buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from headrace._src.compile.build.compose import Composer, Ref
from headrace._src.compile.build.in_place import Home, homes_of
from headrace._src.compile.build.strides import broadcast, collapse, is_dense, over, split
from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.kernels.rows.map_kernel import Map
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.plan.plan_writer import PlanWriter
from headrace._src.compile.regions.groups import Group, Space, program_of
from headrace._src.compile.regions.layouts import Blocks, outputs_in_blocks
from headrace._src.compile.regions.region import (
    Region,
    Source,
    constant_of,
    is_constant,
    is_reference,
    operands_of,
)
from headrace._src.compile.run.choose import noting
from headrace._src.core.progress import counted
from headrace._src.devices.target import Target
from headrace._src.graph.dataflow import Node, Value
from headrace._src.lowering.pointwise import Pointwise
from headrace._src.lowering.rules import (
    Elementwise,
    Update,
    View,
    operand_views,
    row_major,
)

__all__ = ["Builder", "Composed", "StridedOperand", "build", "dtype_of"]

GroupBuilder = Callable[["Builder", Group], None]


@dataclass(frozen=True, slots=True)
class StridedOperand:
    """A buffer as a group reads or writes it: strides along the dimensions of its loop."""

    buffer: int
    dtype: str
    strides: tuple[int, ...]
    offset: int = 0


@dataclass
class Composed:
    """A group's element-wise nodes as one program, with its operands and the places of
    its outputs.
    """

    program: Pointwise
    operands: list[StridedOperand] = field(default_factory=list)
    outputs: list[StridedOperand] = field(default_factory=list)


def build(
    region: Region,
    groups: Sequence[Group],
    blocked: Blocks,
    builders: Mapping[str, GroupBuilder],
    target: Target,
    threads: int,
) -> Plan:
    """Make the plan of a region; `builders` add the calls of a group of each kind."""
    builder = Builder(region, blocked, target, threads, builders)
    builder.plan_outputs(groups)
    builder.homes = homes_of(region, groups, blocked | builder._escaping)
    builder.add_groups(groups)
    builder.copy_outputs()
    return builder.finish()


class Builder(PlanWriter):
    """The plan of a region in the making: finds the buffers of values, and adds calls of
    kernels.
    """

    def __init__(
        self,
        region: Region,
        blocked: Blocks,
        target: Target,
        threads: int,
        builders: Mapping[str, GroupBuilder],
        outer: Builder | None = None,
    ) -> None:
        super().__init__(outer)
        self.region = region
        self.blocked = blocked
        self.target = target
        self.threads = threads
        self.lists: dict[Value, Any] = {}  # tensor arrays and stacks, by their handles
        self._builders = builders
        self._places: dict[tuple[Value, bool], int] = {}
        self._variables: dict[int, int] = {}
        self._constants: dict[Any, int] = {} if outer is None else outer._constants
        self._outputs: dict[Value, int] = {}  # base value -> output number
        self.homes: dict[Value, Home] = {}  # values that are computed inside another value's buffer
        self._position = {node: i for i, node in enumerate(region.nodes)}
        self._escaping: set[Value] = set()
        self._kept = outputs_in_blocks(region, blocked)
        self._argmax: dict[Node, int] = {}
        self.packed: dict[Any, int] = {}  # packed matrices that several products share
        self.fetched: list[Value] = []  # the results of a part of a loop or branch

    def add_groups(self, groups: Sequence[Group]) -> None:
        """Add the calls of groups, in order."""
        around = self.group
        for group in counted("choosing kernels", groups):
            self.group = group
            with noting(group.choices):
                self._builders[group.kind](self, group)
        self.group = around

    def inside(self, region: Region, blocked: Blocks) -> Builder:
        """Return a builder for a part of a loop or branch; it adds to this builder's plan."""
        part = Builder(region, blocked, self.target, self.threads, self._builders, self)
        part._escaping = {region.sources[v].base for v in region.outputs}
        return part

    def give(self, value: Value, given: Any) -> None:
        """Bind a value of a part to what the part is given: a buffer (also a variable's)
        or a list.
        """
        if not isinstance(given, int):
            self.lists[value] = given
        elif is_reference(value):
            self._variables[self.region.variable(value)] = given
        else:
            self._places[value, False] = given

    def is_invariant(self, source: Source) -> bool:
        """Return whether a source is invariant in the loop that is being built."""
        return source.view is None and self.stays(self._places.get((source.base, False)))

    # -- Buffers ---------------------------------------------------------------------------------

    def plan_outputs(self, groups: Sequence[Group]) -> None:
        """Choose the results to compute directly in the caller's output arrays: those that leave
        the region whole and in the plain layout, or in blocks for another region.
        """
        made = {v for g in groups for n in (*g.nodes, *g.before) for v in n.outputs}
        made |= {g.copied for g in groups if g.copied is not None}
        for number, value in enumerate(self.region.outputs):
            source = self.region.sources[value]
            base = source.base
            self._escaping.add(base)
            whole = source.view is None or (
                source.view.strides == row_major(source.view.shape)
                and source.view.offset == 0
                and prod(source.view.shape) == prod(base.type.sizes or ())
            )
            if whole and base in made and (base not in self.blocked or value in self._kept):
                self._outputs.setdefault(base, number)

    def copy_outputs(self) -> None:
        """Copy the results that could not be computed in the output arrays."""
        for number, value in enumerate(self.region.outputs):
            if self._outputs.get(self.region.sources[value].base) == number:
                continue
            dtype = dtype_of(value)
            shape = value.type.sizes or ()
            out = self.add("output", dtype, prod(shape), value.name, index=number)
            source = self.region.sources[value]
            in_blocks, plain = (source.base, True), (source.base, False)
            if source.view is None and in_blocks in self._places and plain not in self._places:
                self._convert_into(out, source.base, False)
                continue
            space = Space(shape)
            self.copy(
                self.operand(value, space), StridedOperand(out, dtype, row_major(shape)), space
            )

    def result(self, value: Value) -> int:
        """Return the buffer in which a group computes `value`, in the value's own layout."""
        blocked = value in self.blocked
        key = (value, blocked)
        if key not in self._places:
            dtype, count = dtype_of(value), prod(value.type.sizes or ())
            number, home = self._outputs.get(value), self.homes.get(value)
            if number is not None:
                self._places[key] = self.add("output", dtype, count, value.name, index=number)
            elif home is not None:
                whole, start = self.result(home.whole), home.view.offset
                self._places[key] = self.part(whole, dtype, count, start, value.name)
            else:
                self._places[key] = self.temporary(dtype, count, value.name)
        return self._places[key]

    def argmax(self, pool: Node) -> int:
        """Return the buffer for the positions of a max-pool's maxima, one byte each."""
        if len(pool.outputs) > 1:
            return self.result(pool.outputs[1])
        if pool not in self._argmax:
            count = prod(pool.output_shapes[0])
            self._argmax[pool] = self.temporary("uint8", count, f"{pool.name}/argmax")
        return self._argmax[pool]

    def is_needed(self, value: Value, members: set[Node]) -> bool:
        """Return whether a node outside the group reads the value."""
        if value in self._escaping:
            return True
        return any(n not in members for n in self.region.consumers[value])

    def variable(self, number: int, dtype: str, count: int) -> int:
        """The buffer of a variable."""
        if number not in self._variables:
            self._variables[number] = self.add("variable", dtype, count, index=number)
        return self._variables[number]

    def plain(self, value: Value) -> int:
        """The buffer of a base value in the plain layout."""
        return self._place(value, False)

    def in_blocks(self, value: Value) -> int:
        """The buffer of a whole [N, H, W, C] value in the blocked layout."""
        return self._place(value, True)

    def contiguous(self, value: Value) -> tuple[int, int]:
        """A plain buffer with the value's elements in order, and the offset at which they start."""
        source = self.region.source(value)
        view = source.view
        if view is None:
            return self.plain(source.base), 0
        if view.strides == row_major(view.shape):
            return self.plain(source.base), view.offset
        key = (value, False)
        if key not in self._places:
            shape = value.type.sizes or ()
            buffer = self.temporary(dtype_of(value), prod(shape), value.name)
            self.copy(
                self.operand(value, Space(shape)),
                StridedOperand(buffer, dtype_of(value), row_major(shape)),
                Space(shape),
            )
            self._places[key] = buffer
        return self._places[key], 0

    def whole(self, value: Value) -> int:
        """A plain buffer that starts with the value's elements in order."""
        buffer, offset = self.contiguous(value)
        if not offset:
            return buffer
        key = (value, False)
        if key not in self._places:
            shape = value.type.sizes or ()
            copy = self.temporary(dtype_of(value), prod(shape), value.name)
            source = StridedOperand(buffer, dtype_of(value), row_major(shape), offset)
            self.copy(source, StridedOperand(copy, dtype_of(value), row_major(shape)), Space(shape))
            self._places[key] = copy
        return self._places[key]

    def is_blocked(self, value: Value) -> bool:
        """Whether a value is kept in the blocked layout."""
        source = self.region.source(value)
        return source.view is None and source.base in self.blocked

    def blocks_of(self, value: Value) -> int:
        """A buffer with a [N, H, W, C] value in the blocked layout."""
        source = self.region.source(value)
        if source.view is None:
            return self.in_blocks(source.base)
        key = (value, True)
        if key not in self._places:
            self._places[key] = self._convert(self.operand(value, self._space(value, True)), value)
        return self._places[key]

    def _space(self, value: Value, blocked: bool) -> Space:
        return Space(value.type.sizes or (), self.blocked.size if blocked else 0)

    def _place(self, value: Value, blocked: bool) -> int:
        key = (value, blocked)
        if key in self._places:
            return self._places[key]
        if (value, not blocked) in self._places:  # made in the other layout: convert
            buffer = self.temporary(dtype_of(value), prod(value.type.sizes or ()), value.name)
            return self._convert_into(buffer, value, blocked)
        as_given = value in self.region.in_blocks
        if blocked != as_given:
            self._place(value, as_given)
            return self._place(value, blocked)
        self._places[key] = self._given(value)
        return self._places[key]

    def _convert_into(self, buffer: int, value: Value, blocked: bool) -> int:
        """Make a buffer the place of a value in the layout that it was not made in."""
        space, dtype = self._space(value, True), dtype_of(value)
        dense, spread = row_major(space.extents), split(row_major(space.shape), space.block)
        given, got = (spread, dense) if blocked else (dense, spread)
        source = StridedOperand(self._places[value, not blocked], dtype, given)
        self.copy(source, StridedOperand(buffer, dtype, got), space)
        self._places[value, blocked] = buffer
        return buffer

    def _given(self, value: Value) -> int:
        """The buffer of a value that no group makes: an input, a constant, a variable."""
        dtype, count = dtype_of(value), prod(value.type.sizes or ())
        if value in self.region.reads:
            return self.variable(self.region.reads[value], dtype, count)
        if is_constant(value):
            array = np.ascontiguousarray(constant_of(value))
            key = (dtype, array.shape, array.tobytes())
            if key not in self._constants:
                self._constants[key] = self.add("constant", dtype, count, value.name, value=array)
            return self._constants[key]
        number = self.region.inputs.index(value)
        return self.add("input", dtype, count, value.name, index=number)

    def _convert(self, source: StridedOperand, value: Value) -> int:
        space = self._space(value, True)
        buffer = self.temporary(source.dtype, prod(space.shape), value.name)
        self.copy(source, StridedOperand(buffer, source.dtype, row_major(space.extents)), space)
        return buffer

    def copy(self, source: StridedOperand, destination: StridedOperand, space: Space) -> None:
        program = Pointwise((source.dtype,), (), (0,))
        self.map(space, program, [source], [destination], "copy")

    def copied_source(self, source: Source, value: Value) -> StridedOperand:
        """Return a view as an operand, to copy its elements into a buffer of their own."""
        assert source.view is not None
        buffer = self.plain(source.base)
        return StridedOperand(buffer, dtype_of(value), source.view.strides, source.view.offset)

    # -- Reading in a loop -----------------------------------------------------------------------

    def operand(self, value: Value, space: Space, view: View | None = None) -> StridedOperand:
        """Return the operand that reads a value (or a row-major view of it) in a loop
        over `space`.
        """
        source = self.region.source(value)
        if view is None:
            view = broadcast(value.type.sizes or (), space.shape)
        sizes = value.type.sizes or ()
        direct = source.view is None and source.base in self.blocked
        if direct and space.block and sizes == space.shape and is_dense(view):
            return StridedOperand(
                self.in_blocks(source.base), dtype_of(value), row_major(space.extents)
            )
        buffer = self.plain(source.base)
        strides, offset = view.strides, view.offset
        inner = source.view
        if inner is not None:
            found = over(inner, view, sizes)
            if found is None:
                buffer, offset = self.contiguous(value)
                offset += view.offset
            else:
                strides, offset = found
        return StridedOperand(buffer, dtype_of(value), split(strides, space.block), offset)

    # -- Composing a group's program -------------------------------------------------------------

    def compose(
        self, group: Group, space: Space, composer: Composer, local: dict[Value, Ref]
    ) -> Composed:
        """Compose the group's element-wise nodes behind `local`, the values that are already in
        the program (an anchor's result). The operands returned are those that this added.
        """
        first = len(composer.operands)
        updated: dict[int, tuple[Ref, int]] = {}
        for node in group.nodes:
            if isinstance(node.definition.lower, Elementwise | Update):
                self.compose_node(node, composer, local, updated, space)
        members = {*group.nodes, *group.before}
        dense = row_major(space.extents)
        outputs: list[tuple[Ref, StridedOperand]] = []
        for node in group.nodes:
            for value in node.outputs:
                if value in local and self.is_needed(value, members):
                    outputs.append((local[value], self._destination(value, dense)))
        if group.pool is not None:
            pooled = group.pool.outputs[0]
            last = self.region.source(group.pool.inputs[0]).base
            outputs.append((local[last], StridedOperand(self.result(pooled), dtype_of(pooled), ())))
        for number, (ref, _) in updated.items():
            buffer = self._variables[number]
            outputs.append((ref, StridedOperand(buffer, self.buffers[buffer].dtype, dense)))
        program = composer.finish([ref for ref, _ in outputs])
        operands: Any = composer.operands[first:]
        return Composed(program, list(operands), [place for _, place in outputs])

    def _destination(self, value: Value, strides: tuple[int, ...]) -> StridedOperand:
        """Where a value is stored: in a buffer with these strides, or in rows of another one."""
        home = self.homes.get(value)
        if home is None or home.is_dense:
            return StridedOperand(self.result(value), dtype_of(value), strides)
        return StridedOperand(
            self.result(home.whole), dtype_of(value), home.view.strides, home.view.offset
        )

    def compose_node(
        self,
        node: Node,
        composer: Composer,
        local: dict[Value, Ref],
        updated: dict[int, tuple[Ref, int]],
        space: Space,
    ) -> None:
        rule = node.definition.lower
        inputs: list[Ref] = []
        numbers: list[int] = []
        views: Sequence[View | None]
        if isinstance(rule, Update):
            for i in range(rule.variables):
                found = node.variable_type(i)
                assert found is not None
                number = self.region.variable(node.inputs[i])
                numbers.append(number)
                buffer = self.variable(number, found[0], prod(found[1]))
                if number in updated:
                    inputs.append(updated[number][0])
                else:
                    place = StridedOperand(buffer, found[0], row_major(space.extents))
                    inputs.append(composer.operand(place, found[0]))
            views = [None] * (len(node.inputs) - rule.variables)
        else:
            assert isinstance(rule, Elementwise)
            views = operand_views(rule, node) or ()
        for value, view in zip(operands_of(node), views, strict=True):
            inputs.append(self.input(value, view, composer, local, updated, space))
        outputs = composer.apply(program_of(node), inputs)
        if isinstance(rule, Update):
            for number, ref in zip(numbers, outputs, strict=True):
                updated[number] = (ref, self._position[node])
        else:
            local.update(zip(node.outputs, outputs, strict=True))

    def input(
        self,
        value: Value,
        view: View | None,
        composer: Composer,
        local: dict[Value, Ref],
        updated: dict[int, tuple[Ref, int]],
        space: Space,
    ) -> Ref:
        source = self.region.source(value)
        base = source.base
        if source.view is None and base in local:
            return local[base]
        if source.view is None and base in self.region.reads:
            number = self.region.reads[base]
            if number in updated and updated[number][1] < self._position[base.producer]:  # type: ignore[index]
                return updated[number][0]
        constant = self.scalar_constant(value)
        if constant is not None:
            return composer.constant(constant, dtype_of(value))
        return composer.operand(self.operand(value, space, view), dtype_of(value))

    def scalar_constant(self, value: Value) -> Any:
        """Return the number that all elements of a constant are equal to, or None."""
        base = self.region.source(value).base
        if not is_constant(base):
            return None
        array = constant_of(base)
        if array.size and _is_uniform(array):
            return array.flat[0].item()
        return None

    # -- Kernels ---------------------------------------------------------------------------------

    def map(
        self,
        space: Space,
        program: Pointwise,
        inputs: Sequence[StridedOperand],
        outputs: Sequence[StridedOperand],
        label: str = "",
    ) -> None:
        """Run a pointwise program over a space."""
        if not all(space.extents):
            return
        indexed = any(s.opcode == "index" for s in program.steps)
        extents, strides = space.extents, [o.strides for o in (*inputs, *outputs)]
        if indexed and space.block:
            raise AssertionError("positions are known in plain layouts only")
        if not indexed:
            extents, strides = collapse(extents, strides)
        accesses = [
            Access(o.dtype, s, o.offset) for o, s in zip((*inputs, *outputs), strides, strict=True)
        ]
        kernel = Map(
            extents, program, tuple(accesses[: len(inputs)]), tuple(accesses[len(inputs) :])
        )
        self.call(kernel, [o.buffer for o in (*inputs, *outputs)], label)

    def finish(self) -> Plan:
        """Return the plan, with a buffer for every input of the region."""
        for value in self.region.inputs:
            # The caller passes every input, even one that no kernel reads, such as a pool's result
            # whose gradient finds the maxima itself.
            self._place(value, value in self.region.in_blocks)
        return super().finish()


def dtype_of(value: Value) -> str:
    return value.dtype.base_dtype.name


def _is_uniform(array: np.ndarray) -> bool:
    """Return whether all elements have the same bits: 0.0 and -0.0 are equal but differ in bits."""
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")
    return bool(np.all(bits == bits[0]))
