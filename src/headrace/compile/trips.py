"""How often a loop runs. In: a loop of a dataflow. Out: the number of its iterations, if it follows
from constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from headrace.graph.dataflow import Dataflow, Feed, Node, Value
from headrace.graph.definition import Effect
from headrace.graph.inference import run_kernel
from headrace.graph.structured import parts_of

__all__ = ["trip_count"]

_MOST_TRIPS = 4096

_trips: WeakKeyDictionary[Node, int | None] = WeakKeyDictionary()


def trip_count(node: Node) -> int | None:
    """How many iterations a loop takes, if that follows from constants: what its condition needs
    is run here, until it's false.
    """
    if node not in _trips:
        _trips[node] = _count_trips(node)
    return _trips[node]


def _count_trips(node: Node) -> int | None:
    cond, body = node.attrs["cond"], node.attrs["body"]
    count = len(body.fetches)
    deciding = _deciding(cond, body, count)
    if deciding is None:
        return None
    values = {i: v for i in deciding if (v := node.inputs[i].constant) is not None}
    if len(values) < len(deciding):
        return None
    for trips in range(_MOST_TRIPS):
        goes_on = _run(cond, values, [cond.fetches[0]])
        if goes_on is None:
            return None
        if not goes_on[0]:
            return trips
        following = _run(body, values, [body.fetches[i] for i in deciding])
        if following is None:
            return None
        values = dict(zip(deciding, following, strict=True))
    return None


def _deciding(cond: Dataflow, body: Dataflow, count: int) -> list[int] | None:
    """The variables on which a loop's condition depends; None if it depends on anything else."""
    found = _feeds_of(cond, [cond.fetches[0]])
    while found is not None and all(i < count for i in found):
        more = _feeds_of(body, [body.fetches[i] for i in found])
        if more is None:
            return None
        if more <= found:
            return sorted(found)
        found |= more
    return None


def _feeds_of(flow: Dataflow, wanted: Sequence[Value]) -> set[int] | None:
    """The numbers of the feeds that values need; None if they need what can't be run here."""
    number = {f: i for i, f in enumerate(flow.feeds)}
    found: set[int] = set()
    seen: set[Node] = set()
    stack = [v.producer for v in wanted]
    while stack:
        producer = stack.pop()
        if isinstance(producer, Feed):
            found.add(number[producer])
        elif producer not in seen and producer.constant is None:
            seen.add(producer)
            if producer.definition.effect is not Effect.PURE or parts_of(producer):
                return None
            stack += [v.producer for v in producer.inputs]
    return found


def _run(
    flow: Dataflow, values: dict[int, np.ndarray], wanted: Sequence[Value]
) -> list[np.ndarray] | None:
    """Values of a flow, by its nodes' own kernels."""
    known = {flow.feeds[i].value: v for i, v in values.items()}

    def value(v: Value) -> np.ndarray | None:
        if v in known:
            return known[v]
        if v.constant is not None:
            return v.constant
        node = v.producer
        assert isinstance(node, Node)
        inputs = [value(i) for i in node.inputs]
        results = None if any(i is None for i in inputs) else run_kernel(node, inputs)  # type: ignore[arg-type]
        if results is None:
            return None
        known.update(zip(node.outputs, map(np.asarray, results), strict=True))
        return known[v]

    found = [value(v) for v in wanted]
    return None if any(v is None for v in found) else found  # type: ignore[return-value]
