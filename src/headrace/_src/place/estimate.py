"""Estimate what a step costs, before it ever ran. In: nodes of a Dataflow, or a graph's operations,
and the roofs of a machine. Out: a CostGraph.

The work of an item is a sum of named amounts: floating-point operations by the kind of kernel that
does them (`lowering.work`), bytes that are moved, kernels that are called. Each amount has a rate,
seconds per unit: that of the roofs, or a measured one. Compiled code fuses element-wise operations,
so that a value that only one of them reads never reaches memory: it costs nothing. An operation
without a lowering rule is interpreted, and costs some microseconds more.

Unknown sizes and numbers of iterations are assumed (`Assumptions`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headrace._src.core.dtypes import DType
from headrace._src.graph.dataflow import Dataflow, Feed, Node, Value, handle_data
from headrace._src.graph.definition import HOST, Effect, Kind
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.graph.structured import is_loop, parts_of
from headrace._src.lowering.rules import Pass, Read
from headrace._src.lowering.trip_count import trip_count
from headrace._src.lowering.work import Work, contraction_flops, geometry_work
from headrace._src.place.cost_graph import CostGraph, CostItem, Output

__all__ = [
    "Assumptions",
    "Roofs",
    "estimate",
    "estimate_flow",
    "groups_of",
    "loop_of",
    "seconds_of",
    "total",
    "workload",
]

_Op = Node | Operation
_Tensor = Value | Tensor

_PER_NUMBER = 20  # floating-point operations for a random number
_STRING = 32  # bytes of a string's element


# What is counted beside the floating-point operations of each kind: bytes of arrays that fit no
# cache, of those that do, elements that Winograd's algorithm transforms, random numbers, compiled
# kernels, interpreted operations, calls of the whole step.
BYTES, CACHED, TRANSFORMED = "bytes", "cached bytes", "transformed elements"
RANDOM, KERNELS, NODES, CALLS = "random numbers", "kernels", "nodes", "calls"


@dataclass(frozen=True)
class Roofs:
    """How fast a type of device is.

    flops: floating-point operations per second. bandwidth: bytes per second from and to memory.
    efficiency: the share of `flops` that contractions reach. cached: how many times faster arrays
    of up to `cache` bytes are moved. node: the interpreter's seconds for an operation. kernel: the
    seconds that a kernel inside compiled code takes at least. call: the seconds of calling a step.
    compiles: whether operations with lowering rules are compiled there. rates: the seconds of one
    unit of work by its name, where they were measured (see place.rates); they come first.

    The defaults are a desktop processor's of a few cores; `headrace doctor --measure` prints those
    of this machine.
    """

    flops: float = 2e11
    bandwidth: float = 2e10
    efficiency: float = 0.85
    cached: float = 4.0
    cache: int = 1 << 20
    node: float = 2e-6
    kernel: float = 5e-7
    call: float = 1e-5
    compiles: bool = True
    rates: Mapping[str, float] = field(default_factory=dict)

    def rate(self, what: str) -> float:
        """Return the seconds of one unit of a kind of work."""
        found = self.rates.get(what)
        if found is not None:
            return found
        if what == BYTES:
            return 1 / self.bandwidth
        if what == CACHED:
            return 1 / (self.bandwidth * self.cached)
        if what == TRANSFORMED:  # written and read, in a cache
            return 8 / (self.bandwidth * self.cached)
        if what == RANDOM:
            return _PER_NUMBER / (self.flops * self.efficiency)
        if what == KERNELS:
            return self.kernel
        if what == NODES:
            return self.node
        if what == CALLS:
            return self.call
        return 1 / (self.flops * self.efficiency)


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is taken for unknown: size of each unknown dimension, iterations of a loop."""

    size: int = 32
    iterations: int = 10


def estimate_flow(
    flow: Dataflow,
    roofs: Mapping[str, Roofs] | None = None,
    assumptions: Assumptions | None = None,
) -> CostGraph:
    """Return the costs of a step: its nodes, and an item for each feed."""
    wanted = (*flow.fetches, *flow.targets)
    return estimate(flow.nodes, groups_of(flow.nodes), roofs, assumptions, flow.feeds, wanted)


