"""Recompute. In: a Dataflow and a limit in bytes. Out: the same flow, with cheap values recomputed
shortly before their late readers wherever that brings the memory of a region nearer to the limit.

A node is cheap if it is element-wise or only moves elements; products, reductions and nodes that
draw, read or write state never are. The second computation is a node of its own (`name/again`) that
comes after the node just before its first reader, so that it doesn't run early.

Results stay the same to the last bit. Fusion fuses such nodes only with each other
(groups.is_again). A change that would alter a group that sums is taken back, as is one that doesn't
lower the peak. 16-bit floats are never recomputed: they are rounded where they are stored, so a
value computed from stored ones may differ from one computed in registers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace._src.compile.clusters.backend import is_worthwhile
from headrace._src.compile.clusters.cluster import region_of, regions
from headrace._src.compile.regions.groups import AGAIN, is_again
from headrace._src.compile.regions.memory_timeline import (
    NARROW,
    PRODUCTS,
    SINGLE,
    MemoryTimeline,
    size_of,
)
from headrace._src.compile.regions.region import operands_of, works
from headrace._src.graph.dataflow import Dataflow, Node, Value
from headrace._src.graph.definition import Effect
from headrace._src.lowering.rules import Elementwise, Join, Move

__all__ = ["recompute"]

_ROUNDS = 32  # rounds of choosing for one region
_CONSIDERED = 32  # values at a peak, the largest first
_LONGEST = 64  # nodes that are computed again for one value
_SUFFIX = "/again"


def recompute(flow: Dataflow, limit: int) -> Dataflow:
    """Compute cheap values again in the regions that need more than `limit` bytes."""
    if _most(flow.nodes) <= limit:
        return flow
    for number, (can_compile, nodes) in enumerate(regions(flow)):
        if can_compile and is_worthwhile(nodes) and _most(nodes) > limit:
            flow = _Fitting(flow, number, limit).run()
    return flow


def _most(nodes: Iterable[Node]) -> int:
    """Return an upper bound of the bytes of these nodes' values."""
    return sum(size_of(v) for n in nodes if works(n) for v in n.outputs if v.type.sizes is not None)


class _Fitting:
    """The search for values of one region to recompute."""

    def __init__(self, flow: Dataflow, number: int, limit: int) -> None:
        self.flow, self.number, self.limit = flow, number, limit
        self.refused: set[str] = set()

    def run(self) -> Dataflow:
        timeline = self._timeline(self.flow)
        exact = timeline.exact()
        most: int | None = None
        for _ in range(_ROUNDS):
            if timeline.peak <= self.limit:
                break
            choice = _Choice(timeline, self.refused)
            chosen = choice.run(self.limit, most)
            if not chosen:
                break
            changed = _Rebuilt(self.flow, timeline, choice.again).flow
            after = self._timeline(changed)
            if after.peak < timeline.peak and after.exact() == exact:
                self.flow, timeline, most = changed, after, None
            elif len(chosen) > 1:
                most = len(chosen) // 2
            else:
                self.refused.add(chosen[0].op.name)
                most = None
        return self.flow

    def _timeline(self, flow: Dataflow) -> MemoryTimeline:
        _, nodes = regions(flow)[self.number]
        return MemoryTimeline(region_of(nodes, flow))


def _is_cheap(node: Node) -> bool:
    """Whether a node may be computed a second time."""
    types = [v.dtype.base_dtype.name for v in (*node.inputs, *node.outputs)]
    return (
        isinstance(node.definition.lower, Elementwise | Join | Move)
        and node.definition.effect is Effect.PURE
        and len(node.outputs) == 1
        and not is_again(node)
        and not any(t in NARROW for t in types)
    )


# -- Choosing --------------------------------------------------------------------------------------


@dataclass
class _Draft:
    """The consequences of recomputing a value.

    again: the step before which each node is recomputed; last: the step until which values are
    kept; uses: the steps at which recomputed nodes read values; changes: (first step, last step,
    bytes) that live in addition, or less if negative.
    """

    again: dict[Node, int]
    last: dict[Value, int]
    uses: list[tuple[Value, int]]
    changes: list[tuple[int, int, int]]

    def copy(self) -> _Draft:
        return _Draft({**self.again}, {**self.last}, [*self.uses], [*self.changes])

    def become(self, other: _Draft) -> None:
        self.again, self.last = other.again, other.last
        self.uses, self.changes = other.uses, other.changes

    def at(self, step: int) -> int:
        """Return the additional live bytes at a step."""
        return sum(size for first, last, size in self.changes if first <= step <= last)

    @property
    def area(self) -> int:
        """Bytes times steps."""
        return sum(size * (last - first + 1) for first, last, size in self.changes)


