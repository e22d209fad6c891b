"""Dropout: random elements become 0, and the rest are scaled to preserve the mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["dropout"]


@composed
@export("nn.dropout")
def dropout(
    x: Any,
    keep_prob: Any = None,
    noise_shape: Any = None,
    seed: Any = None,
    name: str | None = None,
    rate: Any = None,
) -> Tensor:
    """Return x with each element dropped with probability `rate` (or 1 - keep_prob).

    noise_shape: the shape of the random mask, which broadcasts to x: elements along dimensions of
    size 1 are dropped together.
    """
    if keep_prob is not None:
        if rate is not None:
            raise ValueError("Cannot specify both 'rate' and 'keep_prob'")
        rate = _rate_of(keep_prob)
    if rate is None:
        raise ValueError("You must provide a rate to dropout.")
    with name_scope(name, "dropout", [x]):
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_floating:
            raise ValueError(
                "x has to be a floating point tensor since it's going to be scaled. "
                f"Got a {x.dtype} tensor instead."
            )
        if isinstance(rate, int | float | np.number):
            if not 0 <= rate < 1:
                raise ValueError(
                    f"rate must be a scalar tensor or a float in the range [0, 1), got {rate:g}"
                )
            if rate == 0:
                return x
        rate = convert_to_tensor(rate, dtype=x.dtype, name="rate")
        if not rate.shape.is_compatible_with([]):
            raise ValueError(f"rate must be a scalar, not of shape {rate.shape}")
        return _dropped(x, rate, noise_shape, seed)


def _rate_of(keep_prob: Any) -> Any:
    try:
        return 1 - keep_prob
    except TypeError:
        raise ValueError(f"keep_prob must be a number or a Tensor, got {keep_prob!r}") from None


def _dropped(x: Tensor, rate: Tensor, noise_shape: Any, seed: Any) -> Tensor:
    shape = _noise_shape(x, noise_shape)
    noise = b.random_uniform(shape, seed=seed, dtype=x.dtype)
    scale = 1 / (1 - rate)
    keep = noise >= rate
    result = x * scale * b.cast(keep, x.dtype)
    result.set_shape(x.shape)
    return result


def _noise_shape(x: Tensor, noise_shape: Any) -> Any:
    """Return the shape of the draws; x supplies the unknown dimensions of a static shape."""
    if noise_shape is None:
        return b.shape(x)
    if isinstance(noise_shape, Tensor):
        return noise_shape
    sizes = x.shape.sizes
    given = list(noise_shape)
    if sizes is not None and len(sizes) == len(given):
        return [size if n is None else n for n, size in zip(given, sizes, strict=True)]
    return noise_shape
