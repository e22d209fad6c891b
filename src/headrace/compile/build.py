"""Build a plan. In: a region and its groups in order. Out: buffers and calls of kernels.

Values are realised as buffers when the group that makes them is built, in the layout that they were
given; whoever wants another layout gets a conversion, made once. Scalars that are known at compile
time are part of the programs, other constants are buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from headrace.compile.barriers import with_barriers
from headrace.compile.compose import Composer, Ref
from headrace.compile.fuse import Group, Space, program_of
from headrace.compile.kernels.maps import Map
from headrace.compile.kernels.reductions import Reduce as ReduceKernel
from headrace.compile.memory import Lifetime, pack
from headrace.compile.plan import Buffer, Call, Jump, Plan
from headrace.compile.region import (
    BLOCK,
    Region,
    Source,
    constant_of,
    is_constant,
    is_reference,
    operands_of,
)
from headrace.compile.spaces import Access
from headrace.compile.target import SIZES, Target
from headrace.graph.dataflow import Node, Value
from headrace.graph.lowering import (
    Elementwise,
    Join,
    Update,
    View,
    assembly_of,
    operand_views,
    reduction_of,
    row_major,
)
from headrace.graph.pointwise import Pointwise

__all__ = ["Builder", "Composed", "Operand", "build"]

AnchorBuilder = Callable[["Builder", Group], None]


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer as a group reads or writes it: strides along the dimensions of its loop."""

    buffer: int
    dtype: str
    strides: tuple[int, ...]
    offset: int = 0


@dataclass
class Composed:
    """A group's element-wise nodes composed: the program, its operands, where its outputs go."""

    program: Pointwise
    operands: list[Operand] = field(default_factory=list)
    outputs: list[Operand] = field(default_factory=list)


@dataclass
class Loop:
    """Calls [start, end) that run again and again. `early`: what it needs once, before."""

    start: int
    invariants: frozenset[int]
    trips: int | None
    around: Loop | None
    end: int = -1
    early: list[Call] = field(default_factory=list)


def build(
    region: Region,
    groups: Sequence[Group],
    blocked: set[Value],
    anchors: dict[str, AnchorBuilder],
    target: Target,
    threads: int,
) -> Plan:
    """Make the plan of a region."""
    builder = Builder(region, blocked, target, threads, anchors)
    builder.plan_outputs(groups)
    builder.add_groups(groups)
    builder.copy_outputs()
    return builder.finish()