class _Choice:
    """The choice of nodes to recompute, estimated on a timeline. `again`: each node and the step
    before which it is recomputed; `_live`: the bytes at each step; `_last`, `_uses`: of each value.
    """

    def __init__(self, timeline: MemoryTimeline, refused: set[str]) -> None:
        self.timeline = timeline
        self.region = timeline.region
        self.again: dict[Node, int] = {}
        done = {n.name.removesuffix(_SUFFIX) for n in self.region.nodes if is_again(n)}
        self._cheap = {n for n in timeline.step if _is_cheap(n) and n.name not in refused | done}
        self._live = [0] * len(timeline.groups)
        self._last: dict[Value, int] = {}
        self._uses: dict[Value, list[int]] = {}
        self._made: dict[int, list[Value]] = defaultdict(list)
        for value, stored in timeline.stored.items():
            self._last[value] = timeline.last(stored)
            self._uses[value] = list(stored.uses)
            self._made[stored.made].append(value)
            self._change((stored.made, self._last[value], stored.size))

    def run(self, limit: int, most: int | None) -> list[Value]:
        """Choose values (at most `most`) until the limit is kept, or nothing helps."""
        chosen: list[Value] = []
        while (peak := max(self._live, default=0)) > limit and len(chosen) != most:
            found = self._best(peak)
            if found is None:
                break
            value, draft = found
            self._take(draft)
            chosen.append(value)
        return chosen

    def _best(self, peak: int) -> tuple[Value, _Draft] | None:
        """The value that helps most at the peak, then everywhere."""
        step = self._live.index(peak)
        alive = [v for v in self.timeline.stored if self._could_go(v, step)]
        alive.sort(key=lambda v: -size_of(v))
        drafts = [(v, self._drafted(v, step)) for v in alive[:_CONSIDERED]]
        helping = [(v, d) for v, d in drafts if d is not None and self._helps(d, step, peak)]
        return min(helping, key=lambda found: (found[1].at(step), found[1].area), default=None)

    def _could_go(self, value: Value, step: int) -> bool:
        """Return whether a value lives at a step only because it's read later."""
        stored, node = self.timeline.stored[value], value.op
        if stored.kept or node in self.again or node not in self._cheap:
            return False
        uses = self._uses[value]
        if not stored.made < step < self._last[value] or step in uses:
            return False
        if any(u < step for u in uses):
            return True
        # The value would no longer be stored, which must not change the group that computes it.
        group = self.timeline.groups[stored.made]
        beside = [v for v in self._made[stored.made] if v is not value and v.op not in self.again]
        return group.kind in SINGLE or (group.kind in PRODUCTS and len(beside) > 1)

    def _drafted(self, value: Value, step: int) -> _Draft | None:
        """Return the draft of not keeping `value` at a step; None if that's impossible."""
        late = min(u for u in self._uses[value] if u > step)
        early = [u for u in self._uses[value] if u < step]
        last = max(early, default=self.timeline.stored[value].made)
        draft = _Draft({value.op: late}, {value: last}, [], [(last + 1, late - 1, -size_of(value))])
        return draft if self._has_operands(value.op, late, draft) else None

    def _has_operands(self, node: Node, step: int, draft: _Draft) -> bool:
        """Add the operands that `node` needs before `step` to a draft; return whether
        they exist.
        """
        if len(draft.again) > _LONGEST:
            return False
        bases = {self.region.source(v).base for v in operands_of(node)}
        return all(self._is_there(base, step, draft) for base in bases)

    def _is_there(self, base: Value, step: int, draft: _Draft) -> bool:
        """Add to a draft whatever makes a value available at a step; return whether it can be."""
        if base in self.region.reads:
            return self.timeline.written.get(self.region.reads[base], step) >= step
        node = base.op
        if node not in self.timeline.step:  # an input or a constant
            return True
        draft.uses.append((base, step))
        if base in self._last and draft.last.get(base, self._last[base]) >= step:
            return True
        again = draft.again.get(node, self.again.get(node))
        if again is not None:
            if again > step:
                draft.again[node] = step
                draft.changes.append((step, again - 1, size_of(base)))
            return again <= step or self._has_operands(node, step, draft)
        if node in self._cheap:
            further = draft.copy()
            further.again[node] = step
            if self._has_operands(node, step, further):
                draft.become(further)
                return True
        if base not in self._last:  # it's never in memory
            return False
        draft.changes.append((draft.last.get(base, self._last[base]) + 1, step, size_of(base)))
        draft.last[base] = step
        return True

    def _helps(self, draft: _Draft, step: int, peak: int) -> bool:
        if draft.at(step) >= 0:
            return False
        # At other steps it may cost memory, as long as the limit allows it.
        more = {s for a, b, size in draft.changes if size > 0 for s in range(a, b + 1)}
        return all(self._live[s] + draft.at(s) < peak for s in more)

    def _take(self, draft: _Draft) -> None:
        self.again.update(draft.again)
        self._last.update(draft.last)
        for value, step in draft.uses:
            self._uses.setdefault(value, []).append(step)
        for change in draft.changes:
            self._change(change)

    def _change(self, change: tuple[int, int, int]) -> None:
        first, last, size = change
        for step in range(first, last + 1):
            self._live[step] += size


