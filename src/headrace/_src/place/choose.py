"""Choose devices by cost, and predict what a choice costs. In: operations or a Dataflow, and
devices. Out: a device per group, or a SimulatedStep.

`choose_by_cost` is what a session asks when it places its graph by cost. `predict` answers what a
given split of a step would take, from measurements of the whole step on one device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.device import Device, LinkCost
from headrace._src.graph.dataflow import Dataflow, Node
from headrace._src.graph.operation import Operation
from headrace._src.place.contract import contract, expanded
from headrace._src.place.cost_graph import (
    Assignment,
    ClusterModel,
    CostGraph,
    DeviceModel,
    Problem,
)
from headrace._src.place.estimate import Assumptions, Roofs, estimate, estimate_flow, loop_of
from headrace._src.place.greedy import variants
from headrace._src.place.improve import improve
from headrace._src.place.measured import MeasuredCosts, calibrate
from headrace._src.place.simulate import Score, SimulatedStep, score, simulate

__all__ = ["choose", "choose_by_cost", "model_devices", "predict", "search_budget"]

_SEARCH = 300_000  # how many items the search after measured steps may simulate
_WORTH = 0.95  # of the time on one device: a split must take less
_STRENGTHS = (1.0, 4.0)  # of joining groups
_STARTS = 4  # the variants of the greedy placement that it begins with


def choose_by_cost(
    operations: Sequence[Node | Operation],
    groups: Sequence[Sequence[Node | Operation]],
    feasible: Sequence[Sequence[Device]],
    devices: Sequence[Device],
    roofs: Mapping[str, Roofs] | None = None,
    measured: MeasuredCosts | None = None,
    assumptions: Assumptions | None = None,
    clusters: Mapping[str, Sequence[str]] | None = None,
) -> dict[int, Device]:
    """Return a device for each group, by its number.

    operations: in an order in which each comes after those that it reads (a loop's back edges
    aside). groups: the operations that must be together; each operation is in one of them.
    feasible: the devices that each group may be on. roofs: by type of device; a desktop processor's
    for types that it leaves out. measured: costs of earlier steps, which replace estimates; with
    them, the search for a better choice is longer. clusters: the nodes inside measured clusters
    (see MeasuredCosts.applied).

    Operations of one loop stay together where a device can take them all: what crosses devices
    inside a loop would be sent in each iteration.
    """
    merged, allowed = _with_loops(groups, [[d.name for d in able] for able in feasible])
    cluster = model_devices(devices, measured)
    number = {device.name: n for n, device in enumerate(cluster.devices)}
    default = {d.type: Roofs(compiles=d.compiler is not None) for d in devices}
    speeds = {**default, **(roofs or {})}
    together = [[op for g in gs for op in groups[g]] for gs in merged]
    graph = estimate(operations, together, speeds, assumptions)
    if measured is not None:
        graph = measured.applied(graph, clusters)
    problem = Problem(graph, cluster, [[number[name] for name in names] for names in allowed])
    found = choose(problem, search=measured is not None)
    return {g: devices[found[n]] for n, gs in enumerate(merged) for g in gs}


def choose(problem: Problem, search: bool = False, clustered: bool = True) -> Assignment:
    """Return an assignment: a greedy one, improved by a search, which is ten times as long if
    asked. Both work on joined groups first (see place.contract), then on single ones. clustered:
    the step runs in clusters (see place.coarsen), not operation by operation.
    """
    budget = search_budget(problem) if search else search_budget(problem) // 10
    found: list[tuple[Score, Assignment, Problem, list[int]]] = []
    for strength in _STRENGTHS:
        joined, into = contract(problem, strength)
        found += [(*scored, joined, into) for scored in variants(joined, clustered)]
    found.sort(key=lambda start: start[0])
    starts = found[: min(_STARTS, 1 + budget // _STARTS)]
    share = budget // (2 * len(starts))
    ends = [
        expanded(improve(joined, assignment, share, clustered), into)
        for _, assignment, joined, into in starts
    ]
    best = min(ends, key=lambda a: score(problem, a, clustered)) if len(ends) > 1 else ends[0]
    return _worthwhile(problem, improve(problem, best, budget // 2, clustered), clustered)


def _worthwhile(problem: Problem, found: Assignment, clustered: bool) -> Assignment:
    """Return an assignment, or everything on one device if that takes hardly longer: the model is
    not so exact that a small gain would be certain, and one device needs no transfers.
    """
    if len(set(found)) == 1:
        return found
    devices = range(len(problem.cluster.devices))
    alone = [d for d in devices if all(d in able for able in problem.feasible)]
    if not alone:
        return found
    quickest = min(alone, key=lambda d: sum(seconds[d] for seconds in problem.seconds))
    single = (quickest,) * len(found)
    (excess, seconds, _), (least, other, _) = (
        score(problem, assignment, clustered) for assignment in (found, single)
    )
    return single if least <= excess and other * _WORTH <= seconds else found


def search_budget(problem: Problem) -> int:
    """Return how many simulations a search may use: a second or two, at any size."""
    return _SEARCH // (50 + len(problem.group))


def model_devices(devices: Sequence[Device], measured: MeasuredCosts | None = None) -> ClusterModel:
    """Return the model of a session's devices, with their links and the measured ones. Those of one
    task share its processor.
    """
    links = {
        (a.name, b.name): link for a in devices for b in devices if (link := a.links.get(b.name))
    }
    if measured is not None:
        links.update(measured.links)
    models = []
    for device in devices:
        task = device.name.partition("/device:")[0]
        limit = device.allocator.limit
        models.append(DeviceModel(device.name, device.type, task, memory=limit or None, port=task))
    return ClusterModel(tuple(models), links, LinkCost(1e-4, 1e9))


def predict(
    flow: Dataflow | CostGraph,
    placed: Mapping[str, str],
    cluster: ClusterModel,
    seconds: float | None = None,
    measured: MeasuredCosts | None = None,
    clusters: Mapping[str, Sequence[str]] | None = None,
    roofs: Mapping[str, Roofs] | None = None,
    clustered: bool = True,
) -> SimulatedStep:
    """Predict a split of a step: what happens when, and how long it takes (`makespan`).

    flow: the optimised step, or its costs. placed: the device of each item, by the item's name;
    items that it does not name go with their group, else to the first device. seconds: how long
    the whole step was measured to take on one device of speed 1; the estimates are scaled to it.
    measured, clusters: see MeasuredCosts.applied; they come before the scaling. clustered: whether
    it runs in clusters (see place.coarsen) or operation by operation; what a runtime that splits
    clusters for the sake of overlap needs is between the two.
    """
    graph = flow if isinstance(flow, CostGraph) else estimate_flow(flow, roofs)
    if measured is not None:
        graph = measured.applied(graph, clusters)
    if seconds is not None:
        graph = calibrate(graph, seconds, cluster.devices[0].type)
    number = {device.name: n for n, device in enumerate(cluster.devices)}
    assigned: dict[int, int] = {}
    for item in graph.items:
        name = placed.get(item.name)
        if name is None:
            continue
        if name not in number:
            raise InvalidArgumentError(
                None, None, f"{item.name} is placed on {name}: no such device"
            )
        if assigned.setdefault(item.group, number[name]) != number[name]:
            raise InvalidArgumentError(
                None, None, f"{item.name} is placed on {name}, but the rest of its group is not"
            )
    assignment = _followed(graph, assigned)
    return simulate(Problem(graph, cluster), assignment, clustered)


def _followed(graph: CostGraph, assigned: dict[int, int]) -> Assignment:
    """Return the device of every group: one that isn't assigned follows its first reader that is,
    as a feed does.
    """
    found = dict(assigned)
    for output in reversed(graph.outputs):
        group = graph.items[output.producer].group
        if group not in found:
            readers = [graph.items[r].group for r in output.readers]
            device = next((found[g] for g in readers if g in found), None)
            if device is not None:
                found[group] = device
    return tuple(found.get(g, 0) for g in range(len(graph.groups)))


def _with_loops(
    groups: Sequence[Sequence[Node | Operation]], feasible: Sequence[Sequence[str]]
) -> tuple[list[list[int]], list[list[str]]]:
    """Return numbers of groups that are placed together, and the devices that they may be on: the
    groups of a loop, as long as there is a device for all of them.
    """
    merged: list[list[int]] = []
    allowed: list[list[str]] = []
    loops: dict[int, int] = {}  # the number in `merged` of a loop, by the id of its context
    for g, group in enumerate(groups):
        if not group:
            raise ValueError(f"group {g} has no operations")
        loop = next((found for op in group if (found := loop_of(op)) is not None), None)
        into = None if loop is None else loops.get(id(loop))
        if into is not None:
            common = [name for name in allowed[into] if name in feasible[g]]
            if common:
                merged[into].append(g)
                allowed[into] = common
                continue
        merged.append([g])
        allowed.append(list(feasible[g]))
        if loop is not None and into is None:
            loops[id(loop)] = len(merged) - 1
    return merged, allowed
