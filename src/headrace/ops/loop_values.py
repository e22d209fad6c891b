"""What goes into branches and loops and comes out of them: nests of tensors, of values made of
several tensors, and of TensorArrays, whose flow stands for them in the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.core import nest
from headrace.ops.convert import convert_to_tensor
from headrace.ops.tensor_array import TensorArray, build_ta_with_new_flow

__all__ = [
    "as_tensors",
    "flow_of",
    "like_tensor_arrays",
    "unpack_single",
]


def flow_of(value: Any) -> Any:
    """A TensorArray's flow; other values are themselves."""
    return value.flow if isinstance(value, TensorArray) else value


def like_tensor_arrays(originals: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    """Put TensorArrays in place of the flows among `tensors`, where `originals` had them."""
    return [
        build_ta_with_new_flow(old, new) if isinstance(old, TensorArray) else new
        for old, new in zip(originals, tensors, strict=True)
    ]


def as_tensors(values: Any) -> list[Any]:
    """The leaves of a nest as tensors; values made of several tensors stay whole."""
    flat = [flow_of(v) for v in nest.flatten(values)]
    return [v if hasattr(v, "components") else convert_to_tensor(v) for v in flat]


def unpack_single(value: Any) -> Any:
    """The item of a list or tuple of one item; other values are themselves."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
