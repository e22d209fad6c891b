"""Pass lists from one region to another. In: a Dataflow, and the region of each node. Out: the same
flow, in which a list that leaves its region does so as an array of its rows.

Native code has lists of its own, which end with their cluster. Where the loop of a layer and its
gradient loop are on one device and other devices compute between them, they are in two regions. The
first gives the values that it has saved as arrays, and the second reads them from there.

A list passes if it is what a loop added to an empty one, a row in each iteration, and if the number
of iterations has a known bound; nothing in the other region may add to it. Of a tensor array only
its gradients can be in another region: they need its size and the shape of its rows, so the region
makes an array of its own. If one list of a loop can't pass, none does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace._src.compile.build.tensor_list_buffers import (
    is_only_taken_from,
    list_use,
    row_of,
)
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.dataflow import Dataflow, Node, Value, ValueType, is_local
from headrace._src.graph.structured import parts_of
from headrace._src.lowering.trip_count import most_trips
from headrace._src.ops.control.tensor_lists import LIST_OF_ROWS, LIST_ROWS

__all__ = ["pass_lists"]

_Passage = tuple[Value, int]  # a list, and the region that reads it


def pass_lists(
    flow: Dataflow, users: Sequence[Sequence[Node]], region: Mapping[Node, int]
) -> Dataflow:
    """Return the flow with arrays between regions. `users`: nodes that share lists; `region`: the
    number of each node's region.
    """
    made: dict[_Passage, Node] = {}
    rows: dict[Value, Node] = {}
    for group in users:
        new: dict[_Passage, Node] = {}
        passing = _passing(group, region)
        for value, at in passing:
            node = _passed(value, [n for n in group if region[n] == at], rows)
            if node is not None:
                count = sum(v is value for v, _ in new)
                name = f"{node.name}_{count}" if count else node.name
                new[value, at] = replace(node, name=name)
        if len(new) == len(passing):
            made.update(new)
    return _rebuilt(flow, made, region) if made else flow


def _passing(group: Sequence[Node], region: Mapping[Node, int]) -> list[_Passage]:
    """Return the lists of a group that leave the region in which they are made."""
    return list(
        dict.fromkeys(
            (value, region[node])
            for node in group
            for value in node.inputs
            if is_local(value) and region[value.producer] != region[node]  # type: ignore[index]
        )
    )


def _passed(value: Value, readers: Sequence[Node], rows: dict[Value, Node]) -> Node | None:
    """Return the node that makes a list again for the readers of another region; None if it can't
    pass. `rows`: the nodes that give lists as arrays.
    """
    producer = value.producer
    assert isinstance(producer, Node)
    use = list_use(producer)
    if use is not None and use.kind == "array":
        row = row_of(producer)
        if row is None or not _only_gradients(value, readers):
            return None
        attrs = {**producer.attrs, "element_shape": TensorShape(row)}
        return replace(producer, name=f"{producer.name}/again", attrs=attrs)
    saved = _saved(value) if is_only_taken_from(value, readers) else None
    if saved is None:
        return None
    name, device, origin = f"{producer.name}/{value.index}", producer.device, producer.origin
    array, swaps = saved
    attrs = {"T": array.dtype, "shape": TensorShape(array.sizes)}
    if value not in rows:
        types, given = (array, ValueType(as_dtype("int64"), ())), {**attrs, "swaps": swaps}
        rows[value] = Node(
            LIST_ROWS, f"{name}/rows", given, (value,), (), types, origin, device=device
        )
    given, types = rows[value].outputs, (value.type,)
    return Node(LIST_OF_ROWS, f"{name}/again", attrs, given, (), types, origin, device=device)


def _saved(value: Value) -> tuple[ValueType, bool] | None:
    """Return the type of the array that has what a loop saved in a list, and whether it is to be in
    a file; None if the type isn't known.
    """
    loop = value.producer
    if not isinstance(loop, Node) or "body" not in loop.attrs:
        return None
    body = loop.attrs["body"]
    number = loop.attrs["results"][value.index]
    start, added = loop.inputs[number].producer, body.fetches[number].producer
    if not isinstance(start, Node) or not isinstance(added, Node):
        return None
    made, append = list_use(start), list_use(added)
    if made is None or append is None or (made.kind, append.kind) != ("list", "append"):
        return None
    before, row = added.inputs
    if before is not body.feeds[number].value or is_local(row) or row.type.sizes is None:
        return None
    most = most_trips(loop)
    if not most:
        return None
    return ValueType(row.dtype.base_dtype, (most, *row.type.sizes)), made.swaps


def _only_gradients(value: Value, nodes: Sequence[Node]) -> bool:
    """Return whether nodes use a tensor array only to find the array of its gradients."""
    for node in nodes:
        use, parts = list_use(node), parts_of(node)
        for i, given in enumerate(node.inputs):
            if given is not value or (use is not None and use.kind == "gradient"):
                continue
            if "body" not in parts:
                return False
            if not all(_only_gradients(p.feeds[i].value, p.nodes) for p in parts.values()):
                return False
    return True


def _rebuilt(flow: Dataflow, made: Mapping[_Passage, Node], region: Mapping[Node, int]) -> Dataflow:
    """Return the flow in which readers of other regions use what passes lists to them."""
    values: dict[Value, Value] = {}
    nodes: dict[Node, Node] = {}

    def add(node: Node) -> Node:
        if node not in nodes:
            inputs = tuple(given(v, node) for v in node.inputs)
            new = nodes[node] = node.moved(inputs, tuple(nodes[c] for c in node.controls))
            values.update(zip(node.outputs, new.outputs, strict=True))
        return nodes[node]

    def given(value: Value, reader: Node) -> Value:
        passed = made.get((value, region.get(reader, -1)))
        if passed is not None:
            for source in (v.producer for v in passed.inputs):
                if isinstance(source, Node):
                    add(source)
            return add(passed).outputs[0]
        return values.get(value, value)

    for node in flow.nodes:
        add(node)
    return replace(
        flow,
        nodes=tuple(nodes.values()),
        fetches=tuple(values.get(v, v) for v in flow.fetches),
        targets=tuple(nodes[n] for n in flow.targets),
    )
