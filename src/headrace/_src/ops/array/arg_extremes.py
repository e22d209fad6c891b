"""The indices of the extreme elements of a tensor along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Kind, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.rules import Reduce
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r

__all__ = ["argmax", "argmin"]


def _checked_axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError(
            f"Dimension ({axis}) must be in the range [{-rank}, {rank}), where {rank} is the "
            "number of dimensions in the input."
        )
    return axis % rank


def _infer(c: Any, x: TensorShape, dimension: TensorShape) -> Any:
    dimension.assert_has_rank(0)
    if x.sizes is None:
        return None
    if len(x.sizes) <= 1:
        return ()
    axis = c.value(1)
    if axis is None:
        return (None,) * (len(x.sizes) - 1)
    axis = _checked_axis(int(axis), len(x.sizes))
    return x.sizes[:axis] + x.sizes[axis + 1 :]


def _kernel(find: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(x: Any, dimension: Any, *, output_type: DType) -> Any:
        if np.ndim(dimension):
            raise ValueError(f"dimension must be a scalar, but has shape {np.shape(dimension)}")
        axis, rank = int(dimension), np.ndim(x)
        if not -rank <= axis < rank:
            raise ValueError(f"Expected dimension in the range [{-rank}, {rank}), but got {axis}")
        axis %= rank
        if not x.shape[axis]:
            raise ValueError(f"Reduction axis {axis} is empty in shape {list(x.shape)}")
        return find(x, axis).astype(output_type.numpy, copy=False)

    return kernel


def _position_op(op_type: str, find: Callable[..., Any], lower: Reduce) -> Any:
    return define(
        op_type,
        "input: T, dimension: Tidx -> output: output_type",
        "T: {numbers}; Tidx: {index} = int32; output_type: {index} = int64",
        infer=_infer,
        kernel=_kernel(find),
        kind=Kind.REDUCTION,
        samples=[Sample(r(3, 4), 1), Sample(r(3, 4), 0), Sample(r(2, 3, 2), -2), Sample(r(5), 0)],
        lower=lower,
    )


@export("arg_max")
@_position_op("ArgMax", np.argmax, lower=Reduce("argmax"))
def arg_max(input, dimension, output_type=dtypes.int64, name=None):
    """Return the index of the largest element along a dimension, the first of several."""


@export("arg_min")
@_position_op("ArgMin", np.argmin, lower=Reduce("argmin"))
def arg_min(input, dimension, output_type=dtypes.int64, name=None):
    """Return the index of the smallest element along a dimension, the first of several."""


@composed
@export("argmax", "math.argmax")
def argmax(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = dtypes.int64,
) -> Tensor:
    """Return the index of the largest element along `axis` (0 if None), the first of several."""
    axis = renamed_argument("axis", axis, "dimension", dimension)
    return arg_max(input, 0 if axis is None else axis, output_type=output_type, name=name)


@composed
@export("argmin", "math.argmin")
def argmin(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = dtypes.int64,
) -> Tensor:
    """Return the index of the smallest element along `axis` (0 if None), the first of several."""
    axis = renamed_argument("axis", axis, "dimension", dimension)
    return arg_min(input, 0 if axis is None else axis, output_type=output_type, name=name)
