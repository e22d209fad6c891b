"""Axes and vectors of one data format converted to another: left over from layout changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Kind, Sample
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define

__all__ = ["data_format_dim_map", "data_format_vec_permute"]

_ATTRIBUTES = "T: {index} = int32; src_format: string = 'NHWC'; dst_format: string = 'NCHW'"


def _positions(letters: str, within: str) -> np.ndarray:
    """Return, for each dimension of one format, its position in the other."""
    return np.array([within.index(letter) for letter in letters])


def _check_formats(source: str, target: str) -> None:
    for role, letters in (("Source", source), ("Destination", target)):
        if len(letters) not in (4, 5):
            short = "src" if role == "Source" else "dst"
            raise ValueError(
                f"{role} format must be of length 4 or 5, received {short}_format = {letters}"
            )
    if sorted(source) != sorted(target) or len(set(source)) != len(source):
        raise ValueError(
            f"Destination and source format must determine a permutation, got {source} and {target}"
        )


def _dim_map(x, *, src_format, dst_format):
    _check_formats(src_format, dst_format)
    places = _positions(src_format, dst_format).astype(x.dtype)
    return np.asarray(places[np.mod(x, len(places))])


@define(
    "DataFormatDimMap",
    "x: T -> y: T",
    _ATTRIBUTES,
    infer=infer.same_as(0),
    kernel=_dim_map,
    kind=Kind.ELEMENTWISE,
    samples=[
        Sample([0, 1, 2, 3, -1, -4]),
        Sample([1, -1], src_format="NCHW", dst_format="NHWC"),
        Sample(2),
    ],
)
def data_format_dim_map(x, src_format="NHWC", dst_format="NCHW", name=None):
    """Return the axes of dst_format that correspond to the axes x of src_format."""


def _vec_permute(x, *, src_format, dst_format):
    _check_formats(src_format, dst_format)
    order = _positions(dst_format, src_format)
    if x.shape not in ((len(order),), (len(order), 2)):
        raise ValueError(f"x must be [{len(order)}] or [{len(order)}, 2], got {list(x.shape)}")
    return x[order]


def _vec_permute_infer(c: Any, x: TensorShape) -> TensorShape:
    if x.ndims is not None and x.ndims not in (1, 2):
        raise ValueError(f"Shape must be rank 1 or 2 but is rank {x.ndims}")
    return x


@define(
    "DataFormatVecPermute",
    "x: T -> y: T",
    _ATTRIBUTES,
    infer=_vec_permute_infer,
    kernel=_vec_permute,
    kind=Kind.MOVEMENT,
    samples=[
        Sample([5, 6, 7, 8]),
        Sample([[1, 2], [3, 4], [5, 6], [7, 8]], src_format="NCHW", dst_format="NHWC"),
    ],
)
def data_format_vec_permute(x, src_format="NHWC", dst_format="NCHW", name=None):
    """Return the entries of x, one per axis of src_format, in dst_format's order."""
