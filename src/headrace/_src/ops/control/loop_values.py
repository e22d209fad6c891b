"""Inputs and outputs of branches and loops: nests of tensors, of composite values made of several
tensors, and of TensorArrays, whose flow tensor represents them in the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace._src.core import nest
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.control.tensor_array import TensorArray, build_ta_with_new_flow

__all__ = [
    "as_tensors",
    "flow_of",
    "like_tensor_arrays",
    "unpack_single",
]


def flow_of(value: Any) -> Any:
    """Return a TensorArray's flow; return other values unchanged."""
    return value.flow if isinstance(value, TensorArray) else value


def like_tensor_arrays(originals: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    """Replace the flows among `tensors` by TensorArrays, where `originals` had them."""
    return [
        build_ta_with_new_flow(old, new) if isinstance(old, TensorArray) else new
        for old, new in zip(originals, tensors, strict=True)
    ]


def as_tensors(values: Any) -> list[Any]:
    """Return the leaves of a nest as tensors; composite values stay whole."""
    flat = [flow_of(v) for v in nest.flatten(values)]
    return [v if hasattr(v, "components") else convert_to_tensor(v) for v in flat]


def unpack_single(value: Any) -> Any:
    """Return the item of a list or tuple of one item; return other values unchanged."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