class Builder:
    """Buffers and calls in the making."""

    def __init__(
        self,
        region: Region,
        blocked: set[Value],
        target: Target,
        threads: int,
        anchors: dict[str, AnchorBuilder],
    ) -> None:
        self.region = region
        self.blocked = blocked
        self.target = target
        self.threads = threads
        self.anchors = anchors
        self.buffers: list[Buffer] = []
        self.calls: list[Call] = []
        self.start: list[Call] = []  # what runs before all else
        self.lists: dict[Value, Any] = {}  # tensor arrays and stacks, by their handles
        self.fault: int | None = None
        self.kept: set[int] = set()  # buffers whose contents go from one iteration to the next
        self._outer: Builder | None = None
        self.loops: list[Loop] = []  # those that have ended
        self.around: Loop | None = None  # the innermost that has not
        self._places: dict[tuple[Value, bool], int] = {}
        self._variables: dict[int, int] = {}
        self._constants: dict[Any, int] = {}
        self._outputs: dict[Value, int] = {}  # base value -> output number
        self._position = {node: i for i, node in enumerate(region.nodes)}
        self._escaping: set[Value] = set()
        self._argmax: dict[Node, int] = {}
        self.packed: dict[Any, int] = {}  # matrices that many products share, packed for them

    def add_groups(self, groups: Sequence[Group]) -> None:
        """Add the calls of groups, in order."""
        for group in groups:
            (self.anchors.get(group.kind) or _BUILDERS[group.kind])(self, group)

    # -- Loops and branches ------------------------------------------------------------------------

    def inside(self, region: Region, blocked: set[Value]) -> Builder:
        """A builder for a part of a loop or branch, which adds to this one's plan."""
        part = Builder(region, blocked, self.target, self.threads, self.anchors)
        part.buffers, part.calls, part.loops = self.buffers, self.calls, self.loops
        part.around, part.start, part.kept = self.around, self.start, self.kept
        part.fault, part._outer = self.fault, self
        part._constants = self._constants
        part._escaping = {region.sources[v].base for v in region.outputs}
        return part

    @property
    def is_inside(self) -> bool:
        """Whether what is built is a part of a loop or branch."""
        return self._outer is not None

    def give(self, value: Value, given: Any) -> None:
        """Say what a part is given for a value: a buffer, also that of a variable, or a list."""
        if not isinstance(given, int):
            self.lists[value] = given
        elif is_reference(value):
            self._variables[self.region.variable(value)] = given
        else:
            self._places[value, False] = given

    def jump(self, flag: int | None = None, target: int = -1) -> int:
        """Go on elsewhere, if there is a flag only when it's false; the number of the jump."""
        buffers = () if flag is None else (flag,)
        self.calls.append(Call(Jump(target, flag is not None), buffers))
        return len(self.calls) - 1

    def land(self, jump: int) -> None:
        """Let a jump lead to what comes next."""
        call = self.calls[jump]
        self.calls[jump] = replace(call, kernel=replace(call.kernel, target=len(self.calls)))

    def set_fault(self, buffer: int) -> None:
        """Let a word end the step when a kernel sets it."""
        self.fault = buffer
        if self._outer is not None:
            self._outer.set_fault(buffer)

    @contextmanager
    def at_start(self) -> Iterator[None]:
        """What is added inside the with-block runs before all else."""
        calls, self.calls = self.calls, self.start
        try:
            yield
        finally:
            self.calls = calls

    def trips(self) -> int | None:
        """How often what is added now runs at most, in all loops around it together; None if that
        isn't known.
        """
        count, loop = 1, self.around
        while loop is not None:
            if loop.trips is None:
                return None
            count, loop = count * max(1, loop.trips), loop.around
        return count

    @contextmanager
    def loop(self, invariants: Sequence[int], trips: int | None = None) -> Iterator[int]:
        """What is added inside the with-block runs again and again, `trips` times if that is known;
        `invariants` are buffers that don't change meanwhile. Yields the number of its first call.
        """
        outer = self.around
        loop = Loop(len(self.calls), frozenset(invariants), trips, outer)
        self.around = loop
        yield loop.start
        self.around = outer
        loop.end = len(self.calls)
        self.loops.append(loop)
        if loop.early:
            self._insert(loop)

    def is_invariant(self, source: Source) -> bool:
        """Whether a source is the same in all iterations of the loop that is being built."""
        place = self._places.get((source.base, False))
        return self.around is not None and source.view is None and place in self.around.invariants

    def early(self, kernel: Any, buffers: Sequence[int], reads: int, label: str) -> bool:
        """Run a kernel before the innermost loop begins, if what it reads doesn't change in it;
        returns whether that is so.
        """
        loop = self.around
        if loop is None or reads not in loop.invariants:
            return False
        loop.early.append(Call(kernel, tuple(buffers), label))
        return True

    def _insert(self, loop: Loop) -> None:
        """Put what a loop needs once before its first call."""
        count, start = len(loop.early), loop.start
        for i, call in enumerate(self.calls):
            if isinstance(call.kernel, Jump) and call.kernel.target >= start and i >= start:
                moved = replace(call.kernel, target=call.kernel.target + count)
                self.calls[i] = replace(call, kernel=moved)
        self.calls[start:start] = loop.early
        for other in self.loops:
            if other.start >= start:
                other.start += count
            other.end += count if other.end > start else 0

    # -- Buffers ---------------------------------------------------------------------------------

    def add(self, kind: str, dtype: str, count: int, label: str = "", **more: Any) -> int:
        """A new buffer of `count` elements."""
        size = max(1, count) * SIZES[dtype]
        self.buffers.append(Buffer(kind, dtype, size, label=label, **more))
        return len(self.buffers) - 1

    def call(self, kernel: Any, buffers: Sequence[int], label: str = "") -> None:
        """Run a kernel next."""
        if len(kernel.arguments) != len(buffers):
            raise AssertionError(f"{kernel} takes {kernel.arguments}, not {len(buffers)} buffers")
        self.calls.append(Call(kernel, tuple(buffers), label))

    def temporary(self, dtype: str, count: int, label: str = "") -> int:
        """A buffer in the arena."""
        return self.add("arena", dtype, count, label)

    def growing(self, dtype: str, inner: int, label: str = "") -> int:
        """The buffer of a list that may have any number of rows of `inner` elements."""
        return self.add("list", dtype, inner, label, index=len(self.buffers))

    def plan_outputs(self, groups: Sequence[Group]) -> None:
        """Results that leave the region whole and plain are made where the caller gets them."""
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
            if whole and base in made and base not in self.blocked:
                self._outputs.setdefault(base, number)

    def copy_outputs(self) -> None:
        """Copy what could not be made in place."""
        for number, value in enumerate(self.region.outputs):
            if self._outputs.get(self.region.sources[value].base) == number:
                continue
            dtype = _dtype(value)
            shape = value.type.sizes or ()
            out = self.add("output", dtype, prod(shape), value.name, index=number)
            space = Space(shape)
            self.copy(self.operand(value, space), Operand(out, dtype, row_major(shape)), space)

    def result(self, value: Value) -> int:
        """The buffer in which a group makes `value`, in its own layout."""
        blocked = value in self.blocked
        key = (value, blocked)
        if key not in self._places:
            dtype, count = _dtype(value), prod(value.type.sizes or ())
            number = self._outputs.get(value)
            if number is not None:
                self._places[key] = self.add("output", dtype, count, value.name, index=number)
            else:
                self._places[key] = self.temporary(dtype, count, value.name)
        return self._places[key]

    def argmax(self, pool: Node) -> int:
        """The buffer in which a max-pool keeps where its maxima were, a byte each."""
        if pool not in self._argmax:
            count = prod(pool.output_shapes[0])
            self._argmax[pool] = self.temporary("uint8", count, f"{pool.name}/argmax")
        return self._argmax[pool]

    def is_needed(self, value: Value, members: set[Node]) -> bool:
        """Whether anyone outside of a group reads the value."""
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
            buffer = self.temporary(_dtype(value), prod(shape), value.name)
            self.copy(
                self.operand(value, Space(shape)),
                Operand(buffer, _dtype(value), row_major(shape)),
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
            copy = self.temporary(_dtype(value), prod(shape), value.name)
            source = Operand(buffer, _dtype(value), row_major(shape), offset)
            self.copy(source, Operand(copy, _dtype(value), row_major(shape)), Space(shape))
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
        return Space(value.type.sizes or (), blocked)

    def _place(self, value: Value, blocked: bool) -> int:
        key = (value, blocked)
        if key in self._places:
            return self._places[key]
        if (value, not blocked) in self._places:  # made in the other layout: convert
            space = self._space(value, True)
            other = self._places[value, not blocked]
            dtype = _dtype(value)
            buffer = self.temporary(dtype, prod(space.shape), value.name)
            dense = row_major(space.extents)
            spread = _split(row_major(space.shape))
            given, got = (spread, dense) if blocked else (dense, spread)
            self.copy(Operand(other, dtype, given), Operand(buffer, dtype, got), space)
            self._places[key] = buffer
            return buffer
        if blocked:
            self._place(value, False)
            return self._place(value, True)
        self._places[key] = self._given(value)
        return self._places[key]

    def _given(self, value: Value) -> int:
        """The buffer of a value that no group makes: an input, a constant, a variable."""
        dtype, count = _dtype(value), prod(value.type.sizes or ())
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

    def _convert(self, source: Operand, value: Value) -> int:
        space = self._space(value, True)
        buffer = self.temporary(source.dtype, prod(space.shape), value.name)
        self.copy(source, Operand(buffer, source.dtype, row_major(space.extents)), space)
        return buffer

    def copy(self, source: Operand, destination: Operand, space: Space) -> None:
        program = Pointwise((source.dtype,), (), (0,))
        self.map(space, program, [source], [destination], "copy")

    def copied_source(self, source: Source, value: Value) -> Operand:
        """A view as it is read to be copied together."""
        assert source.view is not None
        buffer = self.plain(source.base)
        return Operand(buffer, _dtype(value), source.view.strides, source.view.offset)

    # -- Reading in a loop -----------------------------------------------------------------------

    def operand(self, value: Value, space: Space, view: View | None = None) -> Operand:
        """How a value (or a row-major view of it) is read in a loop over `space`."""
        source = self.region.source(value)
        if view is None:
            view = _broadcast(value.type.sizes or (), space.shape)
        sizes = value.type.sizes or ()
        direct = source.view is None and source.base in self.blocked
        if direct and space.blocked and sizes == space.shape and view.strides == row_major(sizes):
            return Operand(self.in_blocks(source.base), _dtype(value), row_major(space.extents))
        buffer = self.plain(source.base)
        strides, offset = view.strides, view.offset
        inner = source.view
        if inner is not None:
            found = _over(inner, view, sizes)
            if found is None:
                buffer, offset = self.contiguous(value)
                offset += view.offset
            else:
                strides, offset = found
        return Operand(buffer, _dtype(value), _split(strides) if space.blocked else strides, offset)

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
        outputs: list[tuple[Ref, Operand]] = []
        for node in group.nodes:
            for value in node.outputs:
                if value in local and self.is_needed(value, members):
                    place = Operand(self.result(value), _dtype(value), dense)
                    outputs.append((local[value], place))
        if group.pool is not None:
            pooled = group.pool.outputs[0]
            last = self.region.source(group.pool.inputs[0]).base
            outputs.append((local[last], Operand(self.result(pooled), _dtype(pooled), ())))
        for number, (ref, _) in updated.items():
            buffer = self._variables[number]
            outputs.append((ref, Operand(buffer, self.buffers[buffer].dtype, dense)))
        program = composer.finish([ref for ref, _ in outputs])
        operands: Any = composer.operands[first:]
        return Composed(program, list(operands), [place for _, place in outputs])

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
                    place = Operand(buffer, found[0], row_major(space.extents))
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
            return composer.constant(constant, _dtype(value))
        return composer.operand(self.operand(value, space, view), _dtype(value))

    def scalar_constant(self, value: Value) -> Any:
        """The number that all elements of a constant are; None for everything else."""
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
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        label: str = "",
    ) -> None:
        """Run a pointwise program over a space."""
        if not all(space.extents):
            return
        indexed = any(s.opcode == "index" for s in program.steps)
        extents, strides = space.extents, [o.strides for o in (*inputs, *outputs)]
        if indexed and space.blocked:
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
        """Place the arena's buffers by their lifetimes."""
        if self.start:
            self._insert(Loop(0, frozenset(), 1, None, early=self.start))
        if self.fault is not None:
            self.land(self.jump())  # where a fault of the last calls is seen
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for i, call in enumerate(self.calls):
            for b in call.buffers:
                first.setdefault(b, i)
                last[b] = i
        if self.fault is not None:
            last[self.fault] = len(self.calls) - 1
        for loop in self.loops:  # what comes in is needed in every iteration, what goes out too
            for b in {b for call in self.calls[loop.start : loop.end] for b in call.buffers}:
                kept = b in self.kept
                if kept or first[b] < loop.start:
                    last[b] = max(last[b], loop.end - 1)
                if kept or last[b] >= loop.end:
                    first[b] = min(first[b], loop.start)
        arena = [i for i, b in enumerate(self.buffers) if b.kind == "arena" and i in first]
        offsets, total = pack([Lifetime(self.buffers[i].size, first[i], last[i]) for i in arena])
        for i, offset in zip(arena, offsets, strict=True):
            self.buffers[i] = replace(self.buffers[i], offset=offset)
        calls = with_barriers(self.calls, self.buffers)
        return Plan(tuple(self.buffers), tuple(calls), total, self.fault)


