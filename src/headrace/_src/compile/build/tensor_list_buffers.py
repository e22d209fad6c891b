"""Build tensor arrays, stacks and lists. In: a group whose head is an op on one. Out: calls on
buffers that hold all its rows.

In a loop, the ops on a list (reading a row, saving a value for the backward loop) become part of
the native loop. A list that leaves the cluster, or whose size or rows are unknown, is left to the
interpreter (see cluster). An error sets the plan's fault word: the step ends at the next jump, and
the interpreter reports the error.

Arrays and stacks are made outside loops. Lists may be made inside one: all lists that one node
makes share memory and lie one after the other. A list of lists therefore holds the start and the
end of each of its lists, and gives them back in the order in which a backward loop needs them. If
several nodes take rows from one list, each has an end of its own, and the rows stay where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from headrace._src.compile.build.compose import Composer
from headrace._src.compile.build.plan_builder import Builder, StridedOperand
from headrace._src.compile.kernels.anchor_kind import AnchorKind, Family
from headrace._src.compile.kernels.rows.list_rows import (
    CheckMarks,
    CopyRows,
    PutRow,
    TakeRow,
    ZeroRows,
)
from headrace._src.compile.regions.groups import Group, Space
from headrace._src.core import dtypes
from headrace._src.devices.swap_files import swaps
from headrace._src.graph.dataflow import Dataflow, Node, Value, is_local
from headrace._src.graph.structured import parts_of
from headrace._src.lowering.list_anchors import LISTS, ListUse, row_given, row_taken
from headrace._src.lowering.pointwise import record
from headrace._src.lowering.rules import Anchor, row_major

__all__ = [
    "KINDS",
    "ListBuffers",
    "cursor",
    "fault_word",
    "is_only_taken_from",
    "list_use",
    "list_users",
    "lists_fit",
    "pushes",
    "row_of",
]


@dataclass
class ListBuffers:
    """The buffers of a list. `marks`: for an array, which rows can be read; for a stack, how many
    there are. A stack's rows are allocated when their type is known; its `size` is 0 if the number
    of rows isn't. `twins`: arrays of gradients. `lists`: the lists that a list of lists holds.
    `swapped`: whether its rows are in a file.
    """

    size: int
    inner: int
    dtype: str
    buffer: int = -1
    marks: int = -1
    adds: bool = False
    clears: bool = False
    twins: dict[str, ListBuffers] = field(default_factory=dict)
    lists: ListBuffers | None = None
    swapped: bool = False


def list_use(node: Node) -> ListUse | None:
    """Return how a node uses a list; None if it uses none."""
    rule = node.definition.lower
    return node.geometry if isinstance(rule, Anchor) and rule.family == "list" else None


def _build_list(builder: Builder, group: Group) -> None:
    """Add the calls of one op on a list."""
    node = group.head
    use: ListUse = node.geometry
    _BUILDERS[use.kind](builder, node, use)


def _rows(builder: Builder, node: Node) -> ListBuffers:
    return builder.lists[node.inputs[0]]


# -- Arrays ----------------------------------------------------------------------------------------


def _new_array(builder: Builder, node: Node, use: ListUse) -> None:
    row = _shapes[node]
    rows = ListBuffers(use.size, prod(row), use.dtype, clears=use.clears)
    _allocate(builder, rows, node.name)
    builder.lists[node.outputs[0]] = rows
    _pass_flow(builder, None, node.outputs[1])


def _allocate(builder: Builder, rows: ListBuffers, name: str, zeros: bool = False) -> None:
    rows.buffer = builder.temporary(rows.dtype, rows.size * rows.inner, name)
    builder.kept.add(rows.buffer)
    if zeros:
        _zero_first(builder, rows.buffer, rows.dtype, rows.size * rows.inner)
    rows.marks = builder.temporary("uint8", rows.size, f"{name}/marks")
    _zero_first(builder, rows.marks, "uint8", rows.size)


def _zero_first(builder: Builder, buffer: int, dtype: str, count: int) -> None:
    """Fill a buffer with zeros before anything else runs."""
    composer = Composer()
    program = composer.finish([composer.constant(0, dtype)])
    with builder.at_start():
        builder.map(Space((count,)), program, [], [StridedOperand(buffer, dtype, (1,))], "zeros")


def fault_word(builder: Builder) -> int:
    """The buffer of the word that ends the step when a kernel sets it."""
    if builder.fault is None:
        fault = builder.temporary("int64", 1, "fault")
        _zero_first(builder, fault, "int64", 1)
        builder.set_fault(fault)
    assert builder.fault is not None
    return builder.fault


def _gradient(builder: Builder, node: Node, use: ListUse) -> None:
    rows = _rows(builder, node)
    if use.source not in rows.twins:
        twin = ListBuffers(rows.size, rows.inner, rows.dtype, adds=True)
        _allocate(builder, twin, f"{node.name}/gradients", zeros=True)
        rows.twins[use.source] = twin
    builder.lists[node.outputs[0]] = rows.twins[use.source]
    _pass_flow(builder, node.inputs[1], node.outputs[1])


def _write(builder: Builder, node: Node, use: ListUse) -> None:
    rows = _rows(builder, node)
    kernel = PutRow(rows.size, rows.inner, rows.dtype, "add" if rows.adds else "set")
    value, index = builder.whole(node.inputs[2]), builder.whole(node.inputs[1])
    buffers = [value, index, rows.buffer, rows.marks, fault_word(builder)]
    builder.call(kernel, buffers, node.name)
    _pass_flow(builder, node.inputs[3], node.outputs[0])


def _read(builder: Builder, node: Node, use: ListUse) -> None:
    rows = _rows(builder, node)
    how = "sum" if rows.adds else "clear" if rows.clears else "get"
    kernel = TakeRow(rows.size, rows.inner, rows.dtype, how)
    result = builder.result(node.outputs[0])
    buffers = [rows.buffer, builder.whole(node.inputs[1]), rows.marks, result, fault_word(builder)]
    builder.call(kernel, buffers, node.name)


def _scatter(builder: Builder, node: Node, use: ListUse) -> None:
    rows = _rows(builder, node)
    count = rows.size * rows.inner
    value = StridedOperand(builder.whole(node.inputs[2]), rows.dtype, (1,))
    place = StridedOperand(rows.buffer, rows.dtype, (1,))
    composer = Composer()
    new = composer.operand(value, rows.dtype)
    if rows.adds:
        old = composer.operand(place, rows.dtype)
        total = record(lambda e, x, y: e.add(x, y), [rows.dtype, rows.dtype])
        (new,) = composer.apply(total, [old, new])
    else:
        _check(builder, rows, 0)
        _mark(builder, rows)
    program = composer.finish([new])
    operands = [value, place] if rows.adds else [value]
    builder.map(Space((count,)), program, operands, [place], node.name)
    _pass_flow(builder, node.inputs[3], node.outputs[0])


def _gather(builder: Builder, node: Node, use: ListUse) -> None:
    rows = _rows(builder, node)
    if not rows.adds:
        _check(builder, rows, 1)
    count = rows.size * rows.inner
    place = StridedOperand(builder.result(node.outputs[0]), rows.dtype, (1,))
    builder.copy(StridedOperand(rows.buffer, rows.dtype, (1,)), place, Space((count,)))


def _check(builder: Builder, rows: ListBuffers, wanted: int) -> None:
    """Set the fault word unless all rows have been written, or none."""
    builder.call(CheckMarks(rows.size, wanted), [rows.marks, fault_word(builder)], "marks")
    builder.land(builder.jump())


def _mark(builder: Builder, rows: ListBuffers) -> None:
    composer = Composer()
    program = composer.finish([composer.constant(1, "uint8")])
    builder.map(
        Space((rows.size,)), program, [], [StridedOperand(rows.marks, "uint8", (1,))], "marks"
    )


def _size(builder: Builder, node: Node, use: ListUse) -> None:
    composer = Composer()
    program = composer.finish([composer.constant(_rows(builder, node).size, "int32")])
    builder.map(
        Space(()), program, [], [StridedOperand(builder.result(node.outputs[0]), "int32", ())]
    )


def _pass_flow(builder: Builder, given: Value | None, got: Value) -> None:
    """Return a buffer for a flow, whose value nothing reads."""
    place = StridedOperand(builder.result(got), "float32", ())
    if given is not None:
        builder.copy(StridedOperand(builder.whole(given), "float32", ()), place, Space(()))
    else:
        composer = Composer()
        program = composer.finish([composer.constant(0.0, "float32")])
        builder.map(Space(()), program, [], [place], "flow")


# -- Stacks ----------------------------------------------------------------------------------------


_ENDS = 2  # words of a stack's marks: where it ends, and where it begins


def _new_stack(builder: Builder, node: Node, use: ListUse) -> None:
    rows = ListBuffers(0, 0, "int64" if use.dtype == LISTS else use.dtype)
    rows.swapped = use.swaps and swaps()
    rows.marks = builder.temporary("int64", _ENDS, f"{node.name}/top")
    _zero_first(builder, rows.marks, "int64", _ENDS)
    builder.lists[node.outputs[0]] = rows
    if not builder.is_inside:
        return
    builder.kept.add(rows.marks)
    end, begin = (StridedOperand(rows.marks, "int64", (), i) for i in range(_ENDS))
    if node in _held:  # it begins where the last one ended
        builder.copy(end, begin, Space(()))
    else:
        composer = Composer()
        program = composer.finish([composer.constant(0, "int64")])
        builder.map(Space(()), program, [], [end], "empty")


def _push(builder: Builder, node: Node, use: ListUse) -> None:
    rows, value = _rows(builder, node), node.inputs[1]
    rows.swapped = use.swaps and swaps()
    given = _put(builder, rows, value, node.name)
    if builder.is_needed(node.outputs[0], {node}):
        shape = value.type.sizes or ()
        place = StridedOperand(builder.result(node.outputs[0]), rows.dtype, row_major(shape))
        builder.copy(StridedOperand(given, rows.dtype, row_major(shape)), place, Space(shape))


def _pop(builder: Builder, node: Node, use: ListUse) -> None:
    _take(builder, _rows(builder, node), node.outputs[0], node.name)


def _put(builder: Builder, rows: ListBuffers, value: Value, name: str) -> int:
    """Save a value on top, or where a list has its rows; returns its buffer."""
    if rows.buffer < 0:
        rows.inner = _ENDS if is_local(value) else prod(value.type.sizes or ())
        trips = builder.trips()
        if trips is None:
            rows.buffer = builder.growing(rows.dtype, rows.inner, name, rows.swapped)
        else:
            rows.size = trips
            count = rows.size * rows.inner
            rows.buffer = builder.temporary(rows.dtype, count, name, rows.swapped)
            builder.kept.add(rows.buffer)
    if is_local(value):
        rows.lists = inner = builder.lists[value]
        given = inner.marks
    else:
        given = builder.whole(value)
    kernel = PutRow(rows.size, rows.inner, rows.dtype, "push")
    builder.call(kernel, [given, rows.buffer, rows.marks, fault_word(builder)], name)
    return given


def _take(builder: Builder, rows: ListBuffers, value: Value, name: str) -> None:
    """Take a value from the top, or where a list has its rows."""
    kernel = TakeRow(rows.size, rows.inner, rows.dtype, "pop")
    if is_local(value):
        assert rows.lists is not None
        builder.lists[value] = rows.lists
        result = rows.lists.marks
    else:
        result = builder.result(value)
    builder.call(kernel, [rows.buffer, rows.marks, result, fault_word(builder)], name)


def _append(builder: Builder, node: Node, use: ListUse) -> None:
    rows = _rows(builder, node)
    _put(builder, rows, node.inputs[1], node.name)
    builder.lists[node.outputs[0]] = rows


def cursor(builder: Builder, value: Value) -> ListBuffers:
    """Return a list as a node takes from it: with an end of its own, if other nodes use it too."""
    rows = builder.lists[value]
    used = [v for n in builder.region.nodes for v in n.inputs]
    if value.dtype is not dtypes.variant or [*used, *builder.fetched].count(value) < 2:
        return rows
    ends = builder.temporary("int64", _ENDS, f"{value.name}/top")
    source = StridedOperand(rows.marks, "int64", (1,))
    builder.copy(source, StridedOperand(ends, "int64", (1,)), Space((_ENDS,)))
    return replace(rows, marks=ends)


def _zeros(builder: Builder, node: Node, use: ListUse) -> None:
    like = _rows(builder, node)
    rows = ListBuffers(0, prod(_shapes[node]), like.dtype, swapped=like.swapped)
    rows.buffer = builder.growing(rows.dtype, rows.inner, node.name, rows.swapped)
    rows.marks = builder.temporary("int64", _ENDS, f"{node.name}/top")
    kernel = ZeroRows(0, rows.inner, rows.dtype)
    builder.call(kernel, [like.marks, rows.buffer, rows.marks, fault_word(builder)], node.name)
    builder.lists[node.outputs[0]] = rows


def _remove(builder: Builder, node: Node, use: ListUse) -> None:
    rows = cursor(builder, node.inputs[0])
    _take(builder, rows, node.outputs[1], node.name)
    builder.lists[node.outputs[0]] = rows


def _give_rows(builder: Builder, node: Node, use: ListUse) -> None:
    rows = _rows(builder, node)
    kernel = CopyRows(rows.size, rows.inner, rows.dtype, use.size)
    copy, count = (builder.result(v) for v in node.outputs)
    buffers = [rows.buffer, rows.marks, copy, count, fault_word(builder)]
    builder.call(kernel, buffers, node.name)


def _of_rows(builder: Builder, node: Node, use: ListUse) -> None:
    """Take rows from where they are: nothing is added to such a list."""
    array, count = (builder.whole(v) for v in node.inputs)
    rows = ListBuffers(use.size, prod(use.row or ()), use.dtype, array)
    rows.marks = builder.temporary("int64", _ENDS, f"{node.name}/top")
    _zero_first(builder, rows.marks, "int64", _ENDS)
    end = StridedOperand(rows.marks, "int64", ())
    builder.copy(StridedOperand(count, "int64", ()), end, Space(()))
    builder.lists[node.outputs[0]] = rows


_BUILDERS = {
    "array": _new_array,
    "gradient": _gradient,
    "write": _write,
    "read": _read,
    "scatter": _scatter,
    "gather": _gather,
    "size": _size,
    "stack": _new_stack,
    "push": _push,
    "pop": _pop,
    "list": _new_stack,
    "append": _append,
    "remove": _remove,
    "zeros": _zeros,
    "rows": _give_rows,
    "of rows": _of_rows,
}


# -- What fits together ----------------------------------------------------------------------------


def list_users(nodes: Sequence[Node]) -> list[list[Node]]:
    """Return the nodes that make and use lists, grouped by the lists that they share, in order."""
    group: dict[Any, list[Any]] = {}
    for node in nodes:
        for value in (*node.inputs, *node.outputs):
            other = value.producer
            if not is_local(value):
                continue
            one, two = group.setdefault(node, [node]), group.setdefault(other, [other])
            if one is not two:
                one += two
                group.update(dict.fromkeys(two, one))
    position = {n: i for i, n in enumerate(nodes)}
    found = {id(members): members for members in group.values()}.values()
    return [sorted(members, key=lambda n: position.get(n, -1)) for members in found]


def lists_fit(nodes: Sequence[Node]) -> bool:
    """Return whether the rows of each list have one shape, and no node needs a list as it was
    before a row was added or taken.
    """
    fitting = _Fitting()
    if not fitting.fits(nodes, (), {}):
        return False
    for node, made in fitting.made.items():
        if made.lists is None:
            if made.row is None or 0 in made.row:
                return False
            _shapes[node] = made.row
        if made.held:
            _held.add(node)
    return True


# The shape of the rows of a list, by the node that makes it, and those whose lists others hold.
_shapes: WeakKeyDictionary[Node, tuple[int, ...]] = WeakKeyDictionary()
_held: WeakSet[Node] = WeakSet()


def row_of(node: Node) -> tuple[int, ...] | None:
    """Return the shape of the rows of the list that a node makes; None before `lists_fit`."""
    return _shapes.get(node)


@dataclass
class _Known:
    """The size of a list and the shape of its rows, as far as they are known. lists: what a list
    of lists holds; held: whether it's in one.
    """

    size: int = 0
    row: tuple[int, ...] | None = None
    lists: _Known | None = None
    held: bool = False


class _Fitting:
    """The known properties of the lists that nodes have made."""

    def __init__(self) -> None:
        self.made: dict[Node, _Known] = {}

    def fits(
        self, nodes: Sequence[Node], fetches: Sequence[Value], known: dict[Value, _Known]
    ) -> bool:
        """Whether nodes fit together that are given `known` lists."""
        uses = Counter(v for n in nodes for v in n.inputs if v.dtype is dtypes.variant)
        uses.update(v for v in fetches if v.dtype is dtypes.variant)
        if not all(is_only_taken_from(v, nodes) for v, count in uses.items() if count > 1):
            return False
        for node in nodes:
            use = list_use(node)
            if use is not None and not self._use_fits(node, use, known):
                return False
            if parts_of(node) and not self._parts_fit(node, known):
                return False
        return True

    def _parts_fit(self, node: Node, known: dict[Value, _Known]) -> bool:
        """Whether lists fit in the parts of a loop or branch; a loop's come out as they went in."""
        is_loop = "body" in node.attrs
        given = node.inputs if is_loop else node.inputs[1:]
        if not is_loop and any(map(is_local, node.outputs)):
            return False
        for part in parts_of(node).values():
            feeds = zip(part.feeds, given, strict=True)
            inner = {f.value: known[v] for f, v in feeds if is_local(v) and v in known}
            if not self.fits(part.nodes, part.fetches, inner):
                return False
            for value, outer in zip(part.fetches, given, strict=False):
                if is_local(value) and inner.get(value) is not known.get(outer):
                    return False
        for i, value in zip(node.attrs.get("results", ()), node.outputs, strict=False):
            if is_local(value) and given[i] in known:
                known[value] = known[given[i]]
        return True

    def _use_fits(self, node: Node, use: ListUse, known: dict[Value, _Known]) -> bool:
        if use.makes:
            known[node.outputs[0]] = self.made[node] = _Known(use.size, use.row)
            return True
        found = known.get(node.inputs[0])
        if found is None:
            return False
        if use.kind == "rows":
            found.row = found.row or use.row
            return found.lists is None and found.row == use.row
        if use.kind == "zeros":
            known[node.outputs[0]] = self.made[node] = _Known(row=found.row)
            return found.lists is None
        if use.kind in ("gradient", "append", "remove"):
            known[node.outputs[0]] = found
        if use.kind in ("gradient", "size"):
            return True
        given, taken = row_given(node.definition), row_taken(node.definition)
        at = given or taken
        assert at is not None
        value = (node.inputs if given else node.outputs)[at.index]
        if is_local(value):
            return _holds(found, value, known, bool(given))
        sizes = value.type.sizes or ()
        if at.stacked and (use.size != found.size or sizes[:1] != (found.size,)):
            return False
        row = sizes[1:] if at.stacked else sizes
        if found.row is None:  # a list takes what is put there first
            found.row = row
        return row == found.row


