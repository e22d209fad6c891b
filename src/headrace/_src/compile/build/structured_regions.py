"""Build loops and branches. In: a group whose head is a WHILE or an IF. Out: the calls of its
parts, with jumps between them.

A part is built like a region of its own, with the buffers and calls of the plan around it: its
inputs and results are buffers. Each loop variable has one buffer for the whole loop. An iteration
computes its next value in place if nothing reads the old one afterwards; otherwise in another
buffer, which is copied at the end of the iteration. Invariants of a loop, such as a matrix packed
for its products, are computed before it begins (see PlanWriter.early).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from headrace._src.compile.build.plan_builder import Builder, StridedOperand
from headrace._src.compile.build.tensor_list_buffers import ListBuffers, cursor, pushes
from headrace._src.compile.codegen.kernel_spec import reads_in_place
from headrace._src.compile.kernels.anchor_kind import AnchorKind, Family
from headrace._src.compile.kernels.rows.map_kernel import Map
from headrace._src.compile.plan.plan import Call
from headrace._src.compile.regions.fuse import fuse
from headrace._src.compile.regions.groups import Group, Space
from headrace._src.compile.regions.layouts import blocked_values
from headrace._src.compile.regions.region import Region, is_reference, writes_of
from headrace._src.graph.dataflow import Dataflow, Value, is_local, variable_type
from headrace._src.graph.structured import is_undefined
from headrace._src.lowering.rules import row_major
from headrace._src.lowering.trip_count import trip_count

__all__ = ["KINDS"]


@dataclass(frozen=True, slots=True)
class _Place:
    """A buffer that holds a value of some shape, in order."""

    buffer: int
    value: Value

    def operand(self) -> StridedOperand:
        return StridedOperand(self.buffer, self.value.dtype.base_dtype.name, row_major(self.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.type.sizes or ()


def _build_while(builder: Builder, group: Group) -> None:
    """Set the variables; while the condition holds, run the body and set them again."""
    node = group.head
    cond, body, results = (node.attrs[k] for k in ("cond", "body", "results"))
    count = len(body.fetches)
    leaving = dict(zip(results, node.outputs, strict=True))
    given: list[int | ListBuffers] = []
    variables: dict[int, _Place] = {}
    for i, value in enumerate(node.inputs[:count]):
        if is_local(value):  # a list has the same buffers in all iterations
            rows = cursor(builder, value)
            given.append(rows)
            if i in leaving:
                builder.lists[leaving[i]] = rows
        else:
            place = builder.result(leaving[i]) if i in leaving else _temporary(builder, value)
            variables[i] = _Place(place, value)
            _copy(builder, builder.whole(value), variables[i])
            given.append(place)
    invariants = [_given(builder, v) for v in node.inputs[count:]]
    trips = trip_count(node) if pushes(body) else None
    written = [_given(builder, v) for v in writes_of(node)]
    same = [b for b in invariants if isinstance(b, int) and b not in written]
    with builder.loop(same, trips) as start:
        (flag,) = _splice(builder, cond, [*given, *invariants])
        assert flag is not None
        leave = builder.jump(flag)
        first = len(builder.calls)
        made = _splice(builder, body, [*given, *invariants])
        places = list(variables.values())
        following = _in_place(builder, first, places, [made[i] for i in variables])
        _set(builder, places, following)
        builder.jump(target=start)
        builder.land(leave)


def _build_if(builder: Builder, group: Group) -> None:
    """Jump over the part that isn't taken."""
    node = group.head
    flag, given = builder.whole(node.inputs[0]), [_given(builder, v) for v in node.inputs[1:]]
    outcomes = [_Place(builder.result(v), v) for v in node.outputs]
    leave = builder.jump(flag)
    _set(builder, outcomes, _splice(builder, node.attrs["then"], given))
    skip = builder.jump()
    builder.land(leave)
    _set(builder, outcomes, _splice(builder, node.attrs["otherwise"], given))
    builder.land(skip)


def _given(builder: Builder, value: Value) -> int | ListBuffers:
    """Return an input of a part: a buffer (a variable's, for a reference) or a list."""
    if is_local(value):
        return builder.lists[value]
    if not is_reference(value):
        return builder.whole(value)
    described = variable_type(value)
    assert described is not None, f"{value} was let into a region"
    dtype, shape = described
    return builder.variable(builder.region.variable(value), dtype, prod(shape))