# -- Groups without anchors ------------------------------------------------------------------------


def _build_map(builder: Builder, group: Group) -> None:
    composed = builder.compose(group, group.space, Composer(), {})
    label = " ".join(n.name for n in group.nodes[:4])
    builder.map(group.space, composed.program, composed.operands, composed.outputs, label)


def _build_copy(builder: Builder, group: Group) -> None:
    value = group.copied
    assert value is not None
    region, space = builder.region, group.space
    if value in region.copied_reads:
        dtype = _dtype(value)
        variable = builder.variable(region.reads[value], dtype, prod(space.shape))
        source = Operand(variable, dtype, row_major(space.shape))
    else:
        view = region.copies[value].view
        assert view is not None
        space = Space(view.shape)
        source = builder.copied_source(region.copies[value], value)
    place = Operand(builder.result(value), _dtype(value), row_major(space.shape))
    builder.copy(source, place, space)


def _build_join(builder: Builder, group: Group) -> None:
    node = group.head
    rule = node.definition.lower
    assert isinstance(rule, Join)
    value = node.outputs[0]
    dtype, buffer = _dtype(value), builder.result(value)
    assembly = assembly_of(rule, node)
    assert assembly is not None
    fill = assembly.fill
    space = Space(group.space.shape, value in builder.blocked)
    if fill is not None:
        composer = Composer()
        program = composer.finish([composer.constant(fill, dtype)])
        builder.map(space, program, [], [Operand(buffer, dtype, row_major(space.extents))], "fill")
    for number, view in assembly.pieces:
        source = node.inputs[number]
        if not prod(view.shape):
            continue
        piece = Space(view.shape, space.blocked)
        if space.blocked:
            _, h, w, _ = space.shape
            place = Operand(buffer, dtype, row_major(space.extents), view.offset * h * w)
        else:
            place = Operand(buffer, dtype, view.strides, view.offset)
        builder.copy(builder.operand(source, piece), place, piece)


