"""Simulate a step. In: a Problem and an assignment. Out: a SimulatedStep.

Each processor runs one item at a time. A tensor is sent once to each device that reads it, as soon
as it is there and its lanes are free; transfers that wait for one lane are served in the order in
which they became ready, as a connection serves them. Among ready items, the processor takes the one
with the longest path to the end of the step (in seconds, transfers included): on random graphs
steps are then shorter than in the order of arrival (docs/placement.md has the figures).

The simulation is deterministic: ties are decided by the items' numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from headrace._src.place.coarsen import PlacedStep, coarsen, one_by_one
from headrace._src.place.cost_graph import Assignment, Problem

__all__ = [
    "Ran",
    "Score",
    "Sent",
    "SimulatedStep",
    "critical_items",
    "makespan",
    "score",
    "simulate",
]

Score = tuple[int, float, int]
Order = Literal["longest path", "arrival"]


@dataclass(frozen=True, slots=True)
class Ran:
    """When an item ran, and where."""

    item: str
    kind: str
    device: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Sent:
    """When a tensor was sent: it was ready at `ready`, and occupied its lanes from start to end."""

    tensor: str
    size: int
    source: str
    target: str
    lanes: tuple[str, ...]
    ready: float
    start: float
    end: float


@dataclass(frozen=True)
class SimulatedStep:
    """A simulated step.

    busy: seconds of work by device. lanes: seconds of transfers by lane. memory: the peak of each
    device in bytes. traffic: bytes by pair of devices. critical: names of the items and transfers
    that the end of the step waited for, from its start.
    """

    makespan: float
    ran: tuple[Ran, ...]
    sent: tuple[Sent, ...]
    busy: dict[str, float]
    lanes: dict[str, float]
    memory: dict[str, int]
    traffic: dict[tuple[str, str], int]
    critical: tuple[str, ...]
    processors: dict[str, float]

    @property
    def bottleneck(self) -> tuple[str, str, float]:
        """The busiest resource: "processor" or "link", its name, and its busy share of the step."""
        found = [("processor", name, seconds) for name, seconds in self.processors.items()]
        found += [("link", name, seconds) for name, seconds in self.lanes.items()]
        kind, name, seconds = max(found, key=lambda each: each[2])
        return kind, name, seconds / self.makespan if self.makespan else 0.0

    def __str__(self) -> str:
        lines = [
            f"{r.start * 1e3:9.4f} {r.end * 1e3:9.4f} ms  {r.device}  {r.item}" for r in self.ran
        ]
        lines += [
            f"{s.start * 1e3:9.4f} {s.end * 1e3:9.4f} ms  {s.source} -> {s.target}  {s.tensor}"
            f" ({s.size} B)"
            for s in self.sent
        ]
        return "\n".join([*sorted(lines), f"{self.makespan * 1e3:.4f} ms"])


_Transfer = tuple[int, int, int, float, float, float]  # output, from, to, ready, start, end


@dataclass(slots=True)
class _Run:
    """The tables of a simulation, by number: of items, and of transfers."""

    starts: list[float]
    ends: list[float]
    transfers: list[_Transfer]
    makespan: float


def makespan(
    problem: Problem,
    assignment: Assignment,
    clustered: bool = False,
    order: Order = "longest path",
) -> float:
    """Return the seconds of the step alone."""
    return _run(problem, _placed(problem, assignment, clustered), order).makespan


def score(problem: Problem, assignment: Assignment, clustered: bool = False) -> Score:
    """Return how good an assignment is, the least being the best: the bytes that exceed devices'
    memory, the seconds of the step, the number of transfers. Seconds are rounded, so that sums in
    another order are equal and the number of transfers decides.
    """
    step = _placed(problem, assignment, clustered)
    run = _run(problem, step, "longest path")
    excess = 0
    if problem.limited:
        peaks = _peaks(problem, assignment, _itemised(problem, step, run))
        for peak, device in zip(peaks, problem.cluster.devices, strict=True):
            excess += max(0, peak - device.memory) if device.memory is not None else 0
    return excess, float(f"{run.makespan:.12g}"), len(run.transfers)


def simulate(
    problem: Problem,
    assignment: Assignment,
    clustered: bool = False,
    order: Order = "longest path",
) -> SimulatedStep:
    """Return what happens, and when, if each group runs on its assigned device. clustered: items
    run in clusters (see place.coarsen) instead of one by one.
    """
    step = _placed(problem, assignment, clustered)
    coarse = _run(problem, step, order)
    run = _itemised(problem, step, coarse)
    graph, cluster = problem.graph, problem.cluster
    names = [d.name for d in cluster.devices]
    where = [assignment[g] for g in problem.group]
    ran = tuple(
        Ran(item.name, item.kind, names[where[i]], run.starts[i], run.ends[i])
        for i, item in enumerate(graph.items)
    )
    lanes = dict.fromkeys(problem.lane_names, 0.0)
    traffic: dict[tuple[str, str], int] = {}
    sent = []
    for output, a, b, ready, start, end in run.transfers:
        used = tuple(problem.lane_names[lane] for lane in problem.lanes[a][b])
        size = problem.size[output]
        sent.append(
            Sent(graph.outputs[output].name, size, names[a], names[b], used, ready, start, end)
        )
        traffic[names[a], names[b]] = traffic.get((names[a], names[b]), 0) + size
        for lane in used:
            lanes[lane] += end - start
    busy = dict.fromkeys(names, 0.0)
    processors = dict.fromkeys(problem.processors, 0.0)
    for i, device in enumerate(where):
        seconds = run.ends[i] - run.starts[i]
        busy[names[device]] += seconds
        processors[problem.processors[problem.processor[device]]] += seconds
    peaks = _peaks(problem, assignment, run)
    return SimulatedStep(
        run.makespan,
        ran,
        tuple(sent),
        busy,
        lanes,
        dict(zip(names, peaks, strict=True)),
        traffic,
        tuple(_names(problem, step, _critical(problem, step, coarse))),
        processors,
    )


def critical_items(problem: Problem, assignment: Assignment) -> list[int]:
    """Return the items that the end of the step waited for, one after the other."""
    step = one_by_one(problem, assignment)
    run = _run(problem, step, "longest path")
    return [item for item, _ in _critical(problem, step, run)]


def _placed(problem: Problem, assignment: Assignment, clustered: bool) -> PlacedStep:
    return (coarsen if clustered else one_by_one)(problem, assignment)


def _path_lengths(problem: Problem, step: PlacedStep) -> list[float]:
    """Return for each item the seconds from its start to the end of the step, if nothing had to
    wait for a processor or a lane.
    """
    where, links, size = step.where, problem.links, step.size
    lengths = [0.0] * len(where)
    for i in range(len(where) - 1, -1, -1):
        a, longest = where[i], 0.0
        for output in step.makes[i]:
            for reader in step.readers[output]:
                b = where[reader]
                length = lengths[reader]
                if b != a:
                    latency, per_byte = links[a][b]
                    length += latency + size[output] * per_byte
                if length > longest:
                    longest = length
        lengths[i] = longest + step.seconds[i]
    return lengths


def _run(problem: Problem, step: PlacedStep, order: Order) -> _Run:
    where, seconds, makes = step.where, step.seconds, step.makes
    readers, size = step.readers, step.size
    processor, links, lanes = problem.processor, problem.links, problem.lanes
    count = len(where)
    urgency = _path_lengths(problem, step) if order == "longest path" else [0.0] * count
    waiting = [len(r) for r in step.reads]
    ready: list[list[tuple[float, int, int]]] = [[] for _ in problem.processors]
    idle = [True] * len(ready)
    lane_free = [0.0] * len(problem.lane_names)
    starts, ends = [0.0] * count, [0.0] * count
    transfers: list[_Transfer] = []
    # Events: an item that ends (its number), or a transfer that arrives (-1 - its number).
    events: list[tuple[float, int]] = []
    arrived = 0
    now = 0.0
    for i in range(count):
        if not waiting[i]:
            heapq.heappush(ready[processor[where[i]]], (-urgency[i], arrived, i))
            arrived += order == "arrival"
    while True:
        for p, queue in enumerate(ready):
            if idle[p] and queue:
                i = heapq.heappop(queue)[2]
                starts[i] = now
                ends[i] = now + seconds[i]
                idle[p] = False
                heapq.heappush(events, (ends[i], i))
        if not events:
            break
        now = events[0][0]
        while events and events[0][0] <= now:
            event = heapq.heappop(events)[1]
            released: list[int] = []
            if event < 0:
                output, _, b, *_ = transfers[-1 - event]
                released = [r for r in readers[output] if where[r] == b]
            else:
                a = where[event]
                idle[processor[a]] = True
                for output in makes[event]:
                    targets: dict[int, float] = {}
                    for r in readers[output]:
                        b = where[r]
                        if b == a:
                            released.append(r)
                        elif urgency[r] > targets.get(b, -1.0):
                            targets[b] = urgency[r]
                    for b in sorted(targets, key=lambda b: (-targets[b], b)):
                        latency, per_byte = links[a][b]
                        used = lanes[a][b]
                        start = max([now, *(lane_free[lane] for lane in used)])
                        end = start + latency + size[output] * per_byte
                        for lane in used:
                            lane_free[lane] = end
                        heapq.heappush(events, (end, -1 - len(transfers)))
                        transfers.append((output, a, b, now, start, end))
            for r in released:
                waiting[r] -= 1
                if not waiting[r]:
                    heapq.heappush(ready[processor[where[r]]], (-urgency[r], arrived, r))
                    arrived += order == "arrival"
    last = max(ends, default=0.0)
    return _Run(starts, ends, transfers, last)


def _itemised(problem: Problem, step: PlacedStep, run: _Run) -> _Run:
    """Return the run in terms of the CostGraph's items: inside a cluster, they run one after the
    other.
    """
    count = len(problem.group)
    starts, ends = [0.0] * count, [0.0] * count
    for n, inside in enumerate(step.members):
        now = run.starts[n]
        for i in inside:
            starts[i] = now
            now += problem.seconds[i][step.where[n]]
            ends[i] = now
        ends[inside[-1]] = run.ends[n]
    transfers = [(step.outputs[t[0]], *t[1:]) for t in run.transfers]
    return _Run(starts, ends, transfers, run.makespan)


def _peaks(problem: Problem, assignment: Assignment, run: _Run) -> list[int]:
    """Return each device's peak memory: state all the time, and tensors from the start of the item
    or transfer that makes them until their last reader or transfer ends.
    """
    where = [assignment[g] for g in problem.group]
    held = [0] * len(problem.cluster.devices)
    for group, device in enumerate(assignment):
        held[device] += problem.state[group]
    last: dict[tuple[int, int], list[float]] = {}  # of an output on a device: from, until
    for output, producer in enumerate(problem.producer):
        until = max(
            [run.ends[producer]]
            + [run.ends[r] for r in problem.readers[output] if where[r] == where[producer]]
        )
        last[output, where[producer]] = [run.starts[producer], until]
    for output, a, b, _, start, end in run.transfers:
        last[output, a][1] = max(last[output, a][1], end)
        until = max(run.ends[r] for r in problem.readers[output] if where[r] == b)
        last[output, b] = [start, until]
    changes: list[list[tuple[float, int, int]]] = [[] for _ in held]
    for (output, device), (start, until) in last.items():
        size = problem.size[output]
        changes[device] += [(start, 1, size), (until, 0, -size)]  # freed before the next is made
    peaks = []
    for device, state in enumerate(held):
        now = most = state
        for _, _, change in sorted(changes[device]):
            now += change
            most = max(most, now)
        peaks.append(most)
    return peaks


def _critical(problem: Problem, step: PlacedStep, run: _Run) -> list[tuple[int, int]]:
    """Return the chain of items that the last one waited for: step by step, that which ended last
    before the next could start, on its processor or among its inputs. With each item, the output of
    it that was sent to the next one, or -1.
    """
    where = step.where
    if not where:
        return []
    arrivals = {(output, b): end for output, _, b, _, _, end in run.transfers}
    before: dict[int, int] = {}  # the item that ran before, on the same processor
    for items in _by_processor(problem, where, run):
        before.update(zip(items[1:], items, strict=False))
    item = max(range(len(where)), key=lambda i: (run.ends[i], -i))
    chain = [(item, -1)]
    while run.starts[item] > 0:
        found: list[tuple[float, int, int]] = []  # when it was over, the item, the output
        if item in before:
            found.append((run.ends[before[item]], before[item], -1))
        for output in step.reads[item]:
            producer = step.producer[output]
            if where[producer] == where[item]:
                found.append((run.ends[producer], producer, -1))
            else:
                found.append((arrivals[output, where[item]], producer, output))
        _, item, output = max(found)
        chain.append((item, output))
    return chain[::-1]


def _names(problem: Problem, step: PlacedStep, chain: list[tuple[int, int]]) -> Iterator[str]:
    for item, output in chain:
        for i in step.members[item]:
            yield problem.graph.items[i].name
        if output >= 0:
            yield f"{problem.graph.outputs[step.outputs[output]].name} (sent)"


def _by_processor(problem: Problem, where: Sequence[int], run: _Run) -> list[list[int]]:
    """Return the items of each processor in the order in which they ran."""
    found: list[list[int]] = [[] for _ in problem.processors]
    for i in sorted(range(len(where)), key=lambda i: (run.starts[i], run.ends[i], i)):
        found[problem.processor[where[i]]].append(i)
    return found
