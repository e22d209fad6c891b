"""Cluster. In: a Dataflow. Out: the same flow with maximal regions of lowerable nodes compiled,
each as one node whose kernel is native code.

Nodes that block, have strings, call Python or have unknown shapes stay outside. Nodes are taken in
dependency order: compiled ones as long as some are ready, then the others. That gives few and large
regions without cycles between them. All nodes of a region come after the same blocking ops, because
one queue's element may be what another queue's dequeue depends on. The gradients that are exchanged
in the background (see HorovodGroupedAllreduce) divide a step further: what the first exchange needs
comes first.

A list is made right before its first user, because native code has lists of its own: all that use a
list must be in one region. `separate_lists` lets arrays pass between regions instead, where it can.

All nodes of a region are on one device. The regions of all devices are taken in one order, so they
have no cycle together, and a region may read a value of another device only if it needs nothing
that comes after it. Where several devices have nodes that are ready, the one that the others wait
for comes first: what they have ready and what they will receive then becomes one region. Devices
that share a processor lose nothing by waiting.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from headrace._src.compile.build.tensor_list_buffers import list_use, list_users
from headrace._src.compile.clusters.backend import LLVM, Backend, Crossing, RegionKernel
from headrace._src.compile.clusters.keep_positions import keep_positions
from headrace._src.compile.clusters.lowerable import is_lowerable
from headrace._src.compile.clusters.pass_lists import pass_lists
from headrace._src.compile.clusters.separate_arrivals import separate_arrivals
from headrace._src.compile.clusters.spread_reads import Runs, spread_reads
from headrace._src.compile.regions.region import Region, is_reference, live_nodes, works
from headrace._src.compile.rewrite.channels_last import channels_last
from headrace._src.compile.rewrite.random_generators import find_generators
from headrace._src.compile.rewrite.rewrites import (
    cut_pieces,
    join_pieces,
    join_products,
    look_at_divisors,
    mask_before_unpooling,
    reserve_samples,
    spread_products,
    sum_once,
)
from headrace._src.compile.rewrite.widen import widen
from headrace._src.core.config import settings
from headrace._src.devices.device import compiler_of
from headrace._src.graph.dataflow import Dataflow, Node, Value, is_local
from headrace._src.graph.definition import Definition, Kind, UniversalDefinition
from headrace._src.graph.schema import Schema
from headrace._src.graph.structured import is_loop
from headrace._src.lowering.rules import Anchor, Read
from headrace._src.ops.base.stages import arrivals, has_stages, keeps_stages, region_stages
from headrace._src.ops.base.transfers import is_recv, is_transfer

__all__ = ["cluster", "region_of", "regions", "rewrite", "separate_lists"]

# Of a region: its device, stage, the blocking ops before it, and the first exchange that needs it.
_Key = tuple[str, int, int, int]
Readers = Mapping[Value, Sequence[Node | None]]
Tell = Callable[[Node, str], None]

_EARLY = -1  # the key of the region that runs before all other compiled nodes ..
_LITTLE = 1 << 16  # .. and computes at most this many elements

_BACKENDS: Mapping[str, Backend] = {"llvm": LLVM}


def rewrite(flow: Dataflow) -> Dataflow:
    """Return the flow after the rewrites that only the compiler profits from."""
    for change in (
        *(channels_last, mask_before_unpooling, join_products, join_pieces, spread_products),
        *(sum_once, cut_pieces, look_at_divisors, reserve_samples, find_generators),
    ):
        flow = _in_stages(flow, change(flow))
    return _in_stages(flow, widen(flow, is_lowerable))


def _in_stages(before: Dataflow, after: Dataflow) -> Dataflow:
    """Return the flow after a change; the one before if a partition would then wait for itself."""
    return after if not has_stages(after.nodes) or keeps_stages(after) else before


def cluster(
    flow: Dataflow, tell: Tell | None = None, backends: Mapping[str, Backend] = _BACKENDS
) -> Dataflow:
    """Replace every region that can be compiled by one node. `tell` is called with each node that
    is left to the interpreter, and the reason. `backends`: the compilers of devices, by name.
    """
    try:
        return _Clusterer(flow, tell, backends).run()
    except _Interpreted:  # what another region was to read in a layout of the compiler's choice
        return _Clusterer(flow, tell, backends, plain=True).run()


class _Interpreted(Exception):
    """A region could not be compiled, after others have chosen layouts for its inputs."""


def separate_lists(flow: Dataflow, backends: Mapping[str, Backend] = _BACKENDS) -> Dataflow:
    """Return the flow in which lists that would have to go from one region to another go as arrays
    of their rows, where that is possible.
    """
    can, users = _compilable(flow, {}, backends)
    if not any(can[group[0]] for group in users):
        return flow
    runs = _Dependencies(_bound(flow)).runs(can)
    number = {n: i for i, (_, run) in enumerate(runs) for n in run}
    own = [g for g in users if can[g[0]] and _backend(g[0], _only_device(flow), backends) is LLVM]
    return pass_lists(flow, own, number)


def regions(
    flow: Dataflow,
    reasons: dict[Node, str] | None = None,
    backends: Mapping[str, Backend] = _BACKENDS,
) -> list[tuple[bool, list[Node]]]:
    """Return the nodes in dependency order, as runs of (can be compiled, nodes), without constants.
    The reasons why nodes can't be compiled are added to `reasons`.
    """
    reasons = {} if reasons is None else reasons
    can, users = _compilable(flow, reasons, backends)
    nodes = _bound(flow)
    only = _only_device(flow)
    dependencies = _Dependencies(nodes)

    def is_worthwhile(run: list[Node]) -> bool:
        backend = _backend(run[0], only, backends)
        return backend is not None and backend.is_worthwhile(run)

    while True:
        runs = dependencies.runs(can)
        number = {n: i for i, (_, run) in enumerate(runs) for n in run}
        torn = [g for g in users if can[g[0]] and len({number[n] for n in g}) > 1]
        if not torn:
            return separate_arrivals(nodes, runs, is_worthwhile) if has_stages(nodes) else runs
        for node in (n for group in torn for n in group):
            can[node] = False
            reasons.setdefault(node, "its list would have to go from one cluster to another")


def _compilable(
    flow: Dataflow, reasons: dict[Node, str], backends: Mapping[str, Backend]
) -> tuple[dict[Node, bool], list[list[Node]]]:
    """Return which nodes could be compiled, and those that share lists; add to `reasons`."""
    nodes = _bound(flow)
    only = _only_device(flow)
    can: dict[Node, bool] = {}

    def refuse(refused: Iterable[Node], reason: str) -> None:
        for node in refused:
            can[node] = False
            reasons.setdefault(node, reason)

    for node in nodes:
        backend = _backend(node, only, backends)
        reason = f"{node.device} has no compiler" if backend is None else backend.why_not(node)
        can[node] = reason is None
        if reason is not None:
            reasons[node] = reason
    refuse(_read_for_others(nodes, can), "no compiled node reads it: outside it costs nothing")
    users = list_users(nodes)
    for group in users:
        outside = next((n for n in group if not can.get(n, False)), None)
        if any(is_local(v) and v.producer in group for v in flow.fetches):
            refuse(group, "its list leaves the flow, and native code has lists of its own")
        elif outside is not None:
            refuse(group, f"{outside.name}, which works on the same list, is not compiled")
        else:
            backend = _backend(group[0], only, backends)
            reason = None if backend is None else backend.why_not_lists(group)
            if reason is not None:
                refuse(group, reason)
    return can, users


def _only_device(flow: Dataflow) -> str:
    """Return the device of a flow on a single device, where nodes that passes have made may have no
    device of their own; "" if there are several.
    """
    devices = flow.devices
    return devices[0] if len(devices) == 1 else ""


def _backend(node: Node, only: str, backends: Mapping[str, Backend]) -> Backend | None:
    """Return the compiler of a node's device; `only`: the flow's, if it has a single one."""
    device = node.device or only
    return backends.get(compiler_of(device) or "" if device else "llvm")


def _read_for_others(nodes: list[Node], can: Mapping[Node, bool]) -> list[Node]:
    """Return the reads of variables that no compiled node uses: outside a cluster they are free,
    inside they would be copies.
    """
    used = {v.producer for n in nodes if can[n] for v in n.inputs}
    return [n for n in nodes if isinstance(n.definition.lower, Read) and n not in used]


class _Dependencies:
    """The dependencies between nodes. `_awaited`: the blocking ops that a node comes after, as
    bits; nodes with different bits must not share a region. In a partition that is compiled by
    itself, Recvs are not among them, but what these wait for on other devices is: the nodes of a
    region have one stage instead (see ops.base.stages).
    """

    def __init__(self, nodes: list[Node]) -> None:
        inside = set(nodes)
        # On a single device, nodes that passes have made may have no device of their own.
        self._several = len({n.device for n in nodes if n.device}) > 1
        self._position = {n: i for i, n in enumerate(nodes)}
        self._waiting: dict[Node, int] = {}
        self._followers: dict[Node, list[Node]] = {n: [] for n in nodes}
        self._awaited: dict[Node, int] = {}
        needs: dict[Node, dict[Any, None]] = {}
        elsewhere: dict[int, int] = {}  # of blocking ops that come before Recvs
        staged = has_stages(nodes)
        for node in nodes:
            sources = (*(v.producer for v in node.inputs), *node.controls)
            needs[node] = dict.fromkeys(s for s in sources if s in inside)
            for b in needs[node]:
                self._followers[b].append(node)
        self._delay_lists(nodes, needs)
        bits: dict[Node, int] = {}
        for node, before in needs.items():
            self._waiting[node] = len(before)
        for node in self._in_order():
            self._awaited[node] = 0
            for b in needs[node]:
                self._awaited[node] |= self._awaited[b] | bits.get(b, 0)
            if staged and is_recv(node):
                for number in node.attrs["awaits"]:
                    free = 1 << (len(bits) + len(elsewhere))
                    self._awaited[node] |= elsewhere.setdefault(number, free)
            elif node.definition.may_wait:
                bits[node] = 1 << (len(bits) + len(elsewhere))
        self._stages = region_stages(nodes, _is_heavy) if staged else {}
        self._exchanges = _exchanges(nodes, needs)
        self._arrivals = arrivals(nodes) if staged else {}

    def _delay_lists(self, nodes: list[Node], needs: dict[Node, dict[Any, None]]) -> None:
        """Let a list be made when its first user needs nothing else, so that both are in one
        region.
        """
        user: dict[Any, Node] = {}
        for node in nodes:
            for value in node.inputs:
                if is_local(value):
                    user.setdefault(value.producer, node)
        makers = {n for n in nodes if n in user and _makes_list(n)}
        for maker in (n for n in reversed(nodes) if n in makers):
            others = [n for n in needs[user[maker]] if n not in makers and n not in needs[maker]]
            after = self._after(maker) if others else set()
            for node in others:
                if node not in after:
                    needs[maker][node] = None
                    self._followers[node].append(maker)

    def _after(self, node: Node) -> set[Node]:
        """Return a node and all that depend on it."""
        found, stack = {node}, [node]
        while stack:
            new = [f for f in self._followers[stack.pop()] if f not in found]
            found.update(new)
            stack += new
        return found

    def _in_order(self) -> Iterator[Node]:
        """Yield the nodes in dependency order."""
        waiting = dict(self._waiting)
        ready = [n for n, count in waiting.items() if not count]
        for node in ready:
            yield node
            for follower in self._followers[node]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    ready.append(follower)

    def runs(self, can: Mapping[Node, bool]) -> list[tuple[bool, list[Node]]]:
        """Return the nodes as alternating runs of nodes that can be compiled and nodes
        that can't.
        """
        waiting = dict(self._waiting)
        early = self._early(can)
        outside: list[Node] = []
        inside: dict[_Key, list[Node]] = {}

        def is_ready(node: Node) -> None:
            if can[node]:
                after = _EARLY if node in early else self._awaited[node]
                device = node.device if self._several else ""
                stage = 0 if node in early else self._stages.get(node, 0)
                exchange = 0 if node in early else self._exchanges.get(node, len(self._position))
                inside.setdefault((device, stage, after, exchange), []).append(node)
            else:
                outside.append(node)

        for node, count in waiting.items():
            if not count:
                is_ready(node)
        runs: list[tuple[bool, list[Node]]] = []
        while outside or inside:
            kind = not outside  # outside nodes first: more nodes may then be ready
            key = self._next(inside) if kind else ("", 0, 0, 0)
            taken: list[Node] = []
            while ready := inside.get(key) if kind else outside:
                taken.append(node := ready.pop())
                for follower in self._followers[node]:
                    waiting[follower] -= 1
                    if not waiting[follower]:
                        is_ready(follower)
            if kind:
                del inside[key]
            taken.sort(key=self._position.__getitem__)
            runs.append((kind, taken))
        return runs

    def _next(self, inside: dict[_Key, list[Node]]) -> _Key:
        """Return the region to take next: an early one, or that of a device on which no other
        device that is ready waits. What comes after fewer blocking ops never needs what comes after
        more of them, so it goes first, and the others then become one region.
        """
        newest = list(reversed(inside))
        for key in newest:
            if key[2] == _EARLY:
                return key
        if self._stages:
            return min(newest, key=lambda key: (key[1], key[3]))
        devices = {key[0] for key in newest}
        if len(devices) == 1:
            return min(newest, key=lambda key: (key[2].bit_count(), key[3]))
        needed = {key: self._devices_after(inside[key]) & devices for key in newest}

        def order(key: _Key) -> tuple[int, int, int]:
            waiting = sum(key[0] in needed[k] for k in newest if k != key)
            return waiting, key[2].bit_count(), key[3]

        return min(newest, key=order)

    def _devices_after(self, ready: Sequence[Node]) -> set[str]:
        """Return the other devices on which nodes depend on these ones."""
        stack, seen = list(ready), set(ready)
        own = {node.device for node in seen}
        found: set[str] = set()
        while stack:
            for follower in self._followers[stack.pop()]:
                if follower not in seen:
                    seen.add(follower)
                    stack.append(follower)
                    found.add(follower.device)
        return found - own

    def _early(self, can: Mapping[Node, bool]) -> set[Node]:
        """Return the compiled nodes between the outside and other compiled nodes, if they are
        little work: a region of their own keeps the rest in one piece.
        """
        can = {node: can[node] or is_transfer(node) for node in self._position}
        gives: set[Node] = set()  # to what is compiled
        for node in reversed(self._position):
            if any(can[f] or f in gives for f in self._followers[node]):
                gives.add(node)
        needed: set[Node] = set()
        for node in reversed(self._position):
            for follower in self._followers[node]:
                if follower in needed or (follower in gives and not can[follower]):
                    needed.add(node)
        early = {n for n in needed if can[n] and not is_transfer(n)}
        heavy = any(isinstance(n.definition.lower, Anchor) for n in early)
        elements = sum(prod(v.type.sizes or ()) for n in early if works(n) for v in n.outputs)
        waits = any(self._awaited[n] or self._arrivals.get(n, 0) for n in early)
        return set() if heavy or waits or elements > _LITTLE else early


def _exchanges(nodes: list[Node], needs: Mapping[Node, Iterable[Node]]) -> dict[Node, int]:
    """Return the number of the first exchange in the background that needs each node, so that it
    begins before the nodes that only later exchanges need. A node that none needs is left out.
    """
    found: dict[Node, int] = {}
    exchanges = [n for n in nodes if n.definition.shares and n.attrs.get("background")]
    for number, exchange in enumerate(exchanges):
        stack = list(needs[exchange])
        while stack:
            node = stack.pop()
            if node not in found:
                found[node] = number
                stack += needs[node]
    return found if len(exchanges) > 1 else {}


def _is_heavy(node: Node) -> bool:
    """Whether a node begins as early as it can, so that others wait less."""
    return node.definition.kind is Kind.CONTRACTION or is_loop(node)


def _makes_list(node: Node) -> bool:
    use = list_use(node)
    return use is not None and (use.makes or use.kind in ("gradient", "zeros"))


def _bound(flow: Dataflow) -> list[Node]:
    """The nodes that are not free."""
    return [n for n in flow.nodes if not _is_free(n)]


def _is_free(node: Node) -> bool:
    """Whether a node is a constant that waits for nothing."""
    return node.constant is not None and not node.controls


def region_of(nodes: list[Node], flow: Dataflow, readers: Readers | None = None) -> Region:
    """Return the region of a run of nodes; its outputs are the values that others read."""
    return Region(nodes, _outputs(nodes, readers_of(flow) if readers is None else readers))


def _outputs(nodes: list[Node], readers: Readers) -> list[Value]:
    """Return the values of a run of nodes that others read."""
    inside = set(nodes)

    def is_output(value: Value) -> bool:
        return not is_reference(value) and not inside.issuperset(readers.get(value, ()))

    return [v for n in nodes for v in n.outputs if is_output(v)]


def readers_of(flow: Dataflow) -> Readers:
    """Return the readers of each value; None stands for the caller that fetches it."""
    readers: dict[Value, list[Node | None]] = {v: [None] for v in flow.fetches}
    for node in flow.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
    return readers


def _live_readers(
    flow: Dataflow, runs: Runs, backend_of: Callable[[Node], Backend | None]
) -> Readers:
    """Return the readers of each value, except those that a region leaves out because nothing needs
    their values.
    """
    readers: dict[Value, list[Node | None]] = {v: [None] for v in flow.fetches}
    for can_compile, run in reversed(runs):
        backend = backend_of(run[0]) if can_compile else None
        compiled = backend is not None and backend.is_worthwhile(run)
        nodes = live_nodes(run, _outputs(run, readers)) if compiled else run
        for node in nodes:
            for value in node.inputs:
                readers.setdefault(value, []).append(node)
    return readers


class _Clusterer:
    def __init__(
        self,
        flow: Dataflow,
        tell: Tell | None,
        backends: Mapping[str, Backend],
        plain: bool = False,
    ) -> None:
        """plain: all values between regions are in the plain layout, and those of the graph."""
        self.tell = tell
        self.backends = backends
        self.only = _only_device(flow)
        self.reasons: dict[Node, str] = {}
        self.flow, self.runs = spread_reads(flow, regions(flow, self.reasons, backends))
        if not plain:
            self.flow, self.runs = keep_positions(
                self.flow, self.runs, lambda node: _backend(node, self.only, backends) is LLVM
            )
        self.readers = _live_readers(
            self.flow, self.runs, lambda node: _backend(node, self.only, backends)
        )
        private, reusable = self._between_regions()
        self.crossing = Crossing(set() if plain else private, reusable)
        self.values: dict[Value, Value] = {}
        self.nodes: dict[Node, tuple[Node, ...]] = {}
        self.after: dict[Value, Node] = {}  # references that a cluster has updated
        self.kept: list[Node] = []

    def run(self) -> Dataflow:
        for node in self.flow.nodes:
            if _is_free(node):
                self._keep(node)
        for can_compile, nodes in self.runs:
            compiled = self._compile(nodes) if can_compile else None
            if compiled is None:
                for node in nodes:
                    self._keep(node)
                    if self.tell is not None and node in self.reasons:
                        self.tell(node, self.reasons[node])
        return replace(
            self.flow,
            nodes=tuple(self.kept),
            fetches=tuple(self.values.get(v, v) for v in self.flow.fetches),
            targets=_unique(n for t in self.flow.targets for n in self.nodes[t]),
        )

    def _between_regions(self) -> tuple[set[Value], set[Value]]:
        """Return the values that only regions of their own backend read: on the same device, and
        on any device.
        """
        by: dict[Node, Backend] = {}
        for compiled, run in self.runs:
            backend = _backend(run[0], self.only, self.backends) if compiled else None
            if backend is not None and backend.is_worthwhile(run):
                by.update(dict.fromkeys(run, backend))
        private: set[Value] = set()
        reusable: set[Value] = set()
        for value, readers in self.readers.items():
            own = by.get(value.producer)  # type: ignore[arg-type]
            if own is None or None in readers:
                continue
            if all(by.get(reader) is own for reader in readers):  # type: ignore[arg-type]
                private.add(value)
            final = self._final_readers(value)
            if all(by.get(reader) is own for reader in final):  # type: ignore[arg-type]
                reusable.add(value)
        return private, reusable

    def _final_readers(self, value: Value) -> Iterable[Node | None]:
        """Yield the readers of a value, also those behind transfers, and behind collectives that
        may put their results into its memory.
        """
        for reader in self.readers.get(value, ()):
            if reader is not None and (is_transfer(reader) or reader.definition.works_in_place):
                for passed in reader.outputs:
                    yield from self._final_readers(passed)
            else:
                yield reader

    def _keep(self, node: Node) -> None:
        inputs = tuple(self.values.get(v, v) for v in node.inputs)
        controls = _unique(
            [n for c in node.controls for n in self.nodes[c]]
            + [self.after[v] for v in node.inputs if v in self.after]
        )
        if inputs != node.inputs or controls != node.controls:
            rebuilt = replace(node, inputs=inputs, controls=controls)
            self.values.update(zip(node.outputs, rebuilt.outputs, strict=True))
            node, old = rebuilt, node
            self.nodes[old] = (node,)
        self.nodes.setdefault(node, (node,))
        self.kept.append(node)

    def _compile(self, nodes: list[Node]) -> Node | None:
        backend = _backend(nodes[0], self.only, self.backends)
        assert backend is not None
        if not backend.is_worthwhile(nodes):
            self.reasons.update(dict.fromkeys(nodes, "too little work for a native call"))
            return None
        outputs = _outputs(nodes, self.readers)
        try:
            compiled = backend.compile(nodes, outputs, self.crossing)
        except Exception as error:
            if settings().verify:
                raise
            warnings.warn(
                f"a part of the step could not be compiled and is interpreted: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            self.reasons.update(dict.fromkeys(nodes, f"the compiler failed: {error}"))
            if any(v in self.crossing.in_blocks for n in nodes for v in n.inputs):
                raise _Interpreted from error
            return None
        return self._replace(nodes, outputs, compiled)

    def _replace(self, nodes: list[Node], outputs: list[Value], compiled: RegionKernel) -> Node:
        references = list(compiled.references)
        inputs = [*compiled.inputs, *references]
        inside = set(nodes)
        controls = [n for m in nodes for c in m.controls if c not in inside for n in self.nodes[c]]
        controls += [self.after[v] for v in references if v in self.after]
        node = Node(
            definition=_definition(compiled),
            name=f"{nodes[0].name}/cluster",
            attrs={
                "Tin": tuple(v.dtype for v in inputs),
                "Tout": tuple(v.dtype for v in outputs),
            },
            inputs=tuple(self.values.get(v, v) for v in inputs),
            controls=_unique(controls),
            types=tuple(v.type for v in outputs),
            origin=next((n.origin for n in nodes if works(n)), nodes[0].origin),
            device=nodes[0].device,
        )
        self.values.update(zip(outputs, node.outputs, strict=True))
        for member in nodes:
            self.nodes[member] = (node,)
            for value in member.outputs:
                if is_reference(value):
                    given = compiled.reference(value)
                    self.values[value] = self.values.get(given, given)
                    self.after[value] = node
        self.kept.append(node)
        return node


_SCHEMA = Schema(
    "_Cluster",
    "inputs: *Tin -> outputs: *Tout",
    "Tin: list(type) >= 0; Tout: list(type) >= 0",
)


def _definition(compiled: RegionKernel) -> Definition:
    return UniversalDefinition(
        _SCHEMA, infer=_no_rule, kernel=compiled, effect=compiled.effect, fresh=True
    )


def _no_rule(*_: object) -> None:
    raise AssertionError("a cluster is made when all shapes are known")


def _unique(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(nodes))