def _build_reduce(builder: Builder, group: Group) -> None:
    node = group.head
    reduction = reduction_of(node.definition.lower, node)  # type: ignore[arg-type]
    assert reduction is not None
    value = node.inputs[0]
    source = builder.region.source(value)
    blocked = source.view is None and source.base in builder.blocked
    space = Space(value.type.sizes or (), blocked)
    composer: Composer = Composer()
    local: dict[Value, Ref] = {}
    for member in group.before:
        builder.compose_node(member, composer, local, {}, space)
    element = builder.input(value, None, composer, local, {}, space)
    before = composer.finish(composer.apply(reduction.before, [element]))
    operands: Any = composer.operands
    after = Composer()
    total = after.apply(reduction.after, [after.operand("total", reduction.after.inputs[0])])
    followers = builder.compose(group, group.space, after, {node.outputs[0]: total[0]})

    gone = [d in reduction.axes for d in range(len(space.shape))]
    flags = [gone[0], gone[3], gone[1], gone[2], gone[3]] if blocked else gone
    kept = [d for d, is_gone in enumerate(flags) if not is_gone]
    reduced = [d for d, is_gone in enumerate(flags) if is_gone]
    keeps_rank = len(group.space.shape) == len(space.shape)

    def along_kept(o: Operand) -> Access:
        """Something shaped like the result, along the loop's kept dimensions."""
        strides = iter(o.strides)
        logical = [
            (0 if g else next(strides)) if not keeps_rank else s
            for g, s in zip(gone, o.strides if keeps_rank else gone, strict=True)
        ]
        physical = _split(tuple(logical)) if blocked else logical
        return Access(o.dtype, tuple(physical[d] for d in kept), o.offset)

    extents = space.extents
    kernel = ReduceKernel(
        kept=tuple(extents[d] for d in kept),
        reduced=tuple(extents[d] for d in reduced),
        before=before,
        combines=(reduction.combine,),
        after=followers.program,
        inputs=tuple(
            Access(o.dtype, tuple(o.strides[d] for d in (*kept, *reduced)), o.offset)
            for o in operands
        ),
        operands=tuple(map(along_kept, followers.operands)),
        outputs=tuple(map(along_kept, followers.outputs)),
    )
    buffers = [o.buffer for o in (*operands, *followers.operands, *followers.outputs)]
    builder.call(kernel, buffers, node.name)


