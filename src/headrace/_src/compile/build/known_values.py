"""Values that are known at compile time, such as a model's weights, and buffers that hold them."""

from __future__ import annotations

import numpy as np

from headrace._src.compile.build.plan_builder import Builder
from headrace._src.compile.regions.region import constant_of, is_constant
from headrace._src.graph.dataflow import Value

__all__ = ["constant", "known_array"]


def known_array(builder: Builder, value: Value) -> np.ndarray | None:
    """A whole value that is known at compile time."""
    source = builder.region.source(value)
    whole = source.view is None and is_constant(source.base)
    return constant_of(source.base) if whole else None


def constant(builder: Builder, array: np.ndarray, label: str) -> int:
    """A buffer with known contents."""
    return builder.add("constant", array.dtype.name, array.size, label, value=array)
