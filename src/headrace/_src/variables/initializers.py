"""Initializers: functions of a shape and a dtype that make a variable's initial value.

An initializer is called as `initializer(shape, dtype=None, partition_info=None)`. For a part of a
partitioned variable, `partition_info` has the whole's shape, on which scales depend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import constant

__all__ = [
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "Identity",
    "Initializer",
    "Ones",
    "Orthogonal",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "UniformUnitScaling",
    "VarianceScaling",
    "Zeros",
]

# The standard deviation of a unit normal distribution truncated at two deviations.
_TRUNCATED_STDDEV = 0.87962566103423978


class Initializer:
    """The base class of initializers: `get_config` holds the constructor's arguments."""

    dtype: DType
    # The constructor's arguments, each kept as an attribute of the same name.
    _arguments: ClassVar[tuple[str, ...]] = ()

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None
    ) -> Tensor:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments for an equal initializer."""
        found = {name: getattr(self, name) for name in self._arguments}
        if "dtype" in found:
            found["dtype"] = self.dtype.name
        return found

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Initializer:
        """Return the initializer that `get_config` described."""
        return cls(**config)


def _floating(dtype: Any) -> DType:
    dtype = as_dtype(dtype)
    if not dtype.is_floating:
        raise ValueError(f"Expected floating point type, got {dtype}.")
    return dtype


@export("zeros_initializer", "initializers.zeros")
class Zeros(Initializer):
    """Makes zeros (False, empty strings)."""

    _arguments = ("dtype",)

    def __init__(self, dtype: Any = dtypes.float32) -> None:
        self.dtype = as_dtype(dtype)

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None
    ) -> Tensor:
        return b.zeros(shape, self.dtype if dtype is None else dtype)


@export("ones_initializer", "initializers.ones")
class Ones(Initializer):
    """Makes ones."""

    _arguments = ("dtype",)

    def __init__(self, dtype: Any = dtypes.float32) -> None:
        self.dtype = as_dtype(dtype)

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None
    ) -> Tensor:
        return b.ones(shape, self.dtype if dtype is None else dtype)


@export("constant_initializer", "initializers.constant")
class Constant(Initializer):
    """Makes a given value, or a list of values; the last one is repeated to fill the shape."""

    _arguments = ("value", "dtype")

    def __init__(
        self, value: Any = 0, dtype: Any = dtypes.float32, verify_shape: bool = False
    ) -> None:
        if not (np.isscalar(value) or isinstance(value, list | tuple | np.ndarray)):
            raise TypeError(
                f"Invalid type for initial value: {type(value)} (expected Python scalar, list or "
                "tuple of values, or numpy.ndarray)."
            )
        self.value = value
        self.dtype = as_dtype(dtype)
        self._verify_shape = verify_shape

    def __call__(
        self,
        shape: Sequence[int],
        dtype: Any = None,
        partition_info: Any = None,
        verify_shape: bool | None = None,
    ) -> Tensor:
        verify = self._verify_shape if verify_shape is None else verify_shape
        dtype = self.dtype if dtype is None else dtype
        if isinstance(shape, Tensor):
            return b.fill(shape, constant(self.value, dtype))
        return constant(self.value, dtype, shape, verify_shape=verify)


@export("random_uniform_initializer", "initializers.random_uniform")
class RandomUniform(Initializer):
    """Draws from [minval, maxval), which for floats is [0, 1) by default."""

    _arguments = ("minval", "maxval", "seed", "dtype")

    def __init__(
        self, minval: Any = 0, maxval: Any = None, seed: Any = None, dtype: Any = dtypes.float32
    ) -> None:
        self.minval = minval
        self.maxval = maxval
        self.seed = seed
        self.dtype = as_dtype(dtype)

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None
    ) -> Tensor:
        dtype = self.dtype if dtype is None else dtype
        return b.random_uniform(shape, self.minval, self.maxval, dtype, seed=self.seed)


@export("random_normal_initializer", "initializers.random_normal")
class RandomNormal(Initializer):
    """Draws from a normal distribution."""

    _arguments = ("mean", "stddev", "seed", "dtype")

    def __init__(
        self,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        seed: Any = None,
        dtype: Any = dtypes.float32,
    ) -> None:
        self.mean = mean
        self.stddev = stddev
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None
    ) -> Tensor:
        dtype = self.dtype if dtype is None else dtype
        return b.random_normal(shape, self.mean, self.stddev, dtype, seed=self.seed)


@export("truncated_normal_initializer", "initializers.truncated_normal")
class TruncatedNormal(RandomNormal):
    """Draws from a normal distribution; values more than two deviations off are drawn again."""

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None
    ) -> Tensor:
        dtype = self.dtype if dtype is None else dtype
        return b.truncated_normal(shape, self.mean, self.stddev, dtype, seed=self.seed)


@export("uniform_unit_scaling_initializer", "initializers.uniform_unit_scaling")
class UniformUnitScaling(Initializer):
    """Draws uniformly from a range that preserves the variance of a layer's input, times
    `factor`.
    """

    _arguments = ("factor", "seed", "dtype")

    def __init__(self, factor: float = 1.0, seed: Any = None, dtype: Any = dtypes.float32) -> None:
        self.factor = factor
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None
    ) -> Tensor:
        whole = shape if partition_info is None else partition_info.full_shape
        inputs = max(math.prod(map(float, whole[:-1])), 1.0)
        limit = math.sqrt(3 / inputs) * self.factor
        dtype = self.dtype if dtype is None else dtype
        return b.random_uniform(shape, -limit, limit, dtype, seed=self.seed)


_MODES = ("fan_in", "fan_out", "fan_avg")
_DISTRIBUTIONS = ("normal", "uniform", "truncated_normal", "untruncated_normal")


@export("variance_scaling_initializer", "initializers.variance_scaling")
class VarianceScaling(Initializer):
    """Draws with variance scale / n, where n counts a layer's inputs, outputs, or their mean."""

    _arguments = ("scale", "mode", "distribution", "seed", "dtype")

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: Any = None,
        dtype: Any = dtypes.float32,
    ) -> None:
        if scale <= 0.0:
            raise ValueError("`scale` must be positive float.")
        if mode not in _MODES:
            raise ValueError(f"Invalid `mode` argument: {mode!r}, not one of {_MODES}")
        if distribution.lower() not in _DISTRIBUTIONS:
            raise ValueError(
                f"Invalid `distribution` argument: {distribution!r}, not one of {_DISTRIBUTIONS}"
            )
        self.scale = scale
        self.mode = mode
        self.distribution = distribution.lower()
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None
    ) -> Tensor:
        dtype = self.dtype if dtype is None else dtype
        whole = shape if partition_info is None else partition_info.full_shape
        inputs, outputs = _fans(whole)
        n = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2.0}[self.mode]
        scale = self.scale / max(1.0, n)
        if self.distribution == "uniform":
            limit = math.sqrt(3.0 * scale)
            return b.random_uniform(shape, -limit, limit, dtype, seed=self.seed)
        stddev = math.sqrt(scale)
        if self.distribution == "untruncated_normal":
            return b.random_normal(shape, 0.0, stddev, dtype, seed=self.seed)
        # Truncating the distribution makes it narrower: widen it first.
        return b.truncated_normal(shape, 0.0, stddev / _TRUNCATED_STDDEV, dtype, seed=self.seed)