_BUILDERS: dict[str, Callable[[Builder, Group], None]] = {
    "map": _build_map,
    "copy": _build_copy,
    "join": _build_join,
    "reduce": _build_reduce,
}


# -- Strides ---------------------------------------------------------------------------------------


def _dtype(value: Value) -> str:
    return value.dtype.base_dtype.name


def _is_uniform(array: np.ndarray) -> bool:
    """Whether all elements have the same bits: 0.0 and -0.0 are equal, yet not the same."""
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")
    return bool(np.all(bits == bits[0]))


def _split(strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides along [N, H, W, C] as strides along [N, C/16, H, W, 16]."""
    n, h, w, c = strides
    return (n, c * BLOCK, h, w, c)


def _broadcast(sizes: tuple[int, ...], to: tuple[int, ...]) -> View:
    front = len(to) - len(sizes)
    strides = [0 if n == 1 else s for n, s in zip(sizes, row_major(sizes), strict=True)]
    return View(to, (0,) * front + tuple(strides))


def _over(inner: View, outer: View, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], int] | None:
    """The strides and offset of `outer`, a view of the row-major copy of `inner`, in `inner`'s own
    memory; None where that isn't affine. Broadcasts (strides of a row-major array, or 0) are.
    """
    if inner.strides == row_major(inner.shape):
        return outer.strides, outer.offset + inner.offset
    dense = {s: d for d, (s, n) in enumerate(zip(row_major(sizes), sizes, strict=True)) if n > 1}
    strides = []
    for extent, stride in zip(outer.shape, outer.strides, strict=True):
        if stride == 0 or extent == 1:
            strides.append(0)
        elif stride in dense and extent <= sizes[dense[stride]]:
            strides.append(inner.strides[dense[stride]])
        else:
            return None
    return (tuple(strides), inner.offset) if outer.offset == 0 else None


def collapse(
    extents: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge neighbouring dimensions that every operand walks through without a jump; drop those of
    extent 1. Fewer loops, and more shapes that share a kernel.
    """
    dims = [d for d, n in enumerate(extents) if n != 1]
    if not dims:
        return (1,), [(0,) for _ in strides]
    merged: list[list[int]] = []  # [extent, stride of each operand...]
    for d in dims:
        steps = [s[d] for s in strides]
        if merged and all(
            outer == extents[d] * step for outer, step in zip(merged[-1][1:], steps, strict=True)
        ):
            merged[-1] = [merged[-1][0] * extents[d], *steps]
        else:
            merged.append([extents[d], *steps])
    columns = [tuple(m[i + 1] for m in merged) for i in range(len(strides))]
    return tuple(m[0] for m in merged), columns
