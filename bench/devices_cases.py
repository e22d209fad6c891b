"""The measurements of bench/devices.py, each in a process of its own:

    python bench/devices_cases.py NAME [ARGUMENT ...]

A case prints its figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import headrace as tf
from headrace._src.core.config import settings
from headrace._src.devices.device import local_devices
from headrace._src.devices.openmp import thread_count
from headrace._src.devices.rendezvous import Key, Rendezvous
from headrace._src.pipeline import Options, compile_step
from headrace._src.place.estimate import Roofs

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SHARE = 0.3  # seconds of each contender in a round of short steps
TURN = 4  # steps of a contender, before the other's
TWO = {"CPU": 2}


def split(name: str, rounds: str, clock: str) -> dict:
    """A training step on one device and on two, in turns. clock: a function of the module time."""
    from models import LANGUAGE, MODELS
    from split_model import SplitStep

    model = {**MODELS, **LANGUAGE}[name]
    whole, halves = (SplitStep(model, n) for n in (1, 2))
    for step in (whole, halves):
        step.seconds(3)  # compiled by then
    count = max(2, min(1000, int(SHARE / min(whole.seconds(2)))))
    halves.seconds(2)
    times: list[list[float]] = [[], []]
    for number in range(int(rounds)):
        order = (0, 1) if number % 2 else (1, 0)
        for i in order:
            times[i] += (whole, halves)[i].seconds(count, getattr(time, clock))[count > 2 :]
    apart = max(abs(a - b) / abs(a) for a, b in zip(whole.losses, halves.losses))
    return {"whole": times[0], "split": times[1], "apart": apart, **_cut(halves.session)}


def accuracy(name: str, rounds: str, edge: str, clock: str) -> dict:
    """What a step does, and what it takes on one device and split; what the simulator says of the
    split from the measured whole. edge: the measured microseconds of an edge.
    """
    from models import LANGUAGE, MODELS
    from split_model import SplitStep

    from headrace._src.devices.device import LinkCost
    from headrace._src.pipeline import optimise, prepare
    from headrace._src.place.choose import model_devices, predict
    from headrace._src.place.estimate import workload

    found = split(name, rounds, clock)
    devices = local_devices(TWO)
    for a, b in (devices, devices[::-1]):
        a.links[b.name] = LinkCost(float(edge) * 1e-6, 1e15)  # by reference
    step = SplitStep({**MODELS, **LANGUAGE}[name], 2)
    shapes = [tuple(t.shape.as_list()) for t in step.inputs]
    asked = [step.loss], [step.train], step.inputs
    placed = {n.name: n.device for n in prepare(*asked, Options(devices)).nodes}
    alone = Options(devices[:1], soft_placement=True)
    flow = optimise(prepare(*asked, alone), shapes, alone)
    whole = min(found["whole"])
    return {
        "whole": whole,
        "split": min(found["split"]),
        "amounts": workload(flow),
        "predicted": predict(
            flow, placed, model_devices(devices), seconds=whole, roofs={"CPU": _roofs()}
        ).makespan,
    }


def micro_graphs(rounds: str, clock: str) -> dict:
    """The roofs of this machine, and what the steps of micro-graphs do and take."""
    from dataclasses import asdict

    from headrace._src.cli.place.micro_graphs import measure

    samples = measure(int(rounds), getattr(time, clock))
    speed = _roofs()
    return {
        "flops": speed.flops,
        "bandwidth": speed.bandwidth,
        "samples": [asdict(sample) for sample in samples],
    }


def _roofs() -> Roofs:
    from headrace._src.compile.native import roofs

    threads = thread_count()
    return Roofs(flops=roofs.peak_flops(threads), bandwidth=roofs.bandwidth(threads))


def xla(name: str, rounds: str, clock: str) -> dict:
    """A training step on an XLA device, and the same model under jax.jit, in turns."""
    from contenders.in_jax import Contender
    from models import MODELS
    from split_model import SplitStep

    ours, plain = SplitStep(MODELS[name], 1, "/device:XLA:0"), Contender(MODELS[name], "")
    plain.load(MODELS[name].batch(0))
    now = getattr(time, clock)

    def seconds(count: int) -> list[float]:
        found = []
        for _ in range(count):
            start = now()
            plain.step()
            found.append(now() - start)
        return found

    ours.seconds(3)
    seconds(3)
    count = max(2, min(1000, int(SHARE / min(seconds(2)))))
    times: list[list[float]] = [[], []]
    # In short turns, so that the machine is as busy for the one as for the other.
    for number in range(int(rounds) * -(-count // TURN)):
        for i in (0, 1) if number % 2 else (1, 0):
            times[i] += ours.seconds(TURN, now) if i else seconds(TURN)
    return {"plain": times[0], "ours": times[1]}


def _cut(session: tf.Session) -> dict:
    """How the step of a session is cut: transfers, their bytes, and clusters by device."""
    plans = session._plans.values()
    programs = [e.program for plan in plans for e in plan.variants._settled.values()]
    (program,) = (p for p in programs if len(getattr(p, "programs", ())) > 1)
    kinds = [[i.op.type for i in part.instructions] for part in program.programs]
    return {
        "edges": len(program.edges),
        "bytes": sum(edge.size or 0 for edge in program.edges),
        "clusters": [part.count("_Cluster") for part in kinds],
    }


def compiling(name: str, devices: str, clock: str) -> dict:
    """Seconds of all passes over a training step: placing, partitioning and compiling."""
    from models import MODELS
    from split_model import SplitStep

    step = SplitStep(MODELS[name], int(devices))
    options = Options(local_devices({"CPU": int(devices)}), jit="always")
    shapes = [tuple(tensor.shape.as_list()) for tensor in step.inputs]
    start = getattr(time, clock)()
    compile_step([step.loss], [step.train], step.inputs, shapes, options)
    return {"seconds": getattr(time, clock)() - start}


def rendezvous(rounds: str) -> dict:
    """Tensors per second: sent and then received, and received (a Pending) and then sent."""
    device = "/job:localhost/replica:0/task:0/device:CPU:"
    keys = [Key(f"{device}0", 1, f"{device}1", f"h{i}") for i in range(1000)]
    value = np.zeros(4, np.float32)

    def sent_first() -> None:
        place = Rendezvous()
        for key in keys:
            place.send(key, value)
        for key in keys:
            place.recv(key)

    def received_first() -> None:
        place = Rendezvous()
        pending = [place.recv(key) for key in keys]
        for key in keys:
            place.send(key, value)
        for each in pending:
            each.result()

    times = _in_turns([sent_first, received_first], int(rounds))
    return {
        "sent_first": [len(keys) / t for t in times[0]],
        "received_first": [len(keys) / t for t in times[1]],
    }


def edge(rounds: str, count: str = "200") -> dict:
    """Microseconds of an edge: a chain that changes its device at each op, less the same chain on
    one device, for each of its edges. A product that could run beside the chain keeps the
    partitions apart; its numbers are complex, so it is no part of a cluster.
    """

    def chain(devices: int) -> Callable[[], object]:
        with tf.Graph().as_default():
            x = y = tf.placeholder(tf.float32, [4])
            for i in range(int(count)):
                with tf.device(f"/cpu:{i % devices}"):
                    y = tf.tanh(y)
            with tf.device("/cpu:0"):
                square = tf.placeholder(tf.complex64, [2, 2])
                beside = tf.matmul(square, square)
            session = tf.Session(config=tf.ConfigProto(device_count=TWO))
            run = session.make_callable([y, beside], [x, square])
        values = np.ones(4, np.float32), np.ones((2, 2), np.complex64)
        return lambda: run(*values)

    whole, split = _in_turns([chain(1), chain(2)], int(rounds))
    edges = int(count) - 1
    return {"edge": [(b - a) / edges * 1e6 for a, b in zip(whole, split, strict=True)]}


def placing(rounds: str, count: str = "10000") -> dict:
    """Seconds of placing a graph: of the first run of a session that needs one op of it."""
    seconds = []
    for _ in range(int(rounds)):
        with tf.Graph().as_default() as graph:
            h = tf.placeholder(tf.float32, [64, 64])
            layer = 0
            while len(graph.get_operations()) < int(count):
                with tf.device("/cpu:0" if layer % 7 == 0 else None):
                    w = tf.get_variable(f"w{layer}", [64, 64])
                    h = tf.tanh(tf.matmul(h, w) + 1.0)
                    with tf.colocate_with(w):
                        tf.assign_sub(w, 0.1 * h)
                layer += 1
            nothing = tf.no_op()
            session = tf.Session(config=tf.ConfigProto(device_count=TWO))
            start = time.perf_counter()
            session.run(nothing)
            seconds.append(time.perf_counter() - start)
            session.close()
    return {"seconds": seconds, "rule": getattr(settings(), "place", "first")}


def cached(rounds: str) -> dict:
    """Microseconds of session.run(x * 2 + 1) in sessions with one device and with two."""

    def runner(config: tf.ConfigProto | None) -> Callable[[], object]:
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [None])
            y = x * 2 + 1
            session = tf.Session(config=config)
        value = np.float32([1, 2, 3])
        return lambda: [session.run(y, {x: value}) for _ in range(1000)]

    two = tf.ConfigProto(device_count=TWO)
    one, several = _in_turns([runner(None), runner(two)], int(rounds))
    return {"one": [t * 1e3 for t in one], "two": [t * 1e3 for t in several]}


def pipeline(rounds: str) -> dict:
    """Steps per second of the network of examples/pipeline.py on two devices, one thread each: one
    step at a time and three at once.
    """
    sys.path.insert(0, str(EXAMPLES))
    import pipeline as example

    options = argparse.Namespace(
        layers=8, units=512, rows=128, parts=24, batches=1, rate=0.05, seed=1
    )
    (parts,) = example.batches(options)
    network = example.Network(options, 2)

    def passing(threads: int) -> Callable[[], object]:
        pool = ThreadPoolExecutor(threads)
        return lambda: list(pool.map(lambda part: network.gradients(*part), parts))

    times = _in_turns([passing(1), passing(3)], int(rounds))
    single, several = ([options.parts / t for t in each] for each in times)
    return {"single": single, "several": several}


def _in_turns(functions: list[Callable[[], object]], rounds: int) -> list[list[float]]:
    """The seconds of each function in each round, after three calls that do not count."""
    for function in functions * 3:
        function()
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, seconds in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - start)
    return times


CASES = {
    f.__name__: f
    for f in (
        *(split, xla, accuracy, micro_graphs, compiling),
        *(rendezvous, edge, placing, cached, pipeline),
    )
}

if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    name, *arguments = sys.argv[1:]
    print(json.dumps(CASES[name](*arguments)))
