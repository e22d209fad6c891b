"""Who competes: for each framework, how a model becomes a training step.

A contender has `version`, `load(batch)`, which makes a batch the input of the steps to come, and
`step()`, which trains once and returns the loss when everything is done.
"""

from __future__ import annotations

import importlib
from typing import Any

from models import Model

# framework -> its ways to run, in the order of the tables' columns.
MODES = {
    "headrace": ("",),
    "torch": ("eager", "channels_last", "compile"),
    "tf": ("graph", "xla"),
    "jax": ("jit",),
}


def modes(framework: str, model: Model) -> list[str]:
    """The ways that make a difference for a model."""
    flat = not model.convolutional
    return [m for m in MODES[framework] if not (flat and m == "channels_last")]


def make(framework: str, mode: str, model: Model) -> Any:
    """The contender; imports its framework."""
    return importlib.import_module(f"contenders.in_{framework}").Contender(model, mode)
