"""Report a prediction. In: a step's costs and a cluster. Out: tables and sentences for a terminal,
and the same as plain data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from headrace._src.cli.place.placed_step import StepCosts
from headrace._src.core.device_names import DeviceSpec
from headrace._src.devices.device import LinkCost
from headrace._src.place.choose import choose, search_budget
from headrace._src.place.cost_graph import Assignment, ClusterModel, Problem
from headrace._src.place.greedy import greedy
from headrace._src.place.improve import improve
from headrace._src.place.measured import Measured, MeasuredCosts
from headrace._src.place.simulate import SimulatedStep, makespan, simulate

__all__ = ["Report", "bytes_text", "seconds_text", "short_name", "table_of"]

_BUSY = 0.85  # the share of a step from which a resource is said to limit it


@dataclass(frozen=True)
class Report:
    """A placed step: its problem and assignment, the timeline (in compiled clusters), the seconds
    if each operation could overlap with transfers, the seconds on the best single machine, and what
    the step would take, placed anew, if something was twice as fast.
    """

    step: StepCosts
    problem: Problem
    assignment: Assignment
    timeline: SimulatedStep
    overlapped: float
    alone: float
    what_if: dict[str, float]

    @staticmethod
    def of(step: StepCosts, cluster: ClusterModel, measured: MeasuredCosts | None) -> Report:
        """Place a step and simulate it."""
        if measured is not None:
            step = replace(step, graph=measured.applied(step.graph), origin="measured")
            cluster = replace(cluster, links={**cluster.links, **measured.links})
        problem = Problem(step.graph, cluster, step.feasible)
        assignment = choose(problem, search=True)
        took = makespan(problem, assignment, clustered=True)
        numbers = range(len(cluster.devices))
        free = Problem(step.graph, cluster)
        single = [a for d in numbers if (a := free.everything_on(d)) is not None]
        return Report(
            step,
            problem,
            assignment,
            simulate(problem, assignment, clustered=True),
            makespan(problem, assignment),
            min((makespan(free, a) for a in single), default=float("nan")),
            {
                what: min(took, _anew(Problem(step.graph, changed, step.feasible), assignment))
                for what, changed in _changes(cluster).items()
            },
        )

    @property
    def names(self) -> dict[str, str]:
        """The short names of devices."""
        return {d.name: short_name(d.name) for d in self.problem.cluster.devices}

    def parts(self) -> Iterator[Any]:
        """Yield what is printed."""
        items = len(self.problem.graph.items)
        yield f"step {self.step.title}: {items:,} operations in {len(self.assignment):,} groups"
        yield f"costs: {self.step.origin}"
        yield from (f"note: {note}" for note in self.step.notes)
        yield ""
        yield self._device_table()
        if self.timeline.sent:
            yield ""
            yield self._lane_table()
        yield ""
        yield from self.sentences()

    def sentences(self) -> Iterator[str]:
        """Yield the answers: how long, against one machine; what limits it; what would help."""
        took = self.timeline.makespan
        used = sum(seconds > 0 for seconds in self.timeline.busy.values())
        gain = self.alone / took if took else 1.0
        if used <= 1:
            yield (
                f"On one device the step takes {seconds_text(took)}; no split of it was found that "
                "would be clearly faster."
            )
            return
        yield (
            f"One machine takes {seconds_text(self.alone)}; this placement takes "
            f"{seconds_text(took)} on {used} of {len(self.names)} devices, "
            f"{gain:.2f} times as fast."
        )
        if self.overlapped < 0.98 * took:
            yield (
                "Its compiled clusters wait for all their inputs: if each operation could start "
                f"with its own, it would take {seconds_text(self.overlapped)}."
            )
        yield self.bottleneck()
        if self.timeline.sent:
            found = ", ".join(f"{what} {seconds_text(s)}" for what, s in self.what_if.items())
            yield f"Placed anew, the step would take: {found}."

    def bottleneck(self) -> str:
        """Return the sentence on what limits the step."""
        kind, name, share = self.timeline.bottleneck
        if share >= _BUSY:
            what = f"the link {name!r}" if kind == "link" else f"the processor of {name}"
            return f"The bottleneck is {what}: it is busy for {share:.0%} of the step."
        computing = self._computing()
        if computing < 0.5 and self.timeline.sent:
            lane = max(self.timeline.lanes, key=lambda each: self.timeline.lanes[each])
            busy = self.timeline.lanes[lane] / self.timeline.makespan
            return (
                "The bottleneck is the network: the critical path waits for transfers for "
                f"{1 - computing:.0%} of the step. The busiest link is {lane!r}, with {busy:.0%}."
            )
        return (
            f"No device or link is busy throughout: {name} is busiest, with {share:.0%}. The "
            f"critical path computes for {computing:.0%} of the step, and waits for transfers for "
            f"{1 - computing:.0%}."
        )

    def _computing(self) -> float:
        """Return the share of the step in which the critical path computes."""
        on_path = set(self.timeline.critical)
        seconds = sum(r.end - r.start for r in self.timeline.ran if r.item in on_path)
        return min(1.0, seconds / self.timeline.makespan) if self.timeline.makespan else 1.0

    def _device_table(self) -> Table:
        table = table_of("device", "operations", "work", "share", "idle", "memory", "of")
        timeline = self.timeline
        whole = sum(timeline.busy.values()) or 1.0
        count = dict.fromkeys(timeline.busy, 0)
        for ran in timeline.ran:
            count[ran.device] += 1
        for device in self.problem.cluster.devices:
            busy = timeline.busy[device.name]
            idle = 1 - busy / timeline.makespan if timeline.makespan else 1.0
            table.add_row(
                self.names[device.name],
                f"{count[device.name]:,}",
                seconds_text(busy),
                f"{busy / whole:.1%}",
                f"{max(0.0, idle):.1%}",
                bytes_text(timeline.memory[device.name]),
                "" if device.memory is None else bytes_text(device.memory),
            )
        return table

    def _lane_table(self) -> Table:
        table = table_of("link", "transfers", "bytes", "busy", "share")
        for lane, seconds in sorted(self.timeline.lanes.items(), key=lambda e: -e[1]):
            sent = [s for s in self.timeline.sent if lane in s.lanes]
            if sent:
                share = seconds / self.timeline.makespan if self.timeline.makespan else 0.0
                size = bytes_text(sum(s.size for s in sent))
                table.add_row(lane, f"{len(sent):,}", size, seconds_text(seconds), f"{share:.1%}")
        return table

    def costs(self) -> MeasuredCosts:
        """Return the costs that were used, in the form that --costs takes."""
        nodes = {
            (kind, item.name): Measured(1, seconds, seconds)
            for item in self.problem.graph.items
            for kind, seconds in item.seconds.items()
        }
        return MeasuredCosts(nodes)

    def content(self) -> dict[str, Any]:
        """Return everything as plain data."""
        t = self.timeline
        kind, name, share = t.bottleneck
        groups = self.problem.graph.groups
        devices = self.problem.cluster.devices
        return {
            "step": self.step.title,
            "costs": self.step.origin,
            "notes": list(self.step.notes),
            "seconds": t.makespan,
            "overlapped_seconds": self.overlapped,
            "one_machine_seconds": self.alone,
            "bottleneck": {"kind": kind, "name": name, "share": share},
            "what_if": self.what_if,
            "devices": {n: {"seconds": s, "memory": t.memory[n]} for n, s in t.busy.items()},
            "links": t.lanes,
            "traffic": [{"from": a, "to": b, "bytes": size} for (a, b), size in t.traffic.items()],
            "critical": list(t.critical),
            "placement": {groups[g]: devices[d].name for g, d in enumerate(self.assignment)},
            "ran": [[r.item, r.device, r.start, r.end] for r in t.ran],
            "sent": [[s.tensor, s.size, s.source, s.target, s.start, s.end] for s in t.sent],
        }


def _anew(problem: Problem, assignment: Assignment) -> float:
    """Return the seconds of a step that is placed anew, beginning with the present assignment too:
    greedy choices alone might not profit from a better cluster.
    """
    budget = search_budget(problem) // 4
    found = [improve(problem, a, budget, True) for a in (assignment, greedy(problem, True))]
    return min(makespan(problem, a, clustered=True) for a in found)


def _changes(cluster: ClusterModel) -> dict[str, ClusterModel]:
    """Return clusters that are better in one respect."""

    def linked(seconds: float, rate: float) -> ClusterModel:
        def better(link: LinkCost) -> LinkCost:
            return LinkCost(link.seconds * seconds, link.bytes_per_second * rate)

        links = {pair: better(link) for pair, link in cluster.links.items()}
        network = None if cluster.network is None else better(cluster.network)
        return replace(cluster, links=links, network=network)

    faster = tuple(replace(d, speed=2 * d.speed) for d in cluster.devices)
    return {
        "with twice the bandwidth": linked(1.0, 2.0),
        "with half the latency": linked(0.5, 1.0),
        "with processors twice as fast": replace(cluster, devices=faster),
    }


def table_of(first: str, *titles: str) -> Table:
    """Return an empty table: names in the first column, numbers in the others."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def short_name(device: str) -> str:
    """Return a device's name without what all of them have: `worker:0 CPU:0`."""
    spec = DeviceSpec.from_string(device)
    return f"{spec.job}:{spec.task} {spec.device_type}:{spec.device_index}"


def seconds_text(seconds: float) -> str:
    """Return a time with a unit that suits it."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return "0" if seconds == 0 else f"{seconds * 1e9:.3g} ns"


def bytes_text(count: int) -> str:
    """Return a size with a unit that suits it."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
