"""Names that TensorFlow 1.15 has and Headrace lacks. In: a public name. Out: a message about it.

`tensorflow_names.txt` has TensorFlow's public names (scripts/record_names writes it). It is read
only when a program asks for a missing name. `AREAS` says what to use instead, here and in
docs/coverage.md, whose list scripts/generate_reference writes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["AREAS", "Area", "area_of", "explain", "missing_names", "tensorflow_names"]


@dataclass(frozen=True)
class Area:
    """A part of TensorFlow: its title, the names that belong to it (a regular expression for what
    follows `tf.`), and what a program can do without it.
    """

    title: str
    pattern: str
    instead: str


AREAS = (
    Area(
        "`tf.data`",
        r"data\b|OptionalSpec|raw_ops\.\w*(Dataset|Iterator)",
        "read files with tf.train.string_input_producer and tf.train.batch, or feed arrays",
    ),
    Area(
        "Keras",
        r"keras\b|layers\.experimental",
        "tf.layers has layers, tf.train optimizers, tf.estimator training loops",
    ),
    Area(
        "eager execution",
        r"GradientTape|function$|wrap_function|enable_eager_execution|enable_v2_behavior"
        r"|(enable|disable)_tensor_equality|enable_v2_tensorshape|(enable_)?control_flow_v2"
        r"|compat\.v2|autograph|summary\.(all_v2|initialize)",
        "build a graph and run it in a tf.Session; tf.py_function runs operations as they are made",
    ),
    Area(
        "images",
        r"image\b|io\.((decode|encode|extract)_.*(jpeg|png|bmp|gif|image)|extract_jpeg|is_jpeg)"
        r"|raw_ops\.(\w*(Jpeg|Png|Bmp|Gif|HSV|RGB|Image|Box|NonMaxSuppression|Hue|Contrast"
        r"|Saturation|Glimpse)\w*|Resize(Area|Bi|Nearest)\w*)",
        "prepare images before they are fed, or in tf.py_func",
    ),
    Area("audio", r"audio\b|raw_ops\.(\w*Wav|Mfcc|AudioSpectrogram)$", "use tf.signal"),
    Area(
        "quantisation",
        r"quantiz|dequantize|fake_quant|nn\.quantized|train\.do_quantize"
        r"|raw_ops\.\w*([Qq]uanti|Requanti)",
        "compute in float32 or bfloat16",
    ),
    Area(
        "distribution",
        r"distribute\b|tpu\b|estimator\.tpu|config\b"
        r"|test\.create_local|nondiff|raw_ops\.\w*(Nccl|Collective|TPU|Batch(Function)?$)",
        "use parameter servers, with tf.train.SyncReplicasOptimizer for synchronous training",
    ),
    Area(
        "`tf.distributions`",
        r"(contrib\.)?distributions\b",
        "write the densities down: tf.math has their functions",
    ),
    Area(
        "boosted trees, SDCA, heads by themselves",
        r"estimator\.|train\.sdca|raw_ops\.(Boosted|Sdca|TensorForest|KMC2|KmeansPlus|NearestNei)",
        "use tf.estimator's linear and deep models",
    ),
    Area(
        "the profiler, XLA, type specifications",
        r"profiler\b|xla\b|sysconfig\b|lite\b|\w+Spec$|experimental\b|raw_ops\.Xla",
        "steps are compiled anyway; tf.RunOptions(trace_level=...) says where their time goes",
    ),
    Area(
        "much of `tf.contrib`",
        r"contrib\b",
        "of tf.contrib, what programs use most of layers, slim, rnn, opt and others is here",
    ),
    Area("other ops", r"raw_ops\b", "docs/ops.md lists the ops that are here"),
)
_OTHERS = Area("others", "", "docs/coverage.md lists all that is missing")


@cache
def tensorflow_names() -> Mapping[str, frozenset[str]]:
    """The public names of TensorFlow 1.15 by namespace: `"tf.nn": {"relu", ...}`."""
    text = Path(__file__).with_name("tensorflow_names.txt").read_text(encoding="utf-8")
    entries = re.findall(r"^(\S+):((?:.*\n(?: .*\n)*))", text, re.MULTILINE)
    return {space: frozenset(names.split()) for space, names in entries}


def area_of(name: str) -> Area:
    """Return the area that a name without its `tf.` belongs to."""
    return next((area for area in AREAS if re.match(area.pattern, name)), _OTHERS)


def explain(space: str, name: str) -> str | None:
    """Return the message for a missing name, None if TensorFlow lacks the name too."""
    if name not in tensorflow_names().get(space, ()):
        return None
    full = f"{space}.{name}"
    return f"{full} is not in Headrace yet: {area_of(full.removeprefix('tf.')).instead}"


def missing_names(here: Mapping[str, Collection[str]]) -> dict[Area, list[str]]:
    """Return TensorFlow's names that aren't in `here` (names by namespace), grouped by area. A
    namespace that is missing entirely counts as one name.
    """
    found: dict[Area, list[str]] = {area: [] for area in (*AREAS, _OTHERS)}
    for space, names in tensorflow_names().items():
        for name in sorted(names - set(here.get(space, names))):
            full = f"{space}.{name}".removeprefix("tf.")
            found[area_of(full)].append(full)
    return {area: names for area, names in found.items() if names}
