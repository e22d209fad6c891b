"""How often a loop runs. In: a loop of a dataflow. Out: the number of its iterations, if it follows
from constants.

What the condition depends on is run here by the ops' own kernels: iteration by iteration, or, if
all of it are scalars that go by equal steps, as counters do, many iterations at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from headrace._src.graph.dataflow import Dataflow, Feed, Node, Value
from headrace._src.graph.definition import Effect
from headrace._src.graph.inference import run_kernel
from headrace._src.graph.structured import parts_of
from headrace._src.lowering.rules import Elementwise, Pass, pointwise_of

__all__ = ["most_trips", "trip_count"]

_MOST_SINGLY = 4096
_AT_ONCE = (1 << 6, 1 << 12, 1 << 20)

_trips: WeakKeyDictionary[Node, int | None] = WeakKeyDictionary()


def trip_count(node: Node) -> int | None:
    """How many iterations a loop takes, if that follows from constants and isn't too many."""
    if node not in _trips:
        deciding = _Deciding.of(node)
        _trips[node] = None if deciding is None else deciding.count()
    return _trips[node]


def most_trips(node: Node) -> int | None:
    """How many iterations a loop takes at most: the count by one of the conditions that must hold
    together, such as a maximum number of iterations; None if no such count follows from constants.
    """
    exact = trip_count(node)
    if exact is not None:
        return exact
    cond = node.attrs["cond"]
    counts = []
    for value in _conditions(cond.fetches[0]):
        alone = replace(node, attrs={**node.attrs, "cond": replace(cond, fetches=(value,))})
        deciding = _Deciding.of(alone)
        counts.append(None if deciding is None else deciding.count())
    return min((c for c in counts if c is not None), default=None)


def _conditions(value: Value) -> list[Value]:
    """The values that must all be true for a value to be true."""
    node = value.producer
    rule = node.definition.lower if isinstance(node, Node) else None
    if not isinstance(node, Node) or node.constant is not None:
        return [value]
    program = pointwise_of(rule, node) if isinstance(rule, Elementwise) else None
    if program is None or [s.opcode for s in program.steps] != ["and"]:
        return [value]
    return [c for v in node.inputs for c in _conditions(v)]


class _Deciding:
    """The variables on which a loop's condition depends, by number, and what they begin with."""

    def __init__(self, cond: Dataflow, body: Dataflow, start: dict[int, np.ndarray]) -> None:
        self._cond, self._body = cond, body
        self._start = start

    @staticmethod
    def of(loop: Node) -> _Deciding | None:
        """None if the condition depends on anything else."""
        cond, body = loop.attrs["cond"], loop.attrs["body"]
        found, more = set(), _feeds_of(cond, cond.fetches)
        while more is not None and not more <= found:
            found |= more
            if max(found) >= len(body.fetches):
                return None
            more = _feeds_of(body, [body.fetches[i] for i in sorted(found)])
        start = {i: v for i in sorted(found) if (v := loop.inputs[i].constant) is not None}
        return None if more is None or len(start) < len(found) else _Deciding(cond, body, start)

    def count(self) -> int | None:
        found = self._count_at_once() if self._is_scalar() else None
        return self._count_singly() if found is None else found

    def _goes_on(self, values: dict[int, np.ndarray]) -> np.ndarray | None:
        found = _run(self._cond, values, self._cond.fetches)
        return None if found is None else found[0]

    def _next(self, values: dict[int, np.ndarray]) -> dict[int, np.ndarray] | None:
        found = _run(self._body, values, [self._body.fetches[i] for i in values])
        return None if found is None else dict(zip(values, found, strict=True))

    def _count_singly(self) -> int | None:
        values: dict[int, np.ndarray] | None = self._start
        for trips in range(_MOST_SINGLY):
            goes_on = None if values is None else self._goes_on(values)
            if values is None or goes_on is None:
                return None
            if not goes_on:
                return trips
            values = self._next(values)
        return None

    def _is_scalar(self) -> bool:
        """Whether the numbers of many iterations can go through the same kernels as arrays."""
        if any(v.dtype.kind not in "iuf" for v in self._start.values()):
            return False
        needed = _needed(self._cond.fetches)
        needed |= _needed([self._body.fetches[i] for i in self._start])
        rules = (Elementwise, Pass)
        return all(
            isinstance(p, Feed) or p.constant is not None or isinstance(p.definition.lower, rules)
            for p in needed
        ) and all(v.type.sizes == () for p in needed for v in _values(p))

    def _count_at_once(self) -> int | None:
        """The count, if after equal steps each variable is where the body says."""
        second = self._next(self._start)
        if second is None:
            return None
        for count in _AT_ONCE:
            steps = np.arange(count + 1)
            along = {
                i: (v + steps * (second[i] - v)).astype(v.dtype) for i, v in self._start.items()
            }
            following = self._next({i: v[:-1] for i, v in along.items()})
            if following is None or any(
                not np.array_equal(following[i], v[1:]) for i, v in along.items()
            ):
                return None
            goes_on = self._goes_on(along)
            if goes_on is None or goes_on.shape != steps.shape:
                return None
            if not goes_on.all():
                return int(goes_on.argmin())
        return None


def _values(producer: Node | Feed) -> Sequence[Value]:
    return producer.outputs if isinstance(producer, Node) else (producer.value,)


def _needed(wanted: Sequence[Value]) -> set[Node | Feed]:
    """All that values come from."""
    found: set[Node | Feed] = set()
    stack = [v.producer for v in wanted]
    while stack:
        producer = stack.pop()
        if producer not in found:
            found.add(producer)
            stack += [v.producer for v in producer._inputs]
    return found


def _feeds_of(flow: Dataflow, wanted: Sequence[Value]) -> set[int] | None:
    """The numbers of the feeds that values need; None if they need what can't be run here."""
    needed = _needed(wanted)
    nodes = [p for p in needed if isinstance(p, Node) and p.constant is None]
    if any(n.definition.effect is not Effect.PURE or parts_of(n) for n in nodes):
        return None
    return {i for i, f in enumerate(flow.feeds) if f in needed}


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
