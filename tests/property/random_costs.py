"""Random problems of placement: steps of a few items, on two or three devices that are more or less
far from each other.
"""

import math
from itertools import product

from headrace._src.devices.device import LinkCost
from headrace._src.place.cost_graph import (
    ClusterModel,
    CostGraph,
    CostItem,
    DeviceModel,
    Output,
    Problem,
)
from headrace._src.place.simulate import makespan

__all__ = ["brute_force", "random_problem"]

FAR = (0.0, 1e-3, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # seconds to send a mean tensor: items take 0.5


def random_problem(rng, most=12, devices=2, memory=False):
    """Return a problem; `rng` is a random.Random."""
    count, density = rng.randint(2, most), rng.choice((0.1, 0.25, 0.5))
    readers = [[j for j in range(i + 1, count) if rng.random() < density] for i in range(count)]
    items, groups, together = [], 0, rng.choice((0.0, 0.3))
    for i in range(count):
        group = rng.randrange(groups) if groups and rng.random() < together else groups
        groups = max(groups, group + 1)
        seconds = rng.uniform(0.1, 1.0) * rng.choice((1.0, 1.0, 1.0, 0.01))
        types = {"CPU": seconds}
        if rng.random() < 0.8:
            types["XLA"] = seconds * rng.uniform(0.2, 2.0)
        items.append(CostItem(f"n{i}", types, group, rng.choice((0, 0, 10**6))))
    outputs = [
        Output(f"n{i}:0", i, rng.choice((0, rng.randrange(1, 10**6))), tuple(read))
        for i, read in enumerate(readers)
        if read
    ]
    far = rng.choice(FAR)
    shared = rng.random() < 0.2
    kinds = ["CPU", *rng.choices(("CPU", "CPU", "XLA"), k=devices - 1)]
    cluster = ClusterModel(
        tuple(
            DeviceModel(
                f"d{n}",
                kind,
                "all" if shared and n < 2 else "",
                rng.choice((0.5, 1.0, 1.0, 2.0)),
                rng.choice((None, 3 * 10**6)) if memory else None,
            )
            for n, kind in enumerate(kinds)
        ),
        network=LinkCost(far * 0.1, 1e6 / far if far else math.inf),
    )
    cpus = [n for n, kind in enumerate(kinds) if kind == "CPU"]
    everywhere = tuple(range(devices))
    feasible = [everywhere] * groups
    if rng.random() < 0.5:
        feasible = [
            tuple({rng.choice(cpus), rng.randrange(devices)}) if rng.random() < 0.4 else everywhere
            for _ in range(groups)
        ]
    return Problem(CostGraph.apart(items, outputs), cluster, feasible)


def brute_force(problem):
    """Return the shortest makespan of all assignments."""
    return min(makespan(problem, assignment) for assignment in product(*problem.feasible))
