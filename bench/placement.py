"""How good placements by cost are, and how long they take to find.

    python bench/placement.py               the gaps to the optimum, and the time for a large graph
    python bench/placement.py --count 1000  more random graphs

bench/README.md says what is printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

import headrace as tf
from headrace._src.devices.device import LinkCost
from headrace._src.place.choose import choose
from headrace._src.place.cost_graph import ClusterModel, DeviceModel, Problem
from headrace._src.place.estimate import Assumptions, estimate, groups_of
from headrace._src.place.greedy import greedy
from headrace._src.place.improve import improve
from headrace._src.place.simulate import makespan

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.property.random_costs import brute_force, random_problem

NETWORK = LinkCost(5e-5, 1.25e9)
LAYERS, TOWERS, WIDTH = 40, 4, 256


def gaps(devices: int, count: int) -> tuple[list[float], list[float]]:
    """The gaps to the optimum of random graphs: greedy, and after the local search."""
    plain, searched = [], []
    for seed in range(count):
        problem = random_problem(random.Random(seed), most=12, devices=devices)
        best, found = brute_force(problem), greedy(problem)
        plain.append(makespan(problem, found) / best - 1)
        searched.append(makespan(problem, improve(problem, found, 300)) / best - 1)
    return plain, searched


def orders(count: int) -> tuple[float, float]:
    """By how much the order of arrival is slower than the longest path first, on greedy and on
    random placements.
    """
    greedily, randomly = [], []
    for seed in range(count):
        rng = random.Random(seed)
        problem = random_problem(rng, most=80, devices=3)
        anywhere = tuple(rng.choice(able) for able in problem.feasible)
        for found, into in ((greedy(problem), greedily), (anywhere, randomly)):
            late = makespan(problem, found, order="arrival")
            into.append(late / makespan(problem, found) - 1)
    return fmean(greedily), fmean(randomly)


def large_graph() -> list[tf.Operation]:
    """The operations of a training graph."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, WIDTH])
        towers = []
        for tower in range(TOWERS):
            h = x
            for layer in range(LAYERS):
                name = f"{tower}/{layer}"
                w = tf.get_variable(f"w{name}", [WIDTH, WIDTH], use_resource=False)
                b = tf.get_variable(f"b{name}", [WIDTH], use_resource=False)
                h = tf.nn.relu(tf.matmul(h, w) + b)
            towers.append(h)
        loss = tf.reduce_mean(tf.square(tf.add_n(towers)))
        tf.train.AdamOptimizer().minimize(loss)
    return graph.get_operations()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="random graphs with two devices")
    count = parser.parse_args().count
    console = Console(soft_wrap=True)
    table = Table("devices", "graphs", "greedy", "worst", "searched", "worst ", box=None)
    for devices, number in ((2, count), (3, max(1, count // 10))):
        plain, searched = gaps(devices, number)
        row = (fmean(plain), max(plain), fmean(searched), max(searched))
        table.add_row(str(devices), str(number), *(f"{gap:.1%}" for gap in row))
    console.print("mean gap to the optimum, graphs of up to 12 nodes", table, sep="\n")
    greedily, randomly = orders(count)
    console.print(
        f"\nin the order of arrival, greedy placements take {greedily:.1%} longer than with the "
        f"longest path first, random ones {randomly:.1%}\n"
    )
    operations = large_graph()
    groups = groups_of(operations)
    for devices in (2, 4, 8):
        cluster = ClusterModel(tuple(DeviceModel(f"m{n}") for n in range(devices)), network=NETWORK)
        start = time.perf_counter()
        graph = estimate(operations, groups, assumptions=Assumptions(size=4096))
        problem = Problem(graph, cluster)
        found = choose(problem)
        seconds = time.perf_counter() - start
        gain = makespan(problem, (0,) * len(found)) / makespan(problem, found, clustered=True)
        console.print(
            f"{len(operations):,} operations on {devices} machines: {seconds:.2f} s, a step is "
            f"{gain:.2f} times as fast as on one"
        )


if __name__ == "__main__":
    main()
