"""Initializers of tf.contrib.layers: random numbers whose variance depends on the number of inputs,
of outputs, or the mean of both, of a weight matrix. As tf.variance_scaling_initializer, with other
defaults, and a truncated normal distribution corrected by 1.3 instead of its exact variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core.dtypes import as_dtype, float32
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b

__all__ = ["fan_variance_scaling", "xavier_initializer"]

_MODES: dict[str, Callable[[float, float], float]] = {
    "FAN_IN": lambda inputs, outputs: inputs,
    "FAN_OUT": lambda inputs, outputs: outputs,
    "FAN_AVG": lambda inputs, outputs: (inputs + outputs) / 2.0,
}


@export(
    "contrib.layers.xavier_initializer",
    "contrib.slim.xavier_initializer",
    "contrib.layers.xavier_initializer_conv2d",
    "contrib.slim.xavier_initializer_conv2d",
)
def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = float32
) -> Callable[..., Tensor]:
    """Return Glorot's initializer: the variance of gradients stays about the same from layer to
    layer.
    """
    return fan_variance_scaling(1.0, "FAN_AVG", uniform, seed, dtype)


@export("contrib.layers.variance_scaling_initializer", "contrib.slim.variance_scaling_initializer")
def fan_variance_scaling(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = float32,
) -> Callable[..., Tensor]:
    """Return an initializer with variance factor / n, n being a weight's inputs ("FAN_IN"), outputs
    ("FAN_OUT"), or their mean ("FAN_AVG"): a truncated normal distribution or, if `uniform`, a
    uniform one.
    """
    _check_floating(dtype)
    if mode not in _MODES:
        raise TypeError(f"Unknown mode {mode} [FAN_IN, FAN_OUT, FAN_AVG]")

    def _initializer(
        shape: Sequence[int], dtype: Any = dtype, partition_info: Any = None
    ) -> Tensor:
        _check_floating(dtype)
        whole = shape if partition_info is None else partition_info.full_shape
        number = _MODES[mode](*_fans([float(size) for size in whole]))
        if uniform:
            limit = math.sqrt(3.0 * factor / number)
            return b.random_uniform(shape, -limit, limit, dtype, seed=seed)
        deviation = math.sqrt(1.3 * factor / number)
        return b.truncated_normal(shape, 0.0, deviation, dtype, seed=seed)

    return _initializer


def _check_floating(dtype: Any) -> None:
    if not as_dtype(dtype).is_floating:
        raise TypeError("Cannot create initializer for non-floating point type.")


def _fans(sizes: list[float]) -> tuple[float, float]:
    if not sizes:
        return 1.0, 1.0
    field = math.prod(sizes[:-2])
    return field * sizes[max(len(sizes) - 2, 0)], field * sizes[-1]