# -- Rebuilding ------------------------------------------------------------------------------------


class _Rebuilt:
    """A flow in which the nodes of `again` occur twice: readers from a node's step on use the
    second one. Nodes keep their order; a second one comes just before its first reader.
    """

    def __init__(self, flow: Dataflow, timeline: MemoryTimeline, again: dict[Node, int]) -> None:
        self._timeline = timeline
        self._again = again
        self._position = {n: i for i, n in enumerate(flow.nodes)}
        self._values: dict[Value, Value] = {}
        self._nodes: dict[Node, Node] = {}
        self._second: dict[Node, Node] = {}
        self._newest: dict[int, Node] = {}  # of each step so far
        self._kept: list[Node] = []
        for node in flow.nodes:
            self._keep(node)
        self.flow = replace(
            flow,
            nodes=tuple(self._kept),
            fetches=tuple(self._values.get(v, v) for v in flow.fetches),
            targets=tuple(self._nodes[t] for t in flow.targets),
        )

    def _keep(self, node: Node) -> None:
        step = self._timeline.step.get(node)
        inputs = tuple(self._values.get(v, v) for v in node.inputs)
        if step is not None:
            data = set(self._timeline.region.data_inputs(node))
            inputs = tuple(
                self._late(v, step) if v in data else new
                for v, new in zip(node.inputs, inputs, strict=True)
            )
        controls = tuple(self._nodes[c] for c in node.controls)
        stays = node
        if inputs != node.inputs or controls != node.controls:
            stays = node.moved(inputs, controls)
            self._values.update(zip(node.outputs, stays.outputs, strict=True))
        self._nodes[node] = stays
        self._kept.append(stays)
        if step is not None:
            self._newest[step] = stays

    def _late(self, value: Value, step: int) -> Value:
        """Return the value that a reader at a step uses for a value."""
        for node in self._wanted(value, step):
            self._add_second(node)
        return self._now(value, step)

    def _since(self, value: Value) -> int | None:
        """Return the step from which on a value, or the base of its view, exists a second time."""
        source = self._timeline.region.sources.get(value)
        return None if source is None else self._again.get(source.base.op)

    def _now(self, value: Value, step: int) -> Value:
        since = self._since(value)
        if since is not None and since <= step:
            return self._second[value.op].outputs[value.index]
        return self._values.get(value, value)

    def _wanted(self, value: Value, step: int) -> list[Node]:
        """Return the nodes to repeat before a reader at a step, in order."""
        found: set[Node] = set()
        stack = [(value, step)]
        while stack:
            value, step = stack.pop()
            since, node = self._since(value), value.op
            if since is None or since > step:
                continue
            if node not in found and node not in self._second:
                found.add(node)
                stack += [(v, since) for v in operands_of(node)]
        return sorted(found, key=self._position.__getitem__)

    def _add_second(self, node: Node) -> None:
        step = self._since(node.outputs[0])
        assert step is not None
        data = set(operands_of(node))
        inputs = tuple(
            self._now(v, step) if v in data else self._values.get(v, v) for v in node.inputs
        )
        before = max((s for s in self._newest if s < step), default=None)
        after = () if before is None else (self._newest[before],)
        controls = tuple(dict.fromkeys((*(self._nodes[c] for c in node.controls), *after)))
        attrs = {**node.attrs, AGAIN: True}
        second = replace(
            node, name=node.name + _SUFFIX, attrs=attrs, inputs=inputs, controls=controls
        )
        self._second[node] = second
        self._kept.append(second)