def estimate(
    operations: Sequence[_Op],
    groups: Sequence[Sequence[_Op]] | None = None,
    roofs: Mapping[str, Roofs] | None = None,
    assumptions: Assumptions | None = None,
    feeds: Sequence[Feed] = (),
    wanted: Iterable[_Tensor | _Op] | None = None,
) -> CostGraph:
    """Return the costs of operations, each after those that it reads.

    groups: operations that must be together; the others are on their own (so are feeds, whose
    groups come last). roofs: by type of device; CPU only, by default. An op runs on those of these
    types for which it has kernels. Constants cost nothing: each device has its own copies. Values
    that a loop's iteration passes back to an earlier operation count as read in the next step.
    wanted: the step's fetches and targets. Compiled code does not compute what neither they nor
    effects need; None: any value may be wanted.
    """
    found = _Estimate(roofs or {HOST: Roofs()}, assumptions or Assumptions())
    found.read(operations, None if wanted is None else set(wanted))
    return found.graph(operations, groups or [], feeds)


def workload(flow: Dataflow, roofs: Roofs | None = None) -> dict[str, float]:
    """Return what a step does: the sum of its nodes' work, by names. The seconds of the step are
    the sum of these amounts, each times its rate (`Roofs.rate`). One of them is the call itself,
    which is no node's work and not in a CostGraph.
    """
    speed = roofs or Roofs()
    found = _Estimate({HOST: speed}, Assumptions())
    found.read(flow.nodes, {*flow.fetches, *flow.targets})
    nodes = (found.amounts(n, speed) for n in flow.nodes if not _is_constant(n))
    return total([{CALLS: 1.0}, *nodes])