def is_only_taken_from(value: Value, nodes: Sequence[Node]) -> bool:
    """Return whether no node adds to a list: then any number of nodes may take from it."""
    for node in nodes:
        for i, given in enumerate(node.inputs):
            if given is not value:
                continue
            use, body = list_use(node), node.attrs.get("body")
            if use is not None and use.kind in ("remove", "rows", "zeros"):
                left = [node.outputs[0]] if use.kind == "remove" else []
            elif isinstance(body, Dataflow):
                parts = (body, node.attrs["cond"])
                if not all(is_only_taken_from(p.feeds[i].value, p.nodes) for p in parts):
                    return False
                results = node.attrs["results"]
                left = [v for k, v in zip(results, node.outputs, strict=True) if k == i]
            else:
                return False
            if not all(is_only_taken_from(v, nodes) for v in left):
                return False
    return True


def _holds(outer: _Known, value: Value, known: dict[Value, _Known], given: bool) -> bool:
    """Whether a list of lists, all from the same maker, can be given this one, or gives it."""
    if given and value in known and not known[value].held:
        outer.lists = outer.lists or known[value]
        known[value].held = True
        return outer.lists is known[value]
    if given or outer.lists is None:
        return False
    known[value] = outer.lists
    return True


def pushes(flow: Dataflow) -> bool:
    """Return whether a flow pushes a value on a stack."""
    for node in flow.nodes:
        use = list_use(node)
        if use is not None and use.kind in ("push", "append"):
            return True
        if any(pushes(part) for part in parts_of(node).values()):
            return True
    return False


KINDS = (AnchorKind("list", Family(_build_list)),)