def _fans(shape: Sequence[int]) -> tuple[float, float]:
    """Return the number of inputs and outputs of a layer's weights: a matrix or filters."""
    sizes = [float(n) for n in shape]
    if len(sizes) < 2:
        n = sizes[0] if sizes else 1.0
        return n, n
    window = math.prod(sizes[:-2])
    return sizes[-2] * window, sizes[-1] * window


@export("glorot_uniform_initializer", "initializers.glorot_uniform")
class GlorotUniform(VarianceScaling):
    """Draws uniformly with variance 2 / (inputs + outputs), after Glorot and Bengio (2010)."""

    _arguments = ("seed", "dtype")

    def __init__(self, seed: Any = None, dtype: Any = dtypes.float32) -> None:
        super().__init__(1.0, "fan_avg", "uniform", seed, dtype)


@export("glorot_normal_initializer", "initializers.glorot_normal")
class GlorotNormal(VarianceScaling):
    """Draws from a normal distribution with variance 2 / (inputs + outputs)."""

    _arguments = ("seed", "dtype")

    def __init__(self, seed: Any = None, dtype: Any = dtypes.float32) -> None:
        super().__init__(1.0, "fan_avg", "truncated_normal", seed, dtype)


@export("initializers.he_normal")
def he_normal(seed: Any = None) -> VarianceScaling:
    """Return an initializer with variance 2 / inputs, normal, after He et al. (2015)."""
    return VarianceScaling(2.0, "fan_in", "truncated_normal", seed)


@export("initializers.he_uniform")
def he_uniform(seed: Any = None) -> VarianceScaling:
    """Return an initializer with variance 2 / inputs, uniform, after He et al. (2015)."""
    return VarianceScaling(2.0, "fan_in", "uniform", seed)


@export("initializers.lecun_normal")
def lecun_normal(seed: Any = None) -> VarianceScaling:
    """Return an initializer with variance 1 / inputs, normal, after LeCun et al. (1998)."""
    return VarianceScaling(1.0, "fan_in", "truncated_normal", seed)


@export("initializers.lecun_uniform")
def lecun_uniform(seed: Any = None) -> VarianceScaling:
    """Return an initializer with variance 1 / inputs, uniform, after LeCun et al. (1998)."""
    return VarianceScaling(1.0, "fan_in", "uniform", seed)


@export("orthogonal_initializer", "initializers.orthogonal")
class Orthogonal(Initializer):
    """Draws an orthogonal matrix (its rows or columns, if it isn't square), times `gain`.

    All dimensions of the shape but the last one count as rows.
    """

    _arguments = ("gain", "seed", "dtype")

    def __init__(self, gain: float = 1.0, seed: Any = None, dtype: Any = dtypes.float32) -> None:
        self.gain = gain
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None
    ) -> Tensor:
        dtype = self.dtype if dtype is None else dtype
        if len(shape) < 2:
            raise ValueError("The tensor to initialize must be at least two-dimensional")
        rows, columns = math.prod(shape[:-1]), shape[-1]
        flat = (max(rows, columns), min(rows, columns))
        # The Q of a random matrix; the signs of R's diagonal make it uniformly distributed.
        q, r = b.qr(b.random_normal(flat, dtype=dtype, seed=self.seed), full_matrices=False)
        q = q * b.sign(b.diag_part(r))
        if rows < columns:
            q = b.matrix_transpose(q)
        return self.gain * b.reshape(q, shape)


@export("initializers.identity")
class Identity(Initializer):
    """Makes an identity matrix, times `gain`."""

    _arguments = ("gain", "dtype")

    def __init__(self, gain: float = 1.0, dtype: Any = dtypes.float32) -> None:
        self.gain = gain
        self.dtype = _floating(dtype)

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None
    ) -> Tensor:
        whole = shape if partition_info is None else partition_info.full_shape
        if len(whole) != 2:
            raise ValueError("Identity matrix initializer can only be used for 2D matrices.")
        dtype = self.dtype if dtype is None else dtype
        matrix = b.eye(*whole, dtype=dtype)
        if partition_info is not None:
            matrix = b.slice(matrix, partition_info.var_offset, shape)
        return self.gain * matrix
