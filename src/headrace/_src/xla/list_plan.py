"""How large lists become. In: the nodes of a region. Out: for each node that makes a tensor array,
a stack or a list, the shape of its rows and their largest number.

XLA's arrays have fixed sizes, so the number of rows must follow from the number of iterations of
the loops that add them; a bound on it is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from headrace._src.devices.room import fits
from headrace._src.graph.dataflow import Dataflow, Node, Value, is_local
from headrace._src.graph.structured import is_loop, parts_of
from headrace._src.lowering.list_anchors import ListUse, row_given, row_taken
from headrace._src.lowering.trip_count import trip_count

__all__ = ["ListRows", "UnknownList", "plan_lists"]


class UnknownList(Exception):
    """The rows of a list, or their number, are not known before the step runs."""


@dataclass
class ListRows:
    """A list that a node makes: how many rows it has at most, and their type.

    lists: what a list of lists holds. sources: the gradients that are taken of a tensor array.
    depth: in how many loops it is made. declared: whether one row's
    shape tells that of all others: then one that was not written is zeros.
    """

    name: str
    count: int
    depth: int
    row: tuple[int, ...] | None = None
    dtype: Any = None
    lists: ListRows | None = None
    sources: set[str] = field(default_factory=set)
    declared: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of all rows."""
        return (self.count, *(self.row or ()), *(self.lists.sizes if self.lists else ()))

    def takes(self, value: Value, stacked: bool, known: dict[Value, ListRows]) -> None:
        """Note the type of a row that goes in or comes out."""
        if is_local(value):
            if value in known:
                self.lists = known[value]
            return
        sizes = value.type.sizes
        if sizes is None:
            raise UnknownList(f"the shape of {value.name}, a row of {self.name}, is not known")
        row = sizes[1:] if stacked else sizes
        if self.row not in (None, row):
            raise UnknownList(f"the rows of {self.name} differ in shape")
        self.row, self.dtype = row, value.dtype.base_dtype


def plan_lists(nodes: Sequence[Node]) -> dict[Node, ListRows]:
    """Return the lists that nodes make, those in parts of loops and branches included; raises
    UnknownList.
    """
    planner = _Planner()
    planner.visit(nodes, {}, ())
    for rows in planner.made.values():
        sizes = rows.sizes
        if not fits(sizes, np.float64):
            raise UnknownList(f"there is no room for all rows that {rows.name} may have: {sizes}")
    return planner.made


class _Planner:
    def __init__(self) -> None:
        self.made: dict[Node, ListRows] = {}

    def visit(
        self, nodes: Sequence[Node], known: dict[Value, ListRows], trips: tuple[int | None, ...]
    ) -> None:
        """Visit nodes in loops of so many iterations; `known` are the lists behind values."""
        for node in nodes:
            if node.constant is not None:
                continue
            if parts_of(node):
                self._parts(node, known, trips)
            elif isinstance(node.geometry, ListUse):
                self._use(node, node.geometry, known, trips)
            else:
                for given, got in zip(node.inputs, node.outputs, strict=False):
                    if is_local(got) and given in known:
                        known[got] = known[given]

    def _parts(
        self, node: Node, known: dict[Value, ListRows], trips: tuple[int | None, ...]
    ) -> None:
        loop = is_loop(node)
        given = node.inputs if loop else node.inputs[1:]
        inside = (*trips, _most_trips(node)) if loop else trips
        for part in parts_of(node).values():
            feeds = zip(part.feeds, given, strict=True)
            inner = {f.value: known[v] for f, v in feeds if v in known}
            self.visit(part.nodes, inner, inside)
            if not loop:
                pairs = zip(part.fetches, node.outputs, strict=True)
                known.update({got: inner[v] for v, got in pairs if v in inner})
        for i, got in zip(node.attrs.get("results", ()), node.outputs, strict=False):
            if given[i] in known:
                known[got] = known[given[i]]

    def _use(
        self,
        node: Node,
        use: ListUse,
        known: dict[Value, ListRows],
        trips: tuple[int | None, ...],
    ) -> None:
        if use.makes:
            rows = ListRows(
                node.name, use.size, len(trips), use.row, declared=_is_declared(node, use)
            )
            known[node.outputs[0]] = self.made[node] = rows
            return
        rows = known.get(node.inputs[0])
        if rows is None:
            raise UnknownList(f"{node.name} uses a list from outside of the region")
        if use.kind == "zeros":
            known[node.outputs[0]] = rows
        if use.kind in ("gradient", "append", "remove"):
            known[node.outputs[0]] = rows
        if use.kind == "gradient":
            rows.sources.add(use.source)
        given, taken = row_given(node.definition), row_taken(node.definition)
        if given is not None:
            rows.takes(node.inputs[given.index], given.stacked, known)
        if taken is not None:
            value = node.outputs[taken.index]
            rows.takes(value, taken.stacked, known)
            if is_local(value) and rows.lists is not None:
                known[value] = rows.lists
        if use.kind in ("append", "push"):
            between = trips[rows.depth :]
            if None in between:
                raise UnknownList(
                    f"the number of rows of {rows.name} is not known: a loop that adds them has no "
                    "bound that is known before the step runs (maximum_iterations gives one)"
                )
            rows.count += prod(n for n in between if n is not None)


def _is_declared(node: Node, use: ListUse) -> bool:
    return use.row is not None or bool(node.attrs.get("identical_element_shapes"))


def _most_trips(node: Node) -> int | None:
    """The number of a loop's iterations, or a bound on it; None if there is none."""
    found = trip_count(node)
    if found is not None:
        return found
    cond: Dataflow = node.attrs["cond"]
    producer = cond.fetches[0].producer
    if not isinstance(producer, Node) or producer.constant is not None:
        return None
    # A conjunction, as of a counter's limit and another condition, ends when one of them does.
    bounds = []
    for value in producer.inputs:
        if value.type.sizes == () and value.dtype.base_dtype.name == "bool":
            part = replace(cond, fetches=(value,))
            bounds.append(trip_count(replace(node, attrs={**node.attrs, "cond": part})))
    known = [n for n in bounds if n is not None]
    return min(known) if known and producer.type == "LogicalAnd" else None