def _splice(
    builder: Builder, part: Dataflow, given: Sequence[int | ListBuffers]
) -> list[int | None]:
    """Add the calls of a part with these feeds; return the buffers of its fetches, None for lists
    and for values that only the other branch computes.
    """
    nodes = [n for n in part.nodes if n.constant is None and not is_undefined(n)]
    fetches = [v for v in part.fetches if not (is_undefined(v.producer) or is_local(v))]
    region = Region(nodes, list(dict.fromkeys(fetches)))
    blocked = blocked_values(region, builder.blocked.size)
    child = builder.inside(region, blocked)
    child.fetched = list(part.fetches)
    for feed, buffer in zip(part.feeds, given, strict=True):
        child.give(feed.value, buffer)
    child.add_groups(fuse(region, blocked))
    made = set(fetches)
    return [child.whole(v) if v in made else None for v in part.fetches]


def _in_place(
    builder: Builder, first: int, places: Sequence[_Place], buffers: Sequence[int | None]
) -> list[int | None]:
    """Compute a variable's next value in its own buffer if the old value is no longer read by then.
    `first` is the body's first call. Return the buffers of the next values.
    """
    given = {p.buffer for p in places}
    made = list(buffers)
    for place, buffer in zip(places, buffers, strict=True):
        if buffer is None or buffer in given or buffer not in made:
            continue
        if place.buffer in buffers:  # its old value is another variable's next value
            continue
        if not _can_replace(builder, first, place.buffer, buffer):
            continue
        for i in range(first, len(builder.calls)):
            call = builder.calls[i]
            if buffer in call.buffers:
                moved = tuple(place.buffer if b == buffer else b for b in call.buffers)
                builder.calls[i] = replace(call, buffers=moved)
        made = [place.buffer if b == buffer else b for b in made]
    return made


def _can_replace(builder: Builder, first: int, variable: int, made: int) -> bool:
    """Return whether `made`, which a call of the body writes, may share the buffer of
    `variable`.
    """
    calls = builder.calls[first:]
    writers = [i for i, c in enumerate(calls) if made in _written(c)]
    touched = [i for i, c in enumerate(calls) if variable in c.buffers]
    same = builder.buffers[made].size == builder.buffers[variable].size
    if builder.buffers[made].kind != "arena" or len(writers) != 1 or not same:
        return False
    (writer,) = writers
    readers = [i for i, c in enumerate(calls) if made in c.buffers]
    if readers[0] != writer or any(i > writer for i in touched):
        return False
    return writer not in touched or _is_elementwise(calls[writer], variable, made)


def _written(call: Call) -> list[int]:
    names = zip(call.kernel.arguments, call.buffers, strict=True)
    return [b for name, b in names if name.startswith(("out:", "inout:"))]


def _is_elementwise(call: Call, read: int, written: int) -> bool:
    """Return whether a kernel reads each element of one buffer only to write that of the other."""
    kernel = call.kernel
    if isinstance(kernel, Map):
        accesses = dict(
            zip(range(len(call.buffers)), (*kernel.inputs, *kernel.outputs), strict=True)
        )
        found = {accesses[i] for i, b in enumerate(call.buffers) if b in (read, written)}
        return len(found) == 1
    names = zip(kernel.arguments, call.buffers, strict=True)
    return all(reads_in_place(kernel, name) for name, b in names if b == read)


def _set(builder: Builder, places: Sequence[_Place], buffers: Sequence[int | None]) -> None:
    """Copy values to their places, as if simultaneously."""
    settled = {p.buffer for p, b in zip(places, buffers, strict=True) if b in (None, p.buffer)}
    changing = {p.buffer for p in places} - settled
    moves = []
    for place, buffer in zip(places, buffers, strict=True):
        if buffer is None or buffer == place.buffer:
            continue
        if buffer in changing:  # it may be overwritten before it's read
            aside = _Place(_temporary(builder, place.value), place.value)
            _copy(builder, buffer, aside)
            buffer = aside.buffer
        moves.append((buffer, place))
    for buffer, place in moves:
        _copy(builder, buffer, place)


def _copy(builder: Builder, buffer: int, place: _Place) -> None:
    source = StridedOperand(buffer, place.operand().dtype, row_major(place.shape))
    builder.copy(source, place.operand(), Space(place.shape))


def _temporary(builder: Builder, value: Value) -> int:
    return builder.temporary(
        value.dtype.base_dtype.name, prod(value.type.sizes or ()), f"{value.name}/variable"
    )


KINDS = (AnchorKind("while", Family(_build_while)), AnchorKind("if", Family(_build_if)))