def total(amounts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of amounts of work, by their names."""
    sums: dict[str, float] = {}
    for each in amounts:
        for what, amount in each.items():
            sums[what] = sums.get(what, 0.0) + amount
    return sums


def seconds_of(amounts: Mapping[str, float], roofs: Roofs) -> float:
    """Return how long amounts of work take on a device of these roofs."""
    return math.fsum(amount * roofs.rate(what) for what, amount in amounts.items())


def _times(count: int, amounts: Mapping[str, float]) -> dict[str, float]:
    return {what: count * amount for what, amount in amounts.items()}


def groups_of(operations: Sequence[_Op]) -> list[list[_Op]]:
    """Return the operations that can't be apart: those that share state by handle or reference, and
    those whose colocation groups say so.
    """
    names = {op.name: op for op in operations}
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root.setdefault(name, name) != name:
            root[name] = root[root[name]]
            name = root[name]
        return name

    for op in operations:
        together = [t.op.name for t in op._inputs if _is_state(t.dtype)]
        if "_class" in op._attrs:
            told = op._attrs["_class"]
            together += [_text(name).removeprefix("loc:@") for name in told]
        for name in together:
            if name in names:
                root[find(op.name)] = find(name)
    members: dict[str, list[_Op]] = {}
    for op in operations:
        members.setdefault(find(op.name), []).append(op)
    return list(members.values())


def loop_of(op: _Op) -> object | None:
    """Return the outermost loop, made of primitives, that an operation is in."""
    origin = op.origin if isinstance(op, Node) else op
    context = None if origin is None else origin._control_flow_context
    found = None
    while context is not None:
        if context.IsWhileContext():
            found = context
        context = context.outer_context
    return found


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _is_state(dtype: DType) -> bool:
    return dtype._is_ref_dtype or dtype.base_dtype.name in ("resource", "variant")


class _Estimate:
    """The estimate of some operations: which values reach memory, which operations nothing reads,
    and what each one costs.
    """

    def __init__(self, roofs: Mapping[str, Roofs], assumptions: Assumptions) -> None:
        self.roofs = roofs
        self.assumptions = assumptions
        self.stored: set[Any] = set()
        self.unread: set[_Op] = set()

    def read(self, operations: Sequence[_Op], wanted: set[_Tensor | _Op] | None) -> None:
        """Find the values that reach memory: all but those that compiled element-wise code makes
        for a single reader that is element-wise or a reduction. Find the operations that compiled
        code leaves out: those that only control edges wait for.
        """
        readers: dict[Any, list[_Op]] = {}
        for op in operations:
            for t in op._inputs:
                readers.setdefault(t, []).append(op)
        kept = wanted or set()
        for op in reversed(operations):
            definition = op.definition
            outputs = op._outputs
            if wanted is not None and definition.effect is Effect.PURE and op not in kept:
                read = [r for t in outputs for r in readers.get(t, ())]
                if not kept.intersection(outputs) and self.unread.issuperset(read):
                    self.unread.add(op)
            fused = definition.lower is not None and definition.kind in _FUSED
            for t in outputs:
                reading = readers.get(t, [])
                alone = len(reading) == 1 and reading[0].definition.kind in _FUSING
                if not (fused and alone and reading[0].definition.lower is not None) or t in kept:
                    self.stored.add(t)

    def graph(
        self,
        operations: Sequence[_Op],
        groups: Sequence[Sequence[_Op]],
        feeds: Sequence[Feed],
    ) -> CostGraph:
        number = {op: n for n, group in enumerate(groups) for op in group}
        names = [group[0].name if group else "" for group in groups]
        items: list[CostItem] = []
        made: dict[Any, int] = {}
        for op in operations:
            if op not in number:
                number[op] = len(names)
                names.append(op.name)
        for feed in feeds:
            items.append(
                CostItem(feed.value.name, dict.fromkeys(self.roofs, 0.0), len(names), 0, "feed")
            )
            made[feed.value] = len(items) - 1
            names.append(feed.value.name)
        readers: dict[Any, list[int]] = {}
        waits: dict[_Op, list[int]] = {}
        item_of: dict[_Op, int] = {}
        for op in operations:
            if _is_constant(op):
                continue
            i = item_of[op] = len(items)
            items.append(self._item(op, number[op]))
            made.update(dict.fromkeys(op._outputs, i))
            for t in op._inputs:
                if t in made:
                    readers.setdefault(t, []).append(i)
            for c in op._control_inputs:
                if c in item_of:
                    waits.setdefault(c, []).append(i)
        outputs = [
            Output(t.name, made[t], self._bytes(t), tuple(dict.fromkeys(read)))
            for t, read in readers.items()
        ]
        outputs += [Output(f"^{c.name}", item_of[c], 0, tuple(r)) for c, r in waits.items()]
        outputs.sort(key=lambda o: o.producer)
        return CostGraph(tuple(items), tuple(outputs), tuple(names))

    def _item(self, op: _Op, group: int) -> CostItem:
        definition = op.definition
        looped = isinstance(op, Operation) and loop_of(op) is not None
        times = self.assumptions.iterations if looped else 1
        seconds = {
            kind: times * self._seconds(op, roofs)
            for kind, roofs in self.roofs.items()
            if kind == HOST or definition.table(kind)
        }
        state = self._state(op)
        kind = "state" if state else "loop" if is_loop(op) else definition.kind.value
        return CostItem(op.name, seconds, group, state, kind)

    def _seconds(self, op: _Op, roofs: Roofs) -> float:
        """Return how long an operation takes on a device of these roofs."""
        return seconds_of(self.amounts(op, roofs), roofs)

    def amounts(self, op: _Op, roofs: Roofs) -> dict[str, float]:
        """Return the work of an operation: the amounts by which the rates are multiplied."""
        if not op._inputs and op.definition.effect is not Effect.RANDOM:
            return {}  # a variable is only found, a constant is there
        parts = parts_of(op) if isinstance(op, Node) else {}
        if parts:
            counted = trip_count(op) if is_loop(op) else 1  # type: ignore[arg-type]
            iterations = self.assumptions.iterations if counted is None else counted
            once = [self._part(part, roofs) for part in parts.values()]
            if is_loop(op):
                return total([{NODES: 1.0}, *(_times(iterations, part) for part in once)])
            longest = max(once, key=lambda part: seconds_of(part, roofs))
            return total([{NODES: 1.0}, longest])
        compiled = roofs.compiles and op.definition.lower is not None
        if compiled and op in self.unread:
            return {}
        found = self._computed(op)
        moved = self._moved(op, compiled)
        if moved:
            found[CACHED if moved <= roofs.cache else BYTES] = float(moved)
        if not compiled:
            found[NODES] = 1.0
        elif found:
            found[KERNELS] = 1.0
        return found

    def _part(self, part: Dataflow, roofs: Roofs) -> dict[str, float]:
        inside = _Estimate(self.roofs, self.assumptions)
        inside.read(part.nodes, {*part.fetches, *part.targets})
        return total(inside.amounts(n, roofs) for n in part.nodes if n.constant is None)

    def _moved(self, op: _Op, compiled: bool) -> int:
        """Return the bytes that an operation reads and writes in memory."""
        definition = op.definition
        if compiled and definition.kind is Kind.MOVEMENT and definition.effect is Effect.PURE:
            return 0  # its readers read in another order
        if compiled and isinstance(definition.lower, Pass | Read):
            return 0  # its readers read the variable, or the input, itself
        tensors = {*op._inputs, *op._outputs}
        if compiled:
            tensors = {t for t in tensors if t in self.stored or isinstance(t.op, Feed)}
        return sum(self._bytes(t) for t in tensors)

    def _computed(self, op: _Op) -> dict[str, float]:
        """Return the floating-point operations by kind, and the elements that are transformed."""
        definition = op.definition
        if definition.effect is Effect.RANDOM:
            return {RANDOM: float(sum(math.prod(self._sizes(t)) for t in op._outputs))}
        if definition.kind is not Kind.CONTRACTION:
            return {}
        site = _Site(op, self)
        work = geometry_work(definition.lower.geometry(site)) if definition.lower else None
        if work is None:
            operands = [math.prod(s) for s in site.input_shapes]
            results = [math.prod(s) for s in site.output_shapes]
            work = Work("product", contraction_flops(operands, results))
        found = {f"{work.kind} flops": work.flops}
        if work.transformed:
            found[TRANSFORMED] = work.transformed
        return found

    def _sizes(self, tensor: _Tensor) -> tuple[int, ...]:
        sizes = tensor.shape.sizes
        if sizes is None:
            return (self.assumptions.size,)
        return tuple(self.assumptions.size if n is None else n for n in sizes)

    def _bytes(self, tensor: _Tensor) -> int:
        dtype = tensor.dtype.base_dtype
        if dtype.name in ("resource", "variant"):
            return 0
        each = _STRING if dtype.name == "string" else dtype.size
        return each * math.prod(self._sizes(tensor))

    def _state(self, op: _Op) -> int:
        """Return the bytes of the variable that an operation holds."""
        if op._inputs or not op.definition.keeps_state or len(op._outputs) != 1:
            return 0
        (tensor,) = op._outputs
        if tensor.dtype._is_ref_dtype:
            return self._bytes(tensor)
        known = (
            handle_data(tensor)
            if isinstance(tensor, Value)
            else getattr(tensor, "_handle_data", None)
        )
        if known is None:
            return 0
        sizes = known.shape.sizes
        each = known.dtype.base_dtype.size
        return each * math.prod(n or self.assumptions.size for n in sizes or ())


_FUSED = {Kind.ELEMENTWISE, Kind.CONTRACTION}  # contractions apply what follows to their tiles
_FUSING = {Kind.ELEMENTWISE, Kind.REDUCTION, Kind.MOVEMENT}


def _is_constant(op: _Op) -> bool:
    if isinstance(op, Node):
        return op.constant is not None
    return not op._inputs and op.definition.fold is not None


@dataclass(frozen=True)
class _Site:
    """A use of an op as its lowering rule wants to see it, with assumed sizes."""

    op: _Op
    estimate: _Estimate = field(repr=False)

    @property
    def inputs(self) -> tuple[Any, ...]:
        return tuple(self.op._inputs)

    @property
    def attrs(self) -> dict[str, Any]:
        return self.op._attrs

    @cached_property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.estimate._sizes(t) for t in self.op._inputs)

    @cached_property
    def output_shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.estimate._sizes(t) for t in self.op._outputs)

    @cached_property
    def input_dtypes(self) -> tuple[str, ...]:
        return tuple(t.dtype.base_dtype.name for t in self.op._inputs)

    @cached_property
    def output_dtypes(self) -> tuple[str, ...]:
        return tuple(t.dtype.base_dtype.name for t in self.op._outputs)

    def constant_input(self, index: int) -> Any:
        tensor = self.op._inputs[index]
        return tensor.constant if isinstance(tensor, Value) else None

    def variable_type(self, index: int) -> Any:
        return self.op.variable_type(index) if isinstance(self.op, Node) else None
