"""Recompute. In: a Dataflow and a limit in bytes. Out: the same, with cheap values computed again
shortly before their late readers wherever that keeps the memory of a region nearer to the limit.

Cheap is what is done element by element, or only moves elements; never a product, a reduction or
anything that draws, reads or writes state. The second computation is a node of its own
(`name/again`) that waits for what runs just before its first reader, so that it isn't done early.

Results stay the same to the last bit. Fusion keeps such nodes to themselves (fuse.is_again), and a
change after which a group that sums wouldn't be what it was is taken back, as is one that doesn't
lower the peak. 16-bit floats are never computed again: they are rounded where they're stored, so
that a value made of stored ones may differ from one that was made in registers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace.compile.cluster import is_worthwhile, region_of, regions
from headrace.compile.groups import AGAIN, is_again
from headrace.compile.region import operands_of, works
from headrace.compile.timeline import NARROW, PRODUCTS, SINGLE, MemoryTimeline, size_of
from headrace.graph.dataflow import Dataflow, Node, Value
from headrace.graph.definition import Effect
from headrace.lowering.rules import Elementwise, Join, Move

__all__ = ["recompute"]

_ROUNDS = 32  # of choosing for one region
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
    """More than these nodes' values could ever take."""
    return sum(size_of(v) for n in nodes if works(n) for v in n.outputs if v.type.sizes is not None)


class _Fitting:
    """One region of a flow on its way below the limit."""

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
    """What computing a value again entails.

    again: the step before which each node is computed again; last: until when values are kept;
    uses: steps at which values are read by what is computed again; changes: (first step, last step,
    bytes) that live more, or less.
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
        """The bytes that live more at a step."""
        return sum(size for first, last, size in self.changes if first <= step <= last)

    @property
    def area(self) -> int:
        """Bytes times steps."""
        return sum(size * (last - first + 1) for first, last, size in self.changes)


class _Choice:
    """What is computed again, as far as it can be told from a timeline: `again` has each node and
    the step before which it is; `_live` the bytes at each step, `_last` and `_uses` of each value.
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
        """Whether a value is there at a step only because it's read later."""
        stored, node = self.timeline.stored[value], value.op
        if stored.kept or node in self.again or node not in self._cheap:
            return False
        uses = self._uses[value]
        if not stored.made < step < self._last[value] or step in uses:
            return False
        if any(u < step for u in uses):
            return True
        # From here on nobody would store it, and that must not matter to the group that made it.
        group = self.timeline.groups[stored.made]
        beside = [v for v in self._made[stored.made] if v is not value and v.op not in self.again]
        return group.kind in SINGLE or (group.kind in PRODUCTS and len(beside) > 1)

    def _drafted(self, value: Value, step: int) -> _Draft | None:
        """What it takes not to have `value` at a step."""
        late = min(u for u in self._uses[value] if u > step)
        early = [u for u in self._uses[value] if u < step]
        last = max(early, default=self.timeline.stored[value].made)
        draft = _Draft({value.op: late}, {value: last}, [], [(last + 1, late - 1, -size_of(value))])
        return draft if self._has_operands(value.op, late, draft) else None

    def _has_operands(self, node: Node, step: int, draft: _Draft) -> bool:
        """Add to a draft what `node` needs to be computed before `step`."""
        if len(draft.again) > _LONGEST:
            return False
        bases = {self.region.source(v).base for v in operands_of(node)}
        return all(self._is_there(base, step, draft) for base in bases)

    def _is_there(self, base: Value, step: int, draft: _Draft) -> bool:
        """Add to a draft what it takes to have a value at a step."""
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
        # Elsewhere it may cost memory, as long as there is some left.
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
    """A flow in which the nodes of `again` are there twice: readers from a node's step on have the
    second one. Nodes keep their order; a second one stands before its first reader.
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
        """What a reader at a step has for a value."""
        for node in self._wanted(value, step):
            self._add_second(node)
        return self._now(value, step)

    def _since(self, value: Value) -> int | None:
        """The step from which on there is a second one of a value, or of what it's a view of."""
        source = self._timeline.region.sources.get(value)
        return None if source is None else self._again.get(source.base.op)

    def _now(self, value: Value, step: int) -> Value:
        since = self._since(value)
        if since is not None and since <= step:
            return self._second[value.op].outputs[value.index]
        return self._values.get(value, value)

    def _wanted(self, value: Value, step: int) -> list[Node]:
        """The nodes that must come a second time before a reader at a step, in order."""
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
