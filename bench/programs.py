"""Time whole TensorFlow 1 programs, from starting Python to its exit.

The programs are those of tests/programs/tf1, whose numbers are compared with TensorFlow 1.15.5's
in CI. Each run is a process of its own that imports the framework, builds the graph, trains and
ends. Rounds are interleaved: every contender runs a program before the next round begins. Headrace
runs with an empty cache of compiled code (cold) and with that of its last run (warm).

    python bench/programs.py                          Headrace alone, or with the peers below
    python bench/programs.py --tf115 PYTHON           against TensorFlow 1.15
    python bench/programs.py --tf2 PYTHON             against TensorFlow 2's compat.v1
    python bench/programs.py --only gan,vae --rounds 5

The variables BENCH_TF115_PYTHON and BENCH_TF2_PYTHON name the peers' Pythons as well. A program
that a peer can't run counts neither for nor against it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.programs.tf1 import NAMES  # noqa: E402

# How each framework is imported.
IMPORTS = {
    "headrace": "import headrace as tf",
    "tf115": "import tensorflow as tf\ntf.logging.set_verbosity('ERROR')",
    "tf2": "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()",
}
PROGRAM = """
import sys
sys.path.insert(0, {root!r})
{imports}
from tests.programs.tf1 import run
run(tf, {name!r})
"""
Clock = Callable[[], float]
PATIENCE = 300  # seconds that one run may take
COLD, WARM = "headrace, cold", "headrace, warm"


def seconds(python: str, framework: str, name: str, cache: str, clock: Clock) -> float:
    """The time of one run; infinite if the program fails."""
    source = PROGRAM.format(root=str(ROOT), imports=IMPORTS[framework], name=name)
    environment = {**os.environ, "HEADRACE_CACHE": cache, "TF_CPP_MIN_LOG_LEVEL": "3"}
    start = clock()
    try:
        result = subprocess.run(
            [python, "-W", "ignore", "-c", source],
            env=environment,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return math.inf
    return clock() - start if result.returncode == 0 else math.inf


def processor_seconds() -> float:
    """The seconds that ended processes worked; a busy machine disturbs them less."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def race(name: str, pythons: dict[str, str], rounds: int, clock: Clock) -> dict[str, float]:
    """The best time of each contender."""
    best = dict.fromkeys([COLD, WARM, *pythons], math.inf)
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for label in (COLD, WARM):
                time_of_run = seconds(sys.executable, "headrace", name, cache, clock)
                best[label] = min(best[label], time_of_run)
        for framework, python in pythons.items():
            best[framework] = min(best[framework], seconds(python, framework, name, "", clock))
    return best


def geometric_mean(numbers: list[float]) -> float:
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tf115", default=os.environ.get("BENCH_TF115_PYTHON"))
    parser.add_argument("--tf2", default=os.environ.get("BENCH_TF2_PYTHON"))
    parser.add_argument("--only", help="names of programs, separated by commas")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="count the processor's time instead")
    parser.add_argument("--out", type=Path, help="a JSON file for the times")
    options = parser.parse_args()
    asked = {"tf115": options.tf115, "tf2": options.tf2}
    pythons = {framework: python for framework, python in asked.items() if python}
    names = options.only.split(",") if options.only else NAMES
    labels = [COLD, WARM, *pythons]
    clock = processor_seconds if options.cpu else time.perf_counter
    print("processor" if options.cpu else "wall", end=" ")
    print("seconds from start to exit, the best of", options.rounds, "and ratios to Headrace, cold")
    print(f"{'program':24}" + "".join(f"{label:>16}" for label in labels))
    found = {}
    for name in names:
        found[name] = times = race(name, pythons, options.rounds, clock)
        cells = []
        for label in labels:
            if label in pythons:
                ratio = times[label] / times[COLD]
                shown = f"{times[label]:.2f} ({ratio:.2f}x)" if ratio < math.inf else "can't run"
                cells.append(f"{shown:>16}")
            else:
                cells.append(f"{times[label]:16.2f}")
        print(f"{name:24}" + "".join(cells), flush=True)
    for framework in pythons:
        ratios = {name: times[framework] / times[COLD] for name, times in found.items()}
        ratios = {name: ratio for name, ratio in ratios.items() if ratio < math.inf}
        if ratios:
            worst = min(ratios, key=ratios.__getitem__)
            print(
                f"{framework}: {len(ratios)} programs, geometric mean "
                f"{geometric_mean(list(ratios.values())):.2f}x, "
                f"least {ratios[worst]:.2f}x ({worst})"
            )
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
