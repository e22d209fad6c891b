"""Run anchors by their geometries, in NumPy. In: a geometry and the op's inputs. Out: arrays.

Each kind of anchor declares its meaning beside its kernels. The result of a Scatter is the
variable's new value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.compile.build.families import KINDS
from headrace._src.compile.kernels.anchor_kind import Arrays, numpy_dtype

__all__ = ["run_anchor"]

_MEANINGS = {geometry: run for kind in KINDS for geometry, run in kind.meanings.items()}


def run_anchor(geometry: Any, inputs: Sequence[np.ndarray]) -> Arrays:
    """The outputs of an anchor from those inputs that are its operands."""
    dtype = numpy_dtype(geometry.dtype)
    operands = [inputs[i] for i in geometry.operands]
    results = _MEANINGS[type(geometry)](geometry, *operands)
    # Statistics of 16-bit data stay float32: they come after the first result.
    return [results[0].astype(dtype), *results[1:]]
