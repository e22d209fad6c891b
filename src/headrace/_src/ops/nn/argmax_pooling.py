"""Max pooling that also returns the index of each maximum, and its gradients to second order."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Sample
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.nn import pool_kernels
from headrace._src.ops.nn.pool_ops import pool_infer, pool_options

__all__ = ["max_pool_with_argmax_op"]

_WINDOW = "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME'|'VALID'}"
_TILES = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}


def _max_pool_with_argmax(x, *, ksize, strides, padding, Targmax, include_batch_in_index):
    return pool_kernels.max_pool_with_argmax(
        x,
        ksize=ksize,
        strides=strides,
        padding=padding,
        Targmax=Targmax.numpy,
        include_batch_in_index=include_batch_in_index,
    )


def _with_argmax_infer(c: Any, x: TensorShape) -> Any:
    return [pool_infer(c, x)] * 2


def _grad_grad_infer(c: Any, x: TensorShape, grad: TensorShape, argmax: TensorShape) -> Any:
    x.merge_with(grad)
    pooled = pool_infer(c, x)
    TensorShape(pooled).merge_with(argmax)
    return pooled


_WAYS = [
    ((2, 5, 4, 3), {"ksize": [1, 2, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}),
    ((1, 4, 5, 2), {"ksize": [1, 2, 3, 1], "strides": [1, 1, 1, 1], "padding": "VALID"}),
    ((0, 4, 4, 1), {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}),
]


@define(
    "MaxPoolWithArgmax",
    "input: T -> output: T, argmax: Targmax",
    "ksize: list(int) >= 4; strides: list(int) >= 4; Targmax: {index} = int64; "
    "padding: {'SAME'|'VALID'}; include_batch_in_index: bool = False; T: {reals}",
    infer=_with_argmax_infer,
    kernel=_max_pool_with_argmax,
    gradient=lambda b, op, dy, _: b.max_pool_grad_with_argmax(
        op.inputs[0], dy, op.outputs[1], **pool_options(op)
    ),
    samples=[
        *(Sample(r(*shape), **window) for shape, window in _WAYS),
        Sample(r(*_WAYS[0][0]), **_WAYS[0][1], include_batch_in_index=True),
    ],
)
def max_pool_with_argmax_op(
    input,
    ksize,
    strides,
    padding,
    Targmax="int64",
    include_batch_in_index=False,
    name=None,
):
    """Return the largest element of each window and its flat index in its image or in the batch."""


def _at_argmax_gradient(name: str) -> Any:
    def gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
        x, _, argmax = op.inputs
        return b.zeros_like(x), getattr(b, name)(x, grad, argmax, **pool_options(op)), None

    return gradient


_ARGMAX = np.array([2, 3, 8, 13]).reshape(1, 2, 2, 1)  # one index per 2 x 2 tile of a 4 x 4 plane
_AT_ARGMAX = f"{_WINDOW}; include_batch_in_index: bool = False; Targmax: {{index}}; T: {{reals}}"


@define(
    "MaxPoolGradWithArgmax",
    "input: T, grad: T, argmax: Targmax -> output: T",
    _AT_ARGMAX,
    infer=lambda c, x, *_: x.with_rank(4),
    kernel=pool_kernels.max_pool_grad_with_argmax,
    gradient=_at_argmax_gradient("max_pool_grad_grad_with_argmax"),
    samples=[
        Sample(r(1, 4, 4, 1), r(1, 2, 2, 1), _ARGMAX, **_TILES),
        Sample(r(1, 4, 4, 1), r(1, 2, 2, 1), _ARGMAX, **_TILES, include_batch_in_index=True),
    ],
)
def max_pool_grad_with_argmax(
    input,
    grad,
    argmax,
    ksize,
    strides,
    padding,
    include_batch_in_index=False,
    name=None,
):
    """Return zeros of input's shape with grad added at the indices in argmax."""


@define(
    "MaxPoolGradGradWithArgmax",
    "input: T, grad: T, argmax: Targmax -> output: T",
    _AT_ARGMAX,
    infer=_grad_grad_infer,
    kernel=pool_kernels.max_pool_grad_grad_with_argmax,
    gradient=_at_argmax_gradient("max_pool_grad_with_argmax"),
    samples=[Sample(r(1, 4, 4, 1), r(1, 4, 4, 1), _ARGMAX, **_TILES)],
)
def max_pool_grad_grad_with_argmax(
    input,
    grad,
    argmax,
    ksize,
    strides,
    padding,
    include_batch_in_index=False,
    name=None,
):
    """Return the elements of grad at the indices in argmax."""
