"""Fractional pooling (Graham 2014): windows of random lengths, so sizes shrink by any ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.nn import fractional_pool_kernels
from headrace._src.ops.nn.fractional_pool_kernels import fractional_size, pooling_sequence
from headrace._src.ops.random.philox import PhiloxState

__all__ = ["fractional_avg_pool", "fractional_max_pool"]

_TYPES = "T: {float32|float64|int32|int64}"
_ATTRIBUTES = (
    "pooling_ratio: list(float) >= 4; pseudo_random: bool = False; overlapping: bool = False; "
    f"deterministic: bool = False; seed: int = 0; seed2: int = 0; {_TYPES}"
)


def _check_ratio(pooling_ratio: Sequence[float]) -> None:
    if len(pooling_ratio) != 4:
        raise ValueError(f"pooling_ratio must have 4 entries, got {list(pooling_ratio)}")
    if pooling_ratio[0] != 1 or pooling_ratio[3] != 1:
        raise ValueError(f"batch and depth can't be pooled: pooling_ratio is {list(pooling_ratio)}")
    if min(pooling_ratio) < 1:
        raise ValueError(f"pooling_ratio must not be below 1, got {list(pooling_ratio)}")


def _infer(c: Any, value: TensorShape) -> list[Any]:
    ratio = c.attrs["pooling_ratio"]
    _check_ratio(ratio)
    batch, height, width, depth = value.with_rank(4).as_list()
    rows = None if height is None else fractional_size(height, ratio[1])
    columns = None if width is None else fractional_size(width, ratio[2])
    cuts = [(None if n is None else n + 1,) for n in (rows, columns)]
    return [(batch, rows, columns, depth), *cuts]


def _avg_grad_infer(c: Any, *_: Any) -> Any:
    known = c.value(0)
    return (None,) * 4 if known is None else c.shape_from(0).with_rank(4)


def _generator(ctx: Any, deterministic: bool, seed: int, seed2: int) -> PhiloxState:
    """Return the generator of this step's draws: the op's own state, which a deterministic op never
    advances.
    """
    if not deterministic and (seed or seed2):
        raise ValueError("Both seed and seed2 should be 0 if deterministic is false.")
    state = ctx.state(PhiloxState, lambda: PhiloxState(seed, seed2))
    if not deterministic:
        return state
    again = PhiloxState(seed, seed2)
    again.set_state(state.get_state())
    return again


def _pooling(pool: Any) -> Any:
    """Return the kernel that draws the cuts of rows and columns and pools accordingly."""

    def kernel(
        value, *, pooling_ratio, pseudo_random, overlapping, deterministic, seed, seed2, ctx
    ):
        _check_ratio(pooling_ratio)
        if value.ndim != 4:
            raise ValueError(f"value must have 4 dimensions, got shape {value.shape}")
        state = _generator(ctx, deterministic, seed, seed2)
        cuts = [
            pooling_sequence(size, fractional_size(size, ratio), state, pseudo_random=pseudo_random)
            for size, ratio in zip(value.shape[1:3], pooling_ratio[1:3], strict=True)
        ]
        return pool(value, *cuts, overlapping=overlapping), *cuts

    return kernel


@export("nn.fractional_max_pool")
@define(
    "FractionalMaxPool",
    "value: T -> output: T, row_pooling_sequence: int64, col_pooling_sequence: int64",
    _ATTRIBUTES,
    infer=_infer,
    kernel=_pooling(fractional_pool_kernels.fractional_max_pool),
    gradient=lambda b, op, dy, *_: b.fractional_max_pool_grad(
        op.inputs[0], op.outputs[0], dy, *op.outputs[1:], overlapping=op.get_attr("overlapping")
    ),
    effect=Effect.RANDOM,
    samples=[
        Sample(r(1, 5, 6, 2), pooling_ratio=[1.0, 1.5, 1.3, 1.0]),
        Sample(
            r(1, 5, 6, 2),
            pooling_ratio=[1.0, 1.5, 1.3, 1.0],
            pseudo_random=True,
            overlapping=True,
            deterministic=True,
            seed=3,
            seed2=4,
        ),
    ],
)
def fractional_max_pool(
    value,
    pooling_ratio,
    pseudo_random=False,
    overlapping=False,
    deterministic=False,
    seed=0,
    seed2=0,
    name=None,
):
    """Return the largest element of each window, and the cuts that were drawn.

    A deterministic op draws the same cuts in every step.

    pooling_ratio: how much each dimension shrinks, at least 1; 1 for batch and depth.
    pseudo_random: spread the cuts evenly. overlapping: windows share the element at a cut.
    """


@export("nn.fractional_avg_pool")
@define(
    "FractionalAvgPool",
    "value: T -> output: T, row_pooling_sequence: int64, col_pooling_sequence: int64",
    _ATTRIBUTES,
    infer=_infer,
    kernel=_pooling(fractional_pool_kernels.fractional_avg_pool),
    gradient=counted(
        2,
        lambda b, op, dy, *_: b.fractional_avg_pool_grad(
            b.cast(b.shape(op.inputs[0]), "int64"),
            dy,
            *op.outputs[1:],
            overlapping=op.get_attr("overlapping"),
        ),
    ),
    effect=Effect.RANDOM,
    samples=[
        Sample(r(1, 5, 6, 2), pooling_ratio=[1.0, 1.5, 1.3, 1.0]),
        Sample(r(2, 4, 4, 1), pooling_ratio=[1.0, 2.0, 1.0, 1.0], overlapping=True),
        Sample(r(1, 5, 6, 2), pooling_ratio=[1.0, 1.5, 1.3, 1.0], deterministic=True, seed=3),
    ],
)
def fractional_avg_pool(
    value,
    pooling_ratio,
    pseudo_random=False,
    overlapping=False,
    deterministic=False,
    seed=0,
    seed2=0,
    name=None,
):
    """Return the mean of each window, and the cuts that were drawn.

    A deterministic op draws the same cuts in every step.

    pooling_ratio: how much each dimension shrinks, at least 1; 1 for batch and depth.
    pseudo_random: spread the cuts evenly. overlapping: windows share the element at a cut.
    """


_ROWS, _COLUMNS = [0, 2, 3, 5], [0, 1, 2, 4, 6]


@define(
    "FractionalMaxPoolGrad",
    "orig_input: T, orig_output: T, out_backprop: T, row_pooling_sequence: int64, "
    "col_pooling_sequence: int64 -> output: T",
    f"overlapping: bool = False; {_TYPES}",
    infer=lambda c, x, *_: x.with_rank(4),
    kernel=fractional_pool_kernels.fractional_max_pool_grad,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(
            r(1, 5, 6, 2), r(1, 3, 4, 2), r(1, 3, 4, 2), _ROWS, _COLUMNS, overlapping=overlapping
        )
        for overlapping in (False, True)
    ],
)
def fractional_max_pool_grad(
    orig_input,
    orig_output,
    out_backprop,
    row_pooling_sequence,
    col_pooling_sequence,
    overlapping=False,
    name=None,
):
    """Return zeros of orig_input's shape with each window's gradient added at its maximum."""


@define(
    "FractionalAvgPoolGrad",
    "orig_input_tensor_shape: int64, out_backprop: T, row_pooling_sequence: int64, "
    "col_pooling_sequence: int64 -> output: T",
    f"overlapping: bool = False; {_TYPES}",
    infer=_avg_grad_infer,
    kernel=fractional_pool_kernels.fractional_avg_pool_grad,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(np.array([1, 5, 6, 2]), r(1, 3, 4, 2), _ROWS, _COLUMNS, overlapping=overlapping)
        for overlapping in (False, True)
    ],
)
def fractional_avg_pool_grad(
    orig_input_tensor_shape,
    out_backprop,
    row_pooling_sequence,
    col_pooling_sequence,
    overlapping=False,
    name=None,
):
    """Return each window's gradient, spread evenly over its elements."""
