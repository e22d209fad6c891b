"""Who competes: for each framework, how a model becomes a training step.

A contender has `version`, `load(batch)`, which makes a batch the input of the steps to come, and
`step()`, which trains once and returns the loss when everything is done.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any

from models import Model

# framework -> its ways to run, in the order of the tables' columns.
MODES = {
    "headrace": ("", "strict", "mixed"),
    "torch": ("eager", "channels_last", "compile"),
    "tf": ("graph", "xla"),
    "jax": ("jit",),
}


def modes(framework: str, model: Model, wanted: Collection[str] = ()) -> list[str]:
    """The ways that make sense for a model, and of those the ones that are wanted, if any are."""
    found = list(MODES[framework])
    if framework == "torch" and not model.convolutional:
        found.remove("channels_last")
    if framework == "tf" and model.bfloat16 and "graph" not in wanted:
        # Forty times slower than its XLA on a CPU without bfloat16 arithmetic: minutes a step.
        found.remove("graph")
    return [mode for mode in found if not wanted or mode in wanted]


def make(framework: str, mode: str, model: Model) -> Any:
    """The contender; imports its framework."""
    return importlib.import_module(f"contenders.in_{framework}").Contender(model, mode)
