"""The rounding errors of a convolution's three passes.

Run by bench/curves.py, for each value of HEADRACE_ACCURACY. Answers in JSON: for each shape, for
each pass, the root mean square and the largest of the differences from the same in float64,
relative to the root mean square of that.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import headrace as tf

PASSES = ("forward", "backward data", "backward filter")
# Images, height and width, channels, filters, taps: layers of the works, with fewer images.
SHAPES = {
    "VGG-A 256 to 256 at 56": (2, 56, 256, 256, 3),
    "Overfeat 512 to 1024 at 12": (4, 12, 512, 1024, 3),
    "GoogLeNet 192 to 384 at 7": (16, 7, 192, 384, 3),
    "AlexNet 64 to 192 at 27": (4, 27, 64, 192, 5),
    "GoogLeNet 48 to 128 at 7": (16, 7, 48, 128, 5),
}


def passes(x: np.ndarray, w: np.ndarray, dy: np.ndarray, times: int) -> list[np.ndarray]:
    """The result and the gradients of its product with dy, after the step has run `times` times."""
    with tf.Graph().as_default(), tf.Session() as session:
        feeds = {tf.placeholder(a.dtype, a.shape): a for a in (x, w, dy)}
        images, filters, gradient = feeds
        y = tf.nn.conv2d(images, filters, [1, 1, 1, 1], "SAME")
        step = [y, *tf.gradients(y, [images, filters], gradient)]
        for _ in range(times):
            found = session.run(step, feeds)
    return found


def errors(
    images: int, size: int, channels: int, filters: int, taps: int
) -> dict[str, list[float]]:
    random = np.random.default_rng(0)
    # As behind and before a ReLU: no negative activations, and gradients half of which are zero.
    x = np.maximum(random.standard_normal((images, size, size, channels), "f"), 0)
    scale = np.float32(np.sqrt(2 / (taps * taps * channels)))
    w = random.standard_normal((taps, taps, channels, filters), "f") * scale
    dy = random.standard_normal((images, size, size, filters), "f")
    dy *= random.random(dy.shape, "f") < 0.5
    exact = passes(*(a.astype("d") for a in (x, w, dy)), times=1)
    found = {}
    for name, value, wanted in zip(PASSES, passes(x, w, dy, times=2), exact, strict=True):
        difference, unit = value - wanted, np.sqrt(np.mean(wanted**2))
        found[name] = [np.sqrt(np.mean(difference**2)) / unit, np.abs(difference).max() / unit]
    return found


if __name__ == "__main__":
    json.dump({name: errors(*shape) for name, shape in SHAPES.items()}, sys.stdout)
