"""Measure a machine's rates by short steps. In: the machine that this process runs on. Out: a
TimedSample for each step, and the Roofs that are fitted to them.

Each micro-graph is a network of one kind of layer. Two of its steps are timed, the loss alone and a
training step, so that a kind's gradients have rates of their own. The steps take turns, and the
least time of each counts: other work on the machine can only slow a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import headrace as tf
from headrace._src.devices.device import local_devices
from headrace._src.pipeline import Options, optimise, prepare
from headrace._src.place.estimate import Roofs, workload
from headrace._src.place.rates import TimedSample, fit_rates

__all__ = ["MICRO_GRAPHS", "calibrated", "measure"]

_WARM = 3  # rounds before the first that counts: by then, the step is compiled
_SHARE = 0.003  # seconds of a step in a round, if it is shorter


def _dense(*widths: int) -> Callable[[Any], Any]:
    def network(x: Any) -> Any:
        for n, width in enumerate(widths):
            w = tf.get_variable(f"w{n}", [x.shape.as_list()[-1], width])
            b = tf.get_variable(f"b{n}", [width])
            x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), b))
        return x

    return network


def _convolutions(
    size: int, *filters: int, stride: int = 1, pool: bool = False
) -> Callable[[Any], Any]:
    def network(x: Any) -> Any:
        for n, count in enumerate(filters):
            w = tf.get_variable(f"w{n}", [size, size, x.shape.as_list()[-1], count])
            b = tf.get_variable(f"b{n}", [count])
            x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, stride, "SAME"), b))
            if pool:
                x = tf.nn.max_pool2d(x, 3, 2, "SAME")
        return x

    return network


def _attention(x: Any) -> Any:
    for n in range(2):
        w = tf.get_variable(f"w{n}", [1, 1, x.shape.as_list()[-1]])
        y = x * w
        x = tf.matmul(tf.nn.softmax(tf.matmul(y, y, transpose_b=True)), y)
    return x


def _normalised(x: Any) -> Any:
    """Element-wise operations and reductions over large arrays: they are bound by the memory."""
    for n in range(3):
        gain, bias = (tf.get_variable(f"{part}{n}", [x.shape.as_list()[-1]]) for part in "gb")
        x = tf.nn.relu(tf.compat.v1.nn.fused_batch_norm(x, gain, bias)[0])
    return x


def _recurrent(x: Any) -> Any:
    """Many short kernels, each of which waits for the one before it."""
    width = x.shape.as_list()[-1]
    w = tf.get_variable("w", [width, width])
    h = x
    for _ in range(16):
        h = tf.tanh(tf.matmul(h, w) + x)
    return h


@dataclass(frozen=True)
class MicroGraph:
    """A network, and the shape of its input."""

    name: str
    shape: tuple[int, ...]
    network: Callable[[Any], Any]


MICRO_GRAPHS = (
    MicroGraph("calls", (2, 8), _dense(8)),
    MicroGraph("products", (384, 512), _dense(512, 512, 512)),
    MicroGraph("large products", (512, 768), _dense(1536, 768)),
    MicroGraph("small products", (128, 192), _dense(192, 192)),
    MicroGraph("thin products", (16, 2048), _dense(2048, 4096)),
    MicroGraph("batched products", (48, 128, 64), _attention),
    MicroGraph("recurrence", (24, 512), _recurrent),
    MicroGraph("first layer", (4, 160, 160, 3), _convolutions(7, 48, stride=2)),
    MicroGraph("3x3, large images", (4, 48, 48, 64), _convolutions(3, 64, 128)),
    MicroGraph("3x3, many channels", (16, 16, 16, 128), _convolutions(3, 256, 256)),
    MicroGraph("5x5", (8, 20, 20, 64), _convolutions(5, 64, 128)),
    MicroGraph("1x1", (8, 20, 20, 192), _convolutions(1, 96, 192, 96)),
    MicroGraph("1x1, large images", (4, 48, 48, 64), _convolutions(1, 128, 64)),
    MicroGraph("strides", (8, 32, 32, 64), _convolutions(3, 96, 128, stride=2)),
    MicroGraph("pools", (8, 64, 64, 32), _convolutions(1, 32, 32, pool=True)),
    MicroGraph("normalisation", (16, 40, 40, 96), _normalised),
)


class _Steps:
    """The two steps of a micro-graph in a session of its own."""

    def __init__(self, micro: MicroGraph) -> None:
        self.micro = micro
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, micro.shape, name="x")
            loss = tf.reduce_mean(tf.square(micro.network(x)))
            train = tf.train.GradientDescentOptimizer(1e-6).minimize(loss)
            self.session = tf.Session(config=tf.ConfigProto(device_count={"CPU": 1}))
            self.session.run(tf.global_variables_initializer())
            asked = {"loss": [], "training": [train]}
            self.run = {n: self.session.make_callable([loss, *t], [x]) for n, t in asked.items()}
        options = Options(local_devices({"CPU": 1})[:1], soft_placement=True)
        self.amounts = {
            n: workload(optimise(prepare([loss], t, [x], options), [micro.shape], options))
            for n, t in asked.items()
        }
        self.batch = np.random.default_rng(0).standard_normal(micro.shape, np.float32)
        self.least = dict.fromkeys(asked, float("inf"))

    def time(self, clock: Callable[[], float]) -> None:
        """Time both steps: several times in a row if they are short, as a program would run them,
        so that caches have what a step needs.
        """
        for name, run in self.run.items():
            until = time.perf_counter() + _SHARE
            while True:
                start = clock()
                run(self.batch)
                self.least[name] = min(self.least[name], clock() - start)
                if time.perf_counter() > until:
                    break


def measure(
    rounds: int = 12,
    clock: Callable[[], float] = time.perf_counter,
    micro_graphs: Sequence[MicroGraph] = MICRO_GRAPHS,
) -> list[TimedSample]:
    """Return the times of the micro-graphs' steps."""
    all_steps = [_Steps(micro) for micro in micro_graphs]
    for steps in all_steps:
        for _ in range(_WARM):
            steps.time(clock)
        steps.least = dict.fromkeys(steps.least, float("inf"))
    for _ in range(rounds):
        for steps in all_steps:
            steps.time(clock)
    for steps in all_steps:
        steps.session.close()
    return [
        TimedSample(f"{steps.micro.name}, {name}", steps.amounts[name], seconds)
        for steps in all_steps
        for name, seconds in steps.least.items()
    ]


def calibrated(roofs: Roofs, samples: Sequence[TimedSample]) -> Roofs:
    """Return roofs with the rates that are fitted to these samples."""
    return replace(roofs, rates=fit_rates(samples, roofs))
